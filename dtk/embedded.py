"""Handwritten digits that come with dtk, the data that needs no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["DIGITS", "digits", "original_digits"]

DIGITS = Path(__file__).parent / "data" / "digits.npz"  # its source and licence: data/README.md


def digits() -> tuple[np.ndarray, np.ndarray]:
    """UCI's handwritten digits: images uint8 (1797, 28, 28, 1), labels int64 (1797,), in an order mixed once for all.

    Each 8×8 image of values 0 to 16 is enlarged to 28×28 by bilinear interpolation and scaled to 0..255. They are those
    of scikit-learn's `load_digits`.
    """
    small, labels = original_digits()
    centres = (np.arange(28) + 0.5) * 8 / 28 - 0.5
    weights = np.clip(1 - np.abs(centres[:, None] - np.arange(8)[None, :]), 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    large = np.einsum("ai,nij,bj->nab", weights, small, weights)
    images = np.round(large * (255 / 16)).astype(np.uint8)[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


def original_digits() -> tuple[np.ndarray, np.ndarray]:
    """As they were published: images float64 (1797, 8, 8) of whole numbers from 0 to 16, labels int64 (1797,)."""
    with np.load(DIGITS) as file:
        return file["images"].astype(np.float64), file["labels"].astype(np.int64)
