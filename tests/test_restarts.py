"""A cluster that starts again: what is kept, which steps count, and that training ends as if nothing had happened."""

from __future__ import annotations

import pytest
from faking import resuming, steps_of
from training import batches, classifier

import dtk
from dtk import faults

pytestmark = pytest.mark.trains


def failing_again():
    made = resuming(8 if dtk.environment.here().run.attempt == 2 else 10, 4)
    if made == 8 and dtk.is_chief():
        raise RuntimeError("in the second start")
    return made


def test_the_steps_that_count_and_all_attempts(capsys, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "text")
    given = [faults.kill(worker=1, step=6), faults.exception(worker=0, step=8)]
    run = dtk.run(failing_again, faults=given, restarts=2)
    assert run.results == [10, 10]
    assert [attempt.number for attempt in run.attempts] == [1, 2, 3]
    assert [attempt.failed for attempt in run.attempts] == [
        "worker 1 was killed by SIGKILL; as asked: kill(worker=1, step=6)",
        "worker 0 raised RuntimeError: in the second start",
        None,
    ]
    assert all(attempt.seconds > 0 for attempt in run.attempts)
    chief = run.records[run.records.worker == 0]
    assert list(chief.step) == list(range(1, 11))
    assert chief.started.is_monotonic_increasing, "one clock through all attempts"
    assert list(run.records.columns) == list(dtk.runs.RunFolder(run.dir, 2).records.columns)
    assert run.attempts[2].steps[1] == 10
    assert (run.dir / "attempt-1" / "worker-1" / "log.txt").exists()
    said = capsys.readouterr().out
    assert "attempt 1 of 3" in said
    assert "attempt 2 of 3" in said
    assert repr(run.attempts[0]).endswith(f", {run.attempts[0].failed}>")


def always_failing():
    raise ValueError("always")


def test_the_last_failure_is_raised_where_no_restarts_are_left():
    with pytest.raises(dtk.WorkerFailed, match="always") as caught:
        dtk.run(always_failing, restarts=2)
    assert len(caught.value.folder.attempts) == 3


def test_a_stall_starts_again_too():
    run = dtk.run(resuming, args=(6, 2), faults=[faults.stall(0, 5)], restarts=1, stall_timeout=1.0)
    assert [attempt.failed is None for attempt in run.attempts] == [False, True]


def test_a_run_without_restarts_has_one_attempt():
    (attempt,) = dtk.run(steps_of, args=(3,)).attempts
    assert (attempt.number, attempt.failed, attempt.steps) == (1, None, (1, 3))
    assert repr(attempt) == "<Attempt 1: steps 1 to 3, finished>"


def fitting(strategy, save_freq="epoch"):
    from tensorflow import keras

    model = classifier(strategy)
    backup = keras.callbacks.BackupAndRestore(str(dtk.run_dir() / "backup"), save_freq=save_freq)
    model.fit(batches(256), epochs=3, verbose=0, callbacks=[backup, dtk.Recorder()])  # 4 steps an epoch


@pytest.mark.slow  # lesson 07 has it of Keras 3, too
@pytest.mark.parametrize("keras", [3, 2])
def test_fit_goes_on_from_its_backup_to_the_same_weights(keras):
    run = dtk.run(fitting, faults=[faults.kill(worker=1, step=7)], restarts=1, keras=keras)
    assert [attempt.steps for attempt in run.attempts] == [(1, 6), (5, 12)]
    assert sorted(run.records.epoch.unique()) == [1, 2, 3]
    dtk.verify(run, dtk.baseline(fitting, keras=keras))
