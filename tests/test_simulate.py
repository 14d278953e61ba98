"""Steps played message by message against the formulas: equal where they are exact, near where they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulate import all_reduce_ends, simulate

from dtk.scaling.job import ETHERNET_100, H100_NVLINK, Cluster, Job, Link, all_reduce
from dtk.scaling.prediction import predict, schedule

FAR, NEAR = Link("far", 1e-4, 1e9), Link("near", 5e-6, 10e9)
SIZES = [1e3, 1e6, 1e8]  # bytes: latency decides, both do, bandwidth decides
JOB = Job(per_example=0.001, batch=100, gradient_bytes=1e8, pack_bytes=25e6, overlap=1.0)


# ---- all-reduces


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("workers", [1, 2, 5, 16])
def test_a_rings_formula_is_exact(workers, size):
    ends = all_reduce_ends(Cluster(FAR), np.full(workers, 0.25), size)
    assert ends - 0.25 == pytest.approx(all_reduce(workers, size, FAR).seconds, rel=1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("workers", "per_machine"), [(2, 1), (16, 1), (64, 1), (16, 8), (32, 4), (8, 8)])
def test_halving_and_doubling_is_exact(workers, per_machine, size):
    cluster = Cluster(FAR, "halving_doubling", per_machine, H100_NVLINK)
    ends = all_reduce_ends(cluster, np.zeros(workers), size)
    assert ends == pytest.approx(cluster.all_reduce(workers, size).seconds, rel=1e-9)


@pytest.mark.parametrize("near", [H100_NVLINK, NEAR, FAR, Link("slow inside", 1e-4, 0.5e9)])
def test_a_ring_through_machines_is_within_three_per_cent(near):
    for workers, per_machine in ((8, 2), (8, 4), (16, 4), (64, 8)):
        cluster = Cluster(FAR, "ring", per_machine, near)
        for size in (1e3, 1e5, 1e6, 1e7, 1e8):
            played = all_reduce_ends(cluster, np.zeros(workers), size).max()
            ratio = played / cluster.all_reduce(workers, size).seconds
            assert 1 - 1e-9 <= ratio <= 1.03, (workers, per_machine, size)


def test_nobody_has_the_sums_before_the_last_has_begun():
    begin = np.zeros(8)
    begin[3] = 1.0
    for algorithm in ("ring", "halving_doubling"):
        ends = all_reduce_ends(Cluster(FAR, algorithm), begin, 1e6)
        assert ends.min() > 1.0
        assert ends.max() <= 1.0 + 1.35 * all_reduce(8, 1e6, FAR, algorithm).seconds


# ---- steps


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_without_stragglers_a_step_is_the_formulas(workers, overlap):
    job = replace(JOB, overlap=overlap)
    for cluster in (Cluster(FAR), Cluster(FAR, "halving_doubling")):
        expected = predict(job, cluster, [workers]).seconds[0]
        assert simulate(job, cluster, workers, steps=3).seconds.to_numpy() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_with_stragglers_a_step_is_within_one_per_cent(spread, overlap):
    """The formula for the slowest worker of each step that was played: the same luck on both sides."""
    job = replace(JOB, spread=spread, overlap=overlap)
    for link in (ETHERNET_100, Link("slow", 14e-6, 1.25e9)):
        for workers in (2, 16, 64):
            cluster = Cluster(link)
            table = simulate(job, cluster, workers, steps=20, seed=3)
            costs = [cluster.all_reduce(workers, size) for size in job.buckets]
            expected = schedule(table.slowest.to_numpy(), job, costs)
            assert table.seconds.mean() == pytest.approx(expected.mean(), rel=0.01)
            assert (table.seconds >= 0.999 * table.slowest).all()
