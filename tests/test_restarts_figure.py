"""Steps kept, lost and computed twice: what is drawn and said is what each attempt recorded."""

from __future__ import annotations

from pathlib import Path

from fabricate import fabricate

import dtk
from dtk.records import Journal, Record, RunFolder
from dtk.runs import Run
from dtk.scaling.timing import fates
from dtk.view.canvas import NO_RECORDS

KILLED = "worker 1 was killed by SIGKILL; the kernel's log or the memory limit may say why"


def restarted(path: Path, *attempts: tuple[int, int] | None, failed: str = KILLED, finished: bool = True) -> Run:
    """A `Run` of two workers; attempts: the first and the last step of each, None for one without a step."""
    run = fabricate(path, steps=1)
    for corner in run.folder.each:
        (corner.path / "records.jsonl").unlink()
    for number, steps in enumerate(attempts, 1):
        last = number == len(attempts)
        folder = run.folder if last else RunFolder(path / f"attempt-{number}", 2)
        for corner in folder.each:
            journal = Journal(corner)
            first, end = steps or (1, 0)
            for step in range(first, end + 1):
                at = 10.0 * number + 0.1 * step
                journal.record([Record(corner.worker, corner.worker, step, 1, 0.5, 64, at, at + 0.09)])
            journal.close()
        folder.save_attempt(number, None if last and finished else failed, 10.0 * number, 10.0 * number + 9)
    return run


def spans_drawn(ax, kind):
    """(row, first step, last step) of every bar of this kind."""
    found = []
    for bars in ax.collections:
        if bars.get_gid() == kind:
            boxes = [path.get_extents() for path in bars.get_paths()]
            found += [(round((box.y0 + box.y1) / 2), round(box.x0 + 0.5), round(box.x1 - 0.5)) for box in boxes]
    return sorted(found)


def test_every_step_is_kept_lost_or_computed_again(tmp_path):
    run = restarted(tmp_path, (1, 19), (12, 33))
    ax = dtk.plot.restarts(run)
    assert spans_drawn(ax, "kept") == [(0, 1, 11), (1, 20, 33)]
    assert spans_drawn(ax, "lost") == [(0, 12, 19)]
    assert spans_drawn(ax, "again") == [(1, 12, 19)]
    assert ax.get_label().startswith("41 steps computed, 33 count: steps 12 to 19 were computed twice.")
    assert run.records.step.nunique() == 33
    assert sum(attempt.records.step.nunique() for attempt in run.attempts) == 41
    (line,) = [line for line in ax.lines if line.get_gid() == "from"]
    assert set(line.get_xdata()) == {11.5}


def test_the_kept_steps_are_those_of_the_records(tmp_path):
    for number, attempts in enumerate([((1, 9), (4, 20)), ((1, 9), (4, 12), None, (2, 20)), ((1, 5), (6, 8))]):
        run = restarted(tmp_path / str(number), *attempts)
        table = fates(run.folder)
        assert sorted(table[~table.lost].step) == sorted(set(run.records.step)), attempts


def test_an_attempt_without_a_step_and_one_that_is_lost_whole(tmp_path):
    ax = dtk.plot.restarts(restarted(tmp_path / "four", (1, 19), (12, 16), None, (9, 33)))
    assert "49 steps computed, 33 count: 11 steps were computed up to 3 times" in ax.get_label()
    reasons = [text.get_text() for text in ax.texts if text.get_gid() == "reason"]
    assert reasons == ["worker 1 was killed by SIGKILL"] * 3
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"attempt {number}" for number in (1, 2, 3, 4)]
    assert (1, 12, 16) in spans_drawn(ax, "lost")
    assert dtk.plot.restarts(restarted(tmp_path / "none", None, None)).texts[0].get_text() == NO_RECORDS
