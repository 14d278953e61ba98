"""A class: the lessons' editions for students, teachers and graders.

`lesson` reads the lessons' own marks, `build` makes the editions that `dtk class build` writes.
"""
