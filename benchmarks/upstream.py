"""Runs the programs of docs/upstream in an environment without dtk, as they are and with their patches.

    python benchmarks/upstream.py --python ENV/bin/python             # all texts
    python benchmarks/upstream.py --python ENV/bin/python clipping    # one

ENV has the newest TensorFlow and Keras. A text has a block of Python, what it prints, a patch (not all have one), and
what the program prints with it. Where docs/explanation/keras_releases.md has programs of the fault, these run with the
patch as well. Exits with 1 where anything is different: after a new release of Keras, the text has to change or to go.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from keras_programs import standalone

TEXTS = Path(__file__).parent.parent / "docs" / "upstream"
SHOWN_BY = {
    "batch_norm": ["batch_norm"],
    "clipping": ["clipnorm", "global_clipnorm"],
    "dropout": ["dropout", "dropout_seed"],
    "ema_overwrite": ["ema_overwrite"],
    "loss_scale": ["loss_scale", "loss_scale_infinite"],
    "multi_worker_fit": ["sparse_labels", "sample_weights", "penalty", "reported_loss", "accuracy", "evaluate"],
    "scalar_loss": ["flat_labels"],
    "sparse_gradients": ["adamw_embedding"],
    "steps_per_execution": ["steps_per_execution"],
}
NEEDS = {"scalar_loss": "multi_worker_fit", "steps_per_execution": "multi_worker_fit"}  # for their `fit` on two workers


def blocks(name: str, language: str) -> list[str]:
    text = (TEXTS / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def patched(site_packages: Path, folder: Path, diffs: list[str]) -> Path:
    """A copy of the packages that the patches touch, of links but for the files that they change."""
    for diff in diffs:
        for file in re.findall(r"^\+\+\+ b/(\S+)", diff, flags=re.MULTILINE):
            package = file.split("/")[0]
            if not (folder / package).exists():
                subprocess.run(["cp", "-rs", str(site_packages / package), str(folder)], check=True)
            if (folder / file).is_symlink():
                (folder / file).unlink()
                (folder / file).write_bytes((site_packages / file).read_bytes())
        subprocess.run(["patch", "-s", "-p1"], cwd=folder, input=diff, text=True, check=True)
    return folder


def printed(python: str, program: str, packages: Path | None, workers: int = 1) -> list[str]:
    """The lines that a program prints, sorted: two workers print in any order."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TF_", "KERAS", "DTK"))}
    env |= {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"PYTHONPATH": str(packages)} if packages else {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(program, encoding="utf-8")
        started = []
        for index in range(workers):
            command = [python, "program.py", *([str(index)] if workers > 1 else [])]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen(command, cwd=folder, env=env, **pipes))
        try:
            found = [process.communicate(timeout=150) for process in started]
        except subprocess.TimeoutExpired:
            return ["no end within 150 s"]
        finally:
            for process in started:
                process.kill()
    lines = [line.rstrip() for out, _ in found for line in out.splitlines()]
    return sorted(lines) if lines else [found[0][1][-300:]]


def try_text(python: str, site_packages: Path, name: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """What was run, what it is to print, and what it printed."""
    (program, *_), said, diffs = (blocks(name, language) for language in ("python", "text", "diff"))
    expected = [sorted(line.rstrip() for line in text.splitlines()) for text in said]
    yield "as it is", expected[0], printed(python, program, None)
    if not diffs:
        return
    with tempfile.TemporaryDirectory() as folder:
        packages = patched(site_packages, Path(folder), diffs)
        yield "with the patch", expected[-1], printed(python, program, packages)
        for other in blocks(NEEDS[name], "diff") if name in NEEDS else []:
            patched(site_packages, packages, [other])
        for shown in SHOWN_BY.get(name, []):
            for setting in ("mirrored", "workers"):
                lines = printed(python, standalone(shown, "keras", setting), packages, 1 + (setting == "workers"))
                right, _, _ = lines[0].removeprefix("right: ").partition(" in each of: ")
                yield f"{shown}, {setting}", [right], [line.rpartition(" in each of: ")[2] for line in lines]


def agrees(what: str, expected: list[str], found: list[str]) -> bool:
    """Numbers to four digits in the programs of keras_programs.py, which print all copies; other lines as they are."""
    if "," not in what:
        return expected == found
    right, copies = (re.findall(r"-?[\d.]+(?:e-?\d+)?|nan|inf", " ".join(text)) for text in (expected, found))
    if not right or not copies or len(copies) % len(right):
        return False
    return all(abs(float(copy) - float(right[k % len(right)])) < 2e-4 for k, copy in enumerate(copies))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", help="without .md; all by default")
    parser.add_argument("--python", required=True, help="of the environment without dtk")
    options = parser.parse_args()
    where = "import importlib.util as u; print(u.find_spec('keras').submodule_search_locations[0])"
    found = subprocess.run([options.python, "-c", where], check=True, capture_output=True, text=True).stdout
    names = options.texts or sorted(path.stem for path in TEXTS.glob("*.md") if path.stem != "README")
    different = False
    for name in names:
        for what, expected, lines in try_text(options.python, Path(found.strip()).parent, name):
            same = agrees(what, expected, lines)
            different |= not same
            result = "as the text says" if same else f"expected {expected}, found {lines}"
            print(f"{name}, {what}: {result}", flush=True)
    sys.exit(different)


if __name__ == "__main__":
    main()
