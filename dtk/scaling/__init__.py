"""Where time goes: arithmetic on what was recorded, and on a cluster that is not here.

Runs in the kernel. Of a run: `timing` says what a step takes and what it is made of, who waits for whom and which steps
were lost, `summary` has a run and a study in a few numbers, `shares` how the replicas' shares make the global loss. Of
a cluster that is not here (`dtk.model`): `job` has what is trained, the links and the cost of an all-reduce,
`prediction` puts them together, fits and compares.
"""
