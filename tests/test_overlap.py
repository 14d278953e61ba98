"""When all-reduces of gradients begin and end: from marks made up, and from real runs with one pack and several."""

from __future__ import annotations

import pytest
from fabricate import spans_of
from test_parts import with_marks

import dtk
from dtk.scaling.timing import step_reductions

ONE = {k: [["reduce", 2.05, 2.1, 8], ["reduce", 2.6 + 0.1 * k, 2.9, 1000]] for k in (0, 1)}
SEVERAL = {
    k: [["reduce", 2.3, 2.4, 1000], ["reduce", 2.4 + 0.1 * k, 2.6, 1000], ["reduce", 2.7, 2.9, 500]] for k in (0, 1)
}


def test_begin_waiting_and_end_count_from_the_step_before(tmp_path):
    table = step_reductions(with_marks(tmp_path, ONE))
    assert list(table.columns) == ["worker", "step", "period", "bytes", "begin", "waited", "end"]
    assert table.bytes.tolist() == [1000, 1000], "the question whether all have data is no gradient"
    first = table[table.worker == 0].iloc[0]
    assert first[["period", "begin", "waited", "end"]].tolist() == pytest.approx([1.0, 0.6, 0.7, 0.9])
    last = table[table.worker == 1].iloc[0]
    assert last[["begin", "waited", "end"]].tolist() == pytest.approx([0.7, 0.7, 0.9])


def test_one_all_reduce_comes_after_the_backward_pass(tmp_path):
    words = dtk.plot.overlap(with_marks(tmp_path / "one", ONE)).get_label()
    assert words.startswith("one all-reduce, after the backward pass. Step 2 of worker 0")
    assert "it took 300 ms more to reduce" in words
    nothing = dtk.plot.overlap(with_marks(tmp_path / "without", {}))
    assert "no all-reduce of gradients was noted" in nothing.texts[0].get_text()


def test_several_begin_while_gradients_are_still_computed(tmp_path):
    ax = dtk.plot.overlap(with_marks(tmp_path, SEVERAL))
    assert ax.get_label().startswith("3 all-reduces, 80 % of the bytes reduced before the last gradients are there.")
    assert "it took 200 ms more to reduce" in ax.get_label()
    for lane, end in enumerate((400, 600, 900)):
        assert spans_of(ax, "until its gradients are there", lane)[0][0] == 0
        assert spans_of(ax, "reducing", lane)[0][1] == pytest.approx(end)


def deep(packs):
    def train():
        import keras
        import numpy as np
        import tensorflow as tf

        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=packs)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        with strategy.scope():
            layers = [keras.layers.Dense(256, activation="tanh") for _ in range(6)]
            model = keras.Sequential([keras.layers.Input((256,)), *layers, keras.layers.Dense(1)])
            model.compile("sgd", loss="mse")
        data = tf.data.Dataset.from_tensors((np.ones((512, 256), "float32"), np.ones((512, 1), "float32"))).repeat()
        model.fit(data, steps_per_epoch=6, callbacks=[dtk.Recorder()], verbose=0)

    return train


@pytest.mark.trains
def test_packs_of_a_real_run_are_reduced_one_by_one():
    whole, packed = (step_reductions(dtk.run(deep(size), workers=2)) for size in (0, 1 << 18))
    assert (whole.groupby(["worker", "step"]).size() == 1).all()
    assert (packed.groupby(["worker", "step"]).size() > 3).all()
    assert (packed.groupby(["worker", "step"]).bytes.sum() == whole.bytes.iloc[0]).all()
