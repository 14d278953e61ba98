"""`ring.swap`: numbers to any other worker, and from any other."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import dtk
from dtk.worker.ring import Neighbours, RingBroken


def together(work, workers, folder, timeout=20.0):
    """What work(neighbours, worker) returns or raises, by worker, each in a thread."""
    sockets, came = [folder / str(worker) for worker in range(workers)], {}

    def one(worker):
        links = Neighbours(sockets, worker, timeout, lambda: (worker - 1) % workers)
        try:
            came[worker] = work(links, worker)
        except Exception as error:
            came[worker] = error
        finally:
            done.wait(20.0)
            links.close()

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
        first = links.trade(b"%d" % worker * size, worker ^ 1, worker ^ 1)
        return first, links.trade(first, worker ^ 2, worker ^ 2)

    assert together(work, 4, tmp_path) == [(b"%d" % (k ^ 1) * size, b"%d" % (k ^ 3) * size) for k in range(4)]


def test_receiver_and_sender_may_differ(tmp_path):
    def work(links, worker):
        return links.trade(b"%d" % worker, (worker + 2) % 5, (worker - 2) % 5)

    assert together(work, 5, tmp_path) == [b"%d" % ((k - 2) % 5) for k in range(5)]


def test_a_worker_that_comes_earlier_than_it_is_waited_for_is_kept(tmp_path):
    def work(links, worker):
        others = {0: (1, 2), 1: (0, 2), 2: (0, 1)}[worker]  # worker 2 calls worker 0 while that one waits for worker 1
        return [links.trade(b"%d" % worker, other, other) for other in others]

    assert together(work, 3, tmp_path) == [[b"1", b"2"], [b"0", b"2"], [b"0", b"1"]]


def test_a_partner_that_does_not_come_is_named(tmp_path):
    def work(links, worker):
        return links.trade(b"x", (worker + 1) % 3, (worker + 1) % 3)  # each waits for one that sends to another

    errors = together(work, 3, tmp_path, timeout=0.5)
    assert {type(error) for error in errors} == {RingBroken}
    assert str(errors[0]).startswith("worker 1 sent nothing for 0.5 s; every worker must call ring.exchange, or ring.")


@pytest.mark.trains
def test_the_numbers_of_a_run():
    def pairs():
        ring = dtk.ring()
        got = ring.swap(ring.worker ^ 1, np.arange(3.0).reshape(3, 1) + 10 * ring.worker)
        return got, ring.bytes_sent

    for worker, (got, sent) in enumerate(dtk.run(pairs, workers=2).results):
        np.testing.assert_array_equal(got, np.arange(3.0) + 10 * (1 - worker))
        assert sent == 24


@pytest.mark.trains
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("ring.swap(ring.worker, [1.0])", "; the others are among 0 to 1"),
        ("ring.swap(2, [1.0])", "ring.swap: worker 2, but this is worker"),
        ("ring.swap(1 - ring.worker, [1.0], sender=-1)", "ring.swap: worker -1, but this is worker"),
        ("ring.swap(1 - ring.worker, ['a'])", "ring.swap takes an array of numbers, not one of type <U1"),
    ],
)
def test_mistakes_are_sentences(wrong, words):
    def mistaken():
        exec(wrong, {"ring": dtk.ring()})

    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(mistaken, workers=2, timeout=25.0)
    assert words in str(caught.value)
