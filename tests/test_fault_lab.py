"""The fault lab: predict, inject, see; without widgets a page of text."""

from __future__ import annotations

import pytest
from faking import steps_of

import dtk
from dtk import faults
from dtk.view.fault_lab import ANSWERS, FaultLab, seen


def train(count=6):
    return steps_of(count)


@pytest.fixture
def lab(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "widgets")
    return dtk.plot.fault_lab(dtk.run, train, workers=2, steps=6, stall_timeout=1.0)


def test_it_asks_for_a_prediction_first(lab):
    lab.button.click()
    assert lab.seen is None
    assert "Predict first" in lab.words.value


@pytest.mark.trains
@pytest.mark.parametrize(("predicted", "verdict"), [("named", "As predicted"), ("stalled", "Not as predicted")])
def test_predict_inject_see(lab, predicted, verdict):
    lab.kind.value, lab.worker.value, lab.step.value, lab.prediction.value = "exception", 1, 3, predicted
    lab.button.click()
    assert lab.seen.answer == "named"
    assert lab.words.value.startswith(f"<b>exception(worker=1, step=3)</b><br>{verdict}: the worker ends")
    for words in ("WorkerFailed: worker 1 raised RuntimeError: inj", "s after the fault", '<img alt="Worker 1 raised'):
        assert words in lab.words.value
    assert not lab.button.disabled


@pytest.mark.trains
def test_a_stall_is_seen_as_one(lab):
    lab.kind.value, lab.prediction.value = "stall", "stalled"
    lab.button.click()
    assert lab.seen.answer == "stalled"
    assert lab.seen.seconds >= 1.0


@pytest.mark.trains
def test_a_new_fault_wants_a_new_prediction(lab):
    lab.prediction.value = "named"
    lab.kind.value = "slow"
    assert lab.prediction.value is None
    assert lab.step.disabled
    assert repr(lab.fault) == "slow(worker=1, seconds_per_step=0.05)"
    lab.prediction.value = "slower"
    lab.button.click()
    assert lab.words.value.count("As predicted") == 1


@pytest.mark.trains
def test_a_fault_that_never_came_is_no_answer():
    run = dtk.run(train, args=(2,), faults=[faults.kill(1, 6)])
    shown = seen(faults.kill(1, 6), run)
    assert (shown.answer, shown.seconds) == (None, None)
    assert shown.words.endswith("kill(worker=1, step=6) never came")


@pytest.mark.parametrize("workers", [1, 2])
def test_without_widgets_it_is_text(monkeypatch, workers):
    monkeypatch.setenv("DTK_LIVE", "off")
    page = dtk.plot.fault_lab(dtk.run, train, workers=workers, steps=9)
    assert not isinstance(page, FaultLab)
    assert f"dtk.run(train, workers={workers}, faults=[dtk.faults.kill(worker={workers - 1}, step=5)])" in repr(page)
    assert ("drop_network" in repr(page)) == (workers > 1)
    assert all(answer in repr(page) for answer in ANSWERS.values())
