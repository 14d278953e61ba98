"""What is in the wheel, and what mypy sees of it: `python tools/check_wheel.py dist/*.whl`, in `make wheel`.

The wheel has to be installed in the interpreter that runs this, and mypy: a program of a user's (tools/typed_user.py)
is checked against it. Prints what is wrong, or the wheel's size.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 10_000_000  # bytes; it has 8.3 MB: 5.0 of the lessons' stored outputs, 1.3 of a font, 0.8 of MNIST
USER = Path(__file__).parent / "typed_user.py"


def wanted(root: Path = ROOT) -> dict[str, bytes]:
    """{place in the wheel: content}: what users need and no import asks for."""
    lessons = [*(root / "notebooks").glob("*.ipynb"), *(root / "notebooks").glob("*.md")]
    lessons += [*(root / "notebooks").glob("*/*.ipynb"), *(root / "notebooks").glob("*/*.md")]
    package = [root / "dtk" / "py.typed", *(root / "dtk" / "locale").rglob("*.mo")]
    package += [file for folder in ("fonts", "data", "places/templates") for file in (root / "dtk" / folder).iterdir()]
    files = {f"dtk/{file.relative_to(root).as_posix()}": file for file in lessons}
    files |= {file.relative_to(root).as_posix(): file for file in [*package, *(root / "dtk").rglob("*.py")]}
    tracked = _tracked(root)
    return {place: file.read_bytes() for place, file in files.items() if tracked is None or file in tracked}


def wrong(found: Mapping[str, bytes], wanted: Mapping[str, bytes], size: int) -> Iterator[str]:
    """What is not right about a wheel's content, a sentence each."""
    for place in sorted(wanted.keys() - found.keys()):
        yield f"{place} is missing"
    for place in sorted(wanted.keys() & found.keys()):
        if found[place] != wanted[place]:
            yield f"{place} is not that of the clone"
    for place in sorted(found.keys() - wanted.keys()):
        if place.endswith(".dist-info/METADATA"):
            yield from _only_in_a_clone(found[place].decode())
        elif not re.match(r"dtk_toolkit-[^/]+\.dist-info/", place):
            yield f"{place} is nothing that users need"
    if size > MOST:
        yield f"{size / 1e6:.1f} MB; at most {MOST / 1e6:g}"


def _only_in_a_clone(description: str) -> Iterator[str]:
    """What PyPI's page would say that does not hold there: pyproject.toml replaces it in a README that it knows."""
    for said in re.findall(r"\]\((?!https?:|#)[^)]+\)|(?:^|`)make [a-z-]+", description, re.MULTILINE):
        yield f"the description on PyPI says {said!r}, which holds in a clone alone"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="What is in the wheel, and what mypy sees of it.")
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args(argv).wheel
    with zipfile.ZipFile(wheel) as packed:
        found = {place: packed.read(place) for place in packed.namelist()}
    said = [*wrong(found, wanted(), wheel.stat().st_size), *_untyped()]
    print("\n".join(said) if said else f"{wheel.name}: {len(found)} files, {wheel.stat().st_size / 1e6:.1f} MB, typed")
    return 1 if said else 0


def _untyped() -> list[str]:
    """What mypy says of a user's program, away from the clone, whose dtk it would take."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(ROOT / ".mypy_cache" / "user"),
    ]
    done = subprocess.run([*command, str(USER)], cwd=USER.parent, capture_output=True, text=True)
    return done.stdout.splitlines() + done.stderr.splitlines() if done.returncode else []


def _tracked(root: Path) -> set[Path] | None:
    """What git has; None where this is no clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    return None if listed.returncode else {root / name for name in listed.stdout.split("\0")}


if __name__ == "__main__":
    sys.exit(main())
