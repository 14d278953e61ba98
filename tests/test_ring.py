"""The ring: plain processes that exchange chunks, and what goes wrong with a neighbor"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from rings import all_reduce, gradient

import dtk
from dtk.records.events import RingEvent, of_kind
from dtk.view.ring import story
from dtk.worker.ring import Neighbors, RingBroken, _Arrival, _parts_of


def events_of(run, what):
    found = [(corner.worker, event) for corner in run.folder.each for event in of_kind(corner.events, RingEvent)]
    return [(worker, event) for worker, event in found if event.what == what]


@pytest.mark.trains
@pytest.mark.parametrize(("workers", "size"), [(1, 7), (2, 7), (3, 7), (4, 2), (2, 3_000_001)])
def test_every_worker_gets_the_sum(workers, size):
    run = dtk.run(all_reduce, workers=workers, args=(size,))
    expected = sum(gradient(k, size) for k in range(workers))
    for result, _ in run.results:
        np.testing.assert_allclose(result, expected, rtol=1e-12)
    total = sum(sent for _, sent in run.results)
    assert total == 2 * (workers - 1) * 8 * size, "each worker sends 2 (N - 1) / N of a gradient, on average"


@pytest.mark.trains
def test_each_message_is_written_down_at_both_ends():
    run = dtk.run(all_reduce, workers=3)
    sent, received = events_of(run, "sent"), events_of(run, "received")
    assert len(sent) == len(received) == 3 * 4
    one = {((worker + 1) % 3, e.step, e.chunk) for worker, e in sent}
    assert one == {(worker, e.step, e.chunk) for worker, e in received}
    parts = [[len(e.parts) for worker, e in events_of(run, "used") if worker == k] for k in range(3)]
    assert parts == [[2, 3, 3, 3]] * 3
    told = story(run.folder)
    assert (told.steps, told.interrupted) == (4, False)
    assert all(told.messages.values())
    assert told.holds[0] == [[(k,)] * 3 for k in range(3)]
    assert told.holds[-1] == [[(0, 1, 2)] * 3] * 3


@pytest.mark.trains
def test_a_gradient_keeps_its_shape():
    (first, _), (second, _) = dtk.run(all_reduce, workers=2, args=(6,), kwargs={"shape": (2, 3)}).results
    assert first.shape == second.shape == (2, 3)


@pytest.mark.trains
def test_a_baseline_is_a_ring_of_one():
    ((result, sent),) = dtk.baseline(all_reduce).results
    np.testing.assert_array_equal(result, gradient(0))
    assert sent == 0


# ---- neighbors that are late, dead or elsewhere


@pytest.mark.trains
@pytest.mark.parametrize("late", [(1, 0), pytest.param((0, 1), marks=pytest.mark.slow)])
def test_a_late_neighbor_is_named_in_time(late):
    words = f"worker {1 - late[0]} raised RingBroken: worker {late[0]} sent nothing for 3 s; every worker must call"
    with pytest.raises(dtk.WorkerFailed, match=words) as caught:
        dtk.run(all_reduce, workers=2, kwargs={"late": late, "timeout": 3.0}, timeout=25.0)
    told = story(caught.value.folder)
    assert sum(told.messages.values()) < told.steps * told.workers


@pytest.mark.trains
def test_a_killed_worker_is_named_and_not_its_neighbor():
    with pytest.raises(dtk.WorkerFailed, match="worker 1 was killed by SIGKILL") as caught:
        dtk.run(all_reduce, workers=3, kwargs={"dead": (1, 1)}, timeout=25.0)
    told = story(caught.value.folder)
    assert told.interrupted
    assert told.steps == 4
    assert told.holds[1][1] is not None, "it took part in step 1"
    assert told.holds[2][1] is None, "and not in step 2"


def one_never_comes():
    if dtk.is_chief():
        dtk.ring(timeout=0.5)
    else:
        time.sleep(30)


def one_exchanges_less():
    ring = dtk.ring(timeout=20.0)
    chunks = ring.split([1.0, 2.0])
    for _ in range(2 - ring.worker):
        ring.exchange(0, chunks[0])


def in_different_rounds():
    ring = dtk.ring(timeout=20.0)
    for _ in range(1 + ring.worker):
        chunks = ring.split([1.0, 2.0])
    ring.exchange(0, chunks[0])


@pytest.mark.trains
@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (one_never_comes, "worker 1 could not be reached for 0.5 s; every worker must call"),
        (one_exchanges_less, "worker 0 raised RingBroken: worker 1 has left the ring"),
        (in_different_rounds, "is at step 1 of all-reduce [12], this worker at step 1 of [12];"),
    ],
)
def test_workers_that_do_not_do_the_same_are_told(fn, words):
    with pytest.raises(dtk.WorkerFailed, match=words):
        dtk.run(fn, workers=2, timeout=25.0)


def test_outside_of_a_run_there_is_no_ring():
    with pytest.raises(RuntimeError, match="inside a function that dtk.run runs"):
        dtk.ring()


@pytest.mark.trains
def test_a_ring_beside_a_strategy():
    def both(strategy):
        return strategy.num_replicas_in_sync, dtk.ring().workers

    assert dtk.run(both, workers=2, timeout=100.0).results == [(2, 2), (2, 2)]


# ---- what was done with a chunk, told from the numbers


def test_the_numbers_tell_what_was_done():
    held, came = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    arrival = _Arrival(1, came, [1])
    assert _parts_of(held + came, held, [0], arrival) == [0, 1]
    assert _parts_of(came, held, [0], arrival) == [1]
    assert _parts_of(held, held, [0], arrival) == [0]
    assert _parts_of(held - came, held, [0], arrival) is None
    assert _parts_of(held + 1, held, [0], None) is None
    assert _parts_of(held + came, held, [0], _Arrival(1, came, None)) is None


# ---- the connections alone: to any other worker, and from any other


def together(work, workers, folder, timeout=20.0):
    """What work(neighbors, worker) returns or raises, by worker, each in a thread."""
    sockets, came = [folder / str(worker) for worker in range(workers)], {}

    def one(worker):
        links = Neighbors(sockets, worker, timeout, lambda: (worker - 1) % workers)
        try:
            came[worker] = work(links, worker)
        except Exception as error:
            came[worker] = error
        finally:
            done.wait(20.0)
            for each in (*links._outward.values(), *links._inward.values()):
                each.close()

    done = threading.Barrier(workers)
    threads = [threading.Thread(target=one, args=(worker,), daemon=True) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return [came[worker] for worker in range(workers)]


@pytest.mark.parametrize("size", [1, 3_000_000])
def test_each_gets_what_its_partner_sent(size, tmp_path):
    def work(links, worker):
        _, first = links.trade({}, b"%d" % worker * size, worker ^ 1, worker ^ 1)
        return first, links.trade({}, first, worker ^ 2, worker ^ 2)[1]

    assert together(work, 4, tmp_path) == [(b"%d" % (k ^ 1) * size, b"%d" % (k ^ 3) * size) for k in range(4)]


def test_receiver_and_sender_may_differ(tmp_path):
    def work(links, worker):
        return links.trade({"of": worker}, b"%d" % worker, (worker + 2) % 5, (worker - 2) % 5)

    assert together(work, 5, tmp_path) == [({"of": k}, b"%d" % k) for k in (3, 4, 0, 1, 2)]


def test_a_worker_that_comes_earlier_than_it_is_waited_for_is_kept(tmp_path):
    def work(links, worker):
        others = {0: (1, 2), 1: (0, 2), 2: (0, 1)}[worker]  # worker 2 calls worker 0 while that one waits for worker 1
        return [links.trade({}, b"%d" % worker, other, other)[1] for other in others]

    assert together(work, 3, tmp_path) == [[b"1", b"2"], [b"0", b"2"], [b"0", b"1"]]


def test_a_partner_that_does_not_come_is_named(tmp_path):
    def work(links, worker):
        return links.trade({}, b"x", (worker + 1) % 3, (worker + 1) % 3)  # each waits for one that sends to another

    errors = together(work, 3, tmp_path, timeout=0.5)
    assert {type(error) for error in errors} == {RingBroken}
    assert str(errors[0]).startswith("worker 1 sent nothing for 0.5 s; every worker must call ring.exchange, or ring.")


@pytest.mark.parametrize("sent", [b'{"bytes": 100}\nhalf', b'{"bytes'])
def test_a_message_cut_short_is_no_message(sent, tmp_path):
    def work(links, worker):
        if worker == 0:
            return links.trade({}, b"mine", 1, 1)
        links._link(0).send(sent)
        return links._outward[0].close()

    broken, _ = together(work, 2, tmp_path)
    assert isinstance(broken, RingBroken)
    assert str(broken).startswith("worker 1 has left the ring")


@pytest.mark.trains
def test_the_numbers_of_a_run():
    def pairs():
        ring = dtk.ring()
        got = ring.swap(ring.worker ^ 1, np.arange(3.0).reshape(3, 1) + 10 * ring.worker)
        return got, ring.bytes_sent

    for worker, (got, sent) in enumerate(dtk.run(pairs, workers=2).results):
        np.testing.assert_array_equal(got, np.arange(3.0) + 10 * (1 - worker))
        assert sent == 24


# ---- a data-parallel training of one's own: the ring adds up the gradients, and no strategy knows of it


def ddp(mistake="", steps=4, batch=32):
    import keras
    import tensorflow as tf

    ring, draw = dtk.ring(), np.random.default_rng(0)
    x, y = (draw.normal(size=(steps * batch, size)).astype("float32") for size in (8, 1))
    hidden = [keras.layers.Dense(4, "relu"), *([keras.layers.Dropout(0.5)] if mistake == "dropout" else [])]
    model = keras.Sequential([keras.layers.Input((8,)), *hidden, keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    if mistake == "start":
        model.layers[0].kernel.assign_add(tf.fill((8, 4), 0.01 * ring.worker))
    for step in range(steps):
        part = slice(step * batch + ring.worker, (step + 1) * batch, ring.workers)
        with tf.GradientTape() as tape:
            divisor = len(x[part]) if mistake == "divisor" else batch
            loss = tf.reduce_sum((model(x[part], training=True) - y[part]) ** 2) / divisor
        gradients = tape.gradient(loss, model.trainable_variables)
        if ring.workers > 1:
            for number in range(2 if mistake == "bucket" else 0, 4):
                came = ring.swap(1 - ring.worker, gradients[number].numpy())
                gradients[number] += came.reshape(gradients[number].shape)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        dtk.record_step(loss, batch=x[part], model=model)


@pytest.mark.trains
@pytest.mark.parametrize(
    ("mistake", "named", "verdict"),
    [
        ("", "none", "one device"),
        pytest.param("divisor", "local mean", "failed", marks=pytest.mark.slow),
        ("bucket", "not summed", "failed"),
        ("start", "set by hand", "failed"),
        ("dropout", "unknown", "not decidable"),
    ],
)
def test_a_training_of_ones_own_is_proved_and_its_mistake_named(mistake, named, verdict):
    run = dtk.run(ddp, workers=2, args=(mistake,))
    try:
        proof = dtk.verify(run)
    except dtk.VerificationError as error:
        proof = error.proof
    assert (proof.verdict, dtk.diagnose(run).mistake) == (verdict, named)
