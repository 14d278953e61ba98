"""Machines that won't do are found before a worker starts: each in one sentence, with its name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError

if TYPE_CHECKING:
    from dtk.places.carriers import Lent

__all__ = ["reach", "shares", "versions"]

_CLOCK_SECONDS = 60.0  # beyond that certificates, file times and logs of two machines don't fit together
_MUST = ("tensorflow", "keras")  # the same on each machine, or they don't compute the same


def versions(lent: Sequence[Lent]) -> None:
    """Python that reads what this one pickles; TensorFlow, Keras and dtk the same on each."""
    own = environment.versions("tensorflow", "keras", "dtk", "cloudpickle")
    for worker, each in enumerate(lent):
        there = each.facts["versions"]
        who = f"worker {worker} on {each.host}"
        if _minor(there["Python"]) != _minor(own["Python"]):
            what = (
                f"Python {there['Python']} there, {own['Python']} here; a pickled function fits one minor version only"
            )
            raise ClusterConfigError(f"{who}: {what}")
        for package in ("tensorflow", "dtk"):
            if there[package] is None:
                raise ClusterConfigError(f"{who}: {package} is not installed there, for the Python that is started")
        if there["dtk"] != own["dtk"]:
            words = f"dtk {there['dtk']} there, {own['dtk']} here; install the same"
            raise ClusterConfigError(f"{who}: {words}")
        for package in _MUST:
            usual, host = _usual(package, own, lent)
            if there[package] != usual:
                words = f"{package} {there[package]} there, {usual} on {host}; install the same on every machine"
                raise ClusterConfigError(f"{who}: {words}")
        apart = each.facts["wall"] - time.time()
        if abs(apart) > _CLOCK_SECONDS:
            environment.say(
                f"the clock of {each.host} is {apart:+.0f} s from this machine's; its log's times are its own"
            )


def _usual(package: str, own: Mapping[str, Any], lent: Sequence[Lent]) -> tuple[str | None, str]:
    """The version that most machines have, and the first with it. This one counts: of two it says which is odd."""
    found = [each.facts["versions"][package] for each in lent]
    usual = Counter([*found, own[package]]).most_common(1)[0][0]  # of as many, the first machine's
    return usual, lent[found.index(usual)].host


def _minor(version: str | None) -> list[str]:
    return (version or "").split(".")[:2]


def reach(lent: Sequence[Lent], answers: Sequence[Mapping[str, Any]]) -> None:
    """Each worker's port, from each other machine."""
    by_address = {f"{each.address}:{each.port}": worker for worker, each in enumerate(lent)}
    failed = {
        (worker, by_address[address]): words.lower()
        for worker, answer in enumerate(answers)
        for address, (_, words) in answer["failed"].items()
    }
    if not failed:
        return
    (one, other), words = next(iter(failed.items()))
    who, whom = (f"worker {worker} on {lent[worker].host}" for worker in (one, other))
    back = failed.get((other, one))
    said = (
        f"{who} can't reach {whom} at {lent[other].address}, a port that is open there ({words})"
        if back is None
        else f"{who} and {whom} can't reach each other's ports, which are open there ({words}; {back})"
    )
    raise ClusterConfigError(f"{said}; TensorFlow needs every port above 1023 open between workers, both ways")


def shares(place: str, lent: Sequence[Lent], answers: Sequence[Mapping[str, Any]]) -> None:
    """One directory that each machine sees."""
    for each, answer in zip(lent, answers, strict=True):
        if not answer["found"]:
            why = f" ({answer['words']})" if answer.get("words") else ""
            raise ClusterConfigError(
                f"restarts= or evaluator= on {place}: {lent[0].host} and {each.host} have no directory in common{why}, "
                "where one would find what another has saved; pass storage=, a directory that all machines share"
            )
