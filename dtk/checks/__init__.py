"""`dtk.verify`: whether two runs computed the same, what was compared, and what was not.

Runs in the kernel, without TensorFlow. `evidence` reads what runs left; `steps` has a run followed step by step, and
judges; `counts`, `coverage`, `replicas`, `losses` and `weights` are the other checks, each of which raises one message.
`difference` has the distance of two losses for the figure, and raises nothing.
"""
