"""What dtk changes in Keras is still needed: when a test fails, a correction (docs/explanation/compat.md) can go."""

from __future__ import annotations

import functools
import inspect
import os
import pkgutil
import re
from pathlib import Path

import lanes
import pytest

import dtk
from dtk.compat import keras3, libraries, saves
from dtk.environment import Here
from dtk.records import RunFolder

CORRECTIONS = ["build from the spec", "metrics reduced without axis", "steps one by one, after their data"]
OTHERS = ["optimizer variables outside of the graph", "one decision about a loss scale"]
OTHERS += ["sums of an empty batch", "loss of an empty batch", "penalties of each replica"]
ALL = [*CORRECTIONS, *OTHERS, keras3.REFUSALS]
FAULTS = [  # a correction, steps_per_execution, where, and what fit says without it
    (CORRECTIONS[0], 1, {"workers": 2}, "Attempt to convert a value (PerReplica"),
    (CORRECTIONS[1], 1, {"workers": 2}, "Invalid reduction dimension 0 for input with 0 dimensions"),
    (CORRECTIONS[2], 2, {"workers": 2}, "while/cond/Placeholder"),
    (CORRECTIONS[2], 2, {"workers": 1, "replicas": 2}, "while/cond/Placeholder"),
]


def test_each_correction_has_a_test_without_it():
    where = "tests/test_compat.py: CORRECTIONS, FAULTS and what `uncorrected` undoes need each correction of keras3"
    assert list(keras3._CORRECTIONS) == [*CORRECTIONS, *OTHERS], where
    assert list(dict.fromkeys(name for name, *_ in FAULTS)) == CORRECTIONS, where


def undo(name):
    """Takes a correction back."""
    for place, attribute in keras3._CORRECTIONS[name][1]:
        owner = pkgutil.resolve_name(f"keras.src.{place}")
        setattr(owner, attribute, getattr(owner, attribute).__wrapped__)


def uncorrected(strategy, name, steps_per_execution):
    """Trains with all corrections but one, and returns what went wrong."""
    import keras
    import numpy as np

    undo(name)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=steps_per_execution)
    try:
        model.fit(np.zeros((8, 2), "float32"), np.zeros((8, 1), "float32"), 4, verbose=0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps_per_execution", "where", "said"), FAULTS)
def test_without_the_correction_fit_still_fails(name, steps_per_execution, where, said):
    for result in dtk.run(uncorrected, args=(name, steps_per_execution), **where).results:
        assert said in result


def by_replicas(made):
    """What `made(strategy, corrected)` returns: corrected on one device, on two replicas, and there uncorrected."""
    runs = (dtk.run(lambda strategy, c=c: made(strategy, c), workers=1, replicas=2) for c in (True, False))
    return [run.results[0] for run in (dtk.baseline(lambda strategy: made(strategy, True)), *runs)]


def made_in_a_replica(name, options, strategy, corrected):
    """What a step of one's own says whose optimizer has no variables yet."""
    import keras
    import tensorflow as tf

    if not corrected:
        keras.optimizers.Optimizer.apply = inspect.unwrap(keras.optimizers.Optimizer.apply)
    with strategy.scope():
        weight, optimizer = keras.Variable([1.0, 1.0]), getattr(keras.optimizers, name)(0.5, **options)
    step = tf.function(lambda: strategy.run(lambda: optimizer.apply([tf.constant([1.0, 0.0])], [weight])))
    try:
        step()
        step()
    except tf.errors.InvalidArgumentError as error:
        return str(error)
    return weight.numpy().tolist()


@pytest.mark.trains
@pytest.mark.parametrize(
    ("name", "options", "alone", "together"),
    [
        ("SGD", {"momentum": 0.9}, -0.45, 1.0 - 2 * 0.5 - 2 * (0.9 * 0.5 + 0.5)),  # the gradients of both are added
        pytest.param("Nadam", {}, 0.08181217, 0.08181217, marks=pytest.mark.slow),  # not all by `add_variable`
    ],
)
def test_without_the_correction_an_optimizer_fails_that_two_replicas_build(name, options, alone, together):
    one, kept, lost = by_replicas(functools.partial(made_in_a_replica, name, options))
    assert [*one, *kept] == pytest.approx([alone, 1.0, together, 1.0])
    assert "cond/Placeholder" in lost


def of_nothing(corrected):
    """What a loss and an LSTM make of a batch without examples, eagerly: the shape of the one, and of the other."""
    import keras
    import tensorflow as tf

    for name in [] if corrected else OTHERS[2:4]:
        undo(name)
    shape = keras.losses.MeanSquaredError()(tf.zeros((0, 3)), tf.zeros((0, 3))).shape.as_list()
    try:
        return shape, keras.layers.LSTM(4)(tf.zeros((0, 6, 3))).shape.as_list()
    except tf.errors.InvalidArgumentError as error:
        return shape, str(error)


@pytest.mark.trains
def test_without_the_corrections_an_empty_batch_has_no_loss():
    assert dtk.baseline(of_nothing, args=(True,)).results == [([], [0, 4])]
    shape, said = dtk.baseline(of_nothing, args=(False,)).results[0]
    assert (shape, "Biases must be 1D" in said) == ([0], True)


def shuffled(name, strategy, corrected):
    """The mean loss up to each step of `fit`: shuffled data, a penalty, and then a mean over all replicas."""
    import keras
    import numpy as np
    import tensorflow as tf

    if not corrected:
        undo(name)
    with strategy.scope():
        first = keras.layers.Dense(1, use_bias=False, activity_regularizer=keras.regularizers.L2(1.0))
        model = keras.Sequential([keras.layers.Input((1,)), first, keras.layers.BatchNormalization(synchronized=True)])
        model.compile(keras.optimizers.SGD(1e-4), "mse")
    rows = np.arange(64, dtype="float32")[:, None]
    data = tf.data.Dataset.from_tensor_slices((rows, rows)).shuffle(64, seed=1).batch(8)
    losses = []
    seen = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]))
    model.fit(data, verbose=0, callbacks=[seen])
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("name", [CORRECTIONS[0], OTHERS[-1]])
def test_without_the_correction_fit_reads_or_adds_up_something_else(name):
    one, kept, lost = by_replicas(functools.partial(shuffled, name))
    assert kept == pytest.approx(one, rel=1e-4)
    assert lost != pytest.approx(one, rel=5e-4)


def counted(strategy, corrected):
    """The optimizer's count after 2 epochs of 4 steps, of data whose size TensorFlow does not know."""
    import keras
    import numpy as np
    import tensorflow as tf

    if not corrected:
        undo(CORRECTIONS[2])
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    rows = np.zeros((32, 1), "float32")
    data = tf.data.Dataset.from_tensor_slices((rows, rows)).filter(lambda x, y: True).batch(8)
    model.fit(data, epochs=2, verbose=0)
    return int(model.optimizer.iterations.numpy())


@pytest.mark.slow
def test_without_the_correction_the_end_of_the_data_counts_as_a_step():
    assert dtk.baseline(lambda strategy: counted(strategy, True)).results == [8]
    assert dtk.run(lambda strategy: counted(strategy, True), workers=2).results == [8, 8]
    assert dtk.baseline(lambda strategy: counted(strategy, False)).results == [10]


def names_applied():
    import keras

    assert keras.__version__
    return list(keras3._applied)


@pytest.mark.trains
def test_what_is_applied_where():
    expected = ALL if lanes.KERAS_3 else []
    assert dtk.run(names_applied, workers=2).results == [expected] * 2
    assert dtk.baseline(names_applied).results == [expected]


@pytest.mark.parametrize(
    ("older", "legacy", "other"), [("2.15.0", "", "tf_keras"), ("2.15.0", "1", "keras"), (None, "1", None)]
)
def test_of_two_keras_2_one_is_preloaded(monkeypatch, older, legacy, other):
    """Imported together, each loads the other's `.keras` files with initial weights."""
    monkeypatch.setattr(libraries, "installed_keras_2", lambda: older)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", legacy)
    assert libraries.the_other_keras_2() == other


def where_callbacks_write(place):
    from keras import callbacks

    logger = callbacks.CSVLogger(filename=f"{place}/log.csv")
    checkpoint = callbacks.ModelCheckpoint(f"{place}/checkpoints/{{epoch}}.keras")
    return [checkpoint.filepath, callbacks.TensorBoard(f"{place}/logs").log_dir, logger.filename]


@pytest.mark.trains
def test_no_other_worker_makes_the_chiefs_directories(tmp_path):
    """Keras makes a checkpoint's directory before it saves: two workers that did so met FileExistsError."""
    run = dtk.run(where_callbacks_write, workers=2, args=(str(tmp_path),))
    names = ["checkpoints/{epoch}.keras", "logs", "log.csv"]
    assert run.results[0] == [f"{tmp_path}/{name}" for name in names]
    corner = run.folder.worker(1).path / "elsewhere" / tmp_path.relative_to("/")
    # Keras 2's ModelCheckpoint and TensorBoard choose another directory themselves, as they begin.
    places = [corner] * 3 if lanes.KERAS_3 else [tmp_path, tmp_path, corner]
    assert run.results[1] == [f"{place}/{name}" for place, name in zip(places, names, strict=True)]


def save_with_tf_keras(place):
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    tf.keras.models.save_model(model, f"{place}/model.keras")
    own = f"{place}/worker-{dtk.environment.here().worker}"
    for path, delete in ((own, tf.io.gfile.rmtree), (f"{own}.keras", os.remove)):
        model.save(path)
        delete(path)


@pytest.mark.trains
def test_a_fresh_interpreter_redirects_where_tensorflow_imports_one_keras_only(tmp_path):
    run = dtk.run(save_with_tf_keras, workers=2, args=(str(tmp_path),), keras=2, start="cold")
    for place in (tmp_path, run.folder.worker(1).path / "elsewhere" / tmp_path.relative_to("/")):
        assert [path.name for path in place.iterdir()] == ["model.keras"]


def test_elsewhere(tmp_path, monkeypatch):
    place = Here(RunFolder(tmp_path / "run", 2), worker=1, workers=2, replicas=1, mode="cluster", clock=0.0)
    corner = tmp_path / "run" / "worker-1" / "elsewhere"
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(saves, "here", lambda: place)
    for path, expected in {
        "checkpoints/{epoch}.keras": "checkpoints/{epoch}.keras",
        str(work / "logs"): "logs",
        "a/../b.csv": "b.csv",
        str(tmp_path / "run" / "mine.keras"): "mine.keras",
        "/somewhere/else": "somewhere/else",
        "../up.keras": str((tmp_path / "up.keras").relative_to("/")),
        str(corner / "logs"): "logs",
    }.items():
        assert saves.elsewhere(path) == str(corner / expected)
    assert saves.elsewhere(Path("x.keras")) == str(corner / "x.keras")


def test_only_compat_touches_internals():
    """`keras.src`, `tensorflow.python` and the like are imported nowhere else."""
    package = Path(dtk.__file__).parent
    touches = re.compile(r"^\s*(from|import) \w[\w.]*\.(src|python)\b", re.MULTILINE)
    found = {file.relative_to(package).parts[0] for file in package.rglob("*.py") if touches.search(file.read_text())}
    assert found == {"compat"}


# ---- two strategies, iterators that end at once, and the loss scale of float16


LATE = 1.0  # s


def totals(another, late, corrected):
    """Each worker's weight, which begins as the chief's, after a step with each strategy, and its sum over workers."""
    import time

    import tensorflow as tf
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended as Extended

    first = tf.distribute.MultiWorkerMirroredStrategy()
    if not corrected:
        Extended._initialize_multi_worker = Extended._initialize_multi_worker.__wrapped__
    if first.cluster_resolver.task_id == late:
        time.sleep(LATE)
    second = tf.distribute.MultiWorkerMirroredStrategy() if another else first
    print("both strategies are made")
    found = []
    for strategy in (second, first, second):
        with strategy.scope():
            weight = tf.Variable(1.0 + first.cluster_resolver.task_id, aggregation=tf.VariableAggregation.SUM)
        strategy.run(tf.function(lambda w=weight: w.assign_add(0.25)))
        found += [float(weight.numpy()), float(strategy.reduce("SUM", tf.constant(weight.numpy()), axis=None))]
    return found


@pytest.mark.trains
@pytest.mark.parametrize("late", [0, 1])
def test_a_second_strategy_computes_what_the_first_does(late):
    one = dtk.run(totals, workers=2, args=(False, late, True)).results
    assert dtk.run(totals, workers=2, args=(True, late, True)).results == one == [[1.5, 3.0] * 3] * 2


@pytest.mark.slow
def test_without_the_correction_a_second_strategy_stands_still():
    """The chief's new executor knows nothing of what the other worker has asked the old one."""
    with pytest.raises(dtk.RunTimeout) as caught:
        dtk.run(totals, workers=2, args=(True, 0, False), timeout=20)
    assert ["both strategies are made" in log for log in caught.value.logs] == [True, True]


def tuned():
    """Whether datasets are tuned: by default, and where their own options say so or say how."""
    import tensorflow as tf

    found = []
    for change in ({}, {"enabled": True}, {"cpu_budget": 1}):
        options = tf.data.Options()
        for name, value in change.items():
            setattr(options.autotune, name, value)
        data = tf.data.Dataset.range(3).with_options(options)
        found.append(iter(data)._dataset.options().autotune.enabled)
    return found


@pytest.mark.trains
def test_a_dataset_is_tuned_where_its_options_say_so():
    assert dtk.run(tuned).results[0] == [False, True, None]


def slow_end(enabled):
    """Whether one of 60 iterators, that have lived for 0.7 s and more, takes over 0.2 s to go."""
    import time

    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = enabled
    data = tf.data.Dataset.range(10).repeat().map(lambda x: x + 1, tf.data.AUTOTUNE).with_options(options)
    tf.left = [iter(data) for _ in range(60)]  # those that are not tried stay to the end of this process
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        for each in tf.left:
            next(each)
    while tf.left:
        began = time.monotonic()
        each = tf.left.pop()  # the last reference to the one before goes
        if time.monotonic() - began > 0.2:
            tf.left.append(each)
            return True
    return False


@pytest.mark.slow
def test_without_the_correction_some_iterators_take_long_to_go():
    assert any(dtk.run(slow_end, args=(True,), workers=1, stall_timeout=None).results[0] for _ in range(8))
    assert dtk.run(slow_end, args=(False,), workers=1).results == [False]


def infinite_on_the_second_replica(strategy, corrected):
    """[all weights are finite, the loss scale] after a step that float16 makes infinite on the second replica."""
    import keras
    import numpy as np

    if not corrected:
        undo(OTHERS[1])
    keras.mixed_precision.set_global_policy("mixed_float16")
    labels = np.array([[1.0]] * 4 + [[1e6]] * 4, "float32")
    with strategy.scope():
        layers = keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        model.compile(keras.optimizers.SGD(1e-6), "mse")
    model.fit(np.ones((8, 4), "float32"), labels, batch_size=8, shuffle=False, verbose=0)
    return [all(np.isfinite(w).all() for w in model.get_weights()), float(model.optimizer.dynamic_scale.numpy())]


LEFT_OUT = [True, 2.0**14]  # the step is left out, and the scale is half of what it was


@pytest.mark.trains
def test_without_the_correction_the_first_replica_decides_about_the_loss_scale():
    one, both, lost = by_replicas(infinite_on_the_second_replica)
    assert one == both == LEFT_OUT
    assert lost[0] is False, "the infinite gradients got into the weights"


@pytest.mark.slow
def test_without_the_correction_one_of_two_workers_waits_for_ever():
    run = dtk.run(lambda strategy: infinite_on_the_second_replica(strategy, True), workers=2)
    assert run.results == [LEFT_OUT, LEFT_OUT]
    with pytest.raises(dtk.WorkerStalled):
        dtk.run(lambda strategy: infinite_on_the_second_replica(strategy, False), workers=2, stall_timeout=5)
