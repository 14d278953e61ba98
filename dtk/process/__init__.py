"""The processes themselves: the warm parent, its guard, and a worker from its start to its result.

`warm` is the kernel's end; `parent` and `guard` run in processes of their own, `worker` in each worker. `owned` knows
what this user's dtk has started, `family` kills processes, `ship` turns a cell's function into bytes. TensorFlow is
imported in workers only. On another machine `agent` is in the kernel's place, with `news` of files and `doors`.
"""
