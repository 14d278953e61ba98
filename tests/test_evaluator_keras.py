"""The Keras guide's evaluator beside a real cluster: its own MirroredStrategy, restore, evaluate, log, repeat."""

from __future__ import annotations

import numpy as np
import pytest
from training import BATCH, batches, classifier

import dtk

pytestmark = pytest.mark.trains

EPOCHS, EXAMPLES = 3, 256


def train(strategy):
    """`fit` with a checkpoint after each epoch: by the chief where the evaluator looks, by the other beside it."""
    import tensorflow as tf
    from tensorflow import keras

    model = classifier(strategy)
    place = dtk.run_dir() / ("checkpoints" if dtk.is_chief() else "others")
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), place, max_to_keep=None)
    save = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: manager.save(checkpoint_number=epoch))
    model.fit(batches(EXAMPLES), epochs=EPOCHS, callbacks=[save, dtk.Recorder()], verbose=0)
    return len(manager.checkpoints)


def evaluate():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    model = classifier(strategy)
    checkpoint = tf.train.Checkpoint(model=model)
    writer = tf.summary.create_file_writer(str(dtk.run_dir() / "logs"))
    directory = dtk.run_dir() / "checkpoints"
    seen = []
    for path in tf.train.checkpoints_iterator(directory, timeout=1, timeout_fn=dtk.training_ended):
        checkpoint.restore(path).expect_partial()
        found = model.evaluate(batches(128, start=512), callbacks=[dtk.Recorder()], verbose=0, return_dict=True)
        with writer.as_default(step=int(model.optimizer.iterations.numpy())):
            for name, value in found.items():
                tf.summary.scalar(name, value)
        seen.append((float(found["loss"]), float(found["accuracy"])))
    return seen, model.get_weights(), strategy.num_replicas_in_sync


@pytest.fixture(
    scope="module", params=[pytest.param(None, id="keras 3"), pytest.param(2, id="tf_keras", marks=pytest.mark.slow)]
)
def run(request):
    if request.param == 2:
        pytest.importorskip("tf_keras")
    return dtk.run(train, workers=2, evaluator=evaluate, keras=request.param, timeout=300)


def test_the_last_checkpoint_is_evaluated(run):
    seen, weights, replicas = run.evaluator
    assert run.results == [EPOCHS, EPOCHS]
    assert replicas == 1
    assert 1 <= len(seen) <= EPOCHS, "one that is overtaken by the next may be left out"
    for mine, theirs in zip(weights, run.weights[: len(weights)], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_its_evaluations_are_recorded(run):
    seen, table = run.evaluator[0], run.evaluations
    steps = EXAMPLES // BATCH
    assert set(table.step) <= {steps * epoch for epoch in range(1, EPOCHS + 1)}
    assert table.step.iloc[-1] == steps * EPOCHS
    assert table.step.is_monotonic_increasing
    np.testing.assert_allclose(table[["loss", "accuracy"]].to_numpy(float), seen, rtol=1e-6)
    assert (table.started < table.ended).all()
    assert (table.started > 0).all()
    assert table.ended.max() < run.seconds


def test_it_logs_where_it_was_told_to(run):
    assert len(list((run.dir / "logs").glob("events.out.tfevents*"))) == 1
    assert not (run.folder.evaluator.path / "elsewhere").exists()


def saves_where_it_likes():
    import tensorflow as tf
    from tensorflow import keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # as in the workers' own function: of one replica here
    model = classifier(strategy)
    logs = keras.callbacks.TensorBoard(str(dtk.run_dir() / "board"))
    model.evaluate(batches(128), callbacks=[logs, dtk.Recorder()], verbose=0)
    model.save(str(dtk.run_dir() / "best.keras"))
    tf.train.Checkpoint(model=model).write(str(dtk.run_dir() / "best"))
    return strategy.num_replicas_in_sync, (dtk.run_dir() / "best.keras").exists()


def test_its_files_go_where_it_says_and_an_untrained_step_is_unknown():
    run = dtk.run(lambda: None, evaluator=saves_where_it_likes, timeout=300)
    assert run.evaluator == (1, True)
    assert (run.dir / "board").is_dir()
    assert run.evaluations.step.isna().tolist() == [True]
    assert run.evaluations.accuracy.between(0, 1).all()
