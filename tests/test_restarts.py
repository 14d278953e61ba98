"""A cluster that starts again: what is kept, which steps count, and that training ends as if nothing had happened."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
from faking import resuming, steps_of
from lanes import KERAS_3
from looping import STEPS, parts

import dtk
from dtk import faults

pytestmark = pytest.mark.trains


def test_the_steps_that_count_and_all_attempts(capsys, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "text")
    given = [faults.kill(worker=1, step=6), faults.exception(worker=0, step=8, attempt=2)]
    run = dtk.run(resuming, args=(10, 4), faults=given, restarts=2)
    assert run.results == [10, 10]
    assert [attempt.number for attempt in run.attempts] == [1, 2, 3]
    assert [attempt.failed for attempt in run.attempts] == [
        "worker 1 was killed by SIGKILL; the kernel's log or the memory limit may say why",
        "worker 0 raised RuntimeError: injected by dtk.faults.exception",
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


def test_faults_come_in_the_first_attempt_unless_told():
    always = faults.exception(worker=1, step=2, attempt=None)
    with pytest.raises(dtk.WorkerFailed, match="injected") as caught:
        dtk.run(steps_of, args=(3,), faults=[always], restarts=2)
    assert len(caught.value.folder.attempts) == 3
    assert len(dtk.run(steps_of, args=(3,), faults=[faults.exception(1, 2)], restarts=2).attempts) == 2


def test_a_fault_for_an_attempt_that_was_not_made(capsys):
    dtk.run(steps_of, args=(3,), faults=[faults.kill(1, 2, attempt=2)], restarts=1)
    assert "kill(worker=1, step=2, attempt=2) never came: there was no attempt 2\n" in capsys.readouterr().out


def test_a_stall_starts_again_too():
    run = dtk.run(resuming, args=(6, 2), faults=[faults.stall(0, 5)], restarts=1, stall_timeout=1.0)
    assert [attempt.failed is None for attempt in run.attempts] == [False, True]


def test_a_run_without_restarts_has_one_attempt():
    (attempt,) = dtk.run(steps_of, args=(3,)).attempts
    assert (attempt.number, attempt.failed, attempt.steps) == (1, None, (1, 3))
    assert repr(attempt) == "<Attempt 1: steps 1 to 3, finished>"


def fitting(strategy, save_freq="epoch"):
    from tensorflow import keras
    from training import batches

    with strategy.scope():
        layers = [keras.layers.Input((64,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    backup = keras.callbacks.BackupAndRestore(str(dtk.run_dir() / "backup"), save_freq=save_freq)
    model.fit(batches(256), epochs=3, verbose=0, callbacks=[backup, dtk.Recorder()])  # 4 steps an epoch


@pytest.mark.slow  # lesson 07 has it of Keras 3, too
@pytest.mark.parametrize("keras", [3, 2])
def test_fit_goes_on_from_its_backup_to_the_same_weights(keras):
    run = dtk.run(fitting, faults=[faults.kill(worker=1, step=7)], restarts=1, keras=keras)
    assert [attempt.steps for attempt in run.attempts] == [(1, 6), (5, 12)]
    assert sorted(run.records.epoch.unique()) == [1, 2, 3]
    dtk.verify(run, dtk.baseline(fitting, keras=keras))


@pytest.mark.slow  # lesson 07 has it, too
def test_a_backup_within_an_epoch_forgets_where_the_data_was():
    asked = {"kwargs": {"save_freq": 3}}
    run = dtk.run(fitting, faults=[faults.kill(worker=1, step=8)], restarts=1, **asked)
    # Saved after step 6, the second of epoch 2. Keras 3 begins epoch 2 again: its first two batches count twice.
    # Keras 2 goes on with its third step, on the first batch.
    assert [attempt.steps for attempt in run.attempts] == [(1, 7), (7, 14 if KERAS_3 else 12)]
    with pytest.raises(dtk.VerificationError) as failed:
        dtk.verify(run, dtk.baseline(fitting, **asked))
    assert failed.value.step == 7


def looping(strategy):
    import tensorflow as tf

    data, model, optimizer, step = parts(strategy)
    with strategy.scope():
        optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    shared = str(dtk.run_dir() / "checkpoints")
    place = shared if dtk.is_chief() else str(dtk.run_dir() / f"others-{dtk.environment.here().worker}")
    manager = tf.train.CheckpointManager(checkpoint, place, max_to_keep=2)
    latest = tf.train.latest_checkpoint(shared)
    if latest:
        checkpoint.restore(latest)
    done = int(optimizer.iterations.numpy())

    @tf.function
    def train_step(batch, epoch):
        losses = strategy.run(step, args=(batch,))
        dtk.record_step(losses, batch=batch, model=model, epoch=epoch, step=optimizer.iterations)

    for epoch in range(2):
        for number, batch in enumerate(data, epoch * STEPS + 1):
            if number <= done:
                continue
            train_step(batch, tf.constant(epoch + 1))
            if number % 4 == 0:
                manager.save()
    return done


@pytest.mark.slow  # lesson 07 has it, too
def test_a_loop_goes_on_from_its_checkpoint_to_the_same_weights():
    run = dtk.run(looping, faults=[faults.kill(worker=0, step=7)], restarts=1)
    assert [attempt.steps for attempt in run.attempts] == [(1, 6), (5, 12)]
    assert run.results == [4, 4]
    dtk.verify(run, dtk.baseline(looping))


@pytest.mark.slow  # lesson 07 has it of Keras
def test_an_estimator_goes_on_from_its_checkpoint():
    import estimating

    asked = {"kwargs": {"steps": 14, "save_checkpoints_steps": 5}}
    run = dtk.run(estimating.train, faults=[faults.kill(worker=1, step=13)], restarts=1, **asked)
    first, second = run.attempts
    assert first.steps == (1, 12)
    # Estimator reads input_fn's data from its beginning again: the steps go on, the order of the data does not.
    assert second.steps == (11, 14)
    assert run.results[0]["global_step"] == 14
    assert list(run.records[run.records.worker == 1].step) == list(range(1, 15))


@pytest.mark.slow  # lesson 07 has it, too
def test_nan_on_one_worker_is_nan_everywhere_one_step_later():
    run = dtk.run(fitting, faults=[faults.nan(worker=1, step=6)])
    table = run.records.set_index(["worker", "step"]).loss
    assert table[0, 6] == table[0, 6], "the other worker's share of that step is a number still"
    assert table.isna().sum() == 1 + 2 * 6
    assert all((weight != weight).all() for weight in run.weights)


def test_the_timeline_has_every_attempt_and_marks_the_fault():
    run = dtk.run(resuming, args=(10, 4), faults=[faults.exception(worker=1, step=6)], restarts=1)
    ax = dtk.plot.timeline(run)
    assert ax.get_title("left").startswith("2 attempts; the run took ")
    assert {"exception", "failed", "attempt 2"} <= {text.get_text() for text in ax.texts}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["worker 0", "worker 1"]
    plt.close("all")
