"""The course's own: questions and checks in the lessons, exercises, and the lessons' editions.

Runs in the kernel. `ask` before a run, `check` after an exercise: `exercise` has it, and what an exercise is, and
`exercises/` has each lesson's. `kept` is the one file of answers. `build` makes the editions that `dtk class build`
writes, from the lessons' own marks; `lesson_files` gives out the lessons.
"""
