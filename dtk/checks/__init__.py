"""`dtk.verify`: whether two runs computed the same, what was compared, and what was not.

Runs in the kernel: pure arithmetic on records and weights, without processes, pictures or TensorFlow. `evidence` reads
what two runs left; `counts`, `coverage`, `replicas`, `losses` and `weights` are the checks, each of which raises one
sentence.
`difference` has the distance of two losses for the figure, with the same tolerance, and raises nothing.
"""
