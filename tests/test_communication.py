"""The cost of an all-reduce against counting by hand, and latency and bandwidth found again from timings."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

from dtk import ClusterConfigError
from dtk.scaling.job import ALGORITHMS, H100_NVLINK, Cluster, Link
from dtk.scaling.prediction import fit

LINK = Link("test", latency=1e-3, bandwidth=1e6)
COLUMNS = ["workers", "bytes", "seconds"]


# ---- formulas


def counted(workers):
    """A ring's messages one after the other and chunks out of a link, by doing it."""
    parts = [[{worker} for _ in range(workers)] for worker in range(workers)]
    messages = 0
    while any(part != set(range(workers)) for row in parts for part in row):
        step, messages = messages, messages + 1
        # Worker w sends chunk w - step: first its sum so far, later what it was given.
        moved = [(w, (w - step) % workers, set(parts[w][(w - step) % workers])) for w in range(workers)]
        for worker, chunk, held in moved:
            parts[(worker + 1) % workers][chunk] |= held
    return messages


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 16])
def test_a_ring_costs_what_counting_its_messages_says(workers):
    messages, size = counted(workers), 6e5
    cost = Cluster(LINK).all_reduce(workers, size)
    assert cost.steps == messages == 2 * (workers - 1)
    assert cost.bytes == pytest.approx(messages * size / workers)
    assert cost.seconds == pytest.approx(messages * (LINK.latency + size / workers / LINK.bandwidth))


@pytest.mark.parametrize("workers", [2, 4, 16, 1024])
def test_halving_and_doubling_sends_a_rings_bytes_in_fewer_messages(workers):
    ring, halving = Cluster(LINK).all_reduce(workers, 1e6), Cluster(LINK, "halving_doubling").all_reduce(workers, 1e6)
    assert halving.steps == 2 * round(math.log2(workers))
    # A half, a quarter, ... of the data, and back.
    assert halving.bytes == pytest.approx(2 * sum(1e6 / 2**step for step in range(1, halving.steps // 2 + 1)))
    assert halving.bytes == pytest.approx(ring.bytes)


def test_the_two_trees_are_as_deep_as_they_must_be_and_each_has_half_the_bytes():
    costs = [Cluster(LINK, "tree").all_reduce(workers, 1e6) for workers in (2, 3, 8, 1000)]
    assert [cost.steps for cost in costs] == [2, 4, 6, 20]
    assert [cost.bytes for cost in costs] == [1e6, 2e6, 2e6, 2e6]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("per_machine", [1, 4])
def test_one_worker_sends_nothing(algorithm, per_machine):
    assert Cluster(LINK, algorithm, per_machine, H100_NVLINK).all_reduce(1, 1e9) == (0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_workers_of_one_machine_use_its_link(algorithm):
    inside = Cluster(LINK, algorithm, 8, H100_NVLINK).all_reduce(8, 1e6)
    assert inside == Cluster(H100_NVLINK, algorithm).all_reduce(8, 1e6)
    assert Cluster(LINK, algorithm, 8).all_reduce(8, 1e6) == Cluster(LINK, algorithm).all_reduce(8, 1e6)


def test_machines_all_reduce_what_their_workers_have_put_together():
    cost = Cluster(LINK, "halving_doubling", 8, H100_NVLINK).all_reduce(32, 1e6)
    local, far = Cluster(H100_NVLINK).all_reduce(8, 1e6), Cluster(LINK, "halving_doubling").all_reduce(4, 1e6)
    assert cost.seconds == pytest.approx(local.seconds + far.seconds)
    assert cost.steps == local.steps + far.steps


def test_a_ring_through_machines_goes_at_the_pace_of_the_slower_link():
    cost = Cluster(LINK, "ring", 8, H100_NVLINK).all_reduce(32, 1e8)
    flat = Cluster(LINK).all_reduce(32, 1e8)
    assert cost.transfer == pytest.approx(flat.transfer)
    assert cost.latency < flat.latency
    assert Cluster(LINK, "ring", 8, LINK).all_reduce(32, 1e8).seconds == pytest.approx(flat.seconds)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Link("x", math.nan, 1.0), "x: latency=nan"),
        (lambda: Link("x", 0.0, 0.0), "x: bandwidth=0.0: it takes a number above 0"),
        (lambda: Cluster(LINK).all_reduce(0, 1.0), "workers=0: it takes a number from 1 to 10000"),
        (lambda: Cluster(LINK, per_machine=0).all_reduce(2, 1.0), "per_machine=0: it takes a number from 1"),
    ],
)
def test_what_has_no_cost(call, words):
    with pytest.raises(ClusterConfigError, match=words):
        call()


# ---- fits


def timed(seed=0, noise=0.0, workers=(2, 3, 4), overhead=0.0, algorithm="ring", repeats=3):
    """All-reduces over a link of 80 µs and 1.5 GB/s, with errors of that relative size."""
    random, link = np.random.default_rng(seed), Link("true", 80e-6, 1.5e9)
    rows = [
        (
            count,
            size,
            (overhead + Cluster(link, algorithm).all_reduce(count, size).seconds) * random.lognormal(0, noise),
        )
        for count in workers
        for size in (1e3, 1e4, 1e5, 1e6, 1e7)
        for _ in range(repeats)
    ]
    return pandas.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_exact_timings_give_back_the_link(algorithm):
    found = fit(timed(algorithm=algorithm), algorithm)
    assert found.latency == pytest.approx(80e-6, rel=1e-6)
    assert found.bandwidth == pytest.approx(1.5e9, rel=1e-6)
    assert found.error < 1e-6
    assert found.overhead == 0.0
    assert (found.link().latency, found.link().bandwidth) == (found.latency, found.bandwidth)


def test_one_worker_gives_the_overhead_of_a_call():
    found = fit(timed(workers=(1, 2), overhead=3e-4))
    assert found.overhead == pytest.approx(3e-4, rel=1e-6)
    assert found.latency == pytest.approx(80e-6, rel=1e-6)


def test_the_intervals_hold_the_truth_about_as_often_as_they_say():
    latency = bandwidth = 0
    for seed in range(24):
        found = fit(timed(seed, noise=0.15))
        latency += found.latency_interval[0] <= 80e-6 <= found.latency_interval[1]
        bandwidth += found.bandwidth_interval[0] <= 1.5e9 <= found.bandwidth_interval[1]
        assert found.latency_interval[0] <= found.latency <= found.latency_interval[1]
    assert latency >= 20
    assert bandwidth >= 20


def test_a_busy_core_now_and_then_does_not_change_the_fit():
    table = timed(noise=0.05)
    clean = fit(table)
    table.loc[[4, 20, 37], "seconds"] *= 20
    found = fit(table)
    assert found.latency == pytest.approx(clean.latency, rel=0.1)
    assert found.bandwidth == pytest.approx(clean.bandwidth, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "measurements: 0, sizes with two workers or more: 0; to tell latency from bandwidth it takes 4 measure"),
        ([(1, 10, 0.1), (1, 20, 0.2)], "measurements: 2, sizes with two workers or more: 0; .* takes 5 measurements"),
        ([(2, 100, 0.1)] * 5, "measurements: 5, sizes with two workers or more: 1; .* and two sizes"),
        ([(2, 100, 0.1), (2, 200, 0.1), (2, 300, 0.1)], "measurements: 3, sizes .*: 3; .* takes 4 measurements"),
        ([(2, 10**k, 0.1) for k in range(2, 7)], "up to 1 MB, larger arrays did not take longer"),
        ([(2, 100, 0.1), (2, 200, float("nan"))], "measurement 1 has seconds=nan; leave it out"),
    ],
)
def test_what_does_not_tell_latency_and_bandwidth(rows, words):
    with pytest.raises(ClusterConfigError, match=words):
        fit(pandas.DataFrame(rows, columns=COLUMNS))
