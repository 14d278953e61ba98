"""`check`: whether an answer to an exercise is right; the exercises are in `exercises/`, a file a lesson or lab."""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import Any

from dtk.course import exercises
from dtk.course.exercise import CheckFailed, Exercise, NotSolved, Trial
from dtk.course.kept import keep
from dtk.errors import DtkError
from dtk.language import N_, _

__all__ = ["all_exercises", "check"]


def check(name: str, answer: Any, *objects: Any, seed: str | None = None) -> None:
    """Checks your answer to an exercise and prints PASS, or raises with a hint.

    What is right is computed: for a function, on several cases that differ from those in the lesson; for a value, from
    your own objects.

    Args:
        name: the exercise's, such as "02.share", or "lab3.update" in a lab.
        answer: your function or your value.
        objects: what your answer was read from, such as your run, where the exercise's cell hands it over.
        seed: draws other cases than the lesson's, for a function. None: `DTK_VARIANT`, which the edition of a class
            sets (`dtk class build --variant`).

    Raises:
        NotSolved: the exercise is as it was handed out. A CheckFailed.
        CheckFailed: the answer is wrong. The message has the case and a hint, and never the right answer.
        DtkError: no exercise has this name.
    """
    exercise = _exercise(name)
    try:
        cases = exercise.judge(answer, *objects, seed=os.environ.get("DTK_VARIANT", "") if seed is None else seed)
    except NotSolved:
        raise
    except CheckFailed as failed:
        keep("checked", name, hint=failed.remedy or failed.what)
        raise
    keep("checked", name, hint="")
    passed = N_("check {name}: PASS ({cases} cases)") if cases > 1 else N_("check {name}: PASS")
    print(_(passed, name=name, cases=cases))


def _exercise(name: str) -> Exercise | Trial:
    lesson = name.partition(".")[0]
    known = all_exercises(lesson)
    if name not in known:
        there = ", ".join(sorted(known)) or ", ".join(sorted({each.partition(".")[0] for each in all_exercises()}))
        raise DtkError(_("no exercise is called {name!r}", name=name), remedy=_("there are {names}", names=there))
    return known[name]


def all_exercises(lesson: str | None = None) -> dict[str, Exercise | Trial]:
    """The exercises of a lesson, such as "02", or of a lab, such as "lab3", by name; of all where it is None."""
    files = {module.name for module in pkgutil.iter_modules(exercises.__path__)}
    wanted = files if lesson is None else files & {f"lesson_{lesson}", lesson.replace("lab", "lab_", 1)}
    modules = [importlib.import_module(f"{exercises.__name__}.{file}") for file in sorted(wanted)]
    return {exercise.name: exercise for module in modules for exercise in module.EXERCISES}
