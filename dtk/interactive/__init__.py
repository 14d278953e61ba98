"""A cluster that stays: `%%workers`, by `dtk.cluster`.

In the kernel: `clusters` is its public face, `magics` the cells, `begin` starts the workers, `peers` is what is known
of each, `talk` sends and waits, `output` shows what they print and display, `view` draws what is recorded, `waits`
finds who waits for whom, `repair` makes a cluster usable again, `sessions` makes a run of what was recorded.
In each worker: `serve` runs the learner's cells, one after another, by `shell`; `barrier` stands before each
collective, `control` answers while a cell runs, `inspection` reads what the namespace holds, `frames` where the worker
is, `replay` runs a session's cells once more as a function.
"""
