"""A release's text, from the changelog: `python tools/release_notes.py v0.2.0` prints that version's section.

.github/workflows/release.yml calls it with the tag that was pushed. Nothing is released where the tag is not the
version that dtk and CITATION.cff say, or where the changelog has nothing of it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATED = {"dtk/__init__.py": r'^__version__ = "([^"]+)"$', "CITATION.cff": r"^version: (\S+)$"}


class NotReady(Exception):
    """Why this can't be released; what to do is in the sentence."""


def notes(tag: str, changelog: str, stated: dict[str, str]) -> str:
    """The section of a tag's version, without its heading. stated: {file: the version that it says}.

    Raises:
        NotReady: the tag, the versions and the changelog don't fit together.
    """
    version = tag.removeprefix("v")
    if tag == version:
        raise NotReady(f"the tag {tag!r} does not begin with v")
    for file, said in stated.items():
        if said != version:
            raise NotReady(f"the tag is {tag}, but {file} says {said!r}")
    heading = rf"^## \[{re.escape(version)}\](?: - \d{{4}}-\d\d-\d\d)?\n"
    found = re.split(heading, changelog, maxsplit=1, flags=re.MULTILINE)
    if len(found) == 1:
        raise NotReady(f"CHANGELOG.md has no section [{version}]: give what is under [Unreleased] that heading")
    text = re.split(r"^(?:## |\[[^\]]+\]: )", found[1], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not re.search(r"^- \S", text, flags=re.MULTILINE):
        raise NotReady(f"CHANGELOG.md says nothing under [{version}]")
    return text + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the section and returns 0, or says on stderr why not and returns 1."""
    parser = argparse.ArgumentParser(description="A release's text, from the changelog.")
    parser.add_argument("tag", help="such as v0.2.0")
    stated = {file: _stated(file, pattern) for file, pattern in STATED.items()}
    try:
        text = notes(parser.parse_args(argv).tag, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), stated)
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    print(text, end="")
    return 0


def _stated(file: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    sys.exit(main())
