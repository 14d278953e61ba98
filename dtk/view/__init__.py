"""Figures: records in, matplotlib Axes out. `dtk.plot` lists them.

Runs in the kernel. `canvas` and `palette` are what all share: size, headline, caption, one colour per worker. Most
other files draw a figure or two, by the numbers of `dtk.scaling`; `loss_scaling` shows the plain way from a run's records to
axes. `controls` are a lab's, `cluster_picture` shows a TF_CONFIG in a notebook, `lanes` and `annotations` are
parts of the timeline.
"""
