"""The live view of a cell on workers that stay: there when it records steps for longer than a moment, and only then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from live_folder import empty, step

from dtk.interactive import output as module
from dtk.interactive.session import CellOutcome


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """A view of two workers in a notebook, both in a cell; and what is displayed."""
    from dtk.live import dashboard

    monkeypatch.setenv("DTK_LIVE", "widgets")
    monkeypatch.setattr(dashboard, "_EVERY", 0.0)
    monkeypatch.setattr(module, "_VIEW_AFTER", 0.0)
    made = []

    class Kept(dashboard.Dashboard):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(dashboard, "Dashboard", Kept)
    peers = [SimpleNamespace(number=k, lost=None, running=3) for k in (0, 1)]
    job = SimpleNamespace(workers=2, replicas=1, mode="cluster")
    started = SimpleNamespace(job=job, folder=empty(tmp_path), peers=peers)
    return SimpleNamespace(begun=lambda: module.View(started), started=started, made=made, peers=peers)


def test_a_cell_that_records_nothing_has_none(shown):
    step(shown.started.folder, 1)
    view = shown.begun()
    view.look(CellOutcome(3))
    view.end(CellOutcome(3))
    assert shown.made == []


def test_a_quick_cell_has_none(shown, monkeypatch):
    monkeypatch.setattr(module, "_VIEW_AFTER", 60.0)
    view = shown.begun()
    step(shown.started.folder, 1)
    view.look(CellOutcome(3))
    assert shown.made == []


def test_from_the_first_step_on_it_shows_the_session(shown):
    step(shown.started.folder, 1)
    view = shown.begun()
    step(shown.started.folder, 2)
    outcome = CellOutcome(3)
    view.look(outcome)
    board = shown.made[0]
    assert board.title == "cluster of 2 workers, cell 3"
    assert "step 2" in board.page.value
    step(shown.started.folder, 3, workers=(0,))
    view.look(outcome)
    assert "step 3" in board.page.value
    shown.peers[0].running = None
    outcome.ends[0] = {"status": "ok"}
    outcome.ends[1] = {"status": "error"}
    shown.peers[1].running = None
    view.end(outcome)
    assert [state.what for state in board.states] == ["finished", "failed"]
    assert {*shown.made} == {board}
