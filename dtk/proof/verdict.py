"""What `dtk.diagnose` says: a mistake that was found, or several that leave the same traces, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtk.errors import in_words
from dtk.language import N_, _
from dtk.proof.mistakes import MISTAKES

__all__ = ["Diagnosis", "by_test", "either", "found"]


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `dtk.diagnose` found. Shows itself, also as a cell's value, as its sentence.

    Attributes:
        mistake: a key of `dtk.proof.mistakes.MISTAKES`, "none" where the runs agree, "unknown" where nothing known
            explains them, or where several mistakes would: these are then in `also`.
        what: what is wrong, with the numbers.
        evidence: facts that it rests on, a sentence each; the first says which test could have refuted it.
        also: further mistakes, which leave the same traces.
        remedy: what to do about it; "" where `what` says that as well, or where nothing is known.
    """

    mistake: str
    what: str
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """All of it in words: what, the remedy, and which other mistakes would look the same."""
        said = in_words(self.what, self.remedy)
        if not self.also or self.mistake == "unknown":  # where `what` lists them
            return said
        return _("{sentence} (the same is seen with: {others})", sentence=said, others=_(", ").join(self.also))

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return self.sentence


def found(mistake: str, what: str, tested: str, evidence: Sequence[str] = (), also: tuple[str, ...] = ()) -> Diagnosis:
    """A diagnosis with the mistake's remedy, whose sentence says which other mistakes would look the same.

    tested: what could have refuted it, and did not.
    """
    return Diagnosis(mistake, what, (by_test(tested), *evidence), also, _(MISTAKES[mistake].remedy))


def by_test(tested: str) -> str:
    """The first line of the evidence: what could have refuted the diagnosis."""
    return _("tested: {tested}", tested=tested)


def either(lead: str, suspects: Sequence[str], tested: str, evidence: Sequence[str] = ()) -> Diagnosis:
    """Several mistakes that this pair of runs can't distinguish."""
    listed = _(", or ").join(_("{suspect} ({key})", suspect=_(MISTAKES[key].among), key=key) for key in suspects)
    what = N_("{lead}: one of these: {suspects}")
    return Diagnosis("unknown", _(what, lead=lead, suspects=listed), (by_test(tested), *evidence), tuple(suspects))
