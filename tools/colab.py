"""The versions of the Colab lane: `python tools/colab.py [URL or FILE] [--python 3.13]` writes constraints/colab.txt.

What it reads is Colab's own list, `pip-freeze.txt` of github.com/googlecolab/backend-info. What dtk itself needs, and a
notebook's kernel, gets Colab's versions, and it fails where they don't fit pyproject.toml. The tests' tools, which no
learner has there, get the main lane's where these fit. It asks `uv` what belongs together.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent
URL = "https://raw.githubusercontent.com/googlecolab/backend-info/main/pip-freeze.txt"
OTHERWISE = {"rich"}  # Keras prints its tables by it; import-linter asks for a newer one than Colab has
KERNEL = ("ipykernel", "jupyter-client", "scikit-learn")  # what every notebook has there, and what lessons import


def canonical(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """{name: version} of the lines `name==version`; others name a file or a repository, and no version."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)$", text, flags=re.MULTILINE)
    return {canonical(name): version for name, version in found}


def read(source: str) -> str:
    if "://" not in source:
        return Path(source).read_text(encoding="utf-8")
    with urllib.request.urlopen(source, timeout=60) as answer:
        return str(answer.read().decode("utf-8"))


def resolved(python: str, extras: list[str], fixed: dict[str, str], liked: dict[str, str]) -> dict[str, str]:
    """What dtk and a kernel take: what is fixed with no other version, and what is liked where it fits."""
    with tempfile.TemporaryDirectory() as folder:
        more, constraints, out = (Path(folder, name) for name in ("more.in", "constraints.txt", "out.txt"))
        more.write_text("".join(f"{name}\n" for name in KERNEL))
        for file, versions in ((constraints, fixed), (out, liked)):  # uv keeps what fits of the file that it writes to
            file.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", python]
        command += [
            "--constraint",
            str(constraints),
            "--output-file",
            str(out),
            *(f"--extra={name}" for name in extras),
        ]
        done = subprocess.run(
            [*command, str(ROOT / "pyproject.toml"), str(more)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return pins(out.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default=URL, help="URL or file of Colab's list")
    parser.add_argument("--python", default="3.13", help="Colab's Python, which its list does not say")
    parser.add_argument("--dated", default="", help="of which day the list is, for the file's first line")
    options = parser.parse_args()
    has = pins(read(options.source))
    of_main = pins((ROOT / "constraints" / "main.txt").read_text(encoding="utf-8"))
    own = resolved(options.python, ["estimator", "tensorboard"], has, {})
    fixed = {name: version for name, version in own.items() if name not in OTHERWISE}
    whole = resolved(options.python, ["estimator", "tensorboard", "test"], fixed, of_main)
    title = f"# Colab's versions{options.dated and f' of {options.dated}'}, Python {options.python}: tools/colab.py\n"
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(whole.items()))
    (ROOT / "constraints" / "colab.txt").write_text(title + lines, encoding="utf-8")
    as_there = sum(has.get(name) == version for name, version in whole.items())
    print(f"{len(whole)} packages, {as_there} of them as on Colab")
    return 0


if __name__ == "__main__":
    sys.exit(main())
