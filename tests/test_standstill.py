"""`diagnose` where run and baseline agree and nothing is learnt, on runs made of numbers: what it says, and when."""

from __future__ import annotations

import numpy as np
import pytest
from diagnosing import told
from verifying import maker

import dtk

STEPS, GLOBAL = 60, 128
NAMES = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]


def weights_of(width, hidden=12):
    rng = np.random.default_rng(4)
    shapes = (20, hidden), (hidden,), (hidden, width), (width,)
    return [0.3 * rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def moved(arrays, part):
    """The arrays after a step of `part` times their norm, in a random direction."""
    rng = np.random.default_rng(5)
    steps = [rng.standard_normal(array.shape) for array in arrays]
    length = np.sqrt(sum((s**2).sum() for s in steps) / sum((a.astype(np.float64) ** 2).sum() for a in arrays))
    return [a + (part / length * s).astype(np.float32) for a, s in zip(arrays, steps, strict=True)]


@pytest.fixture
def make(tmp_path):
    """make(losses, width=10, part=…): a cluster of 2 with these global losses, whose weights moved by that part."""
    build = maker(tmp_path)

    def make(losses, width=10, part=1e-3, mode="cluster", examples=None, log="", names=NAMES, **facts):
        workers = 2 if mode == "cluster" else 1
        start = weights_of(width)
        if examples is None:
            examples = np.full((len(losses), 1), GLOBAL)
        given = {"initial": start, "final": moved(start, part), **facts}
        shares = np.repeat(np.asarray(losses)[:, None] / workers, workers, axis=1)
        counts = np.repeat(examples // workers, workers, axis=1)
        run = build(mode, steps=len(losses), shares=shares, examples=counts, **given)
        for corner in run.folder.each:
            for which in ("initial", "final"):
                corner.save_weights(which, names, corner.weights(which).arrays)
            (corner.path / "log.txt").write_text(f"{log if corner.worker == workers - 1 else ''}\n")
        return run

    return make


def guesses(width=10, steps=STEPS, spread=0.004, offset=0.0):
    """What an untrained classifier's batches cost: ln k, but for the batches' ups and downs."""
    noise = np.random.default_rng(6).standard_normal(steps)
    return np.log(max(2, width)) * (1 + offset + spread * noise)


def test_a_low_learning_rate(make):
    found = dtk.diagnose(make(guesses(), part=2e-3), make(guesses(), part=2e-3, mode="single"))
    assert str(found) == (
        "every step is proved, and nothing is learnt: over all 60 steps the loss stays at 2.304, no better than 2.303 "
        "= ln 10, what guessing among 10 classes costs; the weights moved by 0.2 %: the learning rate is too low to "
        "learn in 60 steps; raise the learning rate tenfold at a time until the loss falls, or look at labels and "
        "inputs if it never does"
    )
    assert found.mistake == "low learning rate"
    assert found.also == ()
    assert any(fact.startswith("the mean loss in each quarter") for fact in found.evidence)


def test_without_a_baseline(make):
    sentence = told(make(guesses()), mistake="low learning rate")
    assert sentence.startswith("every step is proved, and nothing is learnt")


@pytest.mark.parametrize("width", [1, 2, 3, 1000])
def test_the_classes_are_the_width_of_the_final_layer(make, width):
    sentence = told(make(guesses(width), width), mistake="low learning rate")
    assert f"ln {max(2, width)}, what guessing among {max(2, width)} classes" in sentence
    told(make(guesses(width), 3 * width + 1), mistake="none")


def test_a_network_that_is_sure_of_one_class_costs_more_than_guessing(make):
    sentence = told(make(guesses(offset=0.09)), mistake="low learning rate")
    assert ", no better than 2.303 = ln 10" in sentence


def test_weights_that_moved_and_weights_that_did_not(make):
    assert "moved by 30 % in 60 steps, so it is not the" in told(make(guesses(), part=0.3), mistake="nothing learnt")
    start = weights_of(10)
    frozen = [*start[:2], *moved(start, 0.1)[2:]]
    sentence = told(make(guesses(), final=frozen), mistake="nothing learnt")
    assert "weights dense/kernel did not change at all" in sentence
    assert "dense/kernel and 1 more did" in told(make(guesses(), final=start), mistake="nothing learnt")


def test_an_optimizers_variables_are_no_weights(make):
    """As an Estimator with tf.compat.v1.train.MomentumOptimizer leaves them."""
    start = weights_of(10)
    slots = [np.zeros_like(array) for array in start]
    names = [*NAMES, *(f"{name}/Momentum" for name in NAMES)]
    final = [*moved(start, 1e-3), *(slot + np.float32(9) for slot in slots)]
    sentence = told(make(guesses(), names=names, initial=start + slots, final=final), mistake="low learning rate")
    assert "0.1 %" in sentence


def test_a_flat_first_loss_is_a_fact(make):
    flat = np.full(STEPS, np.log(10))
    assert "pass a softmax twice" in dtk.diagnose(make(flat)).evidence[-1]
    assert not any("softmax" in fact for fact in dtk.diagnose(make(flat * 1.02)).evidence)


@pytest.mark.parametrize(
    "losses",
    [
        guesses(steps=49),  # too few steps to tell
        guesses() * (1 - np.linspace(0, 0.05, STEPS)),  # learns, slowly
        guesses() * np.r_[np.ones(45), np.linspace(1, 0.8, 15)],  # learns after a plateau
        guesses(offset=-0.05),  # better than guessing
    ],
)
def test_no_false_alarm_on_what_learns(make, losses):
    run = make(losses)
    assert dtk.diagnose(run).mistake == "none", str(dtk.diagnose(run))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("power", [1, 2])
def test_no_false_alarm_on_a_regression_that_learns_nothing(make, seed, power):
    """Absolute and squared errors of targets that nothing explains, whose mean is ln k by chance."""
    rng = np.random.default_rng(seed)
    errors = np.abs(rng.standard_normal((STEPS, GLOBAL))) ** power
    width = 1 + seed % 3
    losses = (errors / errors.mean() * np.log(max(2, width))).mean(axis=1)
    assert dtk.diagnose(make(losses, width)).mistake == "none"


def test_no_final_layer_no_classes(make):
    short = weights_of(10)[:2]
    told(make(guesses(), names=NAMES[:2], initial=short, final=moved(short, 1e-3)), mistake="none")
    lone = [np.ones(10, np.float32)]
    told(make(guesses(), names=["scale"], initial=lone, final=moved(lone, 1e-3)), mistake="none")
