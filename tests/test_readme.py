"""The README is short, and its sample and its mistake do what it says that they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from by_hand import environment

pytestmark = pytest.mark.trains

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = 600
# A block of Python, and the next block without a language, or quotation: what it prints.
SAMPLE, MISTAKE = re.findall(r"```python\n(.*?)```.*?\n(?:```\n|> )(.*?\n)(?:```|\n)", TEXT, flags=re.DOTALL)


def printed(code: str, folder: Path) -> str:
    """What a script prints that is run as a learner runs it."""
    script = folder / "sample.py"
    script.write_text(code, encoding="utf-8")
    command, env = [sys.executable, str(script)], environment(DTK_LIVE="off")
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_for_somebody_with_two_minutes():
    assert len(TEXT.split()) <= WORDS


@pytest.mark.timeout(240)
def test_the_sample_prints_what_stands_under_it(tmp_path: Path):
    assert printed(SAMPLE[0], tmp_path) == SAMPLE[1]


@pytest.mark.timeout(240)
@pytest.mark.slow  # imports TensorFlow anew
def test_the_mistake_is_named_in_the_sentence_under_it(tmp_path: Path):
    code, count = re.subn(r"^        loss = .*\n", MISTAKE[0] + "\n", SAMPLE[0], flags=re.MULTILINE)
    assert count == 1
    tried = (
        "    try:\n        dtk.verify(run, baseline)\n    except dtk.VerificationError:\n"
        "        print(dtk.diagnose(run, baseline))\n"
    )
    said = printed(code.replace("    dtk.verify(run, baseline)\n", tried), tmp_path)
    passed, _, sentence = said.partition("check replicas agree: PASS (20 steps)\n")
    assert passed
    # Initial weights, and so the losses, differ from one version of Keras to the next.
    assert re.sub(r"\d\.\d+", "#", sentence) == re.sub(r"\d\.\d+", "#", MISTAKE[1])
