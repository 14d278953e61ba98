"""Pairs of runs for the tests of `diagnose`: right, but for what a test changes."""

from __future__ import annotations

import numpy as np
from live_folder import tell
from verifying import STEPS

import dtk
from dtk.proof.mistakes import MISTAKES
from dtk.records import events


def curve(rng, steps):
    """A falling loss with the ups and downs of batches."""
    return (0.2 + 2.2 * np.exp(-np.arange(steps) / 15)) * (1 + 0.05 * rng.standard_normal(steps))


OTHER = np.random.default_rng(1).normal(size=(STEPS, 1))  # fingerprints of the baseline's batches


def means(replicas, steps=STEPS):
    """Each replica's mean loss, `(steps, replicas)`; the baseline's loss is their mean."""
    rng = np.random.default_rng(3)
    return curve(rng, steps)[:, None] * (1 + 0.1 * rng.standard_normal((steps, replicas)))


def pair(make, replicas=2, change=lambda shares: shares, mode="cluster", **facts):
    """A run whose shares a test changes, and its right baseline, with 32 examples a step and the same fingerprints."""
    each = means(replicas)
    parts = np.repeat(OTHER / replicas, replicas, axis=1) + np.linspace(-0.5, 0.5, replicas)
    run = {"shares": change(each / replicas), "data": parts, "examples": np.full((STEPS, replicas), 32 // replicas)}
    base = {"shares": each.mean(axis=1, keepdims=True), "data": OTHER, "examples": np.full((STEPS, 1), 32)}
    given = facts.pop("baseline", {})
    shape = {"replicas": replicas} if mode == "mirrored" else {"workers": replicas}
    return make(mode, **{**run, **shape, **facts}), make("single", **{**base, **given})


def told(*runs, mistake, also=()):
    diagnosis = dtk.diagnose(*runs)
    assert diagnosis.mistake == mistake, str(diagnosis)
    assert diagnosis.also == also
    if mistake not in ("none", "unknown"):
        assert MISTAKES[mistake].remedy in str(diagnosis)
        assert diagnosis.evidence[0] == f"symptom: {MISTAKES[mistake].symptom}"
    return str(diagnosis)


def said(run, kind, /, **facts):
    """The run, whose workers each wrote one more event."""
    for corner in run.folder.each:
        tell(corner, kind(0.7, **facts))
    return run


def scoped(run, replicas, strategy="MultiWorkerMirroredStrategy"):
    """The run, whose model was made in such a scope."""
    return said(run, events.Loop, kind="loop", scope=events.Scope(strategy, replicas))


def other_losses(shares):
    return shares * (1 + 0.1 * np.random.default_rng(9).standard_normal((STEPS, 1)))


def later(factor):
    """Shares that differ from step 2 on."""
    return lambda shares: np.concatenate([shares[:1], shares[1:] * factor])


def prints(change):
    """Fingerprints of two replicas that add up to the baseline's, changed."""
    return change(np.repeat(OTHER / 2, 2, axis=1) + np.array([0.4, -0.4]))
