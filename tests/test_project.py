"""What the project says of itself agrees: environment.yml, constraints, pyproject.toml, Makefile, README."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lanes
import lanes_table
import pytest
from packaging.requirements import Requirement

import dtk
from dtk import errors

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)")


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it: tf_keras is tf-keras."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines: list[str]) -> dict[str, str]:
    """{name: version}; a line that is anything but `name==version` fails."""
    found = {}
    for line in lines:
        match = PIN.fullmatch(line)
        assert match, f"{line!r} is not `name==version`"
        assert canonical(match[1]) not in found, f"{match[1]} is listed twice"
        found[canonical(match[1])] = match[2]
    return found


def listed() -> dict[str, str]:
    """The list under `pip:` in environment.yml: everything that is indented deeper than that line."""
    text = (ROOT / "environment.yml").read_text()
    match = re.search(r"^( *)- pip:\n((?:\1 +- .*\n?)+)", text, flags=re.MULTILINE)
    assert match
    return pins([line.strip().removeprefix("- ") for line in match[2].splitlines()])


def constraints(lane: str = "main") -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{lane}.txt").read_text().splitlines()
    return pins([line for line in lines if not line.startswith("#")])


# Of the optional dependencies, what the lane's environment has: the Makefile's own lists.
LAB = {"estimator", "keras2", "lab", "tensorboard", "test"}
EXTRAS = {"main": LAB | {"ray"}, "colab": LAB - {"lab"}, "tf215": LAB}
PYTHONS = {"main": ("3.11", "3.12", "3.13"), "colab": ("3.13",), "tf215": ("3.11",)}


def stated(lane: str = "main", browser: bool = False) -> dict[str, set[str]]:
    """{name: requirements} of pyproject.toml, with the optional ones that the lane has, and the browser's on demand."""
    of_lane = EXTRAS[lane] | ({"browser"} if browser else set())
    found: dict[str, set[str]] = {}
    for group in [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in sorted(of_lane))]:
        for one in group:
            found.setdefault(canonical(re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0]), set()).add(one)
    return found


@pytest.mark.parametrize("lane", PYTHONS)
def test_constraints_hold_names_and_versions_only_in_order(lane):
    names = list(constraints(lane))
    assert names == sorted(names)
    assert len(names) > len(listed()), "the whole closure, not the direct dependencies alone"


def test_environment_yml_lists_what_pyproject_asks_for_with_the_pins_of_the_constraints():
    assert listed() == {name: constraints().get(name) for name in stated()}


@pytest.mark.parametrize(("lane", "python"), [(lane, python) for lane, found in PYTHONS.items() for python in found])
def test_the_pins_satisfy_pyproject(lane, python):
    pinned = constraints(lane)
    for name, ranges in stated(lane, browser=lane == "main").items():
        for each in map(Requirement, ranges):
            if each.marker is None or each.marker.evaluate({"python_version": python}):
                assert each.specifier.contains(pinned[name]), f"{name}=={pinned[name]} for {each}"


def test_a_package_has_one_range_wherever_it_is_asked_for():
    """A package with several has one for each Python; in another group it has the same ones."""
    ranges: dict[str, set[frozenset[str]]] = {}
    for group in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]:
        for name in {Requirement(one).name for one in group}:
            ranges.setdefault(name, set()).add(frozenset(one for one in group if Requirement(one).name == name))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


def test_each_sentence_names_optional_dependencies_that_bring_what_lacks():
    extras = PROJECT["optional-dependencies"]
    brought = {extra: {canonical(Requirement(one).name) for one in group} for extra, group in extras.items()}
    for extra, modules in errors._MODULES.items():
        assert {canonical(module) for module in modules} <= brought[extra]


def test_every_lane_has_its_command():
    made = re.findall(r"^@nox.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(), flags=re.MULTILINE)
    assert {"main", *made} == set(lanes_table.COMMANDS) == set(lanes.SKIPPED) == set(lanes.LESSONS)


def test_what_is_installed_is_what_is_pinned():
    if not (Path(sys.prefix) / ".ready").exists() and ".nox" not in Path(sys.prefix).parts:
        pytest.skip("not in an environment that `make setup` or nox makes")
    if lanes.LANE not in PYTHONS:
        pytest.skip(f"lane {lanes.LANE} has no pins: it is what uv finds on the day")
    pinned = constraints(lanes.LANE)
    installed = {}
    for name in pinned:
        with contextlib.suppress(PackageNotFoundError):  # of another Python version or system: not needed here
            installed[name] = version(name)
    assert set(stated(lanes.LANE)) <= set(installed)
    assert installed == {name: pinned[name] for name in installed}


def test_the_name_the_address_and_the_version_are_said_alike():
    assert (PROJECT["name"], PROJECT["urls"]["Repository"]) == (errors.DISTRIBUTION, errors.REPOSITORY)
    assert "version" in PROJECT["dynamic"]
    assert SETTINGS["tool"]["hatch"]["version"]["path"] == "dtk/__init__.py"
    assert f"## [{dtk.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_nobody_is_told_to_install_what_is_somebody_elses():
    """`dtk` on PyPI is another project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    kinds = (".py", ".md", ".ipynb", ".po", ".yml")
    files = [ROOT / name for name in listed.stdout.split("\0") if name.endswith(kinds)]
    if not files:
        pytest.skip("no clone")
    wrong = re.compile(r"""pip3? install (?:-\S+ )*[\\"'`]*dtk(?![-\w])|["'`]dtk\[\w+\]""")
    texts = {str(file): file.read_text(encoding="utf-8") for file in files if file != Path(__file__)}
    assert not {name: found for name, text in texts.items() if (found := wrong.findall(text))}


def test_the_documents_name_targets_that_exist():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    first = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")
    pages = [*map(ROOT.joinpath, first), *(ROOT / "docs").rglob("*.md")]
    code = "\n".join(" ".join(re.findall(r"`[^`]+`|```.*?```", page.read_text(), flags=re.DOTALL)) for page in pages)
    named = set(re.findall(r"\bmake ([a-z0-9-]+)\b", code))
    assert {"demo", "lab", "test", "lint"} <= named <= targets


def test_make_help_explains_all_targets_and_there_are_at_most_20():
    makefile = (ROOT / "Makefile").read_text()
    explained = re.findall(r"^([a-z0-9-]+):.*  ## \w.*$", makefile, flags=re.MULTILINE)
    assert explained == re.findall(r"^([a-z0-9-]+):", makefile, flags=re.MULTILINE)
    assert len(explained) <= 20
    assert f".PHONY: {' '.join(explained)}\n" in makefile


def test_the_lessons_tables_are_true():
    row = r"^\| \[(\w+)\]\((?:notebooks/)?(\w+)\.ipynb\) \| .+ \| (\d+) \|$"
    for page, kinds in (("README.md", ["[0-9]*"]), ("notebooks/README.md", ["lab_*", "appendix_*"])):
        rows = re.findall(row, (ROOT / page).read_text(), flags=re.MULTILINE)
        there = [path.stem for kind in kinds for path in sorted((ROOT / "notebooks").glob(f"{kind}.ipynb"))]
        assert [name for name, _, _ in rows] == [file for _, file, _ in rows] == there
        assert all(5 <= int(minutes) <= (150 if "lab_6" in name else 60) for name, _, minutes in rows)


def test_every_setting_by_environment_variable_is_listed():
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "dtk").rglob("*.py"))
    own = {"DTK_PROXIES", "DTK_SCRATCH"}  # what dtk tells its own processes
    # What a job's worker reads.
    own |= {*re.findall(r"\bDTK_[A-Z_]+\b", (ROOT / "docs/guide/clusters.md").read_text())}
    listed = re.findall(r"^\| `(DTK_[A-Z_]+)\b", (ROOT / "docs/guide/troubleshooting.md").read_text(), re.MULTILINE)
    assert sorted({*re.findall(r"\bDTK_[A-Z_]+\b", code)} - own) == sorted(listed)
