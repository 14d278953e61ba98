"""Who sees which example: real workers under each policy, then the arithmetic and the sentences on made-up tables."""

from __future__ import annotations

import itertools

import pytest

import dtk
from dtk.studies.shards import from_lists
from dtk.view.sharding import in_words

FIRST = [(2, "FILE", "tfrecord"), (2, "AUTO", "txt"), (3, "AUTO", "tfrecord")]  # the other products are slow
TWO_OR_THREE = pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])


def sixteen():
    import tensorflow as tf

    return tf.data.Dataset.range(16).batch(4)


def shuffled():
    import tensorflow as tf

    return tf.data.Dataset.range(64).shuffle(64).batch(16)


def files_of(count, kind="tfrecord", each=4):
    """A dataset function over `count` files of `each` examples in the worker's own temporary directory."""

    def make():
        import pathlib
        import tempfile

        import tensorflow as tf

        folder, names = pathlib.Path(tempfile.mkdtemp()), []
        for k in range(count):
            numbers = [str(number) for number in range(k * each, (k + 1) * each)]
            names.append(str(folder / f"part-{k}.{kind}"))
            if kind == "txt":
                pathlib.Path(names[-1]).write_text("\n".join(numbers) + "\n")
            else:
                with tf.io.TFRecordWriter(names[-1]) as file:
                    for number in numbers:
                        file.write(number.encode())
        read = tf.data.TextLineDataset if kind == "txt" else tf.data.TFRecordDataset
        return read(names).batch(8)

    return make


def by_context(input_context):
    import tensorflow as tf

    mine = tf.data.Dataset.range(16).shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return mine.batch(2)


def not_divided(input_context):
    import tensorflow as tf

    return tf.data.Dataset.range(16).batch(input_context.get_per_replica_batch_size(6))


def seen_by(seen):
    """By replica, then by step."""
    return [
        [group.example.tolist() for _, group in seen.table[seen.table.replica == replica].groupby("step")]
        for replica in range(seen.replicas)
    ]


def flat(steps):
    return [number for step in steps for number in step]


@pytest.mark.trains
@pytest.mark.parametrize("policy", [None, pytest.param("AUTO", marks=pytest.mark.slow), "DATA"])
def test_each_global_batch_is_dealt_out(policy):
    seen = dtk.shards(sixteen, workers=2, policy=policy)
    assert seen_by(seen) == [[[0, 1], [4, 5], [8, 9], [12, 13]], [[2, 3], [6, 7], [10, 11], [14, 15]]]
    assert (seen.repeated, seen.gaps, seen.parts_at, seen.examples) == ([], [], None, 16)
    assert seen.policy == (policy or "AUTO")
    assert repr(seen) == f"<Sharding policy={seen.policy} workers=2 replicas=2 examples=16 repeated=0 gaps=0>"


@pytest.mark.trains
def test_a_batch_that_three_workers_cannot_share_leaves_one_with_nothing():
    """TensorFlow takes a third of 4 rounded up for each worker in turn, until there is nothing left."""
    seen = dtk.shards(lambda: sixteen().unbatch().batch(4), workers=3, policy="DATA")
    assert seen_by(seen)[0] == [[0, 1], [4, 5], [8, 9], [12, 13]]
    assert set(seen.table.replica) == {0, 1}
    assert in_words(seen) == "Each of 16 examples went to one replica"


@pytest.mark.trains
@TWO_OR_THREE
def test_off_gives_everything_to_everybody(workers):
    seen = dtk.shards(sixteen, workers=workers, policy="OFF")
    assert [sorted(flat(steps)) for steps in seen_by(seen)] == [[*range(16)]] * workers
    assert seen.repeated == [*range(16)]
    assert (seen.gaps, seen.parts_at) == ([], 1)
    assert in_words(seen) == "Every replica saw all 16 examples"


@pytest.mark.trains
@pytest.mark.parametrize(
    ("workers", "policy", "kind"),
    [
        pytest.param(*each, marks=[] if each in FIRST else pytest.mark.slow)
        for each in itertools.product((2, 3), ("FILE", "AUTO"), ("tfrecord", "txt"))
    ],
)
def test_files_are_dealt_out_whole(workers, policy, kind):
    seen = dtk.shards(files_of(6, kind), workers=workers, policy=policy)
    for worker, steps in enumerate(seen_by(seen)):
        files = range(worker, 6, workers)
        assert flat(steps) == [4 * k + i for k in files for i in range(4)]
    assert (seen.repeated, seen.gaps) == ([], [])


@pytest.mark.trains
@TWO_OR_THREE
def test_a_function_that_takes_the_context_divides_by_itself(workers):
    seen = dtk.shards(by_context, workers=workers)
    assert [flat(steps) for steps in seen_by(seen)] == [[*range(k, 16, workers)] for k in range(workers)]
    assert (seen.policy, seen.repeated, seen.gaps) == ("input_context", [], [])


@pytest.mark.trains
@TWO_OR_THREE
def test_a_function_that_takes_the_context_and_forgets_to_divide(workers):
    seen = dtk.shards(not_divided, workers=workers)
    assert in_words(seen) == "Every replica saw all 16 examples"
    assert len(seen_by(seen)[0][0]) == 6 // workers


@pytest.mark.trains
def test_shuffled_alike_nothing_is_lost_and_shuffled_apart_something_is():
    alike = dtk.shards(shuffled, workers=2, policy="DATA")
    assert (alike.repeated, alike.gaps, alike.parts_at) == ([], [], None)
    apart = dtk.shards(shuffled, workers=2, policy="DATA", seed=None)
    # Of 64! orders two are not drawn alike; each worker is given 32 numbers, so what one has twice another lacks.
    assert len(apart.repeated) == len(apart.gaps) > 0
    assert "were seen more than once and" in in_words(apart)


def words():
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(["one", "two"]).batch(2)


@pytest.mark.trains
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (words, "an example is no whole number .*'one'.*map the lines to numbers first"),
        (lambda: sixteen().unbatch(), "is not batched; end it with .batch"),
        (lambda: sixteen().repeat(), r"or no end; end it with .take"),
        (lambda: [1, 2], "returned a list, not a tf.data.Dataset"),
    ],
)
def test_what_cannot_be_numbered_says_what_to_change(make, sentence):
    with pytest.raises(dtk.WorkerFailed, match=sentence):
        dtk.shards(make, workers=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"make_dataset": [1]}, "make_dataset is a list, not a function"),
        ({"make_dataset": sixteen, "policy": "data"}, "policy='data': it takes one of AUTO, DATA, FILE, OFF"),
        ({"make_dataset": by_context, "policy": "DATA"}, "divides the data itself.*leave policy out"),
    ],
)
def test_what_is_wrong_before_anything_starts(arguments, sentence):
    with pytest.raises(dtk.ClusterConfigError, match=sentence):
        dtk.shards(**arguments)


@pytest.mark.parametrize(
    ("workers", "alone", "sentence"),
    [
        ([[[0, 1]], [[2, 3]]], [range(4)], "Each of 4 examples went to one replica"),
        ([[[0], [1]], [[0], [1]]], [range(2)], "Every replica saw all 2 examples"),
        ([[[0, 1]], [[1, 2]]], [range(3)], "Of 3 examples, 1 was seen more than once"),
        ([[[0]], [[1]]], [range(4)], "Of 4 examples, 0 were seen more than once and 2 by no worker"),
        ([[[0, 1]], [[0]]], [[0, 1, 0, 1]], "Of 2 examples, 0 were seen more than once and 1 less often than by one d"),
        ([[[0, 1]], [[1, 0]], [[]]], [[0, 1, 0, 1]], "Each of 2 examples was seen as often as by one device"),
    ],
)
def test_the_sentence(workers, alone, sentence):
    assert in_words(from_lists(workers, alone)).startswith(sentence)


def test_a_table_says_who_when_and_what():
    seen = from_lists([[[0], [4]], [[1], [5]], [[2], [6]], [[3], [7]]], [range(4), range(4, 8)], together=2)
    assert (seen.workers, seen.replicas) == (2, 4)
    assert seen.table.values.tolist()[:4] == [[0, 0, 1, 0], [0, 1, 1, 1], [1, 2, 1, 2], [1, 3, 1, 3]]
    assert seen.table.step.tolist() == [1] * 4 + [2] * 4


def test_where_the_steps_part():
    alone = [[0, 1], [2, 3], [4, 5]]
    assert from_lists([[[1], [2], [4]], [[0], [3], [5]]], alone).parts_at is None
    assert from_lists([[[1], [4], [2]], [[0], [5], [3]]], alone).parts_at == 2
    assert from_lists([[[1], [2]], [[0], [3]]], alone).parts_at == 3
