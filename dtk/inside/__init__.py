"""In a worker that stays: the learner's cells, one after another, and what a kernel asks of it meanwhile.

`serve` is its life, `shell` runs a cell, `gate` stands before each collective, `control` answers while a cell runs,
`look` reads what the namespace holds, `parts` what a value is as arrays, `stands` where the worker stands, `beside`
what a name is there, `own` which files are the learner's, `replay` runs a session's cells once more as a function.
"""
