"""A class: the lessons' editions for students, teachers and graders, and the grading of what comes back.

`lesson` reads the lessons' own marks, `build` makes the editions that `dtk class build` writes.
"""
