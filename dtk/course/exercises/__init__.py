"""The exercises, a file a lesson or lab: `lesson_NN.EXERCISES`, `lab_N.EXERCISES`.

Runs in the kernel. To add one: an Exercise with at least four misconceptions; `tests/test_lessons.py` tries them all.
"""
