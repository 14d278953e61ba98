"""`dtk.diagnose`: why two runs differ, or why nothing is learnt.

Runs in the kernel. `mistakes` is the list of what is known, `case` what a recogniser may ask of a run and followers,
`verdict` what is said. `diagnose` asks the recognisers in order, and takes the first: `examples` (data), `ratios`
(losses), `steps` (updates, and workers that diverge), `standstill` (nothing learnt).
"""
