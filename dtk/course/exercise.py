"""Exercises: cases, the right answer to each, what misconceptions make of them, with hints; and `check`.

The exercises themselves are in `exercises/`, a file a lesson or lab.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import itertools
import json
import math
import numbers
import os
import random
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dtk.course.kept import keep
from dtk.environment import quiet
from dtk.errors import DtkError, VerificationError, WorkerFailed, WorkerStalled, one_of
from dtk.language import N_, _
from dtk.proof.verify import prove
from dtk.runs import Run, baseline, run

_MOST_ITEMS = 10_000  # of a generator, which may have no end
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 60


class Hints:
    """Hints that several exercises give: one wording for one misconception."""

    ALL_ADDRESSES = N_("each worker has the addresses of all, in the same order")
    COPIED = N_("what comes in the second half is finished: it is copied, not added")
    DROPPED = N_("the short batch at the end is dropped: it makes no update")
    EVERYTHING = N_("every worker sees all examples: nothing divides them")
    FLOAT32 = N_("these are numbers; a float32 has 4 bytes")
    FROM_0 = N_("workers, replicas and files are counted from 0")
    FROM_STEP_1 = N_("this begins again with step 1; what was saved does not have to be computed again")
    GO_ROUND = N_("numbers go round, as by %: there is no chunk below 0, and none beyond the last")
    GROWS = N_("a sum grows with the batch; one device takes a mean")
    HALF_RING = N_("that is one half of the ring; after the sums are there they go round once more")
    LAST_STEP = N_("this is the last step alone; look at all of them")
    LOST_STEPS = N_("so many count; those whose work was lost were computed, too")
    NO_ORDER = N_("the list comes in no order: the greatest number counts")
    OWN_MEAN = N_(
        "divided by this replica's own examples it is a mean, and means add up to too much; by what would one "
        "device divide?"
    )
    RATE_0 = N_("this begins with a rate of 0, at which nothing is learned")
    RATE_RISES = N_("after the warm-up the rate goes on rising; it is to stay")
    REDUCES = N_("the steps' all-reduces are missing: there is one in each step")
    RING_BYTES = N_("count the bytes again: twice what a ring passes on in one half, and nothing with one worker")
    STATE_ALONE = N_("every worker keeps all weights and gradients: only the optimizer's numbers are divided")
    SUM_OF_MEANS = N_("a sum of means grows with their number; a mean is asked for")
    UPSIDE_DOWN = N_("this is upside down: divide the other way round")


def digits(draw: random.Random, count: int) -> list[float]:
    """Draw numbers from 1 to 9."""
    return [float(draw.randint(1, 9)) for _ in range(count)]


def tf_config(workers: Sequence[str], index: Any, kind: str = "worker", **more: Any) -> dict[str, Any]:
    """Make the TF_CONFIG of one task, as a dictionary. more: other jobs of the cluster."""
    return {"cluster": {"worker": list(workers), **more}, "task": {"type": kind, "index": index}}


_IN_FORMULAS = {"json": json, "math": math, "np": np, "mean": fmean, "tf_config": tf_config}


def check(name: str, answer: Any, *objects: Any, seed: str | None = None) -> None:
    """Checks your answer to an exercise and prints PASS, or raises with a hint.

    What is right is computed: for a function, on other cases than the lesson's; for a value, from your own objects.

    Args:
        name: the exercise's, such as "02.share", or "lab3.update" in a lab.
        answer: your function or your value.
        objects: what your answer was read from, such as your run, where the exercise's cell hands it over.
        seed: draws other cases, for a function. None: those of the class's edition (`dtk class build --variant`).

    Raises:
        NotSolved: the exercise is as it was handed out. A CheckFailed.
        CheckFailed: the answer is wrong. The message has the case and a hint, and never the right answer.
        DtkError: no exercise has this name.
    """
    known = all_exercises(name.partition(".")[0])
    one_of("name", name, sorted(known) or sorted({each.partition(".")[0] for each in all_exercises()}))
    try:
        cases = known[name].judge(answer, *objects, seed=os.environ.get("DTK_VARIANT", "") if seed is None else seed)
    except CheckFailed as failed:
        if not isinstance(failed, NotSolved):
            keep("checked", name, hint=failed.remedy or failed.what)
        raise
    keep("checked", name, hint="")
    passed = N_("check {name}: PASS ({cases} cases)") if cases > 1 else N_("check {name}: PASS")
    print(_(passed, name=name, cases=cases))


def all_exercises(lesson: str | None = None) -> dict[str, Exercise | Trial]:
    """The exercises of a lesson, such as "02", or of a lab, such as "lab3", by name; of all where it is None."""
    files = {file.stem for file in Path(__file__).with_name("exercises").glob("l*.py")}
    if lesson is not None:
        files &= {lesson.replace("lab", "lab_", 1) if lesson.startswith("lab") else f"lesson_{lesson}"}
    modules = [importlib.import_module(f"dtk.course.exercises.{file}") for file in sorted(files)]
    return {exercise.name: exercise for module in modules for exercise in module.EXERCISES}


class CheckFailed(DtkError, AssertionError):
    """An exercise's answer is not right. Its message has a hint, and never the right answer."""


class NotSolved(CheckFailed):
    """The exercise is as it was handed out."""


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson.

    name: "LESSON.WORD". right: the answer, as a function of a case's values. wrong: each plausible wrong answer, a
    function of them or a formula in the names that `right` gives them, as a learner would write it, which may call the
    functions of the exercise's file; and the hint for who gives it, in English; "": `hint`. plain, drawn: the cases
    that a learner's function is tried on, the plainest first, then those that `drawn` makes with random numbers.
    Without `drawn` the answer is a value, whose one case are the learner's own objects, handed to `check` behind it.
    hint: for an answer that fits none of `wrong`, too. close: relative tolerance of numbers. play: how an answer is
    tried on a case where that is no plain call: takes the answer, then the case's values.
    """

    name: str
    right: Callable[..., Any]
    wrong: Mapping[str | Callable[..., Any], str]
    plain: Sequence[tuple[Any, ...]] = ()
    drawn: Callable[[random.Random], Sequence[tuple[Any, ...]]] | None = None
    hint: str = N_("work out the case that is shown, by hand")
    close: float = 1e-6
    play: Callable[..., Any] | None = None

    @functools.cached_property
    def misconceptions(self) -> list[tuple[Callable[..., Any], str]]:
        """Each wrong answer as a function, with its hint."""
        parameters = inspect.signature(self.right).parameters.values()
        given = ", ".join(each.name for each in parameters if each.default is each.empty)
        names = {**getattr(self.right, "__globals__", {}), **_IN_FORMULAS}
        functions = [each if callable(each) else eval(f"lambda {given}: {each}", names) for each in self.wrong]
        return [(answer, hint or self.hint) for answer, hint in zip(functions, self.wrong.values(), strict=True)]

    def cases(self, seed: str = "") -> list[tuple[Any, ...]]:
        """The cases of a function's exercise, the same in every session; another seed draws other numbers."""
        assert self.drawn is not None
        return [*self.plain, *self.drawn(random.Random(self.name + seed))]

    def tried(self, answer: Callable[..., Any], case: tuple[Any, ...]) -> Any:
        """What an answer makes of a case. Raises what the answer raises."""
        values = copy.deepcopy(case)
        return answer(*values) if self.play is None else self.play(answer, *values)

    def judge(self, answer: Any, *objects: Any, seed: str = "") -> int:
        """How many cases the answer is right in, which is all of them.

        Raises:
            NotSolved: it is None or `...`, or returns that.
            CheckFailed: it is wrong in one case at least.
        """
        _must_be_given(self.name, answer, as_function=self.drawn is not None)
        if self.drawn is None:
            _handed_over(self.name, functools.partial(self.play, self.right) if self.play else self.right, objects)
            return self._compare([objects], [answer], _("your answer"))
        cases = self.cases(seed)
        got = [self._called(answer, case) for case in cases]
        if all(value is None or value is ... for value in got):
            raise returns_nothing(self.name, answer)
        return self._compare(cases, got, _name_of(answer))

    def _called(self, answer: Callable[..., Any], case: tuple[Any, ...]) -> Any:
        try:
            got = self.tried(answer, case)
            # A generator is as good as its list.
            return list(itertools.islice(got, _MOST_ITEMS)) if isinstance(got, Iterator) else got
        except NotSolved:
            raise
        except Exception as error:
            where = _call(_name_of(answer), case)
            said = f"{type(error).__name__}: {error}"
            what = _("{exercise}: {call} raises {error}", exercise=self.name, call=where, error=said)
            raise CheckFailed(what) from error

    def _compare(self, cases: Sequence[tuple[Any, ...]], got: Sequence[Any], name: str) -> int:
        fine = [same(value, self.tried(self.right, case), self.close) for case, value in zip(cases, got, strict=True)]
        if all(fine):
            return len(fine)
        first = fine.index(False)
        where = _call(name, cases[first]) if self.drawn else name
        what = N_("{exercise}: {answer} is {value}, which is not right")
        if len(fine) > 1:
            what = N_("{exercise}: {answer} is {value}, which is not right, right in {right} of {all} cases")
        values = {"value": _shown(got[first]), "right": sum(fine), "all": len(fine)}
        what = _(what, exercise=self.name, answer=where, **values)
        raise CheckFailed(what, remedy=_("hint: {hint}", hint=_(self._hint_for(cases, got))))

    def _hint_for(self, cases: Sequence[tuple[Any, ...]], got: Sequence[Any]) -> str:
        for answer, hint in self.misconceptions:
            try:
                if all(same(its, self.tried(answer, case), self.close) for its, case in zip(got, cases, strict=True)):
                    return hint
            except Exception:
                continue  # what this misconception writes does not work for these cases
        return self.hint


@dataclass(frozen=True)
class Trial:
    """An exercise whose answer only a run can judge, as a training function to correct; one that fails gives the hint.

    name: "LESSON.WORD". hint_for: takes the answer, the learner's objects and `draw`, makes its runs on inputs of its
    own, whose numbers it draws by that, and returns the hint for what is wrong, or "" where nothing is. stub: what to
    do first where a function that does nothing is no answer, marked by `N_`; "": such a function is run as well.
    of_function: whether a function is asked for.
    """

    name: str
    hint_for: Callable[..., str]
    stub: str = ""
    of_function: bool = True
    drawn = None  # as of an `Exercise`: it has no cases

    def judge(self, answer: Any, *objects: Any, seed: str = "") -> int:
        """As `Exercise.judge`; the runs count as one case."""
        _must_be_given(self.name, answer, self.of_function)
        if self.stub and _does_nothing(answer):
            raise not_solved(self.name, self.stub)
        hint_for = functools.partial(self.hint_for, draw=random.Random(self.name + seed))
        _handed_over(self.name, hint_for, (answer, *objects))
        try:
            hint = hint_for(answer, *objects)
        except WorkerFailed as failed:
            hint = failure(failed)
        if hint:
            raise CheckFailed(_("{exercise}: not right yet", exercise=self.name), remedy=_("hint: {hint}", hint=hint))
        return 1


def failure(failed: WorkerFailed | WorkerStalled) -> str:
    """Word the hint for a run that failed: the last line of the worker's own traceback."""
    line = (getattr(failed, "traceback", "") or str(failed)).strip().splitlines()[-1].strip()
    return _("in a worker it fails: {error}", error=line)


def _must_be_given(name: str, answer: Any, as_function: bool) -> None:
    if answer is None or answer is ...:
        raise not_solved(name)
    if as_function and not callable(answer):
        raise CheckFailed(_("{exercise}: a function is asked for, not {answer}", exercise=name, answer=_shown(answer)))


def _does_nothing(answer: Any) -> bool:
    """Whether a function is the stub that was handed out: it returns None or `...`, and nothing else."""
    code = getattr(answer, "__code__", None)
    return code is not None and not code.co_names and set(code.co_consts) <= {None, ..., answer.__doc__}


def _handed_over(name: str, judge: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Raises a DtkError where `check` was called without the objects that the exercise's cell hands over."""
    try:
        inspect.signature(judge).bind(*given)
    except TypeError:
        words = _("{exercise} is checked with other objects: call dtk.check as the lesson's cell does", exercise=name)
        raise DtkError(words) from None


def returns_nothing(name: str, function: Any) -> NotSolved:
    """The error for a function of the exercise that is still the stub that was handed out."""
    what = _("{exercise} is not solved yet: {function} returns nothing", exercise=name, function=_name_of(function))
    return NotSolved(what, remedy=_("write its line first"))


def not_solved(name: str, remedy: str = N_("fill in the cell above, then run this one again")) -> NotSolved:
    """The error for an exercise that is as it was handed out. remedy: marked by `N_`."""
    return NotSolved(_("{exercise} is not solved yet", exercise=name), remedy=_(remedy))


def same(got: Any, right: Any, close: float = 1e-6) -> bool:
    """Whether two values are equal: numbers and arrays of one shape to a relative `close`, containers item by item.

    A value that can't be compared, such as an object whose `len` raises, is equal to nothing.
    """
    try:
        return _equal(got, right, close)
    except Exception:
        return False


def _equal(got: Any, right: Any, close: float) -> bool:
    if isinstance(right, Mapping):
        alike = isinstance(got, Mapping) and set(got) == set(right)
        return alike and all(same(got[key], right[key], close) for key in right)
    if isinstance(right, str | bool) or right is None:
        return type(_plain(got)) is type(right) and bool(_plain(got) == right)
    if isinstance(right, list | tuple):
        if isinstance(got, str | bytes | Mapping | Set) or not hasattr(got, "__len__") or len(got) != len(right):
            return False
        return all(same(mine, its, close) for mine, its in zip(got, right, strict=True))
    if not isinstance(right, int | float | np.number | np.ndarray):
        return bool(got == right)
    given, its = np.asarray(got), np.asarray(right, float)
    exact = given.dtype == object and all(isinstance(item, numbers.Real) for item in given.flat)  # such as a Fraction
    if given.dtype.kind not in "iuf" and not exact:
        return False  # a text, a truth value or a complex number
    mine = given.astype(float)
    return mine.shape == its.shape and bool(np.allclose(mine, its, rtol=close, atol=1e-9, equal_nan=True))


def _plain(value: Any) -> Any:
    """A NumPy or TensorFlow number as Python's, so that messages show the number alone."""
    try:
        value = value.numpy() if hasattr(value, "numpy") else value
    except Exception:
        return value  # it has another `numpy`
    return value.item() if isinstance(value, np.generic) else value


def _call(name: str, case: tuple[Any, ...]) -> str:
    return f"{name}({', '.join(map(_shown, case))})"


def _shown(value: Any) -> str:
    """A value in a message: short, and in one line."""
    return " ".join(_SHORT.repr(_plain(value)).split())


def _name_of(answer: Any) -> str:
    """What messages call an answer: the function's name, where it has one."""
    return getattr(answer, "__name__", None) or _("your answer")


# ---- what trials run: a share of the loss on two replicas and on one device; a function in a process of its own


def trains_otherwise(cluster: Run, alone: Run) -> bool:
    """Return whether verify refuses the two runs, or finds that one device trains something else."""
    try:
        return prove(cluster, alone).verdict == "replicas"
    except VerificationError:
        return True


def penalty_hint(share: Any, train: Any, whole: Any, draw: random.Random, argument: str, **kwargs: Any) -> str:
    """Return what is wrong with a share that has a penalty, as `hint_for_share` does; whole: right on one device alone.

    Batches are half as large as what divides, as an epoch's last may be: there a divisor by what is there shows.
    """

    def half_full(answer: Callable[..., Any]) -> Any:
        return lambda *given: answer(*given[:-1], 2 * given[-1])

    batch = draw.choice((60, 72, 80, 96))
    return hint_for_share(train, argument, half_full(share), half_full(whole), global_batch=batch, **kwargs)


def first_losses(
    train: Callable[..., Any], argument: str, mine: Any, whole: Any, **kwargs: Any
) -> tuple[list[Run], list[float]]:
    """Train one device with `whole`, two replicas with `mine` and one device with it; the runs, their first losses."""
    changed = {**kwargs, argument: mine}
    with quiet():
        runs = [baseline(train, kwargs={**kwargs, argument: whole}), run(train, workers=2, kwargs=changed)]
        runs.append(baseline(train, kwargs=changed))
    tables = [each.records for each in runs]
    return runs, [float(each[each.step == 1].loss.sum(skipna=False)) for each in tables]


def hint_for_share(
    train: Callable[..., Any], argument: str, share: Any, whole: Any, workers: int = 1, **kwargs: Any
) -> str:
    """Return what is wrong with a replica's share of the loss, on two replicas and on one device; "" for nothing.

    train: a function that takes kwargs, and the share as `argument`. whole: a share that is right on one device.
    workers: how many processes it takes; Colab has one.
    """
    (reference, cluster, alone), (right, together, own) = first_losses(train, argument, share, whole, **kwargs)
    if cluster.workers < workers:
        raise CheckFailed(_("this check needs two workers"))
    if not np.isclose(own, right, rtol=1e-4):
        if np.isclose(together, right, rtol=1e-4):
            return _(
                "two replicas are right, one device is not: a number of replicas that is typed in holds for one cluster"
            )
        return _(
            "one device's loss is another one: are the losses divided by the global batch, also in a short batch, and "
            "is the penalty what it was?"
        )
    if together > right * (1 + 1e-4):
        return _("one device's loss is right, the cluster's too large: each replica still adds the whole penalty")
    if together < right * (1 - 1e-4):
        return _("one device's loss is right, the cluster's too small: something is divided once too often")
    if trains_otherwise(cluster, alone):
        return _("step 1 is right, a later one is not: is an epoch's short last batch divided by the global batch too?")
    pairs = zip(alone.weights, reference.weights, strict=True)
    if not all(np.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in pairs):
        return _("the losses are right and the weights are not: does the penalty reach the gradients?")
    return ""


def tried(name: str, work: Callable[..., Any], answer: Any, *more: Any, seed: int | None = 0) -> Any:
    """Return what `work` makes of a function, in a process without workers, in which TensorFlow is at hand.

    name: the exercise's. work: takes the answer and `more`, and returns None where the answer returned nothing.
    """
    with quiet():
        found = baseline(work, args=(answer, *more), seed=seed).results[0]
    if found is None:
        raise returns_nothing(name, answer)
    return found
