"""Builds the site: `python docs/build.py out/site/html`. Needs Sphinx, and neither dtk's dependencies nor a network.

Sphinx with myst-nb and pydata-sphinx-theme, and not Jupyter Book 2 or mystmd, which fetch their theme when they build.
Lessons are never run: their stored outputs are shown. `.venv-docs` has constraints/docs.txt. All pages take 15 s on two
cores, and 26 MB. With `--outside`, after a build, it checks the links to other sites, which takes a network.

Each language is a build of its own, into a folder of its own, because a page's language, the words of the theme and the
index of the search belong to a build.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tools")]


def build(out: Path, tree: str, place: Path, outside: bool) -> int:
    """Builds the site's pages in one language, or looks for what they link to outside; returns Sphinx's exit status."""
    from building.pages import write
    from building.places import ENGLISH
    from sphinx.cmd.build import main as sphinx

    source, static = place / tree / "source", place / tree / "static"
    write(tree, source, static)
    to = out if tree == ENGLISH else out / tree
    options = ["-c", str(HERE), "-d", str(place / tree / "read"), "-t", tree, "-j", "auto", "-q", "-W", "--keep-going"]
    if outside:
        return int(sphinx([*options, "-b", "linkcheck", str(source), str(place / tree / "links")]))
    status = sphinx([*options, "-b", "html", str(source), str(to)])
    shutil.copytree(static, to, dirs_exist_ok=True)
    for left in ("jupyter_execute", "_sources"):  # myst-nb's copies of what was not run; Sphinx's of its sources
        shutil.rmtree(to / left, ignore_errors=True)
    for left in to.rglob("*.map"):  # the theme's, for who debugs it
        left.unlink()
    return status


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 1 where Sphinx had something to complain of."""
    from building.places import trees

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder of the site, made anew")
    parser.add_argument("--outside", action="store_true", help="build nothing: are the addresses of other sites there?")
    options = parser.parse_args(argv)
    started, failed = time.monotonic(), 0
    if not options.outside:
        shutil.rmtree(options.out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        for tree in trees():
            failed += build(options.out.resolve(), tree, Path(place), options.outside) != 0
    if options.outside:
        return int(failed > 0)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file()) / 1e6
    print(f"{options.out}: {len(trees())} languages, {size:.1f} MB, {time.monotonic() - started:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
