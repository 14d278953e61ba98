"""Where time and examples go: arithmetic on what was recorded, and on a cluster that is not here.

Runs in the kernel. Of a run: `timing` and `parts` take a step's time apart, `efficiency` a study's, `pace` says who
waits for whom, `fates` what became of the steps of a run with restarts, `sharding` who saw which example, `ring` what
an all-reduce by hand did, `shares` how the replicas' shares make the global loss; its `by_step` turns a column of a
run's records into a table, `(steps, replicas)`. Of a cluster that is not here (`dtk.model`): `job` and `links` say what
is trained on what, `communication` what an all-reduce costs, `fitting` takes its two numbers from measurements,
`prediction` puts them together, `published` compares.
"""
