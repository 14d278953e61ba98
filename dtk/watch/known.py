"""What errors of TensorFlow and Keras mean in a learner's words; `dtk.watch.explain` looks them up."""

from __future__ import annotations

import re

from dtk.language import N_

__all__ = ["KNOWN"]

# TensorFlow's words -> the learner's. What a pattern captures fills the sentence; {install}: a command.
KNOWN = [
    (
        re.compile(r"Could not apply FILE based sharding: the dataset only has (1) file.*?required (2) shards"),
        N_(
            "the dataset reads {0} file, which autoshard policy FILE can't divide among {1} workers; set "
            "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA "
            "(dtk.datasets.load does)"
        ),
    ),
    (
        # With more shards TensorFlow's number is how many files that worker has met: worker 0 of 3 says 1 of 2.
        re.compile(
            r"Could not apply FILE based sharding: the dataset only has (?!1 file\(s\).{,60} required 2 )\d+ file"
            r".*?required (\d+) shards"
        ),
        N_(
            "the dataset reads fewer than {0} files, which autoshard policy FILE can't divide among {0} workers; set "
            "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA "
            "(dtk.datasets.load does)"
        ),
    ),
    (
        re.compile(r"Found an unshardable source dataset"),
        N_(
            "the dataset is not made from files, and autoshard policy FILE divides nothing else; set "
            "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA"
        ),
    ),
    (
        re.compile(r"Collective ops must be configured at program startup"),
        N_(
            "the strategy was made after TensorFlow had run its first operation; make it in the function's first line, "
            "or take a parameter `strategy`"
        ),
    ),
    (
        re.compile(r'If "cluster" is set in TF_CONFIG, it must have one "chief" node'),
        N_(
            "this RunConfig has no strategy, and so waits for a task of type chief; make "
            "tf.distribute.MultiWorkerMirroredStrategy() and pass it: RunConfig(train_distribute=strategy)"
        ),
    ),
    (
        re.compile(r"Only `STANDALONE_CLIENT` mode is supported when you call `estimator\.(train|evaluate)`"),
        N_(
            "in a cluster estimator.{0} does not run by itself; call dtk.estimator.train_and_evaluate(estimator, "
            "train_spec, eval_spec), which gives every task its part"
        ),
    ),
    (
        re.compile(r"MessageToString\(\) got an unexpected keyword argument 'float_format'"),
        N_("TensorFlow up to 2.20 can't write a graph with protobuf 7; pip install 'protobuf<7'"),
    ),
    (
        re.compile(r"TensorBoard is not installed, missing implementation for"),
        N_("TensorFlow writes no summaries without TensorBoard, which is not installed here; {install}"),
    ),
    (
        re.compile(r"module 'tensorflow' has no attribute 'estimator'"),
        N_("TensorFlow has no tf.estimator since 2.16; write dtk.estimator in its place"),
    ),
    (
        re.compile(r"DistributedVariable\.handle is not available outside the replica context"),
        N_(
            "a variable of the strategy was used where no replica runs; call the step by "
            "strategy.run(step, args=(batch,))"
        ),
    ),
    (
        re.compile(
            r"`colocate_vars_with` must only be passed a variable created in this tf\.distribute\.Strategy\.scope"
        ),
        N_(
            "the model's variables were made outside of the strategy's scope; make model and optimizer inside "
            "`with strategy.scope():`, or keep the scope: scope = strategy.scope(); scope.__enter__()"
        ),
    ),
    (
        re.compile(r'Need to be inside "with strategy\.scope\(\)"'),
        N_(
            "what was called needs the strategy; call a training step by strategy.run(step, args=(batch,)), and make "
            "models and optimizers inside strategy.scope()"
        ),
    ),
    (
        re.compile(r"PerReplica:\{|'PerReplica'|using a PerReplica object"),
        N_(
            "a value with one part for each replica (PerReplica) was used as one tensor; call the step by "
            "strategy.run(step, args=(batch,)), or take strategy.experimental_local_results(value)"
        ),
    ),
    (
        re.compile(r"`merge_call` called while defining a new graph"),
        N_(
            "an all-reduce (such as that of optimizer.apply_gradients) is inside a condition, a loop or a tf.function "
            "of its own in the step, which TensorFlow can't merge over replicas; take it out of there"
        ),
    ),
    (
        re.compile(r"You must feed a value for placeholder tensor 'cond/(?:then|else)/_\d+/cond/Placeholder"),
        N_(
            "variables are made in the first call of a tf.function with an all-reduce, which fails in TensorFlow where "
            "a worker has several replicas; make them before, in strategy.scope(): an Input for the model (or "
            "model.build(shape)), and optimizer.build(model.trainable_variables)"
        ),
    ),
    (
        re.compile(r"Collectives are not yet implemented for CPU devices when compiling with XLA"),
        N_("XLA can't compile an all-reduce on CPUs; leave jit_compile=True out"),
    ),
    (
        re.compile(r"Model (\w+) does not have a `call\(\)` method implemented"),
        N_(
            "Keras 3 has to call {0} to build it, under a strategy even before the first step, and {0} has no call(); "
            "write one: its forward pass"
        ),
    ),
    (
        re.compile(r"Argument\(s\) not recognized: \{'lr':"),
        N_("the optimizer has no argument lr; Keras calls it learning_rate"),
    ),
    (
        re.compile(r"'(\w+)' object has no attribute 'reset_states'"),
        N_("{0} has no reset_states: Keras 3 calls it reset_state"),
    ),
    (
        re.compile(r"'(\w+)' object has no attribute 'lr'"),
        N_("{0} has no lr: Keras 3 calls it learning_rate"),
    ),
]
