"""From a checked request to worker processes, and their end.

In the kernel: `request` refuses what can't work; `launch` starts the processes that a `RunJob` asks for, waits for them
and kills them, and makes a run's job once more; `place` is the machine that they are on, `folders` has their
directories; `program` finds a program; `warm` asks the warm parent for workers. In processes of their own: that
`parent`, which has imported TensorFlow and forks workers, with a guard that outlives it; on another machine an `agent`
in the kernel's place, and where no kernel is a worker from `outside`. What they say to each other is in `messages`.
What the workers then do is `dtk.worker`.
"""
