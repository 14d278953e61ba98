"""`diagnose` on runs made of numbers: ratios of the losses, and what became of the weights."""

from __future__ import annotations

import numpy as np
import pytest
from diagnosing import other_losses, pair, said, scoped, told
from verifying import END, STEPS, maker, replaced, short_batch

from dtk.records.events import Alone


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


# --- ratios


@pytest.mark.parametrize(("replicas", "mode"), [(2, "cluster"), (4, "cluster"), (2, "mirrored"), (4, "mirrored")])
def test_ratios_of_the_loss(make, replicas, mode):
    n, runs = replicas, lambda factor: pair(make, replicas, lambda shares: shares * factor, mode)
    assert f"{n} times, the number of replicas" in told(*runs(n), mistake="local mean")
    assert f"1/{n}, divided by the {n} replicas once more" in told(*runs(1 / n), mistake="divided twice")
    assert "32 times, the number of examples" in told(*runs(32), mistake="not divided")
    assert "1/32: a mean was divided" in told(*runs(1 / 32), mistake="sum over batch size")
    assert f"1/{32 // n}: a mean was divided" in told(*runs(n / 32), mistake="sum over batch size")


@pytest.mark.parametrize(
    ("factor", "words"),
    [(15, "15 times"), (3, "3 times"), (1 / 5, "1/5"), (1 / 15, "1/15")],
)
def test_the_axes_of_labels(make, factor, words):
    loop = {"kind": "loop", "shapes": [[3, 5, 1], [3, 5, 1]]}
    assert words in told(*pair(make, change=lambda s: s * factor, loop=loop), mistake="label axes")


def test_one_ratio_of_two_mistakes_names_both(make):
    loop = {"kind": "loop", "shapes": [[7], [2]]}
    sentence = told(*pair(make, change=lambda s: s * 2, loop=loop), mistake="local mean", also=("label axes",))
    assert "the same is seen with: label axes" in sentence


def test_a_local_mean_of_uneven_batches(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [70, 58], step=1)
    runs = pair(make, shares=shares * 2, examples=examples, data=np.full((STEPS, 2), np.nan))
    base = make("single", shares=base, examples=examples.sum(axis=1, keepdims=True))
    told(runs[0], base, mistake="local mean")


def test_a_short_batch_divided_by_the_full_one(make):
    examples = np.full((STEPS, 2), 16)
    examples[6] = 5
    change = np.ones((STEPS, 1))
    change[6:] = 10 / 32
    runs = pair(
        make, change=lambda s: s * change, examples=examples, baseline={"examples": examples.sum(1, keepdims=True)}
    )
    assert "step 7 has 10 examples, and its loss is 10/32" in told(*runs, mistake="short batch")


def test_the_average_of_unequal_batches(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2])
    baseline = {"shares": base, "examples": examples.sum(axis=1, keepdims=True)}
    told(*pair(make, shares=shares, examples=examples, baseline=baseline), mistake="uneven batch")


def test_a_reduced_value(make):
    runs = pair(make, change=lambda s: np.repeat(s.sum(axis=1, keepdims=True), 2, axis=1))
    assert "all 2 replicas recorded the same loss" in told(*runs, mistake="reduced value")


def test_a_loss_that_is_no_number(make):
    def spoil(shares):
        shares[3:] = np.nan
        return shares

    assert "step 4" in told(*pair(make, change=spoil), mistake="not finite")


# --- the weights


def test_workers_that_drifted_apart(make):
    ends = [END, replaced(END, 1, 1e-3)]
    assert "hold different final weights: w1" in told(*pair(make, final=ends), mistake="set by hand")
    told(make(final=ends), mistake="set by hand")
    run, baseline = pair(make, final=ends)
    told(scoped(run, 1, None), baseline, mistake="not in scope")


def test_a_batch_for_each_worker_that_trains_alone(make):
    facts = {"examples": np.full((STEPS, 2), 32), "data": prints_of_two(), "change": other_losses}
    run, baseline = pair(make, **facts)
    told(run, baseline, mistake="global batch")
    run, baseline = pair(make, **facts)
    told(scoped(run, 2), baseline, mistake="global batch")
    run, baseline = pair(make, **facts)
    sentence = told(scoped(run, 1, None), baseline, mistake="not in scope")
    assert "made under the default strategy" in sentence
    assert "step 1: cluster 64 examples" in sentence
    run, baseline = pair(make, **facts)
    told(said(run, Alone), baseline, mistake="not in scope")


def prints_of_two():
    return np.random.default_rng(4).normal(size=(STEPS, 2))
