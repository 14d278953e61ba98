"""Every touch of TensorFlow's or Keras's internals, with the versions it is for and a test that says when it can go.

Runs in workers; the kernel asks `libraries` which Keras is installed, without TensorFlow. `keras3` corrects and
refuses, `saves` says where workers write, `keras2` makes one Keras of two, `estimators` revives. `tap`, `updates` and
`marks` read what a step does, `states` and `feeds` what it starts from, `per_replica` TensorFlow's values, `causes` its
errors; `strategies`, `binding`, `collectives` and `without` change what it does.
"""
