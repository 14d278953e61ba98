"""From replicas to the global loss: the arithmetic of shares, means and examples.

A step's global batch is split over R replicas. Replica i sees n_i examples and computes their mean loss m_i.
Keras `fit` divides that mean by the number of replicas, and the sum over replicas is the step's loss:

    share_i = m_i / R        loss of `fit` = sum of share_i        loss over the examples = sum of m_i n_i / sum of n_i

The two are equal when every replica has the same number of examples. See TensorFlow's custom-training tutorial,
"Define the loss function", for why a share is divided by the global batch in a loop of one's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

__all__ = ["by_step", "global_loss", "replica_means", "uneven", "weighted_loss"]


def by_step(records: pandas.DataFrame, column: str) -> pandas.DataFrame:
    """A column of the records as `(steps, replicas)`: index step, columns replica; NaN where nothing was recorded.

    Raises ValueError where a replica recorded a step twice.

    >>> from dtk.records import frame
    >>> rows = [(0, 0, 1, 1, 1.25, 2, 0.0, 0.1), (1, 1, 1, 1, 2.25, 2, 0.0, 0.1)]
    >>> by_step(frame(rows), "loss").to_numpy().tolist()
    [[1.25, 2.25]]
    """
    return records.pivot(index="step", columns="replica", values=column)


def replica_means(shares: ArrayLike) -> np.ndarray:
    """Each replica's mean over its own examples, from the shares: `(steps, replicas)`, as given, times replicas.

    Two replicas with the losses [2, 3] and [4, 5] have the means 2.5 and 4.5, so the shares 1.25 and 2.25:

    >>> replica_means([[1.25, 2.25]]).tolist()
    [[2.5, 4.5]]
    """
    values = np.asarray(shares, np.float64)
    return values * values.shape[1]


def global_loss(shares: ArrayLike, examples: ArrayLike | None = None) -> np.ndarray:
    """The loss of each step, `(steps,)`: the sum of the replicas' shares, `(steps, replicas)`.

    This is what `fit` minimises and reports. With `examples`, `(steps, replicas)`, a replica that saw none adds
    nothing, whatever its share says: the mean over no examples is 0 or NaN, depending on the loss.

    >>> global_loss([[1.25, 2.25]]).tolist()
    [3.5]
    >>> global_loss([[1.25, float("nan")]], examples=[[1, 0]]).tolist()
    [1.25]
    """
    values = np.asarray(shares, np.float64)
    if examples is not None:
        values = np.where(np.asarray(examples) > 0, values, 0.0)
    return values.sum(axis=1)


def weighted_loss(shares: ArrayLike, examples: ArrayLike) -> np.ndarray:
    """The mean over the examples of each step, `(steps,)`: what one device computes on the same global batch.

    shares, examples: `(steps, replicas)`. NaN for a step without examples.

    Five examples, with losses 1, 1, 1 on replica 0 and 2, 2 on replica 1. Their mean is 7 / 5 = 1.4. The replicas'
    means are 1 and 2, their shares 0.5 and 1.0, and `fit` says 1.5, because it averages the two means:

    >>> global_loss([[0.5, 1.0]]).tolist(), weighted_loss([[0.5, 1.0]], [[3, 2]]).tolist()
    ([1.5], [1.4])

    With the same number of examples on each replica there is no difference:

    >>> global_loss([[0.5, 1.0]]).tolist(), weighted_loss([[0.5, 1.0]], [[2, 2]]).tolist()
    ([1.5], [1.5])
    """
    counts = np.asarray(examples, np.float64)
    sums = np.where(counts > 0, replica_means(shares) * counts, 0.0).sum(axis=1)
    total = counts.sum(axis=1)
    return np.divide(sums, total, out=np.full_like(sums, np.nan), where=total > 0)


def uneven(examples: ArrayLike) -> np.ndarray:
    """Whether the replicas of a step had unequal numbers of examples: `(steps, replicas)` to bool `(steps,)`.

    >>> uneven([[64, 64], [3, 2]]).tolist()
    [False, True]
    """
    counts = np.asarray(examples)
    return counts.min(axis=1) != counts.max(axis=1)
