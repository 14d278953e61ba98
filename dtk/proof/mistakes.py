"""The mistakes that `dtk.diagnose` knows: what each looks like, and what to write instead.

`make reference` writes docs/reference/mistakes.md of it. N is the number of replicas, B a global batch, n a short one.
"""

from __future__ import annotations

from typing import NamedTuple

from dtk.language import N_


class Mistake(NamedTuple):
    """among: what a sentence calls it where it is one of several (`either`)."""

    symptom: str
    remedy: str
    among: str = ""


_ONCE = N_(
    "divide once, by the global batch: tf.nn.compute_average_loss(per_example, global_batch_size=B), and not by "
    "num_replicas_in_sync as well (Keras's add_loss does that itself: give it a plain mean)"
)
# By key: `Diagnosis.mistake`. First what was trained, then the loss, then the update.
MISTAKES = {
    "records": Mistake(
        N_("records, weights or a worker's end are missing"),
        N_("record every step on every worker, let the function come to its end"),
    ),
    "unrecorded": Mistake(
        N_("an optimizer made more updates than were recorded"),
        N_(
            "add dtk.Recorder() to the callbacks of every fit, and give dtk.record_step all that is trained (model=[a, "
            "b]), once in each step, after the update"
        ),
    ),
    "optimizer on a copy": Mistake(
        N_("no update of the recorded model was made, whose weights never change: the optimizer has other variables"),
        N_("give the optimizer the variables of the model that is called and recorded, and not those of a copy"),
    ),
    "not in scope": Mistake(
        N_(
            "the workers' final weights differ; or the model's own strategy has one replica; or each worker has the "
            "baseline's examples, losses and weights"
        ),
        N_("create model and optimizer inside `with strategy.scope():`"),
    ),
    "sharding off": Mistake(
        N_("all replicas saw the same examples, which are not the baseline's"),
        N_("distribute the dataset by the strategy with the auto-shard policy DATA, or shard by `input_context`"),
        N_("all replicas read the same examples"),
    ),
    "global batch": Mistake(
        N_("the examples of step 1 are not as many as the baseline's"),
        N_("pass the global batch as an argument, the same to both"),
        N_("each replica reads a whole batch"),
    ),
    "steps": Mistake(
        N_("one ran more steps, or made more updates, than the other, or batches of another size later on"),
        N_("give both the same data, epochs, steps and drop_remainder, and as many updates in a step"),
        N_("one of the two makes more steps"),
    ),
    "start": Mistake(
        N_("the seeds, the initial weights, the steps that the optimizer had counted before, or the models differ"),
        N_("pass the same seed to dtk.run and dtk.baseline, and restore nothing in only one"),
    ),
    "worker order": Mistake(
        N_("fingerprints don't add up to the baseline's, not over an epoch either: shards overlap and miss examples"),
        N_("shuffle with one seed, the same on every worker, before batching, and map with deterministic=True"),
        N_("the workers read in different orders, so that shards overlap and miss some"),
    ),
    "order": Mistake(
        N_("fingerprints differ at single steps and agree over each epoch: the same examples in another order"),
        N_("give shuffle a seed, and map and interleave deterministic=True"),
        N_("the order is another one"),
    ),
    "other data": Mistake(
        N_("fingerprints differ, over an epoch as well, with one input pipeline, or after a restart"),
        N_("read the same examples in both, and seed random changes to them"),
        N_("they read other examples, in another order, or with other labels or weights"),
    ),
    "augmentation": Mistake(
        N_("fingerprints differ, over an epoch as well, and a map of the dataset draws at random"),
        N_("leave random maps out of the comparison, or draw by an example's number: tf.image.stateless_*"),
        N_("a map of the dataset draws at random"),
    ),
    "file sharding": Mistake(
        N_("fingerprints differ, and the auto-shard policy gives each worker whole files"),
        N_(
            "set options.experimental_distribute.auto_shard_policy to DATA: with few or unequal files, batches have "
            "other examples"
        ),
        N_("each worker reads whole files of its own"),
    ),
    "python data": Mistake(
        N_("fingerprints differ, over an epoch as well, and Python code makes examples (from_generator, for one)"),
        N_("draw in TensorFlow by the example's number (tf.random.stateless_*), or seed by it, alike on all workers"),
        N_("Python code makes the examples, whose random numbers no seed of TensorFlow reaches"),
    ),
    "not finite": Mistake(
        N_("a loss is NaN or infinite"),
        N_("lower the learning rate, and look for NaN in the data and log(0) in the loss"),
    ),
    "reduced value": Mistake(
        N_("every replica recorded the same loss, and each is the baseline's"),
        N_("give dtk.record_step what strategy.run returned, before strategy.reduce"),
    ),
    "local mean": Mistake(
        N_("the global loss is N times too large"),
        N_(
            "divide by the global batch: tf.nn.compute_average_loss(per_example, global_batch_size=B) instead of "
            "tf.reduce_mean(per_example)"
        ),
        N_("the loss, or a term of it, is divided by a replica's batch, not by the global one"),
    ),
    "divided twice": Mistake(
        N_("the global loss, or a term of it, is N times too small"),
        _ONCE,
        N_("the loss, or a term of it, is divided by the replicas once more"),
    ),
    "scaled twice": Mistake(
        N_("the global loss is N² times too large or too small"), _ONCE, N_("the loss is scaled by the replicas twice")
    ),
    "not divided": Mistake(
        N_("the global loss is the sum over the examples"),
        N_(
            "divide by the global batch: tf.nn.compute_average_loss(per_example, global_batch_size=B) instead of "
            "tf.reduce_sum(per_example)"
        ),
    ),
    "sum over batch size": Mistake(
        N_("the loss object's default reduction had taken the mean, which was divided by the global batch again"),
        N_(
            'make the loss object with reduction="none" and use tf.nn.compute_average_loss(per_example, '
            "global_batch_size=B)"
        ),
    ),
    "label axes": Mistake(
        N_("a label has several numbers, and the loss is not their mean"),
        N_("labels[..., None] and predictions[..., None] for a pointwise loss, then the mean over axes 1 and up"),
    ),
    "short batch": Mistake(
        N_("the loss of a short batch is n/B of the baseline's, the steps before agree"),
        N_("divide by the examples that the step has, over all replicas, or use drop_remainder=True"),
    ),
    "uneven batch": Mistake(
        N_("replicas had unequal batches; weighted by examples, or at all steps before, the losses agree"),
        N_("use drop_remainder=True, or a custom loop that divides by the global batch"),
    ),
    "regularisation": Mistake(
        N_("the global loss differs by a multiple of the penalty, at every step, or the gradients by its gradient"),
        N_("write tf.nn.scale_regularization_loss(term), for a mean tf.nn.compute_average_loss, or use weight_decay"),
        N_("each replica adds a term whole"),
    ),
    "own mean": Mistake(
        N_("one device's loss lies between the replicas' means: each divides or normalizes by numbers of its part"),
        N_(
            "take such numbers over all replicas (a count of tokens or weights, a mean, a deviation): "
            'get_replica_context().all_reduce("sum", count), and in accumulation that of all micro-batches'
        ),
        N_("each replica divides by a number of its own part"),
    ),
    "whole batch": Mistake(
        N_("same data and weights, nothing drawn at random; one device's loss is no mean of the replicas' own"),
        N_("make the loss a sum over examples, divided by the global batch, or gather what it needs from all replicas"),
        N_("the loss needs the whole batch"),
    ),
    "replica gradient": Mistake(
        N_("losses agree at every step, updates by no common factor, and replicas in one process make them as well"),
        N_("clip and normalize after the sum over replicas, and gather by operations that pass gradients back"),
    ),
    "learning rate": Mistake(
        N_("a learning rate is another one before a step, on one worker or on all of them"),
        N_("use the same learning rate in both, or scale it by the same factor, and don't change it in one only"),
        N_("the learning rate is another one"),
    ),
    "gradient scale": Mistake(
        N_("the loss is one device's, and the gradients are N times as long, or 1/N"),
        N_(
            "sum the shares' gradients exactly once: in the optimizer, or by all_reduce followed by a division by N, "
            "because the optimizer sums again (Keras 2: skip_gradients_aggregation)"
        ),
        N_("the gradients are so much longer or shorter"),
    ),
    "clipping": Mistake(
        N_("the loss is one device's, the update is not, and each replica's own gradients are clipped"),
        N_(
            "clip the sum over replicas: get_replica_context().all_reduce('sum', gradients), clip, divide by N, then "
            "apply"
        ),
        N_("each replica clips its own gradients"),
    ),
    "settings": Mistake(
        N_("an optimizer's settings differ, between workers or from one device's"),
        N_("give the optimizer the same settings everywhere: nothing that a worker's number or the machine decides"),
    ),
    "not summed": Mistake(
        N_("the workers start a step alike and end it with different weights"),
        N_("let the optimizer apply what all replicas add up to: apply_gradients in replica context, or all_reduce"),
        N_("each worker applies its own gradients"),
    ),
    "one worker": Mistake(
        N_("the workers start a step alike, worker 0 makes one device's update, and another worker a different one"),
        N_("do the same on all workers with the sum: clip, scale and apply it without asking for a worker's number"),
        N_("one worker changes the sum"),
    ),
    "one worker's loss": Mistake(
        N_("from one state and the same inputs, a worker's loss is not that of replicas in one process; others' are"),
        N_("look at that worker's labels (record them too: batch=(x, y)), and at code that asks for a worker's number"),
        N_("a worker computes a different loss from its examples"),
    ),
    "other draws": Mistake(
        N_("in the same step, a worker draws random numbers that another worker does not draw"),
        N_("call the same layers on all workers, with the same training=, and draw by no worker's number"),
    ),
    "reduction": Mistake(
        N_("the loss is one device's, and the update neither one device's nor that of replicas in one process"),
        N_("look at what the workers alone do between loss and update: collectives, clipping, a worker's number"),
        N_("the workers change the sum"),
    ),
    "set by hand": Mistake(
        N_("variables are not set as on one device, or not alike on all workers: between steps, or by a step itself"),
        N_(
            "set variables on all workers alike: by what all replicas add up to or average, and by no worker's number; "
            "declare with synchronization=ON_READ what is each replica's own, as a stateful layer's state is"
        ),
    ),
    "sparse gradient": Mistake(
        N_("the loss is one device's, and of the update nothing differs but variables whose gradients come as rows"),
        N_("make the gradient dense before it is applied (tf.convert_to_tensor), or take SGD, which adds the rows up"),
        N_("the gradient comes as rows, of which several belong to one row of the variable"),
    ),
    "not reproducible": Mistake(
        N_("one device reads or draws something else when it calls the function again, with the same seed"),
        N_("seed what is drawn and shuffled, map what draws without num_parallel_calls, read with deterministic=True"),
        N_("something is drawn anew each time"),
    ),
}
