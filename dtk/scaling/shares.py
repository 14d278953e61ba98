"""From replicas to the global loss: the arithmetic of shares, means and examples.

A step's global batch is split over R replicas. Replica i sees n_i examples and computes their mean loss m_i.
Keras `fit` divides that mean by the number of replicas, and the sum over replicas is the step's loss:

    share_i = m_i / R        loss of `fit` = sum of share_i        loss over the examples = sum of m_i n_i / sum of n_i

The two are equal when every replica has the same number of examples. In a loop of one's own a
share is the sum over the replica's examples, divided by the global batch; TensorFlow's custom-training tutorial,
"Define the loss function", has the reason. What TensorFlow computes, these functions compute without it;
`tests/test_scaling_tensorflow.py` compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtk.language import N_, _

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

__all__ = [
    "by_step",
    "global_loss",
    "local_mean",
    "mean_metric",
    "per_example",
    "regularization_share",
    "replica_means",
    "share",
    "uneven",
    "weighted_loss",
]


def share(losses: ArrayLike, global_batch: int, sample_weight: ArrayLike | None = None) -> float:
    """A replica's share of the global loss, from the losses of its own examples: their sum over the global batch.

    `tf.nn.compute_average_loss(losses, sample_weight, global_batch_size=global_batch)`. losses: `(examples,)`, or
    with more axes, whose elements are all added up: see `per_example`. sample_weight: a number, or one for each
    example; it weighs the losses and does not change the divisor. Raises ValueError for a global batch below 1.

    Losses 2, 3 on replica 0 and 4, 5 on replica 1, global batch 4. The shares add up to the mean of all four:

    >>> share([2, 3], global_batch=4), share([4, 5], global_batch=4)
    (1.25, 2.25)

    A short last batch is divided by what it is divided by: 3 examples, divided by 4, are not a mean.

    >>> share([2, 3], global_batch=4) + share([4], global_batch=4)
    2.25
    >>> share([2, 3], global_batch=4, sample_weight=[1, 0])
    0.5
    """
    if global_batch < 1:
        what = N_("global_batch={global_batch}: it counts the examples of all replicas, so it is at least 1")
        raise ValueError(_(what, global_batch=global_batch))
    values = np.asarray(losses, np.float64)
    if sample_weight is not None:
        weights = np.asarray(sample_weight, np.float64)
        values = values * weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
    return float(values.sum() / global_batch)


def per_example(losses: ArrayLike) -> np.ndarray:
    """One loss an example, `(examples,)`: the mean over all axes but the first.

    Labels with more than one dimension, such as a mask of H × W pixels, give a loss for each pixel: `(examples, H,
    W)`. `compute_average_loss` adds up all of them and divides by the number of examples, so the loss is H·W times
    too large; the mean over the pixels comes first.

    >>> pixels = [[[1, 2], [3, 6]], [[2, 2], [2, 2]]]  # two examples of 2 × 2 pixels
    >>> per_example(pixels).tolist()
    [3.0, 2.0]
    >>> share(pixels, global_batch=2) / share(per_example(pixels), global_batch=2)
    4.0
    """
    values = np.asarray(losses, np.float64)
    return values.mean(axis=tuple(range(1, values.ndim)))


def local_mean(losses: ArrayLike) -> float:
    """The mean over a replica's own examples: `tf.reduce_mean`, or a Keras loss with its default reduction.

    In a loop of one's own that is the wrong divisor: added up over R replicas it is R times the global loss. (Called
    inside `strategy.run`, a loss object of Keras 3.15 divides by R as well, see docs/explanation/facts.md; then it is a
    share.)

    >>> local_mean([2, 3]) + local_mean([4, 5])
    7.0
    """
    return float(np.asarray(losses, np.float64).mean())


def regularization_share(loss: ArrayLike, replicas: int) -> float:
    """A replica's share of a regularisation loss, which each replica computes whole from the same weights.

    `tf.nn.scale_regularization_loss(loss)` under a strategy with as many replicas in sync: the sum of `loss`
    divided by `replicas`. Left undivided it counts once a replica.

    >>> regularization_share([0.25, 0.75], replicas=2)
    0.5
    """
    return float(np.asarray(loss, np.float64).sum() / replicas)


def mean_metric(values: ArrayLike) -> float:
    """What `keras.metrics.Mean` reports that every replica updates once, `(replicas,)`: the mean, not the sum.

    Fed with shares it shows the global loss divided by the number of replicas: a number twice too small here.

    >>> mean_metric([1.25, 2.25]), global_loss([[1.25, 2.25]]).tolist()
    (1.75, [3.5])
    """
    return float(np.asarray(values, np.float64).mean())


def by_step(records: pandas.DataFrame, column: str) -> pandas.DataFrame:
    """A column of the records as `(steps, replicas)`: index step, columns replica; NaN where nothing was recorded.

    Raises ValueError where a replica recorded a step twice.

    >>> from dtk.records import frame
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

    This is what `fit` minimises and reports. With `examples`, `(steps, replicas)`, a replica that saw none adds nothing
    where its share is no number: the mean over no examples is 0 or NaN, depending on the loss. A number counts, such as
    its part of a penalty.

    >>> global_loss([[1.25, 2.25]]).tolist()
    [3.5]
    >>> global_loss([[1.25, float("nan")], [1.25, 0.5]], examples=[[1, 0], [1, 0]]).tolist()
    [1.25, 1.75]
    """
    values = np.asarray(shares, np.float64)
    if examples is not None:
        values = np.where((np.asarray(examples) > 0) | np.isfinite(values), values, 0.0)
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
