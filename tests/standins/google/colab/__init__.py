"""Stands in for Colab's own package, for tests: dtk asks whether it is there, a learner's cell may use `output`.

`google` has no __init__.py here, as it has none where protobuf installs its part of it.
"""
