"""`dtk.diagnose`: why two runs differ, or why nothing is learnt.

Runs in the kernel. `mistakes` is the list of what is known, `case` what a recogniser may ask of a pair of runs,
`verdict` what is said. `diagnose` asks the recognisers in order, and takes the first answer: `drift` (workers that
parted), `examples` (data), `ratios` and `penalty` (loss), `suspects` (loss, by no known ratio), `updates` (weights),
`standstill` (nothing learnt). `trials` has runs made that decide.
"""
