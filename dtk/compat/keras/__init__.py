"""Keras in a cluster: corrected where it needs it, and refused in a sentence where it can't.

Runs in workers, and where `dtk.correct_keras()` is called. `keras3` has the corrections and the refusals and applies
all, `saves` says where workers write. Each names the versions that it is for, the upstream issue, and the test that
says when it can go.
"""
