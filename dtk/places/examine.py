"""Machines that won't do are found before a worker starts: each in one sentence, with its name."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _

if TYPE_CHECKING:
    from dtk.places.carriers import Lent

__all__ = ["clocks", "cut", "lost", "reach", "shares", "versions"]

_CLOCK_SECONDS = 60.0  # beyond that certificates, file times and logs of two machines don't fit together
_ROUNDS = 5  # of which the quickest tells how far two machines' clocks are apart
_MUST = ("tensorflow", "keras")  # the same on each machine, or they don't compute the same


def versions(lent: Sequence[Lent]) -> None:
    """Python that reads what this one pickles; TensorFlow, Keras and dtk the same on each."""
    own = environment.versions("tensorflow", "keras", "dtk", "cloudpickle")
    for worker, each in enumerate(lent):
        there = each.facts["versions"]
        who = {"worker": worker, "host": each.host}
        if _minor(there["Python"]) != _minor(own["Python"]):
            words = N_(
                "worker {worker} on {host}: Python {there} there, {here} here; a pickled function fits one minor "
                "version only"
            )
            raise ClusterConfigError(_(words, there=there["Python"], here=own["Python"], **who))
        for package in ("tensorflow", "dtk"):
            if there[package] is None:
                words = N_(
                    "worker {worker} on {host}: {package} is not installed there, for the Python that is started"
                )
                raise ClusterConfigError(_(words, package=package, **who))
        if there["dtk"] != own["dtk"]:
            words = N_("worker {worker} on {host}: dtk {there} there, {here} here; install the same")
            raise ClusterConfigError(_(words, there=there["dtk"], here=own["dtk"], **who))
        for package in _MUST:
            usual, other = _usual(package, own, lent)
            if there[package] != usual:
                words = N_(
                    "worker {worker} on {host}: {package} {there} there, {usual} on {other}; install the same on "
                    "every machine"
                )
                of_each = {"there": there[package], "usual": usual, "other": other}
                raise ClusterConfigError(_(words, package=package, **of_each, **who))
        apart = each.facts["wall"] - time.time()
        if abs(apart) > _CLOCK_SECONDS:
            words = N_("the clock of {host} is {apart:+.0f} s from this machine's; its log's times are its own")
            environment.say(_(words, host=each.host, apart=apart))


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
        for address, (_number, words) in answer["failed"].items()
    }
    if not failed:
        return
    (one, other), words = next(iter(failed.items()))
    names = [_("worker {worker} on {host}", worker=worker, host=lent[worker].host) for worker in (one, other)]
    known = {"one": names[0], "other": names[1], "address": lent[other].address, "why": words}
    back = failed.get((other, one))
    if back is None:
        what = _("{one} can't reach {other} at {address}, a port that is open there ({why})", **known)
    else:
        what = N_("{one} and {other} can't reach each other's ports, which are open there ({why}; {back})")
        what = _(what, back=back, **known)
    remedy = _("TensorFlow needs every port above 1023 open between workers, both ways")
    raise ClusterConfigError(what, remedy=remedy)


def shares(place: str, lent: Sequence[Lent], answers: Sequence[Mapping[str, Any]]) -> None:
    """One directory that each machine sees."""
    for each, answer in zip(lent, answers, strict=True):
        if not answer["found"]:
            words = N_(
                "restarts= or evaluator= on {place}: {one} and {other} have no directory in common, where one would "
                "find what another has saved"
            )
            what = _(words, place=place, one=lent[0].host, other=each.host)
            if answer.get("words"):
                what = _("{what} ({why})", what=what, why=answer["words"])
            raise ClusterConfigError(what, remedy=_("pass storage=, a directory that all machines share"))


def clocks(lent: Sequence[Lent], ask: Callable[[int], Mapping[str, Any]]) -> None:
    """Finds how far each machine's clock is ahead of this one's. ask: an agent, by number, for its facts."""
    for k, each in enumerate(lent):
        best = float("inf")
        for _round in range(_ROUNDS):
            asked = time.monotonic()
            answer = ask(k)
            took = answer["arrived"] - asked
            if took < best:
                best, each.ahead = took, answer["at"] - (asked + answer["arrived"]) / 2


def cut(there: Mapping[int, str], failed: Mapping[int, Mapping[str, Any]]) -> list[tuple[int, int, str]]:
    """(who, whom, the system's words) of machines that can't reach another's server.

    there: the servers' addresses by member. failed: what each member that was asked could not reach, by address.
    """
    by_address = {address: k for k, address in there.items()}
    found = []
    for k, addresses in failed.items():
        # Refused: the machine is reached, and its worker has ended; what became of that, its agent says.
        lost = {address: words for address, (number, words) in addresses.items() if number != errno.ECONNREFUSED}
        found += [(k, by_address[address], words) for address, words in lost.items()]
    return found


def lost(lent: Sequence[Lent], silent: Collection[int], seconds: float) -> dict[int, str]:
    """What is said of members whose agent is gone, or has not been heard of for so many seconds."""
    words = N_("has not been heard of for {seconds:g} s: its machine is down, or the network to it is cut")
    gone = {k: each.gone for k, each in enumerate(lent) if each.gone}
    found = {k: _("is lost with its machine, or dtk's agent there: {why}", why=why) for k, why in gone.items()}
    return {**dict.fromkeys(silent, _(words, seconds=seconds)), **found}
