"""Every touch of TensorFlow's or Keras's internals, with the versions it is for and a test that says when it can go.

Runs in workers; `versions` is asked by the kernel as well, without TensorFlow. `keras` corrects and refuses,
`estimators` revives, `steps` reads what a step does, `per_replica` and `strategies` read TensorFlow's values and
strategies, `causes` its errors; `tuning` and `without` change what it does.
"""
