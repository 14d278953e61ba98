"""The course's own: questions and checks in the lessons, exercises, and the lessons' editions.

Runs in the kernel. `ask` before a run, `check` after an exercise: `exercise` has it, and what an exercise is, and
`exercises/` has each lesson's. `kept` is the one file of answers. `lesson_files` gives out the lessons, to learners as
they are, and in editions for a class.
"""
