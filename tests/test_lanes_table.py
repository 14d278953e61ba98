"""tools/lanes_table.py: pytest's reports, made here by pytest itself, into rows and reasons."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import lanes
import lanes_table
import pytest

TESTS = """
import pytest

def test_good(): pass

def test_bad(): assert 1 == 2, "one is not two"

@pytest.mark.skip(reason="lane colab: no JupyterLab there")
def test_left_out(): pass
"""
SILENT = "import pytest\n\n@pytest.mark.skip\ndef test_silent(): pass\n"
PAGE = f"# Page\n\n{lanes_table.BEGIN}\n\nold\n\n{lanes_table.END}\n\nMore.\n"


def reported(folder, name, text, title="colab: Python 3.13.0, tensorflow 2.20.0"):
    """The report of these tests, in a file of this name."""
    (folder / "test_some.py").write_text(text)
    report = folder / f"{name}.xml"
    options = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder, f"--junit-xml={report}"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # none is needed, and importing them takes long
    command = [sys.executable, "-m", "pytest", *options, "-o", f"junit_suite_name={title}", folder]
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=120)
    assert report.exists(), done.stdout + done.stderr
    return report


@pytest.fixture
def page(tmp_path):
    found = tmp_path / "versions.md"
    found.write_text(PAGE)
    return found


def test_a_row_and_the_reasons(tmp_path, page):
    report = reported(tmp_path, "colab-python3.13", TESTS)
    assert lanes_table.main([str(report), "--page", str(page)]) == 0
    text = page.read_text()
    assert "| colab-python3.13 | Python 3.13.0, tensorflow 2.20.0 | 1, 1, 1 | with the tests | 20" in text
    assert "`make lane LANE=colab` |" in text
    assert "- colab-python3.13: no JupyterLab there (1)\n" in text
    assert "old" not in text
    assert text.startswith("# Page\n")
    assert text.endswith("\nMore.\n")


def test_a_skip_without_a_reason_fails(tmp_path, page, capsys):
    report = reported(tmp_path, "main-python3.13", SILENT, "main: Python 3.13.0")
    assert lanes_table.main([str(report), "--page", str(page)]) == 1
    assert capsys.readouterr().err == "main-python3.13: 1 skipped without a reason\n"


def test_every_lane_has_its_command():
    assert set(lanes_table.COMMANDS) == set(lanes.SKIPPED) == set(lanes.LESSONS)
    made = re.search(r"^LANES := (.*)$", (lanes_table.ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {"main", *made[1].split()} == set(lanes_table.COMMANDS)
