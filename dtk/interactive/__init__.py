"""The kernel's side of a cluster that stays: `dtk.clusters` has its public face.

`begin` starts the workers, `peers` is what is known of each, `talk` sends and waits, `output` shows what they print and
display, `labels` says whose that is, `view` draws what is recorded, `waits` finds who waits for whom, `beside` shows a
name on all workers, `repair` makes a cluster usable again, `cells` checks a cell and says how it ended, `bring`
puts files where workers see none of this machine's. What runs in the workers is `dtk.inside`.
"""
