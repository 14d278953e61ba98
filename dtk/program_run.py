"""`dtk run`: a program on localhost workers, from the command line; what is said at the end, and the exit code."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
from typing import Any

from dtk.errors import ClusterConfigError, DtkError, RunInterrupted, RunTimeout, WorkerFailed
from dtk.launch.again import folder_of
from dtk.live import heading
from dtk.proof.proof import VERDICTS
from dtk.runs import Run, baseline, opened, run
from dtk.scaling import summary

__all__ = ["described", "main", "table"]

INTERRUPTED, TIMED_OUT = 130, 124  # as a shell and timeout(1) have them


def main(options: argparse.Namespace, argv: list[str]) -> int:
    """Runs what the options say; the exit code is the culprit's, 1 for a stall or a difference, 0 where all is well."""
    if (options.program is None) == (options.module is None):
        raise ClusterConfigError("dtk run takes a script or -m package.module, such as: dtk run train.py --workers 2")
    os.environ.setdefault("DTK_LIVE", "text")  # in CI as well: its lines are what the program prints
    said: dict[str, Any] = {"exit_code": 0}
    # A program that reads stdout gets the object alone.
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        found, error = _attempt(options, argv)
        if found is not None:
            said = {**described(found), **said}
            print(*table(found)[1:], sep="\n")  # how it ended, the live lines have said
        if error is not None:
            said |= {"exit_code": _code(error), "error": str(error)}
            print(f"dtk: {error}", file=sys.stderr)
        single = None
        if error is None and options.verify and found is not None:
            single = baseline(options.program or options.module, workers=options.workers, argv=argv, **_common(options))
            from dtk.run_report import compared  # with all figures, which a run does without

            print("dtk: following the run, step by step, in one process; where that differs, in others", flush=True)
            verdict = compared(found, single, say=functools.partial(print, flush=True))
            print(f"the baseline's logs and records: {single.dir}")
            said |= {"verdict": verdict, "verified": not VERDICTS[verdict], "baseline": str(single.dir)}
            said["exit_code"] = VERDICTS[verdict]
        if options.report and found is not None:
            print(f"wrote {found.report(options.report, baseline=single)}")
    if options.json:
        print(json.dumps(said))
    return int(said["exit_code"])


def _common(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "seed": options.seed,
        "keras": options.keras,
        "timeout": options.timeout,
        "record": options.record or options.verify,
    }


def _attempt(options: argparse.Namespace, argv: list[str]) -> tuple[Run | None, BaseException | None]:
    """The run, of a failed one what is in its directory, and its error; a refusal raises, for nothing was started."""
    try:
        found = run(
            options.program or options.module,
            workers=options.workers,
            replicas=options.replicas,
            gpus_per_worker=options.gpus_per_worker,
            evaluator=options.evaluator,
            restarts=options.restarts,
            stall_timeout=options.stall_timeout,
            force=options.force,
            argv=argv,
            on=options.on,
            **_common(options),
        )
    except (DtkError, RunInterrupted) as error:
        folder = getattr(error, "folder", None)
        if folder is None:
            raise
        return opened(folder.path), error
    return found, None


def _code(error: BaseException) -> int:
    """The exit code of the culprit; of one that a signal ended 128 and its number, as a shell has it."""
    if isinstance(error, WorkerFailed):
        code = error.exitcode or 1
        return 128 - code if code < 0 else code
    return INTERRUPTED if isinstance(error, RunInterrupted) else TIMED_OUT if isinstance(error, RunTimeout) else 1


def table(found: Run) -> list[str]:
    """What `dtk show` prints: what was run, how it ended, a row for each worker, and where the rest is."""
    attempts = found.folder.attempts
    starts = f" after {len(attempts)} starts" if len(attempts) > 1 else ""
    head = heading(found.workers, found.replicas, found.mode, _program(found))
    return [
        f"{head}: {summary.how_it_ended(found)}{starts}",
        *summary.lines(found),
        f"logs and records: {found.dir}",
    ]


def described(found: Run) -> dict[str, Any]:
    """The same for a program that reads it: JSON's types alone."""
    attempts = found.folder.attempts
    return {
        "dir": str(found.dir),
        "program": _program(found),
        "mode": found.mode,
        "workers": found.workers,
        "replicas": found.replicas,
        "seconds": attempts[-1].ended if attempts else None,
        "failed": attempts[-1].failed if attempts else None,
        "starts": len(attempts),
        **summary.facts(found),
        "members": summary.rows(found),
    }


def _program(found: Run) -> str:
    return str(folder_of(found.dir)[1].get("program", ""))
