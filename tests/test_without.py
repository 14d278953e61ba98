"""Draws switched off in a worker: inside of graphs the same for each example and step, eagerly as ever."""

from __future__ import annotations

import lanes
import numpy as np
import pytest
from gallery import all_programs
from training import dealt

import dtk

pytestmark = pytest.mark.trains

EXAMPLES = 8
LOGITS = [[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]] * (EXAMPLES // 2)


def drawn(*switches):
    """{kind: (what a graph draws in two steps, what is drawn eagerly, twice)} with the switch off."""
    import tensorflow as tf

    from dtk.compat import without

    without.apply(["random", *switches])
    random, seed, values = tf.random, [1, 2], tf.range(12)
    kinds = {
        "uniform": lambda: random.uniform([EXAMPLES, 40]),
        "normal": lambda: random.normal([EXAMPLES, 40], dtype=tf.float64),
        "truncated": lambda: random.truncated_normal([EXAMPLES, 40]),
        "integers": lambda: random.uniform([EXAMPLES, 40], 3, 9, tf.int64),
        "integers of a seed": lambda: random.stateless_uniform([EXAMPLES, 40], seed, 3, 9, tf.int32),
        "shuffled": lambda: random.shuffle(values),
        "shuffled by a seed": lambda: random.experimental.stateless_shuffle(values, seed),
        "categories": lambda: random.categorical(tf.constant(LOGITS), 40, dtype=tf.int32),
        "categories of a seed": lambda: random.stateless_categorical(tf.constant(LOGITS), 40, seed),
    }
    ways = {kind: (tf.function(draw), draw) for kind, draw in kinds.items()}
    return {kind: [[way().numpy(), way().numpy()] for way in both] for kind, both in ways.items()}


@pytest.fixture(scope="module")
def found():
    return dtk.baseline(drawn).results[0]


def test_a_graph_draws_the_same_in_each_step_and_for_each_example(found):
    for kind, ((one, two), _) in found.items():
        np.testing.assert_array_equal(one, two, err_msg=kind)
        if not kind.startswith(("shuffled", "categories")):
            assert (one == one[0]).all(), kind
            assert len(set(one[0].tolist())) > 4, f"{kind}: numbers that vary within an example"


def test_by_fours_every_fourth_example_gets_the_same():
    for kind, ((one, two), _) in dtk.baseline(drawn, args=("by fours",)).results[0].items():
        np.testing.assert_array_equal(one, two, err_msg=kind)
        if not kind.startswith(("shuffled", "categories")):
            assert (one == one[[0, 1, 2, 3] * (EXAMPLES // 4)]).all(), kind
            assert (one[0] != one[1]).any(), kind


def test_what_is_drawn_and_then_normalized_is_right_as_n_replicas():
    def train(strategy):
        import keras
        import tensorflow as tf

        with strategy.scope():
            layers = keras.layers.Dense(8, use_bias=False), keras.layers.BatchNormalization(), keras.layers.Dense(1)
            net, update = keras.Sequential([keras.layers.Input((4,)), *layers]), keras.optimizers.Adam(0.01)
            update.build(net.trainable_variables)

        @tf.function
        def step(batch):
            def replica_step(wanted):
                with tf.GradientTape() as tape:
                    made = net(tf.random.normal((tf.shape(wanted)[0], 4)), training=True)
                    loss = tf.nn.compute_average_loss(tf.reduce_sum((made - wanted) ** 2, 1), global_batch_size=8)
                gradients = tape.gradient(loss, net.trainable_variables)
                update.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
                return loss

            return strategy.run(replica_step, (batch,))

        for batch in strategy.experimental_distribute_dataset(dealt((np.ones((64, 1), "float32"),), 8)):
            step(batch[0])

    assert dtk.verify(dtk.run(train)).verdict == "replicas"


def test_as_much_is_known_of_a_shape_as_of_what_is_drawn():
    def shapes():
        import tensorflow as tf

        from dtk.compat import without

        without.apply(["random", "by fours"])
        known = []
        draw = lambda n: known.append(tf.random.normal((n, 4)).shape.as_list())  # noqa: E731
        tf.function(draw)(tf.constant(8))
        return known

    assert dtk.baseline(shapes).results[0] == [[None, 4]]


def test_eagerly_numbers_are_drawn_as_ever(found):
    for kind, ((graph, _), (one, two)) in found.items():
        assert one.shape == two.shape == graph.shape, kind
        assert one.dtype == two.dtype == graph.dtype, kind
        assert not np.array_equal(one, graph), kind
        assert np.array_equal(one, two) == kind.endswith("seed"), kind


def test_integers_keep_to_their_bounds_and_reach_both(found):
    for kind in ("integers", "integers of a seed"):
        assert set(found[kind][0][0][0].tolist()) == set(range(3, 9)), kind


def test_a_shuffle_leaves_the_order_and_a_category_is_the_likeliest(found):
    for kind in ("shuffled", "shuffled by a seed"):
        assert found[kind][0][0].tolist() == list(range(12)), kind
    for kind in ("categories", "categories of a seed"):
        assert found[kind][0][0].tolist() == [[int(np.argmax(row))] * 40 for row in LOGITS], kind


@pytest.mark.slow  # unmasked ones are below
def test_a_masked_batch_norm_of_each_replica_is_right_as_n_replicas():
    def train(strategy):
        import keras

        tokens = np.random.default_rng(1).integers(1, 20, (32, 6)) * (np.arange(6) < 4)
        with strategy.scope():
            inputs = keras.Input((6,), dtype="int32")
            flow = keras.layers.BatchNormalization()(keras.layers.Embedding(20, 4, mask_zero=True)(inputs))
            model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GRU(4)(flow)))
            model.compile("sgd", "mse")
        data = dealt((tokens.astype("int32"), np.ones((32, 1), "float32")), 8)
        model.fit(data, callbacks=[dtk.Recorder()], verbose=0)

    assert dtk.verify(dtk.run(train)).verdict == "replicas"


@pytest.mark.skipif(not lanes.KERAS_3, reason="this lane has Keras 2 everywhere")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["legacy_batch_norm", "legacy_loop_batch_norm"])
def test_a_batch_norm_of_keras_2_is_right_as_n_replicas(name):
    program = all_programs()[name]
    assert dtk.verify(dtk.run(program.train, kwargs={"slip": None}, **program.start)).verdict == "replicas"


def variance_of_all():
    import keras
    import tensorflow as tf

    from dtk.compat import without

    without.apply(["batch norm"])
    layer = keras.layers.BatchNormalization()
    layer.build((None, 1))
    return float(layer._moments(tf.constant([[999.99], [1000.01]]), None)[1][0])


@pytest.mark.skipif(not lanes.KERAS_3, reason="Keras 2 has its own")
def test_batch_norm_over_all_replicas_is_as_exact_as_on_one_device():
    assert dtk.baseline(variance_of_all).results == [pytest.approx(1e-4, rel=0.01)]
