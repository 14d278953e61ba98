"""The exercises, a file a lesson or lab: `lesson_NN.EXERCISES`, `lab_N.EXERCISES`.

Runs in the kernel. To add one: an Exercise with three misconceptions or more; `tests/test_exercises.py` tries them.
"""
