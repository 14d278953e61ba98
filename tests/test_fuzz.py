"""Random small programs: `verify` passes or there is a true cause, and it is the one that `diagnose` names.

`CASES=500 SEED=7 python -m pytest tests/test_fuzz.py` draws as many; each goes to out/fuzz.jsonl as it is judged.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import fuzzing
import hypothesis
import pytest

CASES = int(os.environ.get("CASES", 5))
SEED = int(os.environ.get("SEED", 0))
LOG = Path(__file__).parent.parent / "out" / "fuzz.jsonl"


def note(**facts):
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


@pytest.mark.slow
def test_what_it_has_found():
    assert fuzzing.judge(fuzzing.tidy({"inputs": "tokens", "masked": True})).verdict == "candidates"
    assert fuzzing.judge(fuzzing.tidy({"tail": 1, "penalty": True, "extras": ["eager"]})).verdict == "true"


@pytest.mark.slow
@pytest.mark.timeout(60 * CASES + 600)
def test_a_run_passes_or_its_cause_is_named(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    seen = {}

    @hypothesis.seed(SEED)
    # Hypothesis draws. A case takes seconds: a failure is made smaller by `fuzzing.smallest`, in a bounded number of
    # runs, and does not end the search.
    @hypothesis.settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(spec=fuzzing.specs())
    def look(spec):
        key = json.dumps(spec, sort_keys=True)
        if key not in seen:
            try:
                seen[key] = fuzzing.judge(spec)
            except Exception:
                print(fuzzing.replay(spec))
                raise
            note(spec=fuzzing.special(spec), **seen[key]._asdict())

    look()
    print(Counter(found.verdict for found in seen.values()))
    defects = {}
    for key, found in seen.items():
        kind = (found.verdict, found.named)
        if found.is_defect and kind not in defects:
            small = fuzzing.smallest(json.loads(key), found)
            defects[kind] = f"{fuzzing.replay(small)}\n    {found.verdict}: {found.said}"
    again = f"CASES={CASES} SEED={SEED} found (each alone by its command):"
    assert not defects, "\n".join([again, *defects.values()])
