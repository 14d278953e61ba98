"""The figure of an all-reduce by hand: drawn from the messages that were sent, with gaps where some are missing."""

from __future__ import annotations

import pytest
from fabricate import said
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from rings import all_reduce

import dtk
from dtk.records import Journal, RunFolder
from dtk.records.events import Finished, RingEvent
from dtk.records.tables import Recorded
from dtk.view.palette import worker_color
from dtk.view.ring import NO_MESSAGES, story
from dtk.view.ring import ring as draw


def stripes(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_gid() == "part"]


def arrows(ax):
    return [text for text in ax.texts if text.get_text() == "" and getattr(text, "arrow_patch", None) is not None]


def lost(ax):
    return [line for line in ax.lines if line.get_gid() == "lost"]


@pytest.mark.trains
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_the_figure_shows_what_was_sent(workers):
    run = dtk.run(all_reduce, workers=workers)
    ax = dtk.plot.ring(run)
    told = story(run.folder)
    parts = sum(len(cell) for step in told.holds for row in step for cell in row)
    assert len(stripes(ax)) == parts
    assert {to_hex(patch.get_facecolor()).upper() for patch in stripes(ax)} == {worker_color(k) for k in range(workers)}
    # The last worker's message leaves below the grid and comes in above it.
    assert len(arrows(ax)) == len(told.messages) + 2 * (workers - 1)
    assert not lost(ax)
    assert f"After {2 * (workers - 1)} steps and {2 * workers * (workers - 1)} messages, every worker has" in said(ax)


@pytest.mark.trains
def test_a_part_added_twice_is_marked():
    ax = draw(dtk.run(all_reduce, workers=2, kwargs={"twice": True}))
    assert "every worker has the whole sum" not in said(ax)
    assert "A figure: added so many times" in said(ax)
    assert "2" in [text.get_text() for text in ax.texts]


def fabricated(path, *, leave_out=(), finished=True):
    """Two workers' complete all-reduce in events, without those named: (worker, what, step)."""
    folder = RunFolder(path, 2)
    for worker, corner in enumerate(folder.each):
        journal = Journal(corner)
        journal.event(RingEvent(0.1, what="split", round=1))
        for step, (out, back) in enumerate([(worker, 1 - worker), (1 - worker, worker)], 1):
            said = {"sent": {"chunk": out}, "received": {"chunk": back}, "used": {"chunk": back, "parts": [0, 1]}}
            for what, facts in said.items():
                if (worker, what, step) not in leave_out:
                    journal.event(RingEvent(step + 0.1, what=what, round=1, step=step, **facts))
        if finished:
            journal.event(Finished(9.0))
        journal.close()
    return folder


class Held(Recorded):
    def __init__(self, folder):
        self.folder = folder


def test_a_message_that_did_not_arrive_is_a_cross_and_no_arrow(tmp_path):
    folder = fabricated(tmp_path, leave_out=[(1, "received", 2), (1, "used", 2)], finished=False)
    told = story(folder)
    assert told.messages[2, 0, 1] is False
    ax = draw(Held(folder))
    assert len(lost(ax)) == 1
    assert len(arrows(ax)) == 2 + 2 + 1, "three messages, two of them round the corner"
    assert told.holds[2] == [[(0, 1), (0, 1)], None]
    assert "1 of 4 messages never arrived" in said(ax)


def test_a_chunk_of_unknown_use_is_a_question_mark(tmp_path):
    folder = fabricated(tmp_path, leave_out=[(0, "used", 2)])
    assert story(folder).holds[2][0] == [None, (0, 1)]
    ax = draw(Held(folder))
    assert "?" in [text.get_text() for text in ax.texts]
    assert "After 2 steps, 3 of 4 chunks hold the whole sum" in said(ax)


def test_without_messages_the_figure_says_so(tmp_path):
    assert NO_MESSAGES in said(draw(Held(RunFolder(tmp_path, 2))))
