"""Each lesson in a browser: Run All, the live view moves, progress reaches its end, nothing unexpected is shown."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

LESSONS = sorted(path.stem for path in (Path(__file__).parent.parent.parent / "notebooks").glob("*.ipynb"))
# Their functions exchange chunks and record no step, or their runs are part of a study or a check, which show none.
WITHOUT_STEPS = (
    "01_all_reduce",
    "10_batch_and_rate",
    "11_what_else",
    "06_without_dtk",
    "lab_3_sharded_optimizer",
    "lab_4_another_all_reduce",
    "lab_5_time_to_accuracy",
)


def unexpected(notebook) -> list[str]:
    """Errors in cells that are not tagged raises-exception, and anything on stderr."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            where = f"cell {number}: "
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                found.append(f"{where}{output.ename}: {output.evalue}")
            if output.output_type == "stream" and output.name == "stderr":
                found.append(f"{where}stderr: {output.text[:300]}")
    return found


def printed(notebook) -> str:
    streams = (output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("text"))
    return "".join(output.text for output in streams)


def passes(notebook) -> list[str]:
    return re.findall(r"^.*: PASS.*$", printed(notebook), flags=re.MULTILINE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lesson", LESSONS)
def test_run_all(server, visit, lesson):
    page = visit(server, lesson)
    stored = nbformat.read(page.path, 4)
    page.shot("start")
    page.watch()
    page.run_all()
    page.wait_step(1 if lesson not in WITHOUT_STEPS else 0)
    page.wait_all_ran(600)
    page.shot("end", page.dashboards.last)
    page.shot("first-view", page.dashboards.first)
    notebook = page.save()
    assert unexpected(notebook) == []
    assert passes(notebook) == passes(stored) != []
    if lesson not in WITHOUT_STEPS:
        assert any(page.moves), "no live view told a step"
        assert all(steps == sorted(steps) for steps in page.moves), page.moves
    for view in page.dashboards.all():
        assert_ended(view)


def assert_ended(view) -> None:
    """The live view says how its run ended; where it finished, its bar is full and its last step is the last of all."""
    from notebook_page import DANGER, SUCCESS, bar_of

    # Not inner_text, which is empty where the browser has left out what is scrolled away.
    words, (color, part) = view.text_content(), bar_of(view)
    if re.search(r"^.*: finished in ", words):
        assert (color, part) == (SUCCESS, 1)
        assert all(step == total for step, total in re.findall(r"\bstep (\d+)/(\d+)", words)), words
    else:
        assert color == DANGER, words
