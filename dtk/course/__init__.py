"""The course's own: questions and checks in the lessons, exercises, and the lessons' editions.

Runs in the kernel. `ask` before a run, `check` after an exercise, `kept` is the one file of answers, `exercise` what an
exercise is; `exercises/` has each lesson's. `build` makes the editions that `dtk class build` writes, from the lessons'
own marks, `lesson_files` gives out the lessons.
"""
