"""Figures: records in, matplotlib Axes out. `dtk.plot` lists them.

Runs in the kernel. `canvas` and `palette` are what all share: axes, headline, caption, rows, legends, one HTML file;
one color per worker. Most other files draw a figure or more by the numbers of `dtk.scaling`; `loss_scaling` shows the
plain way from a run's records to axes. `controls` are what labs are made of, `cluster_picture` shows a TF_CONFIG.
"""
