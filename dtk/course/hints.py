"""Hints that several exercises give: one wording for one misconception, marked for translation."""

from __future__ import annotations

from dtk.language import N_

__all__ = [
    "ALL_ADDRESSES",
    "EVERYTHING",
    "FLOAT32",
    "FROM_STEP_1",
    "GROWS",
    "HALF_RING",
    "LAST_STEP",
    "LOST_STEPS",
    "OWN_MEAN",
    "RATE_RISES",
    "REDUCES",
    "RING_BYTES",
]

ALL_ADDRESSES = N_("each worker has the addresses of all, in the same order")
EVERYTHING = N_("every worker sees all examples: nothing divides them")
FLOAT32 = N_("these are numbers; a float32 has 4 bytes")
FROM_STEP_1 = N_("this begins again with step 1; what was saved does not have to be computed again")
GROWS = N_("a sum grows with the batch; one device takes a mean")
HALF_RING = N_("that is one half of the ring; after the sums are there they go round once more")
LAST_STEP = N_("this is the last step alone; look at all of them")
LOST_STEPS = N_("so many count; those whose work was lost were computed, too")
OWN_MEAN = N_(
    "divided by this replica's own examples it is a mean, and means add up to too much; by what would one "
    "device divide?"
)
RATE_RISES = N_("after the warm-up the rate goes on rising; it is to stay")
REDUCES = N_("the steps' all-reduces are missing: there is one in each step")
RING_BYTES = N_("count the bytes again: twice what a ring passes on in one half, and nothing with one worker")
