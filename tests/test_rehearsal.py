"""The ring of threads that exercises are tried on: what it computes, and functions that wait forever."""

from __future__ import annotations

import numpy as np
import pytest

from dtk.course import rehearsal
from dtk.course.rehearsal import NoMessage, rehearse


def test_what_comes_and_what_is_sent():
    def pass_on(ring, numbers):
        chunks = ring.split(numbers)
        number, values = ring.exchange(ring.worker, chunks[ring.worker])
        chunks[number] = values
        return ring.join(chunks)

    given = [10 * worker + np.arange(6.0) for worker in range(3)]
    outcome = rehearse(pass_on, [(numbers,) for numbers in given])
    np.testing.assert_array_equal(outcome["results"][1], [0, 1, 12, 13, 14, 15])
    assert outcome["bytes"] == [16, 16, 16]
    assert repr(outcome).endswith("on worker 0, 16 bytes sent")


def test_swap_with_any_other():
    def far(ring):
        return ring.swap((ring.worker + 2) % 5, [ring.worker], sender=(ring.worker - 2) % 5)[0]

    assert rehearse(far, [()] * 5)["results"] == [3, 4, 0, 1, 2]


def test_a_message_is_a_copy():
    def changed(ring):
        mine = np.array([1.0 + ring.worker])
        came = ring.swap(1 - ring.worker, mine)
        mine += 100
        return float(came[0])

    assert rehearse(changed, [(), ()])["results"] == [2.0, 1.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda ring: ring.swap((ring.worker + 1) % 3, [1.0]),  # each waits for one that sends to another
        lambda ring: ring.exchange(0, ring.split([1.0] * 3)[0]) if ring.worker else 1.0,
    ],
    ids=["round", "one ends"],
)
def test_workers_that_wait_for_ever_are_found(function, monkeypatch):
    monkeypatch.setattr(rehearsal, "_PATIENCE", 0.2)
    with pytest.raises(NoMessage, match=r"worker \d waits for a message from worker \d, which sends none"):
        rehearse(function, [(), (), ()])


def test_the_reason_is_raised_and_not_what_follows_from_it():
    def one_fails(ring):
        if ring.worker == 2:
            raise ValueError("mine")
        return ring.exchange(0, ring.split([1.0] * 3)[0])

    with pytest.raises(ValueError, match="mine"):
        rehearse(one_fails, [(), (), ()])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda ring: ring.exchange(0, [1.0]), "cut the gradient into chunks first"),
        (
            lambda ring: ring.exchange(-1, ring.split([1.0] * 2)[0]),
            "chunk -1 in step 1, but there are the chunks 0 to 1; numbers go round with % 2",
        ),
        (lambda ring: ring.split(["a", "b"]), "ring.split takes an array of numbers, not one of type <U1"),
        (lambda ring: ring.swap(ring.worker, [1.0]), "but this is worker 0; the others"),
        (lambda ring: ring.join([[1.0]]), "ring.join got 1 chunks; it takes the 2 of ring.split"),
    ],
)
def test_mistakes_are_sentences(function, words):
    """Of `dtk.ring()`, too: what refuses them is the same there."""
    with pytest.raises(ValueError, match=words):
        rehearse(function, [(), ()])
