"""What makes and checks the package: contents, a release's text, what other programs read in this repository."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import check_wheel
import pytest
import release_notes

import dtk

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGELOG = """\
# Changelog

## [Unreleased]

### Added
- Not yet.

## [0.2.0] - 2026-12-01

### Added
- A wheel.

### Fixed
- A hint.

## [0.1.0]

### Added
- All of it.

[0.1.0]: https://example.org
"""


def stated(version):
    return {"dtk/__init__.py": version, "CITATION.cff": version}


@pytest.mark.parametrize(
    ("version", "text"),
    [("0.2.0", "### Added\n- A wheel.\n\n### Fixed\n- A hint.\n"), ("0.1.0", "### Added\n- All of it.\n")],
)
def test_a_release_says_its_section_of_the_changelog(version, text):
    assert release_notes.notes(f"v{version}", CHANGELOG, stated(version)) == text


@pytest.mark.parametrize(
    ("tag", "changelog", "said", "words"),
    [
        ("0.2.0", CHANGELOG, stated("0.2.0"), "the tag '0.2.0' does not begin with v"),
        ("v0.2.1", CHANGELOG, stated("0.2.0"), "the tag is v0.2.1, but dtk/__init__.py says '0.2.0'"),
        ("v0.3.0", CHANGELOG, stated("0.3.0"), r"CHANGELOG.md has no section \[0.3.0\]: give what is under \[Unr"),
    ],
)
def test_what_does_not_fit_together_is_not_released(tag, changelog, said, words):
    with pytest.raises(release_notes.NotReady, match=words):
        release_notes.notes(tag, changelog, said)


def test_this_version_can_be_released(capsys):
    assert release_notes.main([f"v{dtk.__version__}"]) == 0
    assert capsys.readouterr().out.startswith("### Added\n- ")


def test_what_a_wheel_lacks_or_has_too_much_is_said():
    wanted = {"dtk/a.py": b"1", "dtk/py.typed": b"", "dtk/notebooks/00.ipynb": b"{}"}
    place = "dtk_toolkit-1.0.dist-info/METADATA"
    metadata = {place: b"See [install](https://example.org/docs/guide/install.md), [lessons](#lessons): `dtk demo`"}
    assert list(check_wheel.wrong(wanted | metadata, wanted, 1000)) == []
    of_a_clone = {place: b"See [install](docs/guide/install.md):\nmake demo    # the picture"}
    assert list(check_wheel.wrong(wanted | of_a_clone, wanted, 1000)) == [
        "the description on PyPI says '](docs/guide/install.md)', which holds in a clone alone",
        "the description on PyPI says 'make demo', which holds in a clone alone",
    ]
    found = {"dtk/a.py": b"2", "dtk/notebooks/00.ipynb": b"{}", "dtk/notebooks/conftest.py": b"", "tests/a.py": b""}
    assert list(check_wheel.wrong(found, wanted, 20_000_000)) == [
        "dtk/py.typed is missing",
        "dtk/a.py is not that of the clone",
        "dtk/notebooks/conftest.py is nothing that users need",
        "tests/a.py is nothing that users need",
        "20.0 MB; at most 10",
    ]


def test_a_wheel_wants_all_lessons_in_all_languages_and_what_no_import_asks_for():
    wanted = check_wheel.wanted()
    for place in ("py.typed", "cli.py", "fonts/OFL.txt", "locale/zh/LC_MESSAGES/dtk.mo"):
        assert f"dtk/{place}" in wanted
    lessons = {place.removeprefix("dtk/notebooks/") for place in wanted if place.endswith(".ipynb")}
    english = {file.name for file in (ROOT / "notebooks").glob("*.ipynb")}
    assert lessons == english | {f"zh/{name}" for name in english}
    assert {"dtk/notebooks/AI_GUIDE.md", "dtk/notebooks/zh/glossary.md"} <= wanted.keys()


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_and_say_their_version(file):
    """A tag can be moved to other code; a commit can't."""
    used = re.findall(r"^ *-? *uses: (.*)$", file.read_text(), flags=re.MULTILINE)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), action


def test_binder_and_devcontainer_name_what_is_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.search(r"^\.\[(\w+)\]$", (ROOT / "binder" / "requirements.txt").read_text(), flags=re.MULTILINE)
    assert asked
    assert asked[1] in extras
    assert (ROOT / "binder" / "../constraints/main.txt").is_file()
    python = (ROOT / "binder" / "runtime.txt").read_text().strip().removeprefix("python-")
    assert f"python={python}\n" in (ROOT / "environment.yml").read_text(), "the constraints are for one Python"
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["image"] == f"python:{python}"
    target = container["postCreateCommand"].removeprefix("make ")
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
