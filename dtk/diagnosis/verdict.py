"""What `dtk.diagnose` says: a mistake that was found, or several that leave the same traces, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtk.diagnosis.mistakes import MISTAKES
from dtk.errors import in_words
from dtk.language import N_, _

__all__ = ["DECIDES", "SAID", "Diagnosis", "by_test", "either", "found"]


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `dtk.diagnose` found. Shows itself, also as a cell's value, as its sentence.

    Attributes:
        mistake: a key of `dtk.diagnosis.mistakes.MISTAKES`, "none" where the runs agree, "unknown" where nothing known
            explains them, or where several mistakes would: these are then in `also`.
        what: what is wrong, with the numbers.
        evidence: facts that it rests on, a sentence each; the first says which test could have refuted it.
        also: further mistakes, which leave the same traces, or, where runs agree and nothing is learnt, were found as
            well.
        remedy: what to do about it; "" where `what` says that as well, or where nothing is known.
        alike: those of `also` that the sentence names as looking the same.
    """

    mistake: str
    what: str
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    remedy: str = ""
    alike: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """All of it in words: what, the remedy, and which other mistakes would look the same."""
        said = in_words(self.what, self.remedy)
        if not self.alike:
            return said
        return _("{sentence} (the same is seen with: {others})", sentence=said, others=_(", ").join(self.alike))

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return self.sentence


def found(mistake: str, what: str, tested: str, evidence: Sequence[str] = (), also: tuple[str, ...] = ()) -> Diagnosis:
    """A diagnosis with the mistake's remedy, whose sentence says which other mistakes would look the same.

    tested: what could have refuted it, and did not.
    """
    return Diagnosis(mistake, what, (by_test(tested), *evidence), also, _(MISTAKES[mistake].remedy), alike=also)


def by_test(tested: str) -> str:
    """The first line of the evidence: what could have refuted the diagnosis."""
    return _("tested: {tested}", tested=tested)


def either(
    lead: str, suspects: Sequence[str], tested: str, evidence: Sequence[str] = (), open_ended: Sequence[str] = ()
) -> Diagnosis:
    """Several mistakes that this pair of runs can't distinguish, and the runs that would.

    open_ended: suspects that no further run is known to confirm here.
    """
    count = {2: N_("two"), 3: N_("three"), 4: N_("four"), 5: N_("five")}.get(len(suspects), str(len(suspects)))
    listed = _(", or ").join(_("{suspect} ({key})", suspect=_(SAID[key]), key=key) for key in suspects)
    what = N_("{lead}: one of these {count}: {suspects}") if len(suspects) > 1 else N_("{lead}: perhaps {suspects}")
    runs = list(dict.fromkeys(_(DECIDES[key]) for key in suspects if key in DECIDES and key not in open_ended))
    asked = N_("{runs} would decide: dtk.diagnose(run, baseline, try_it=True)")
    return Diagnosis(
        "unknown",
        _(what, lead=lead, count=_(count), suspects=listed),
        (by_test(tested), *evidence),
        tuple(suspects),
        _(asked, runs=_(" and ").join(runs)) if runs else "",
    )


# What a sentence calls a suspect, and which run tells whether it is one (`dtk.diagnosis.trials` makes them).
SAID = {
    "random": N_("something draws at random in the step, such as dropout, noise or sampling"),
    "whole batch": N_(
        "a loss or a layer depends on the whole batch: in-batch negatives, a mean over what is not masked"
    ),
    "regularisation": N_("every replica adds a part of the loss whole, such as a penalty"),
    "batch norm": N_("each replica normalises its own part of the batch"),
    "learning rate": N_("a learning rate, a gradient or another setting of the optimizer differs"),
    "gradient scale": N_("a gradient is scaled in only one of the two"),
    "clipping": N_("each replica clips its own gradient before they are added up"),
    "sparse gradient": N_("the optimizer takes each replica's rows of a gradient by themselves, and not their sum"),
    "rounding": N_(
        "rounding that a kink such as relu's, an optimizer such as Adam where a gradient is nearly 0, or a type of few "
        "digits has enlarged"
    ),
    "local mean": N_("each replica divides by its own batch"),
    "divided twice": N_("the loss is divided by the replicas once more"),
    "not divided": N_("the sum over the examples is not divided"),
    "other data": N_("they read other examples, or in another order"),
    "start": N_("they began with other weights"),
    "not in scope": N_("the model, a layer or the optimizer was made outside of the strategy's scope"),
    "sharding off": N_("every worker reads everything"),
    "order": N_("the order is another one"),
    "worker order": N_("the workers read in different orders, so that shards overlap and miss some"),
    "augmentation": N_("a map of the dataset draws at random"),
    "not reproducible": N_("something is drawn anew each time"),
}
DECIDES = {
    "random": N_("both runs with nothing drawn at random"),
    "whole batch": N_("a run with another number of replicas"),
    "regularisation": N_("a run with another number of replicas"),
    "learning rate": N_("the baseline with the learning rate times N"),
    "clipping": N_("both runs without clipping"),
    "sparse gradient": N_("both runs with dense gradients"),
    "rounding": N_("both runs in float64"),
    "batch norm": N_("both runs with BatchNormalization(synchronized=True)"),
    "augmentation": N_("both runs with nothing drawn at random"),
    "not reproducible": N_("the baseline once more"),
}
