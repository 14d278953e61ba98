"""tf.estimator where TensorFlow has it no more, and what an Estimator's training is read out of.

Runs in workers. `revived` has the classes, `tasks` what the cluster's tasks need, `taps` listens, for TensorFlow 2.15
to 2.22.
"""
