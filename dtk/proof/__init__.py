"""Whether each step of a run was computed as one device computes it, from the same state, and why not.

`verify` asks, in this order: `evidence` (what was recorded), `coverage` (were all updates), `replicas` (do all hold the
same), `following` (does a follower make the same steps, by `steps` and `losses`). What comes back is a `proof`.

`diagnose` asks why a check failed: `mistakes` lists what is known, `case` is what a recogniser may ask, `verdict` what
is said. The recognisers are in `examples` (data), `ratios` (losses) and `bisection` (updates, and workers that
diverge); `facts` is what the workers wrote down beside their numbers.

The recording of states, and the follower itself, are in the worker's room: `dtk.worker`.
"""
