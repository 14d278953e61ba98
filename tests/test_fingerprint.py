"""The fingerprint of a batch, of tensors of every kind: parts add up to the whole, and other examples are others."""

from __future__ import annotations

import numpy as np
import pytest

import dtk

pytestmark = pytest.mark.trains


def kinds():
    """{kind: (a batch of 4 examples, the same in another order, its two halves, what differs in one number)}."""
    import tensorflow as tf

    halves = [slice(0, 2), slice(2, 4)]
    turned = [2, 0, 3, 1]

    def of_lists(make, rows, other):
        pick = lambda places: make([rows[k] for k in places])  # noqa: E731
        return make(rows), pick(turned), [pick(range(4)[half]) for half in halves], make(other)

    def sparse(rows):
        places = [(k, at) for k, row in enumerate(rows) for at, value in enumerate(row) if value]
        values = [rows[k][at] for k, at in places]
        places = np.array(places, "int64").reshape(-1, 2)
        return tf.SparseTensor(places, tf.constant(values), [len(rows), 5])

    def sparse_pictures(rows):
        # Five numbers as 5 × 1 and as 1 × 5 lie at other places of each example.
        return tf.sparse.reshape(sparse(rows), [len(rows), 5, 1])

    ragged = tf.ragged.constant

    def ragged_pairs(rows):
        numbers = tf.constant([[number, number + 1] for row in rows for number in row])
        return tf.RaggedTensor.from_row_lengths(numbers, [len(row) for row in rows])

    def labeled(rows):
        return ragged(rows), tf.constant([float(len(row)) for row in rows])

    numbers = [[0, 1, 0, 2, 0], [3, 0, 0, 0, 0], [0, 0, 0, 0, 4], [0, 5, 6, 0, 7]]
    nested = [[[1.0], [2.0, 3.0]], [[4.0]], [], [[5.0], [], [6.0]]]
    words = [["", "a", "", "b", ""], ["c", "", "", "", ""], ["", "", "", "", "d"], ["", "e", "f", "", "g"]]
    uneven = [[1.0], [2.0, 3.0, 4.0, 5.0], [], [6.0, 7.0]]
    longer = [[1.0], [2.0, 3.0, 4.0, 5.0], [8.0], [6.0, 7.0]]
    moved = [[0, 0, 1, 2, 0], *numbers[1:]]
    exchanged = [["", "b", "", "a", ""], *words[1:]]
    pairs = [[1.0], [2.0, 3.0, 4.0], [5.0, 6.0], [7.0]]
    return {
        "dense": of_lists(tf.constant, numbers, moved),
        "text": of_lists(tf.constant, words, exchanged),
        "sparse": of_lists(sparse, numbers, moved),
        "sparse text": of_lists(sparse, words, exchanged),
        "sparse pictures": of_lists(sparse_pictures, numbers, moved),
        "ragged": of_lists(ragged, uneven, longer),
        "ragged text": of_lists(ragged, [["a"], ["b", "c"], [], ["d"]], [["a"], ["c", "b"], [], ["d"]]),
        "ragged pairs": of_lists(ragged_pairs, pairs, [[1.0], [2.0, 4.0, 3.0], [5.0, 6.0], [7.0]]),
        "ragged in ragged": of_lists(ragged, nested, [[[1.0, 2.0], [3.0]], *nested[1:]]),
        "ragged with labels": of_lists(labeled, uneven, longer),
    }


def all_of_them(in_a_graph):
    import tensorflow as tf

    from dtk.compat.fingerprint import fingerprint

    found = {}
    for kind, (whole, turned, halves, other) in kinds().items():
        number = tf.function(fingerprint, reduce_retracing=True) if in_a_graph else fingerprint
        found[kind] = [float(number(batch)) for batch in (whole, turned, *halves, other)]
    return found


@pytest.mark.parametrize("in_a_graph", [False, True])
def test_parts_add_up_in_any_order_and_another_number_is_another_batch(in_a_graph):
    (found,) = dtk.baseline(all_of_them, args=(in_a_graph,)).results
    assert len(found) == 10
    for kind, (whole, turned, first, second, other) in found.items():
        assert turned == pytest.approx(whole, abs=1e-9), kind
        assert first + second == pytest.approx(whole, abs=1e-9), kind
        assert abs(other - whole) > 1e-6, kind


def edges():
    import tensorflow as tf

    from dtk.compat.fingerprint import element_shapes, fingerprint

    rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    complex_numbers = tf.complex(rows, rows)
    any_width = tf.function(fingerprint, input_signature=[tf.TensorSpec([None, None], tf.float32)])
    any_rank = tf.function(fingerprint, input_signature=[tf.SparseTensorSpec(None, tf.float32)])
    found = {
        "sparse, no number": fingerprint(tf.sparse.from_dense(complex_numbers)),
        "ragged, no number": fingerprint(tf.RaggedTensor.from_tensor(complex_numbers)),
        "nothing": fingerprint((None, tf.constant(1.0))),
        "no examples": fingerprint(rows[:0]),
        "no width": fingerprint(rows[:, :0]),
        "any width": any_width(rows),
        "sparse": fingerprint(tf.sparse.from_dense(rows)),
        "sparse, of any rank": any_rank(tf.sparse.from_dense(rows)),
        "padded": any_width(tf.pad(rows, [[0, 0], [0, 3]])),
        "alone": fingerprint(rows),
        "with numbers that are no examples": fingerprint((rows, tf.zeros([1]), tf.zeros([5]))),
    }
    shapes = element_shapes((rows, None, tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense(rows)))
    return {name: float(value) for name, value in found.items()}, shapes


def test_what_has_no_numbers_what_is_padded_and_what_is_no_part_of_each_example():
    found, shapes = dtk.baseline(edges).results[0]
    assert all(np.isnan(found.pop(name)) for name in ("sparse, no number", "ragged, no number"))
    assert np.isnan(found.pop("nothing"))
    assert (found["no examples"], found["no width"]) == (0.0, 2.0)
    assert found["padded"] == pytest.approx(found["any width"], abs=1e-9)
    assert found["sparse, of any rank"] == pytest.approx(found["sparse"], abs=1e-9)
    assert found["with numbers that are no examples"] == pytest.approx(found["alone"], abs=1e-9)
    assert shapes == [[2], [None], [2]]
