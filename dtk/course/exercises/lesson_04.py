"""Exercises of lesson 04: TF_CONFIG, the global batch, what fit averages, and who hands over the strategy."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from dtk.course.exercise import Exercise, Misconception, Trial, not_solved, same
from dtk.errors import WorkerFailed
from dtk.language import N_, _
from dtk.worker.ship import takes_strategy

__all__ = ["EXERCISES"]


def _clusters(draw: random.Random) -> list[tuple[list[str], int]]:
    """(addresses of all workers, the number of one of them)"""
    plain = [(["10.0.0.1:4000", "10.0.0.2:4000"], 1), (["10.0.0.1:4000", "10.0.0.2:4000"], 0)]
    names = [[f"node{draw.randint(1, 99)}.lab:{draw.randint(2000, 9000)}" for _ in range(many)] for many in (3, 4)]
    return [*plain, *((addresses, draw.randrange(1, len(addresses))) for addresses in names)]


def _config(workers: list[str], index: Any, kind: str = "worker", **more: Any) -> dict[str, Any]:
    return {"cluster": {"worker": workers, **more}, "task": {"type": kind, "index": index}}


def _layouts(draw: random.Random) -> list[tuple[int, int, int]]:
    """(examples for each replica, workers, replicas in each)"""
    plain = [(64, 4, 1), (32, 2, 8), (128, 1, 4)]
    return plain + [(draw.choice([8, 16, 50]), draw.randint(2, 6), draw.randint(2, 4)) for _ in range(3)]


def _losses(draw: random.Random) -> list[tuple[list[list[float]]]]:
    """The losses of each replica's examples: the first batch is dealt out evenly, the others are not."""
    plain = [[[2.0, 4.0], [1.0, 1.0]], [[2.0, 4.0, 3.0], [1.0, 1.0]]]
    drawn = [[[float(draw.randint(1, 9)) for _ in range(many)] for many in sizes] for sizes in ((5, 4), (3, 3, 1))]
    return [(parts,) for parts in [*plain, *drawn]]


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def _all(parts: list[list[float]]) -> list[float]:
    return [number for part in parts for number in part]


# ---- who hands over the strategy: a function that must answer rightly wherever it runs

_CONSTANT = N_(
    "it says {value} wherever it runs: also with more replicas in one process, and on one device alone; ask the "
    "strategy that is there"
)


def _started(answer: Callable[..., Any], replicas: int) -> list[tuple[Any, int]]:
    """What the function returns in two workers, in one process with some replicas and on one device; and the truth."""
    from dtk.runs import baseline, run

    starts = [(run(answer, workers=2), 2), (run(answer, workers=1, replicas=replicas), replicas), (baseline(answer), 1)]
    return [(result, right) for started, right in starts for result in started.results]


def _strategy_hint(answer: Any, draw: random.Random) -> str:
    if not callable(answer):
        return _("a function is asked for: run its cell after you have changed it")
    try:
        found = _started(answer, draw.choice((3, 4)))
    except WorkerFailed as failed:
        code = getattr(answer, "__code__", None)
        if code is not None and "strategy" in code.co_names and not takes_strategy(answer):
            remedy = N_("in a worker there is no such name; what dtk is to hand over, the function must ask for")
            raise not_solved("04.strategy", remedy) from None
        return _("in one of three places it fails: {what}", what=failed.what)
    if all(same(got, right) for got, right in found):
        return ""
    values = {repr(got) for got, __ in found}
    if len(values) == 1:
        return _(_CONSTANT, value=values.pop())
    if [got for got, __ in found] == [2, 2, 1, 1] or [got for got, __ in found] == [2, 1, 1]:
        return _("this counts workers only, and a worker can have several replicas; ask the strategy that dtk has made")
    said = ", ".join(repr(got) for got, __ in found)
    return _("it says {values} in places with different numbers of replicas", values=said)


EXERCISES = [
    Exercise(
        "04.config",
        right=_config,
        cases=_clusters,
        wrong=[
            Misconception(
                lambda addresses, index: _config(addresses, index + 1),
                N_("workers are counted from 0: the chief is worker 0"),
            ),
            Misconception(
                lambda addresses, index: _config([addresses[index]], index),
                N_("each worker has to know all of them: the same cluster for everybody"),
            ),
            Misconception(
                lambda addresses, index: _config([at for at in addresses if at != addresses[index]], index),
                N_("a worker is one of the cluster: its own address is in the list, too"),
            ),
            Misconception(lambda addresses, index: _config(addresses, str(index)), N_("index is a number, not a text")),
            Misconception(
                lambda addresses, index: _config(addresses, index, "chief" if index == 0 else "worker"),
                N_("worker 0 is the chief without being called so; here all tasks are of type worker"),
            ),
            Misconception(
                lambda addresses, index: json.dumps(_config(addresses, index)),
                N_("return the dictionary; json.dumps comes when it is put into the environment variable"),
            ),
        ],
        hint=N_("look at the two that are printed above: what is the same in both, what is not?"),
    ),
    Exercise(
        "04.batch",
        right=lambda each, workers, replicas: each * workers * replicas,
        cases=_layouts,
        wrong=[
            Misconception(
                lambda each, workers, replicas: each,
                N_("the strategy divides what you pass: each replica gets a part of it"),
            ),
            Misconception(
                lambda each, workers, replicas: each * workers,
                N_("a worker with several replicas divides its part once more"),
            ),
            Misconception(
                lambda each, workers, replicas: each * replicas,
                N_("all workers take from the same batch, not one alone"),
            ),
            Misconception(
                lambda each, workers, replicas: each // (workers * replicas),
                N_("that divides; TensorFlow does so itself, so that you multiply"),
            ),
            Misconception(
                lambda each, workers, replicas: each * (workers + replicas),
                N_("each of the workers has that many replicas: how many are there in all?"),
            ),
        ],
        hint=N_("how many replicas are there in all?"),
    ),
    Exercise(
        "04.uneven",
        right=lambda parts: _mean([_mean(part) for part in parts]),
        cases=_losses,
        wrong=[
            Misconception(
                lambda parts: _mean(_all(parts)), N_("that is one device's mean, in which each example counts the same")
            ),
            Misconception(
                lambda parts: sum(_mean(part) for part in parts),
                N_("added up it grows with the replicas; fit takes a mean"),
            ),
            Misconception(lambda parts: sum(_all(parts)), N_("a sum grows with the batch; fit takes a mean of means")),
            Misconception(lambda parts: _mean(parts[0]), N_("all replicas count, not the first alone")),
            Misconception(
                lambda parts: sum(_all(parts)) / len(parts), N_("divide each replica's sum by its own examples first")
            ),
        ],
        hint=N_("first each replica's mean, then what fit makes of these"),
    ),
    Trial("04.strategy", hint_for=_strategy_hint),
]
