"""Programs that nobody here wrote: each gets its right answer, and recording changes no bit of what it computes."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from gallery import all_programs
from weighing import weighed

import dtk
from dtk.analysis.mistakes import MISTAKES

PROGRAMS = all_programs()
# Of several kinds, and quick: these run in `make test`, all by `make test-gallery`.
QUICK = []
SLOW = [name for name in PROGRAMS if name not in QUICK]
# Answers to a pair that agrees: nothing is learnt, or a loss takes its inputs for something else.
AGREE = {"low learning rate", "nothing learnt", "from_logits"}


@cache
def run_of(name):
    program = PROGRAMS[name]
    return dtk.run(program.train, **{"workers": 2, **program.start})


@cache
def baseline_of(name):
    program = PROGRAMS[name]
    return dtk.baseline(program.train, **{key: program.start[key] for key in ("keras", "seed") if key in program.start})


def check_answer(name):
    program, pair = PROGRAMS[name], (run_of(name), baseline_of(name))
    diagnosis = dtk.diagnose(*pair)
    print(f"[{name}] {diagnosis}\n  {diagnosis.evidence}")
    if program.right == "pass" or program.right in AGREE:
        dtk.verify(*pair)
        assert diagnosis.mistake == ("none" if program.right == "pass" else program.right)
        return
    with pytest.raises(dtk.VerificationError) as failed:
        dtk.verify(*pair)
    assert failed.value.reason == program.reason or not program.reason
    assert diagnosis.mistake == program.right


def check_recording(name):
    """Each weight that the recorded run ended with is among the variables of the same run without recording."""
    program, recorded = PROGRAMS[name], run_of(name)
    plain = weighed(dtk.run, name, **{"workers": 2, **program.start})
    for worker, variables in zip(recorded.folder.each, plain, strict=True):
        initial, final = worker.weights("initial"), worker.weights("final")
        assert final is not None
        assert final.arrays
        assert initial is None or any(
            not np.array_equal(*pair) for pair in zip(initial.arrays, final.arrays, strict=True)
        )
        missing = counted(final.arrays) - counted(variables)
        assert not missing, f"{missing.total()} of {len(final.arrays)} weights are not what they are without recording"


def counted(arrays):
    """Shapes and bits. Types that NumPy's files lack are recorded as float32."""
    plain = [a if a.dtype.kind in "biufc" else a.astype(np.float32) for a in arrays]
    return Counter((a.shape, a.dtype.str, a.tobytes()) for a in plain)


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_program_gets_its_right_answer(name):
    check_answer(name)


@pytest.mark.parametrize("name", QUICK)
def test_recording_changes_no_bit_of_a_quick_program(name):
    check_recording(name)


@pytest.mark.parametrize("name", SLOW)
def test_a_program_gets_its_right_answer(name):
    check_answer(name)


@pytest.mark.parametrize("name", SLOW)
def test_recording_changes_no_bit(name):
    check_recording(name)


def test_the_gallery_is_what_it_says():
    assert len(PROGRAMS) >= 50
    assert set(QUICK) <= set(PROGRAMS)
    answers = {program.right for program in PROGRAMS.values()}
    slips = {slip for program in PROGRAMS.values() for slip in program.slips}
    assert answers - {"pass"} <= set(MISTAKES)
    assert slips <= set(MISTAKES)
    assert len({program.kind for program in PROGRAMS.values()}) >= 5
    assert all(program.source for program in PROGRAMS.values())
