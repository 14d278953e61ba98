"""Whether each step of a run was computed as one device computes it, from the same state, and why not.

`verify` asks `evidence` (what was recorded) and `following` (does a follower make the same steps), and returns a
`proof`. `diagnose` asks why a check failed: `mistakes` lists what is known and how it is said, `case` is what a
recognizer may ask; recognizers are in `examples` (data), `ratios` (losses) and `bisection` (updates, and workers that
diverge). States are recorded, and followed, in the worker's room: `dtk.worker`.
"""
