"""The embedded digits: `python tools/digits.py` makes `dtk/data/digits.npz` from scikit-learn's copy of them.

1,797 images of 8×8, values 0 to 16, and their labels, as scikit-learn's `load_digits` has them: the test set of UCI's
 "Optical Recognition of Handwritten Digits". `tests/test_datasets.py` compares the numbers.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import load_digits

from dtk.datasets import DIGITS


def main() -> int:
    found = load_digits()
    DIGITS.parent.mkdir(exist_ok=True)
    # Values are whole numbers from 0 to 16 (images) and from 0 to 9 (labels): a byte has room for each.
    np.savez_compressed(DIGITS, images=found.images.astype(np.uint8), labels=found.target.astype(np.uint8))
    print(f"{DIGITS.name}: {len(found.target)} digits, {DIGITS.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
