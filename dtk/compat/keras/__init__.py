"""Keras in a cluster: corrected where it needs it, refused in a sentence where it can't, and which Keras it is.

Runs in workers, and where `dtk.correct_keras()` is called. `keras3` has the corrections and the refusals and applies
all, `saves` says where workers write, `keras2` makes one Keras of two. Each names the versions that it is for, the
upstream issue, and the test that says when it can go.
"""
