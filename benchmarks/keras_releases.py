"""Which release of Keras computes distributed training correctly: every minor release, measured and written down.

    python benchmarks/keras_releases.py                   # all releases, then the page
    python benchmarks/keras_releases.py --only 3.5        # one
    python benchmarks/keras_releases.py --page            # the page of what is measured
    python benchmarks/keras_releases.py --program NAME    # a program as a file of its own, to check a field by hand

Each release gets an environment of its own, outside of the repository, that is removed after it: the newest TensorFlow
whose own requirement admits this Keras, from TensorFlow 2.16 on, and Keras alone in front of it. Nothing of dtk is in
the measured process, but in the columns "with dtk", which call `dtk.correct_keras()`. The programs are those of
keras_programs.py; keras_measure.py runs them there. A release takes one to two minutes and 2 GB. Results that are in
--folder already are kept, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import NamedTuple

import keras_releases_page
from keras_programs import PROGRAMS, standalone
from packaging.requirements import Requirement
from packaging.version import Version

HERE = Path(__file__).parent
SETTINGS = ("one", "mirrored", "workers")
OLDEST = Version("2.16")  # TensorFlow's first release with Keras 3
WITH_DTK = Version("3.12")  # the oldest Keras 3 that dtk supports

# What these releases of Keras import and do not bring, beside TensorFlow's own requirements.
BESIDE = ["absl-py", "dm-tree", "namex", "optree", "packaging", "rich", "wrapt"]


class Column(NamedTuple):
    """A release of Keras, the TensorFlow it is measured with, and whether dtk corrects it."""

    package: str
    version: str
    tensorflow: str
    dtk: bool = False

    @property
    def name(self) -> str:
        return f"{self.package}-{self.version}-tf{self.tensorflow}{'-dtk' if self.dtk else ''}"


class Environments:
    """One virtual environment with a TensorFlow at a time; each release of Keras in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.megabytes = folder, 0

    def tensorflow(self, version: str) -> Path:
        """The Python of an environment with this TensorFlow; any other environment is removed."""
        home = self.folder / f"tf{version}"
        for other in self.folder.glob("tf[0-9]*"):
            if other != home:
                shutil.rmtree(other)
        if not (home / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            pip(home / "bin" / "python", "install", f"tensorflow-cpu=={version}", *BESIDE)
            (home / "done").touch()
        return home / "bin" / "python"

    def keras(self, python: Path, column: Column) -> Path:
        """A folder with this Keras alone."""
        home = self.folder / f"{column.package}-{column.version}"
        if not home.exists():
            pip(python, "install", "--no-deps", "--target", str(home), f"{column.package}=={column.version}")
        measured = subprocess.run(["du", "-sm", str(self.folder)], capture_output=True, text=True, check=False)
        self.megabytes = max(self.megabytes, int(measured.stdout.split()[0]))
        return home


def pip(python: Path | str, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def newest(package: str, since: Version) -> list[str]:
    """The newest patch of each minor release, oldest first."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package], check=True, capture_output=True, text=True
    ).stdout
    found: dict[tuple[int, ...], Version] = {}
    for version in map(Version, re.findall(r"\d[\w.]*", listed.split("Available versions:")[1].splitlines()[0])):
        if version >= since and not version.is_prerelease:
            minor = version.release[:2]
            found[minor] = max(version, found.get(minor, version))
    return [str(found[minor]) for minor in sorted(found)]


def admitted(tensorflow: str) -> Requirement:
    """What this TensorFlow asks of Keras, by its own metadata."""
    with tempfile.TemporaryDirectory() as folder:
        pip(sys.executable, "download", "--no-deps", "--dest", folder, f"tensorflow-cpu=={tensorflow}")
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            needs = message_from_bytes(wheel.read(member)).get_all("Requires-Dist", [])
    return next(each for each in map(Requirement, needs) if each.name == "keras")


def columns(folder: Path) -> list[Column]:
    """All that are measured. What is on offer is looked up once and kept in the folder."""
    kept = folder / "columns.json"
    if not kept.exists():
        tensorflows = newest("tensorflow-cpu", OLDEST)
        asked = {version: admitted(version) for version in tensorflows}
        found = []
        for version in newest("keras", Version("3.0")):
            fits = [tf for tf in tensorflows if asked[tf].specifier.contains(version)]
            found.append(Column("keras", version, fits[-1]))
        found.append(found[-1]._replace(tensorflow=tensorflows[0]))  # whether TensorFlow makes a difference
        found += [each._replace(dtk=True) for each in found[:-1] if Version(each.version) >= WITH_DTK]
        for version in newest("tf_keras", OLDEST):
            fits = [tf for tf in tensorflows if Version(tf).release[:2] == Version(version).release[:2]]
            found.append(Column("tf_keras", version, fits[-1]))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return [Column(*each) for each in json.loads(kept.read_text(encoding="utf-8"))]


def measure(column: Column, environments: Environments, programs: list[str]) -> dict:
    """Runs the programs with this release, and returns what keras_measure.py says."""
    began = time.monotonic()
    python = environments.tensorflow(column.tensorflow)
    path = [environments.keras(python, column)] + ([HERE.parent] if column.dtk else [])
    installed = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        script = shutil.copy(HERE / "keras_measure.py", folder)
        texts = {name: {each: standalone(name, column.package, each) for each in SETTINGS} for name in programs}
        Path(folder, "programs.json").write_text(json.dumps(texts), encoding="utf-8")
        left_out = ("PYTHON", "TF_", "KERAS", "DTK", "CUDA")
        env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        env |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", "HOME": folder}
        command = [str(python), script, column.package, "programs.json", "results.json"]
        subprocess.run(command + ["--correct"] * column.dtk, check=True, cwd=folder, env=env)
        found = json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))
    shutil.rmtree(path[0])
    if found["keras"] != column.version or found["tensorflow"] != column.tensorflow or found["dtk"] != column.dtk:
        raise RuntimeError(f"{column} was to be measured, and what ran was {found}")
    seconds = {"install_s": round(installed - began), "run_s": round(time.monotonic() - installed)}
    return {"column": column, **seconds, "megabytes": environments.megabytes, **found}


def chosen(every: list[Column], only: list[str]) -> Iterator[Column]:
    """Those of these minor releases, as in "3.5", or of these names; all of them where none is named."""
    for column in sorted(every, key=lambda each: Version(each.tensorflow)):
        if not only or column.name in only or ".".join(column.version.split(".")[:2]) in only:
            yield column


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="minor releases, such as 3.5, or columns' names")
    parser.add_argument("--folder", type=Path, default=Path("out/keras_releases"), help="of the results")
    parser.add_argument("--again", type=Path, help="a folder with a second measurement, which the page compares")
    parser.add_argument("--environments", type=Path, help="where to keep the last environment; removed by default")
    parser.add_argument("--install", action="store_true", help="only fill --environments, for a later call")
    parser.add_argument("--page", action="store_true", help="write the page and its picture, and measure nothing")
    parser.add_argument("--program", choices=PROGRAMS, help="print this program, and measure nothing")
    parser.add_argument("--setting", choices=SETTINGS, default="mirrored", help="of the program that is printed")
    parser.add_argument("--package", choices=("keras", "tf_keras"), default="keras", help="of that program")
    options = parser.parse_args()
    if options.program:
        print(standalone(options.program, options.package, options.setting), end="")
        return
    every = columns(options.folder)
    if not options.page:
        with tempfile.TemporaryDirectory() as temporary:
            environments = Environments(options.environments or Path(temporary))
            for column in chosen(every, options.only):
                target = options.folder / f"{column.name}.json"
                if options.install:
                    environments.keras(environments.tensorflow(column.tensorflow), column)
                elif not target.exists():
                    result = measure(column, environments, list(PROGRAMS))
                    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
                    print(f"{column.name}: {result['install_s']} s to install, {result['run_s']} s to run", flush=True)
    if options.page or not options.only:
        keras_releases_page.write(options.folder, every, HERE.parent / "docs", options.again)


if __name__ == "__main__":
    main()
