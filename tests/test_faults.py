"""Faults come at their step, on their worker, and nowhere else; a wrong one is refused before anything starts."""

from __future__ import annotations

import numpy as np
import pytest
from faking import in_step, steps_of
from starting import mostly_warm

import dtk
from dtk import faults
from dtk.records.events import FaultCame, of_kind


def events(folder, worker):
    return of_kind(folder.worker(worker).events, FaultCame)


@mostly_warm
@pytest.mark.trains
@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (faults.kill, "was killed by SIGKILL; as asked: kill(worker={worker}, step=4)"),
        (faults.exception, "raised RuntimeError: injected by dtk.faults.exception"),
    ],
)
def test_the_worker_ends_before_the_step(start, worker, make, words):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(in_step, args=(9,), faults=[make(worker=worker, step=4)], start=start)
    assert str(caught.value) == f"worker {worker} {words.format(worker=worker)}"
    steps = caught.value.records.groupby("worker").step.max()
    assert steps[worker] == 3
    assert steps[1 - worker] in (3, 4), "it has what the worker had when it ended, and no collective keeps it back"
    (event,) = events(caught.value.folder, worker)
    assert (event.kind, event.step, event.words) == (make.__name__, 4, f"{make.__name__}({worker=}, step=4)")
    assert not events(caught.value.folder, 1 - worker)


@pytest.mark.trains
def test_a_message_of_ones_own():
    with pytest.raises(dtk.WorkerFailed, match=r"^worker 0 raised RuntimeError: no more coffee$"):
        dtk.run(steps_of, args=(3,), faults=[faults.exception(0, 1, message="no more coffee")])


@pytest.mark.trains
def test_a_stall_for_ever_is_a_stalled_run():
    with pytest.raises(dtk.WorkerStalled) as caught:
        dtk.run(in_step, args=(5,), faults=[faults.stall(worker=0, step=3)], stall_timeout=1.0)
    assert caught.value.records.groupby("worker").step.max().to_dict()[0] == 2
    assert "injecting.py" in caught.value.detail, "the stack of the worker that stands still"


@pytest.mark.trains
def test_a_stall_for_some_seconds_passes(capsys):
    run = dtk.run(steps_of, args=(5,), faults=[faults.stall(worker=1, step=3, seconds=0.3)])
    table = run.records.set_index(["worker", "step"])
    assert table.ended[1, 3] - table.ended[1, 2] >= 0.3
    assert "not triggered" not in capsys.readouterr().out


@pytest.mark.trains
def test_a_slow_worker_begins_each_step_late():
    run = dtk.run(steps_of, args=(4,), faults=[faults.slow(worker=1, seconds_per_step=0.1)])
    ends = run.records[run.records.worker == 1].ended.to_numpy()
    assert (np.diff(ends) >= 0.1).all()
    assert len(events(run.folder, 1)) == 1


@pytest.mark.trains
def test_two_faults_on_one_worker_come_in_their_order():
    given = [faults.exception(1, 4), faults.stall(1, 2, seconds=0.01), faults.slow(1, 0.01)]
    with pytest.raises(dtk.WorkerFailed, match="injected"):
        dtk.run(steps_of, args=(5,), faults=given)


@pytest.mark.trains
@pytest.mark.parametrize(
    ("fn", "fault", "said"),
    [
        (
            lambda: steps_of(5),
            faults.kill(1, 6),
            "kill(worker=1, step=6) was not triggered (starts of the cluster: 1, steps of worker 1: 5)",
        ),
        (
            lambda: None,
            faults.kill(0, 1),
            "kill(worker=0, step=1) was not triggered (starts of the cluster: 1, steps of worker 0: 0); it takes "
            "dtk.Recorder, dtk.record_step or dtk.EstimatorRecorder to bring faults",
        ),
    ],
)
def test_a_fault_that_never_came_is_told_in_one_line(capsys, fn, fault, said):
    dtk.run(fn, faults=[fault])
    assert f"dtk: the fault {said}\n" in capsys.readouterr().out


# ---- what can't be asked for


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: faults.kill(-1, 1), "dtk.faults.kill: worker=-1: it takes a whole number of at least 0"),
        (lambda: faults.nan(0, 0), "dtk.faults.nan: step=0: it takes a whole number of at least 1"),
        (lambda: faults.stall(0, 1, 0), "dtk.faults.stall: seconds=0: it takes seconds above 0"),
        (lambda: faults.slow(0, "1"), "dtk.faults.slow: seconds_per_step='1': it takes seconds above 0"),
    ],
)
def test_a_fault_that_there_cannot_be(make, words):
    with pytest.raises(dtk.ClusterConfigError) as caught:
        make()
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"faults": [faults.kill(2, 1)]}, "faults: kill(worker=2, step=1) with workers=2: worker 1 is the last"),
        (
            {"faults": [faults.drop_network(0, 1)], "workers": 1},
            "faults: drop_network(worker=0, step=1): a single worker has no network to lose; ask for two (on Colab "
            "with force=True)",
        ),
        (
            {"faults": faults.kill(1, 1)},
            "faults=kill(worker=1, step=1): it takes a list, such as [dtk.faults.kill(worker=1, step=20)]",
        ),
        (
            {"faults": ["kill"]},
            "faults: 'kill' is no fault; it takes what the functions of dtk.faults make, such as "
            "dtk.faults.kill(worker=1, step=20)",
        ),
        ({"restarts": -1}, "restarts=-1: it takes a whole number of at least 0"),
    ],
)
def test_a_run_that_cannot_be_asked_for(asked, words):
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.run(steps_of, args=(1,), **asked)
    assert str(caught.value) == words


def test_a_fault_says_what_was_asked_for():
    shown = [faults.stall(1, 2, 3), faults.slow(0, 0.05), faults.nan(1, 2), faults.drop_network(1, 7)]
    assert [repr(fault) for fault in shown] == [
        "stall(worker=1, step=2, seconds=3)",
        "slow(worker=0, seconds_per_step=0.05)",
        "nan(worker=1, step=2)",
        "drop_network(worker=1, step=7)",
    ]
