"""Runs the lessons and stores their outputs: `python tools/notebooks.py notebooks/*.ipynb`.

Each gets its badge and its set-up cell first (tools/heads.py); with `--heads` that is all, nothing is run.

What is stored holds nothing of this machine or this hour: the kernel is called python3, execution counts run from
1, cells carry no times, a traceback no temporary files. A picture's text form becomes its alternative text in HTML.
Where a cell differs from what is stored in its pictures alone, which show measured seconds, in what nbval_sanitize.cfg
replaces, such as ports, or is one whose output tests ignore, the stored output stays (`--fresh` renews it). So a
second run in a row changes no file, and a diff of a lesson is a change of the lesson.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from heads import place_of, write_heads
from nbclient import NotebookClient

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_SECONDS = 600  # a lesson's longest cell takes well under a minute on 2 cores
# jupyter: a solution's folded source; dtk: why a cell's output is not compared (tools/lint_notebooks.py);
# slideshow: what a cell is in a talk (docs/teaching/slides.md)
KEPT_CELL_METADATA = {"tags", "jupyter", "dtk", "slideshow"}
IGNORED = "nbval-ignore-output"
# Whether the others, too, had failed before they were stopped differs from run to run.
OTHERS = re.compile(r"Worker \d+ .*in full in \.logs\[\d+\]\)")
CELLS_FILE = re.compile(r"[^\s\"']*/ipykernel_\d+/\d+\.py")  # where ipykernel says that a cell's code lies

SANITIZE = Path(__file__).parent.parent / "notebooks" / "nbval_sanitize.cfg"

Notebook = Any  # nbformat's NotebookNode has no types


def normalize(notebook: Notebook) -> Notebook:
    """Brings a notebook into the stored form, in place: same content, no trace of where and when it ran."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    count = 0
    for cell in notebook.cells:
        cell["source"] = cell.source.strip("\n")
        cell["metadata"] = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA})
        if cell.cell_type == "code" and cell.source:
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = _outputs(cell.outputs, count)
    return notebook


def _outputs(outputs: Sequence[Any], count: int) -> list[Any]:
    """A cell's outputs with neighboring pieces of one stream joined: how they were cut is a matter of timing."""
    joined: list[Any] = []
    for output in outputs:
        if "execution_count" in output:
            output["execution_count"] = count
        if "traceback" in output:
            output["traceback"] = [CELLS_FILE.sub("<a cell>", line) for line in output.traceback]
        for kind in [kind for kind in output.get("data", ()) if kind.startswith("image/")]:
            words = re.sub(r"^<Figure: (.*)>$", r"\1", output.data.get("text/plain", ""))
            output.setdefault("metadata", {}).setdefault(kind, {}).setdefault("alt", words)
        is_stream = output.output_type == "stream"
        if is_stream and joined and joined[-1].output_type == "stream" and joined[-1].name == output.name:
            joined[-1]["text"] += output.text
        else:
            joined.append(output)
    return joined


def keep_stored(fresh: Notebook, stored: Notebook) -> None:
    """Puts the stored outputs back where a cell is the same and what it put out differs by measurements alone."""
    known = {cell.id: cell for cell in stored.cells}
    for new, old in ((cell, known[cell.id]) for cell in fresh.cells if cell.id in known):
        same = new.cell_type == old.cell_type == "code" and new.source == old.source and old.outputs
        if same and (IGNORED in new.metadata.get("tags", ()) or _lasting(new) == _lasting(old)):
            new["outputs"] = old.outputs


def _lasting(cell: Any) -> str:
    """A cell's outputs as nbval compares them: pictures by their kind, what differs between two runs replaced."""
    text = json.dumps([_without_chance(output) for output in cell.outputs], sort_keys=True)
    rules = configparser.RawConfigParser()
    rules.read(SANITIZE, encoding="utf-8")
    for name in rules.sections():
        text = re.sub(rules[name]["regex"], rules[name]["replace"], text)
    return text


def _without_chance(output: Any) -> dict[str, Any]:
    """An output without its pictures and their words, and without a traceback's lines on the other workers."""
    if "data" in output:
        kept = {k: None if k.startswith("image/") else v for k, v in output.data.items()}
        return {**output, "data": kept, "metadata": {}}
    if "traceback" in output:
        told = [line.rstrip() for line in output.traceback if not OTHERS.fullmatch(line)]
        return {**output, "traceback": [line for line in told if line]}
    return dict(output)


def execute(notebook: Notebook, folder: Path) -> None:
    """Runs a lesson's cells in place, from the first, in the folder it lies in; CellExecutionError where one fails."""
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources)
    client.record_timing = False
    client.execute()


def machine_paths(notebook: Notebook) -> list[str]:
    """Directories of this machine that a lesson's outputs name; they would be wrong anywhere else."""
    outputs = "".join(str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code")
    places = {str(Path.cwd()), str(Path.home()), sys.prefix}
    return sorted(place for place in places if len(place) > 1 and f"{place}/" in outputs)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where a lesson's outputs name directories of this machine."""
    parser = argparse.ArgumentParser(description="Runs lessons and stores their outputs.")
    parser.add_argument("--heads", action="store_true", help="write badges and set-up cells only; run nothing")
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--fresh", action="store_true", help="renew pictures and ignored outputs too")
    options = parser.parse_args(argv)
    os.environ["DTK_LIVE"] = "off"  # a dashboard's frames depend on time; kernels inherit this environment
    # The kernel of this environment, whatever else is registered on this machine under the name python3.
    os.environ["JUPYTER_PATH"] = os.path.join(sys.prefix, "share", "jupyter")
    wrong = 0
    for path in options.paths:
        before = path.read_text(encoding="utf-8")
        stored, fresh = (nbformat.reads(before, as_version=4) for _ in range(2))
        write_heads(fresh, place_of(path))
        if not options.heads:
            execute(fresh, path.parent)
        normalize(fresh)
        if not options.fresh and not options.heads:
            keep_stored(fresh, normalize(stored))
        after = nbformat.writes(fresh).rstrip("\n") + "\n"
        path.write_text(after, encoding="utf-8")
        print(f"{path}: {'unchanged' if after == before else 'written'}")
        for place in machine_paths(fresh):
            print(f"{path}: an output names {place}; print a relative path or a name instead", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
