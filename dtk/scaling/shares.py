"""From replicas to the global loss: the arithmetic of shares, means and examples.

A step's global batch is split over R replicas. Replica i sees n_i examples and computes their mean loss m_i.
Keras `fit` divides that mean by the number of replicas, and the sum over replicas is the step's loss:

    share_i = m_i / R        loss of `fit` = sum of share_i        loss over the examples = sum of m_i n_i / sum of n_i

The two are equal when every replica has the same number of examples. In a loop of one's own a
share is the sum over the replica's examples, divided by the global batch; TensorFlow's custom-training tutorial,
"Define the loss function", has the reason. What TensorFlow computes, these functions compute without it;
`tests/test_scaling.py` compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtk.language import N_, _

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike


def by_step(records: pandas.DataFrame, column: str) -> pandas.DataFrame:
    """A column of the records as `(steps, replicas)`: index step, columns replica; NaN where nothing was recorded.

    Raises ValueError where a replica recorded a step twice.

    >>> from dtk.records.tables import frame
    >>> rows = [(0, 0, 1, 1, 1.25, 2, 0.0, 0.1), (1, 1, 1, 1, 2.25, 2, 0.0, 0.1)]
    >>> by_step(frame(rows), "loss").to_numpy().tolist()
    [[1.25, 2.25]]
    """
    twice = records[records.duplicated(["step", "replica"])]
    if len(twice):
        replica, step = int(twice.replica.iloc[0]), int(twice.step.iloc[0])
        what = N_("step {step} of replica {replica} is recorded more than once: the records are damaged")
        raise ValueError(_(what, step=step, replica=replica))
    return records.pivot(index="step", columns="replica", values=column)


def whole_steps(records: pandas.DataFrame) -> pandas.DataFrame:
    """The shares of the loss of the steps that all replicas recorded, `(steps, replicas)`, as `by_step` has them.

    A row adds up to the loss of its step, as `global_loss` adds it up.
    """
    shares, examples = by_step(records, "loss"), by_step(records, "examples")
    return shares.where((examples > 0) | np.isfinite(shares), 0.0)[examples.notna().all(axis=1)]


def global_loss(shares: ArrayLike, examples: ArrayLike) -> np.ndarray:
    """The loss of each step, `(steps,)`: the sum of the replicas' shares, `(steps, replicas)`.

    This is what `fit` minimizes and reports. A replica that saw no example adds nothing where its share is no number:
    the mean over no examples is 0 or NaN, depending on the loss. A number counts, such as its part of a penalty.

    >>> global_loss([[1.25, 2.25], [1.25, float("nan")], [1.25, 0.5]], examples=[[2, 2], [1, 0], [1, 0]]).tolist()
    [3.5, 1.25, 1.75]
    """
    values = np.asarray(shares, np.float64)
    return np.where((np.asarray(examples) > 0) | np.isfinite(values), values, 0.0).sum(axis=1)


def weighted_loss(shares: ArrayLike, examples: ArrayLike) -> np.ndarray:
    """The mean over the examples of each step, `(steps,)`: what one device computes on the same global batch.

    shares, examples: `(steps, replicas)`. NaN for a step without examples.

    Five examples, with losses 1, 1, 1 on replica 0 and 2, 2 on replica 1. Their mean is 7 / 5 = 1.4. The replicas'
    means are 1 and 2, their shares 0.5 and 1.0, and `fit` says 1.5, because it averages the two means:

    >>> global_loss([[0.5, 1.0]], [[3, 2]]).tolist(), weighted_loss([[0.5, 1.0]], [[3, 2]]).tolist()
    ([1.5], [1.4])
    """
    counts = np.asarray(examples, np.float64)
    sums = np.where(counts > 0, np.asarray(shares, np.float64) * counts.shape[1] * counts, 0.0).sum(axis=1)
    total = counts.sum(axis=1)
    return np.divide(sums, total, out=np.full_like(sums, np.nan), where=total > 0)


def other_parts(shares: ArrayLike, others: ArrayLike) -> bool:
    """Whether replicas have other parts of one sum at most steps; `(steps, replicas)`, NaN where nothing is known.

    >>> other_parts([[1.0, 2.0]], [[2.0, 1.0]]), other_parts([[1.0, 2.0]], [[1.0, 2.5]])
    (True, False)
    """
    mine, other = np.asarray(shares, np.float64), np.asarray(others, np.float64)
    same = np.isclose(mine.sum(axis=1), other.sum(axis=1), rtol=1e-4)  # at one step that may be chance
    parts = same & ~np.isclose(mine, other, rtol=1e-4).all(axis=1)
    return bool(2 * parts.sum() > np.isfinite(mine + other).all(axis=1).sum())


def uneven(examples: ArrayLike) -> np.ndarray:
    """Whether the replicas of a step had unequal numbers of examples: `(steps, replicas)` to bool `(steps,)`.

    >>> uneven([[64, 64], [3, 2]]).tolist()
    [False, True]
    """
    return np.ptp(examples, axis=1) > 0
