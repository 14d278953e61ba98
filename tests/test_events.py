"""Events: each kind goes to a line and back, and a line of another version breaks no reader."""

from __future__ import annotations

import json
import math

import pytest

from dtk.records import Journal, RunFolder, events
from dtk.records.events import KINDS, Event, parse, write

ADAM = events.Optimizer(name="adam", variables=["kernel", "…"], made=30, recorded=29)
# One of each kind, with every field other than its default.
EACH = [
    events.Starting(0.1),
    events.Imported(0.2),
    events.Running(0.3),
    events.Finished(9.0),
    events.Failed(9.0),
    events.Training(0.5, steps=30, epochs=2),
    events.Counted(0.6, training=1, counted=None, recorded=12, offset=3),
    events.Loop(
        0.8,
        kind="loop",
        shapes=[[28, None], []],
        scope=events.Scope("MirroredStrategy", 2),
        norms=[True, False],
        blind="gan",
    ),
    events.EstimatorTrained(1.1, loss=0.25, step=100),
    events.Traced(1.2, optimizer="adam", clips=None, sparse=["table"], rate=None),
    events.Called(1.2, draws=["Dropout"]),
    events.Augments(1.3, draws=["RandomUniform"], python=[], files=["AUTO: TFRecordDataset"]),
    events.Updates(1.5, optimizers=[ADAM], models=1),
    events.FaultCame(1.6, kind="kill", step=20, words="kill(worker=1, step=20)", number=0),
    events.Evaluating(1.7, step=None),
    events.Evaluation(1.9, started=1.7, step=20, metrics={"accuracy": 0.5, "confusion": [[1, 0], [0, 1]]}),
    events.RingEvent(2.3, what="used", round=1, step=1, chunk=1, parts=None),
]


def test_each_kind_is_tried_below():
    assert {type(event) for event in EACH} == set(KINDS.values())
    assert len(EACH) == len(KINDS)


@pytest.mark.parametrize("event", EACH, ids=lambda event: type(event).__name__)
def test_each_kind_goes_to_a_line_and_back(event):
    line = write(event)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert parse(line) == event
    assert parse(line.encode()) == event
    assert list(json.loads(line))[:2] == ["at", "state"]


@pytest.mark.parametrize("event", EACH, ids=lambda event: type(event).__name__)
def test_fields_of_a_later_version_are_ignored(event):
    assert parse(json.dumps({**json.loads(write(event)), "later": [1]})) == event


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "paused", "until": 3}, "a kind of a later version"),
        ({"state": "training", "steps": 3}, "a field is missing"),
        ({"state": "updates", "optimizers": [{"name": "sgd"}], "models": 0}, "a field of a part is missing"),
        ({"state": "updates", "optimizers": [7], "models": 0}, "a part is something else"),
        ({"state": "loop", "kind": "fit", "scope": 7}, "and so is this one"),
    ],
)
def test_what_is_not_known_breaks_nothing(facts, why):
    assert parse(json.dumps({"at": 1.5, **facts})) == Event(1.5), why


def test_a_journal_keeps_them(tmp_path):
    corner = RunFolder(tmp_path, 1).worker(0)
    journal = Journal(corner)
    for event in EACH:
        journal.event(event)
    journal.close()
    assert corner.events == EACH


def test_a_metric_may_be_no_number():
    event = parse(write(events.Evaluation(1.0, started=0.5, step=1, metrics={"a": math.nan})))
    assert math.isnan(event.metrics["a"])
