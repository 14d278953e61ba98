"""When training has ended, and what an evaluator writes down."""

from __future__ import annotations

import time

import pandas
import pytest
from live_folder import tell

from dtk.environment import Here, enter, training_ended
from dtk.records import RunFolder
from dtk.records.events import Finished, Running
from dtk.worker.progress import evaluated


@pytest.fixture
def in_evaluator(tmp_path):
    folder = RunFolder(tmp_path, 2, has_evaluator=True)
    place = Here(folder, 2, 2, 1, "cluster", time.monotonic(), "evaluator")
    enter(place)
    yield place
    enter(None)


def test_training_has_ended_when_every_worker_has_and_one_look_was_left(in_evaluator):
    said, (one, other) = [training_ended()], in_evaluator.run.each
    tell(one, Finished(1.0))
    tell(other, Running(1.0))
    said.append(training_ended())
    tell(other, Finished(1.0))
    said += [training_ended() for _ in range(3)]
    assert said == [False, False, False, True, True]


def test_nobody_trains_beside_a_baseline_or_outside_of_a_run(tmp_path):
    assert training_ended()
    enter(Here(RunFolder(tmp_path, 1), 0, 1, 1, "single", 0.0))
    try:
        assert training_ended()
    finally:
        enter(None)


def test_metrics_of_any_kind_are_written(in_evaluator):
    import numpy

    metrics = {"a": numpy.float32(0.5), "b": numpy.array([1, 2]), "c": float("nan")}
    evaluated(in_evaluator, step=numpy.int64(7), started=0.5, metrics=metrics)
    evaluated(in_evaluator, step=None, started=0.75, metrics={"e": 1})
    table = in_evaluator.run.evaluations
    assert table.step.tolist() == [7, pandas.NA]
    assert table.a[0] == 0.5
    assert table.b[0] == [1, 2]
    assert table[["c", "a"]].isna().to_numpy().tolist() == [[True, False], [True, True]]
    assert table.e[1] == 1
