"""The command line: `dtk demo`, `dtk doctor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import dtk
from dtk import environment
from dtk.errors import DtkError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, or 1 with one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="dtk", description="Synchronous data-parallel training, taught and shown.")
    parser.add_argument("--version", action="version", version=f"dtk {dtk.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train on a localhost cluster, prove it against one device, draw it")
    demo.add_argument("--out", type=Path, default=Path("out"), help="where the figures go (default: out)")
    demo.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    commands.add_parser("doctor", help="what decides how a run goes on this machine")
    options = parser.parse_args(argv)
    try:
        if options.command == "demo":
            _demo(options.out, options.workers)
        else:
            for name, value in environment.describe().items():
                print(f"{name:20} {value}")
    except DtkError as error:
        print(f"dtk: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dtk: interrupted; the workers are stopped", file=sys.stderr)
        return 130
    return 0


def _demo(out: Path, workers: int) -> None:
    from dtk.demo import demo

    for path in demo(out, workers):
        print(f"wrote {path}")
