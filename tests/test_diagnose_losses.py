"""`diagnose` on runs made of numbers: ratios of the losses, and what became of the weights."""

from __future__ import annotations

import numpy as np
import pytest
from diagnosing import OTHER, later, means, other_losses, pair, told
from verifying import END, START, STEPS, maker, replaced, short_batch


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


# --- ratios


@pytest.mark.parametrize(("replicas", "mode"), [(2, "cluster"), (4, "cluster"), (2, "mirrored"), (4, "mirrored")])
def test_ratios_of_the_loss(make, replicas, mode):
    n, runs = replicas, lambda factor: pair(make, replicas, lambda shares: shares * factor, mode)
    assert f"{n} times, the number of replicas" in told(*runs(n), mistake="local mean")
    assert f"1/{n}, divided by the {n} replicas once more" in told(*runs(1 / n), mistake="divided twice")
    assert "32 times, the global batch" in told(*runs(32), mistake="not divided")
    assert "1/32, one over the global batch" in told(*runs(1 / 32), mistake="sum over batch size")
    assert f"1/{32 // n}, one over a replica's batch" in told(*runs(n / 32), mistake="sum over batch size")


@pytest.mark.parametrize(
    ("factor", "words"),
    [(15, "15 = 3·5 times"), (3, "averaged the last axis only"), (1 / 5, "without a dummy axis"), (1 / 15, "1/15")],
)
def test_the_axes_of_labels(make, factor, words):
    loop = {"kind": "loop", "shapes": [[3, 5, 1], [3, 5, 1]]}
    assert words in told(*pair(make, change=lambda s: s * factor, loop=loop), mistake="label axes")


def test_one_ratio_of_two_mistakes_names_both(make):
    loop = {"kind": "loop", "shapes": [[7], [2]]}
    sentence = told(*pair(make, change=lambda s: s * 2, loop=loop), mistake="local mean", also=("label axes",))
    assert "the same is seen with: label axes" in sentence


def test_a_penalty_keeps_the_ratio_from_being_exact(make):
    sentence = told(*pair(make, change=lambda s: s * 2 - 0.01), mistake="local mean")
    assert "about 2 times" in sentence


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


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_penalty_that_fits_the_weights(make, replicas):
    start = [np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32), np.zeros(5, np.float32)]
    extra = 0.005 * float((start[0] ** 2).sum())
    facts = {"initial": start, "final": start}
    runs = pair(make, replicas, lambda s: s + extra, **facts, baseline={**facts, "shares": base_with(replicas, extra)})
    assert "the penalty 0.005 times the sum of squares" in told(*runs, mistake="regularisation")


def base_with(replicas, extra):
    return means(replicas).mean(axis=1, keepdims=True) + extra


def test_a_penalty_of_another_kind_stays_while_losses_vary(make):
    told(*pair(make, change=lambda s: s + 0.0834), mistake="regularisation", also=("dropout",))


def test_a_loss_that_is_no_number(make):
    def spoil(shares):
        shares[3:] = np.nan
        return shares

    assert "step 4" in told(*pair(make, change=spoil), mistake="not finite")


# --- the weights


def test_workers_that_drifted_apart(make):
    ends = [END, replaced(END, 1, 1e-3)]
    assert "worker 0 and worker 1 end with different weights (w1 among" in told(
        *pair(make, final=ends), mistake="not in scope"
    )
    told(make(final=ends), mistake="not in scope")
    told(make("mirrored", identical=False), make("single"), mistake="not in scope")


def test_workers_that_trained_alone(make):
    base = means(2).mean(axis=1, keepdims=True)
    facts = {"examples": np.full((STEPS, 2), 32), "data": np.repeat(OTHER, 2, axis=1)}
    runs = pair(make, change=lambda s: np.repeat(base, 2, axis=1), **facts)
    assert "it trained by itself" in told(*runs, mistake="not in scope", also=("sharding off",))


def further(times):
    return [s + times * (e - s) for s, e in zip(START, END, strict=True)]


def test_the_learning_rate(make):
    sentence = told(*pair(make, change=later(0.9), final=further(1.95)), mistake="learning rate")
    assert "moved 1.9 times as far" in sentence or "moved 2 times as far" in sentence
    assert "N=2 fits" in sentence
    assert "N=2" not in told(*pair(make, change=later(0.9), final=further(0.3)), mistake="learning rate")
    told(*pair(make, final=further(2)), mistake="learning rate")  # found in the weights alone


def test_rounding_is_nobodys_mistake(make):
    def kink(shares):
        shares[5:] *= 1 + 5e-4
        return shares

    assert "no mistake of either run" in told(*pair(make, change=kink), mistake="rounding")


def normalised(run):
    """Names the second array as batch normalisation's."""
    for corner in run.folder.each:
        for which in ("initial", "final"):
            corner.save_weights(which, ["kernel", "batch_normalization/moving_mean"], corner.weights(which).arrays)
    return run


def test_batch_norm(make):
    run, baseline = pair(make, change=lambda s: s * 1.03)
    told(normalised(run), baseline, mistake="batch norm")
    run, baseline = pair(make, final=[END, replaced(END, 1, 1e-2)])  # Keras 3: statistics of each replica's own
    told(normalised(run), baseline, mistake="batch norm")
    run, baseline = pair(make, final=replaced(END, 1, 1e-2))
    assert "no other weights" in told(normalised(run), baseline, mistake="batch norm")
    run, baseline = pair(make, change=lambda s: s * 2.04, final=[END, replaced(END, 1, 1e-2)])
    told(normalised(run), baseline, mistake="local mean")


def test_dropout(make):
    sentence = told(*pair(make, change=other_losses), mistake="dropout")
    assert "now larger, now smaller; a layer such as dropout" in sentence
    run, baseline = pair(make, change=other_losses)
    (run.dir / "function.pkl").write_bytes(b"...Dropout...")
    assert "the function names dropout" in told(run, baseline, mistake="dropout")
