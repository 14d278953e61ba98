"""`diagnose` on runs made of numbers: ratios of the losses, and what became of the weights."""

from __future__ import annotations

import numpy as np
import pytest
from diagnosing import OTHER, later, means, other_losses, pair, said, scoped, told, traced
from verifying import END, START, STEPS, maker, replaced, short_batch

from dtk.errors import VerificationError
from dtk.events import Alone, Counted


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
    start = [np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32), np.zeros(5, np.float32)]
    extra, facts = 0.002 * float((start[0] ** 2).sum()), {"initial": start, "final": start}
    for factor, key in ((2, "local mean"), (1 / 2, "divided twice")):
        base = {**facts, "shares": base_with(2, extra)}
        runs = pair(make, change=lambda s, f=factor: s * f + extra / 2, **facts, baseline=base)
        sentence = told(*traced(runs), mistake=key)
        assert "both add the penalty 0.002 times the sum of squares of all kernels rightly" in sentence


def test_a_ratio_near_a_known_one_is_no_proof(make):
    """A loss that depends on the whole batch can have any ratio."""
    runs = traced(pair(make, change=lambda s: s * 2 - 0.01))
    sentence = told(*runs, mistake="unknown", also=("local mean", "whole batch"))
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
    run, baseline = pair(make, final=ends)
    told(scoped(run, 1, None), baseline, mistake="not in scope")


def test_weights_that_drifted_apart_in_the_scope_are_not_blamed_on_it(make):
    run, baseline = pair(make, final=[END, replaced(END, 1, 1e-3)])
    sentence = told(scoped(run, 2), baseline, mistake="unknown", also=("not in scope",))
    assert "though the model was made in the scope of MultiWorkerMirroredStrategy with 2 replicas" in sentence
    # A copy for each replica is what a variable has that was made in the scope.
    told(make("mirrored", identical=False), make("single"), mistake="unknown", also=("not in scope",))


def test_weights_that_are_other_ones_on_one_worker_from_the_start(make):
    starts = [START, replaced(START, 1, 1e-3)]
    run, baseline = pair(make, final=[END, replaced(END, 1, 1e-3)])
    for corner, held in zip(run.folder.each, starts, strict=True):
        corner.save_weights("initial", ["w0", "w1"], held)
    sentence = told(scoped(run, 2), baseline, mistake="start")
    assert sentence.startswith("worker 0 and worker 1 begin with different weights (w1 among them), though the model")
    assert "something set them on one worker alone" in sentence


def counted(run, steps):
    return said(run, Counted, training=1, counted=steps, recorded=0, offset=0)


def test_an_optimizer_that_goes_on_from_another_training(make):
    def runs(mine, other):
        run, baseline = traced(pair(make, change=later(0.9), final=further(1.95)))
        return counted(run, mine), counted(baseline, other)

    sentence = told(*runs(100, 0), mistake="start")
    assert "as training began the optimizer had counted 100 steps in the cluster, 0 in the baseline" in sentence
    told(*runs(100, 100), mistake="learning rate")
    told(*runs(None, 0), mistake="learning rate")  # not known


def test_workers_that_trained_alone(make):
    base = means(2).mean(axis=1, keepdims=True)
    facts = {"examples": np.full((STEPS, 2), 32), "data": np.repeat(OTHER, 2, axis=1)}

    def runs():
        return pair(make, change=lambda s: np.repeat(base, 2, axis=1), **facts)

    sentence = told(*runs(), mistake="unknown", also=("not in scope", "sharding off"))
    assert "one of these two" in sentence
    run, baseline = runs()
    assert "it trained by itself" in told(scoped(run, 1, None), baseline, mistake="not in scope")
    run, baseline = runs()
    told(scoped(run, 2), baseline, mistake="sharding off")


def test_a_batch_for_each_worker_that_trains_alone(make):
    facts = {"examples": np.full((STEPS, 2), 32), "data": prints_of_two(), "change": other_losses}
    run, baseline = pair(make, **facts)
    told(run, baseline, mistake="global batch")
    run, baseline = pair(make, **facts)
    told(scoped(run, 2), baseline, mistake="global batch")
    run, baseline = pair(make, **facts)
    sentence = told(scoped(run, 1, None), baseline, mistake="not in scope")
    assert "made under the default strategy" in sentence
    assert "step 1 has 64 examples over all workers, 32 in the baseline" in sentence
    run, baseline = pair(make, **facts)
    told(said(run, Alone), baseline, mistake="not in scope")


def prints_of_two():
    return np.random.default_rng(4).normal(size=(STEPS, 2))


def further(times):
    return [s + times * (e - s) for s, e in zip(START, END, strict=True)]


def test_the_learning_rate(make):
    part = later(0.9)

    def runs(times, change=part):
        return traced(pair(make, change=change, final=further(times)))

    sentence = told(*runs(1.95), mistake="learning rate")
    assert "moved 1.9 times as far" in sentence or "moved 2 times as far" in sentence
    assert "N=2 fits" in sentence
    assert "N=2" not in told(*runs(0.3), mistake="learning rate")
    told(*runs(2, lambda s: s), mistake="learning rate")  # found in the weights alone


def test_weights_between_fits_are_judged_as_those_at_the_end(make, monkeypatch):
    def prove(*args, **given):
        raise VerificationError("the weights after fit 1 differ: w0; look", reason="weights between fits")

    monkeypatch.setattr("dtk.diagnosis.diagnose.prove", prove)
    told(*traced(pair(make, final=further(2))), mistake="learning rate")


@pytest.mark.parametrize("clips", [None, ["clipnorm=1.0"]])
def test_clipping_on_each_replica_looks_like_a_learning_rate(make, clips):
    runs = traced(pair(make, change=later(0.9), final=further(1.95)), clips=clips)
    sentence = told(*runs, mistake="unknown", also=("learning rate", "clipping"))
    assert "one of these two: a learning rate" in sentence
    assert "try_it=True" in sentence


def test_a_gradient_that_no_loss_shows_is_no_learning_rate(make):
    """A penalty that was added after the recorded loss: nearly the same way, nearly as far."""
    aside = [e + 0.3 * np.abs(e - s) * np.sign(s - 0.4) for s, e in zip(START, END, strict=True)]
    told(
        *traced(pair(make, change=later(1.01), final=aside)),
        mistake="unknown",
        also=("learning rate", "regularisation"),
    )


def test_rounding_is_nobodys_mistake(make):
    def kink(at_once):
        parted = np.where(np.arange(STEPS) < 5, 1 + 1e-6, 1 + at_once)[:, None]
        return pair(make, change=lambda s: s * parted)

    # What a kink enlarges, another momentum or a rate that changes on the way does as well: a further run tells.
    sentence = told(*traced(kink(5e-4)), mistake="unknown", also=("rounding", "learning rate"))
    assert "both runs in float64" in sentence
    # Clipping, where gradients grow, and a rate that changes, begin at a step of their own as well.
    told(*traced(kink(5e-3)), mistake="unknown", also=("rounding", "learning rate"))
    for clips in (None, ["clipnorm=1.0"]):
        told(*traced(kink(5e-4), clips=clips), mistake="unknown", also=("rounding", "clipping", "learning rate"))


def test_a_difference_that_grows_with_the_steps_is_no_rounding(make):
    """As that of a gradient which is off at every step."""
    slow = 1 + 1e-5 * np.arange(STEPS)[:, None]
    runs = traced(pair(make, change=lambda s: s * slow))
    told(*runs, mistake="unknown", also=("rounding", "regularisation"))


def normalised(run):
    """Names the second array as batch normalisation's."""
    for corner in run.folder.each:
        for which in ("initial", "final"):
            corner.save_weights(which, ["kernel", "batch_normalization/moving_mean"], corner.weights(which).arrays)
    return run


def test_batch_norm(make):
    run, baseline = traced(pair(make, change=lambda s: s * 1.03))
    told(normalised(run), baseline, mistake="batch norm", also=("regularisation", "whole batch"))
    run, baseline = pair(make, final=replaced(END, 1, 1e-2))
    assert "no other weights" in told(normalised(run), baseline, mistake="batch norm")


def test_batch_norm_that_does_not_train_is_not_to_blame(make):
    ends = [END[0], START[1]]
    run, baseline = traced(pair(make, change=lambda s: s * 0.97, final=ends, baseline={"final": ends}))
    told(normalised(run), baseline, mistake="unknown", also=("whole batch",))
