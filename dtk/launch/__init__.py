"""From a checked request to worker processes, and their end.

In the kernel: `request` refuses what can't work; `launch` starts the processes that a `Job` asks for, waits for them
and kills them; `folders` and `tf_config` give each its place; `program` finds a program; `again` makes a run once more;
`warm` asks the warm parent for workers. In processes of their own: that `parent`, which has imported TensorFlow and
forks workers, and its `guard`, which outlives it; on another machine an `agent` in the kernel's place. What they say
to each other is in `messages`. What the workers then do is `dtk.worker`.
"""
