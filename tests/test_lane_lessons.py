"""Every lesson, the exercises solved, runs to its end, and every check passes; stored outputs are not compared.

In the lane of Colab as Colab runs it: one worker, and a stand-in for google.colab.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import lanes
import nbformat
import pytest
from lessons import FOLDER, tags
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from dtk.course.lesson_files import read

ROOT = Path(__file__).parent.parent
LESSONS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
COLAB = lanes.LANE == "colab"
# They ask for one worker by themselves, or their runs are in labs' checks, in programs and studies.
ALONE = {"03_mirrored_strategy", "10_batch_and_rate", "11_what_else", "06_without_dtk", "lab_3_sharded_optimizer"}
ALONE |= {"13_inside_a_replica", "lab_4_another_all_reduce", "lab_5_time_to_accuracy", "lab_6_your_own_ddp"}
PASSED, NEEDED = re.compile(r"\bPASS\b|one device: differs \("), "needs two workers"


def said(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def is_view(data):
    """A live view, which has said how the run ended once it has; a lab says "<lab ...", a progress bar has no page."""
    text = data.get("text/plain", "")
    return text.startswith("<live view of dtk") or ("text/html" in data and not text.startswith("<"))


def errors(cell):
    return [f"{output.ename}: {output.evalue}" for output in cell.outputs if output.output_type == "error"]


pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow, pytest.mark.trains]


@pytest.fixture(scope="module", params=LESSONS)
def lesson(request, tmp_path_factory):
    """(name, code cells) of a lesson that ran from its first cell to its last, whatever raised."""
    notebook = nbformat.read(FOLDER / f"{request.param}.ipynb", as_version=4)
    solved = {task.cell: task.solution for task in read(FOLDER / f"{request.param}.ipynb").tasks}
    for cell in notebook.cells:
        cell.source = solved.get(cell.id, cell.source)
    notebook.cells.append(new_code_cell("import sys\nprint('tensorflow' in sys.modules)"))
    with pytest.MonkeyPatch.context() as patch:
        standins = [str(ROOT / "tests" / "standins")] if COLAB else []
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *standins]))
        patch.setenv("DTK_ANSWERS", str(tmp_path_factory.mktemp("answers") / "answers.jsonl"))
        patch.setenv("JUPYTER_PATH", os.path.join(sys.prefix, "share", "jupyter"))
        for name in ("DTK_LIVE", "DTK_COLAB", "CI"):
            patch.delenv(name, raising=False)
        where = {"metadata": {"path": str(FOLDER)}}
        NotebookClient(notebook, timeout=500, kernel_name="python3", allow_errors=True, resources=where).execute()
    for page in FOLDER.glob("*-report.html"):  # dtk.report() writes it where the lesson is
        page.unlink()
    return request.param, [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_runs_to_its_end(lesson):
    name, cells = lesson
    unexpected = {cell.source: errors(cell) for cell in cells if errors(cell) and "raises-exception" not in tags(cell)}
    allowed = lanes.lines_that_fail(name)
    assert {line for line in allowed if not any(line in source for source in unexpected)} == set(), "it holds now"
    failed = {source: said for source, said in unexpected.items() if not any(line in source for line in allowed)}
    assert not failed, "\n\n".join(f"{source}\n-> {said}" for source, said in failed.items())
    one = [line for cell in cells for line in said(cell).splitlines() if line.startswith("dtk: on Colab, ")]
    assert bool(one) == (COLAB and name not in ALONE)


def test_every_check_passes_or_says_what_it_needs(lesson):
    _, cells = lesson
    checks = [cell for cell in cells if "check" in tags(cell)]
    assert len(checks) >= 2
    for cell in checks:
        assert all(NEEDED in error for error in errors(cell)), cell.source
    lines = [line for cell in cells for line in said(cell).splitlines() if line.startswith("check ")]
    assert all(PASSED.search(line) or NEEDED in line for line in lines)


def test_the_kernel_never_imports_tensorflow_and_so_holds_no_gpu(lesson):
    assert said(lesson[1][-1]) == "False\n"


@pytest.mark.skipif(not COLAB, reason="elsewhere the widgets stay, beside the page")
def test_every_live_view_ends_as_a_still_page(lesson):
    views = [
        output.data
        for cell in lesson[1]
        for output in cell.outputs
        if output.output_type == "display_data" and is_view(output.data)
    ]
    assert views
    for data in views:
        assert set(data) == {"text/plain", "text/html"}
