"""Why a field of `keras_releases.py` is wrong or raises: read in that release's sources, and sought upstream."""

from __future__ import annotations

_KERAS = "https://github.com/keras-team/keras"


def _issue(number: int) -> str:
    return f"[#{number}]({_KERAS}/issues/{number})"


def _pull(number: int) -> str:
    return f"[#{number}]({_KERAS}/pull/{number})"


CAUSES = {
    "sum": (
        "3.0 and 3.1 apply each replica's own gradient to its own copy; 3.2 to 3.4 reduce inside a merge call, "
        f"where nothing is reduced. {_issue(19308)}, fixed in 3.5 by {_pull(20051)}."
    ),
    "scale": (
        f"3.5 to 3.7 sum gradients of each replica's mean: twice too much. {_issue(19891)}, fixed in 3.8 by "
        f"{_pull(20609)}."
    ),
    "scalar": (
        "`reduce_values` (`losses/loss.py`) returns a loss of shape () before it divides by the number of replicas. "
        "No issue found."
    ),
    "clip": "`BaseOptimizer` clips each replica's gradient before the sum. No issue found.",
    "token": (
        "`square` of a sparse gradient squares each row of a token that occurs twice. tf_keras adds such rows "
        "first. No issue found."
    ),
    "cond": (
        f"The update is inside `ops.cond`, where TensorFlow can't merge replicas. {_issue(20582)} (accumulation), "
        f"open; {_pull(23592)} proposes a fix."
    ),
    "finite": (
        "Each replica checks its own gradients, and the first decides for both; of two workers, one waits forever. "
        f"The line came with {_pull(18691)}. No issue found."
    ),
    "average": (
        f"Nothing combines the replicas' moving statistics. 3.7 took their mean, by a default that {_pull(20703)} "
        "took back in 3.8."
    ),
    "seed": "All replicas hold the same state of the seed generator. No issue found.",
    "metric": f"Until 3.6, variables of metrics aren't summed over replicas. {_pull(20541)}, in 3.7.",
    "batches": f"3.0 and 3.1 average batches whatever their size, on one device too. {_pull(19363)}, in 3.2.",
    "mean": (
        "The mean of the replicas' means isn't the mean over examples, or over entries that a mask leaves. In "
        "tf_keras as well, so it may be intended."
    ),
    "build": (
        f"To build the model, Keras adds up the replicas' parts of a batch: {_issue(20585)}, open; two parts of "
        f"unequal size fail as in {_issue(19246)}. Since 3.5, with {_pull(20051)}. What 3.3 and 3.4 raise on two "
        "workers is another error, whose cause was not sought."
    ),
    "loop": f"Since 3.7 ({_pull(20396)}) the steps run in `tf.while_loop`. {_issue(19246)} has the same error.",
    "first": f"Momenta are made in each replica's graph. {_issue(23085)}, fixed on the main branch by {_pull(23087)}.",
    "guide": (
        "[Keras's guide](https://keras.io/guides/custom_train_step_in_tensorflow/) passes to the metric what "
        f"`compute_loss` returns. Since 3.8 ({_pull(20609)}) that is divided by the number of replicas, in tf_keras "
        "as well. No issue found."
    ),
    "refused": "tf_keras refuses such a loss object, and says what to use.",
}

# Which of them each program shows.
WHY: dict[str, tuple[str, ...]] = {
    "gradient_sum": ("sum",),
    "equal_weights": ("sum",),
    "first_step": ("sum", "first"),
    "clipnorm": ("sum", "clip"),
    "global_clipnorm": ("sum", "clip"),
    "adamw_embedding": ("sum", "token"),
    "accumulation": ("cond",),
    "ema": ("sum",),
    "ema_overwrite": ("cond",),
    "loss_scale": ("sum",),
    "loss_scale_infinite": ("finite",),
    "batch_norm": ("average",),
    "dropout": ("seed",),
    "dropout_seed": ("seed",),
    "metric": ("metric",),
    "loss_object": ("sum", "scale", "refused"),
    "plain": ("sum", "scale", "build"),
    "flat_labels": ("sum", "scalar", "build"),
    "sparse_labels": ("sum", "scale", "build"),
    "sample_weights": ("sum", "scale", "build"),
    "penalty": ("sum", "scale", "build"),
    "reported_loss": ("metric", "build"),
    "accuracy": ("metric", "build"),
    "uneven": ("sum", "scale", "mean", "build"),
    "one_example": ("sum", "scale", "mean", "build"),
    "uneven_first": ("sum", "mean", "build"),
    "mask": ("sum", "scale", "mean", "build"),
    "steps_per_execution": ("sum", "scale", "loop", "build"),
    "train_step": ("sum", "scale", "build"),
    "train_step_loss": ("metric", "guide", "build"),
    "evaluate": ("batches", "metric", "build"),
}
