"""Programs that nobody here wrote: each gets its right answer, and recording changes no bit of what it computes."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from gallery import all_programs
from starting import nightly
from weighing import weighed

import dtk
from dtk.proof.mistakes import MISTAKES
from dtk.worker.recorded import RecordedStates

pytestmark = pytest.mark.trains

PROGRAMS = all_programs()
# Of several kinds, and quick: these run in `make test`, all where this file is named.
QUICK = ["legacy_train_step", "multi_worker_ctl", "short_batch", "strings_in_the_model"]
UNCHANGED = ["custom_train_step", "multi_worker_ctl", "strings_in_the_model"]  # a step of one's own, a loop, a fit
REPRODUCIBLE = [name for name in PROGRAMS if PROGRAMS[name].right != "not reproducible"]


def quick_first(quick, names):
    """These names, of which all that are not quick are slow tests."""
    return [*quick, *nightly(*([name] for name in names if name not in quick))]


@cache
def run_of(name):
    program = PROGRAMS[name]
    return dtk.run(program.train, **{"workers": 2, **program.start})


@cache
def baseline_of(name):
    program = PROGRAMS[name]
    return dtk.baseline(program.train, **{key: program.start[key] for key in ("keras", "seed") if key in program.start})


@pytest.mark.parametrize("name", quick_first(QUICK, PROGRAMS))
def test_a_program_gets_its_right_answer(name):
    program, pair = PROGRAMS[name], (run_of(name), baseline_of(name))
    diagnosis = dtk.diagnose(*pair)
    print(f"[{name}] {diagnosis}\n  {diagnosis.evidence}")
    if program.right == "pass":
        dtk.verify(*pair)
        assert diagnosis.mistake == "none"
        return
    with pytest.raises(dtk.VerificationError) as failed:
        dtk.verify(*pair)
    assert failed.value.reason == program.reason or not program.reason
    if program.right == "not decidable":
        assert (failed.value.reason, diagnosis.mistake) == (program.reason or "not decidable", "unknown")
        return
    assert diagnosis.mistake in (program.right, "unknown")


def compared(name, **more):
    """By worker: the variables of a run without recording, and the final weights of the recorded run."""
    plain = weighed(dtk.run, name, **{"workers": 2, **PROGRAMS[name].start, **more})
    folder = run_of(name).folder
    finals = [worker.weights for worker in folder.each]
    for mine, final in zip(plain, finals, strict=True):
        # Of an Estimator the checkpoint is left, which is the chief's.
        held = final if PROGRAMS[name].kind != "estimator" else finals[0]
        # In Keras 2 each worker holds its own part of a moving statistic, which is their mean where it is read.
        yield [*mine, *means(plain)], held.arrays if final is not None else []


def means(by_worker):
    """Of each variable, over the workers; of equal values, to the last bit, these."""
    return [(sum(each) / len(each)).astype(each[0].dtype) for each in zip(*by_worker, strict=False) if each[0].ndim]


def counted(arrays):
    """Shapes and bits. Types that NumPy's files lack are recorded as float32."""
    plain = [a if a.dtype.kind in "biufc" else a.astype(np.float32) for a in arrays]
    return Counter((a.shape, a.dtype.str, a.tobytes()) for a in plain)


@pytest.mark.parametrize("name", quick_first(UNCHANGED, REPRODUCIBLE))
def test_recording_changes_no_bit(name):
    """Each weight that the recorded run ended with is among the variables of the same run without recording."""
    assert RecordedStates(run_of(name).folder).units, "nothing was trained"
    for plain, trained in compared(name):
        assert trained, "nothing was recorded"
        missing = {*counted(trained)} - {*counted(plain)}  # two models may hold one weight
        assert not missing, f"{len(missing)} of {len(trained)} weights are not what they are without recording"


def test_the_gallery_is_what_it_says():
    assert len(PROGRAMS) >= 50
    assert set(QUICK) <= set(PROGRAMS)
    answers = {program.right for program in PROGRAMS.values()}
    slips = {slip for program in PROGRAMS.values() for slip in program.slips}
    assert answers - {"pass", "not decidable"} <= set(MISTAKES)
    assert slips <= set(MISTAKES)
    assert len({program.kind for program in PROGRAMS.values()}) >= 5
    assert all(program.source for program in PROGRAMS.values())
