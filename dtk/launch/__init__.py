"""From a checked request to started workers, and their end.

Runs in the kernel. `request` refuses what can't work, `launch` starts the processes that a `Job` asks for and waits for
them, `members` holds and kills them, `folders`, `tf_config` and `gpus` give each its place, `programs` finds a program,
`again` makes a run once more, `doors` connect workers that stay.
"""
