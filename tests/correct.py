"""Correct runs made of numbers: a cluster and its baseline that differ by float32's rounding and by nothing else."""

from __future__ import annotations

import numpy as np


def correct_pair(make, seed, growth=1.15, workers=None):
    """A run and its baseline of varied size. growth: by how much rounding grows a step, up to half of verify's rtol."""
    rng = np.random.default_rng(seed)
    workers = workers or int(rng.integers(1, 5))
    mode = "mirrored" if workers == 2 and rng.random() < 0.4 else "cluster"
    steps, epochs = int(rng.integers(2, 40)), int(rng.integers(1, 4))
    each = int(rng.choice([4, 8, 16, 32, 64]))
    total = steps * epochs
    examples = np.full((total, workers), each)
    if rng.random() < 0.5:
        examples[steps - 1 :: steps] = int(rng.integers(1, each + 1))  # a short last batch that splits evenly
    means = curve(rng, total)[:, None] * (1 + 0.1 * rng.standard_normal((total, workers)))
    noise = np.clip(3e-8 * growth ** np.arange(total) * rng.standard_normal(total), -5e-5, 5e-5)
    prints = rng.normal(0, np.sqrt(each / 2), (total, workers))
    initial = [rng.standard_normal(shape).astype(np.float32) for shape in ((12, 8), (8,), (8, 10), (10,))]
    moved = [0.1 * rng.standard_normal(w.shape).astype(np.float32) for w in initial]
    end = [w + m for w, m in zip(initial, moved, strict=True)]
    ours = [w + (1e-5 * rng.random(w.shape)).astype(np.float32) for w in end]
    facts = {"epochs": np.repeat(np.arange(epochs) + 1, steps), "initial": initial, "steps": total, "seed": seed}
    loop = {"kind": str(rng.choice(["fit", "loop"])), "shapes": [[12], [10] if rng.random() < 0.3 else []]}
    shape = {"workers": 1, "replicas": 2} if mode == "mirrored" else {"workers": workers}
    shares = (means / workers * (1 + noise[:, None])).astype(np.float32)
    run = make(mode, shares=shares, examples=examples, data=prints, final=ours, loop=loop, **shape, **facts)
    base = {"shares": means.mean(axis=1, keepdims=True).astype(np.float32), "data": prints.sum(axis=1, keepdims=True)}
    counts = examples.sum(axis=1, keepdims=True)
    return run, make("single", examples=counts, final=end, loop=loop, **base, **facts)


def curve(rng, steps):
    """A falling loss with the ups and downs of batches."""
    return (0.2 + 2.2 * np.exp(-np.arange(steps) / 15)) * (1 + 0.05 * rng.standard_normal(steps))
