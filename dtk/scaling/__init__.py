"""Where time and examples go: arithmetic on what was recorded, and on a cluster that is not here.

Runs in the kernel. Of a run: `timing` says what a step takes, who waits for whom and which steps were lost, `parts`
takes a step apart, `summary` has a run and a study in a few numbers, `sharding` says who saw which example, `shares`
how the replicas' shares make the global loss. Of a cluster that is not here (`dtk.model`): `job` has what is trained,
the links and the cost of an all-reduce, `prediction` puts them together, fits and compares.
"""
