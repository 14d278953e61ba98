"""What `import dtk` offers and brings along, and what works without TensorFlow. Who imports whom: `make lint`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dtk

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "dtk").rglob("*.py"))
HEAVY = {"IPython", "ipywidgets", "keras", "matplotlib", "numpy", "pandas", "psutil", "sklearn", "tensorflow"}
TENSORFLOW = {"keras", "tensorflow", "tensorflow_datasets", "tensorflow_estimator", "tf_keras"}


def test_contents_are_sorted_and_every_name_is_there():
    assert dtk.__all__ == sorted(dtk.__all__)
    assert set(dtk.__all__) == set(dtk._HOMES)
    for name in dtk.__all__:
        assert getattr(dtk, name) is not None
    assert set(dtk.__all__) <= set(dir(dtk))


def test_no_module_hides_a_public_name():
    """`import dtk.shards` once made `dtk.shards(...)` raise 'module' object is not callable."""
    modules = {path.relative_to(ROOT / "dtk").parts[0].removesuffix(".py") for path in MODULES}
    assert modules & set(dtk._HOMES) == dtk._MODULES


@pytest.mark.parametrize("folder", ["benchmarks", "tools"])
def test_what_is_imported_from_dtk_is_there(folder):
    """Outside of the package, where neither mypy nor most tests look."""
    for path in sorted((ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dtk":
                home = importlib.import_module(node.module)
                for alias in node.names:
                    there = hasattr(home, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}")
                    assert there, f"{path.name}: {node.module} has no {alias.name}"


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after a statement."""
    loaded = "{name.split('.')[0] for name, module in sys.modules.items() if module is not None}"
    code = f"import sys\n{statement}\nprint(*sorted({loaded}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_dtk_brings_nothing_heavy():
    assert modules_after("import dtk") & HEAVY == set()


def test_the_kernels_side_works_without_tensorflow():
    # `None` in sys.modules makes an import raise: so this holds at any depth, early or late at import.
    doors = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.relative_to(ROOT / "dtk").parts[0] not in ("compat", "__main__.py")
    ]
    block = "".join(f"sys.modules[{name!r}] = None\n" for name in sorted(TENSORFLOW))
    modules_after(block + "".join(f"import {door}\n" for door in doors))


def test_no_wait_and_no_record_uses_the_wall_clock():
    names = re.compile(r"\b(time\.(time|localtime)|datetime\.(now|utcnow|today))\(")
    reasons = {
        "dtk/launch/folders.py": "the name of a directory, for people, after a number that counts on",
        "dtk/course/kept.py": "the date of an answer, for people; lines are in order by their place in the file",
        "dtk/compat/marks.py": "TensorFlow's clock, tf.timestamp, is the wall clock",
        "dtk/worker/worker.py": "and is compared anew each time with the one that can't be set",
        "dtk/launch/outside.py": "the zero of workers that no kernel has started: they share no other clock",
    }
    assert {str(path.relative_to(ROOT)) for path in MODULES if names.search(path.read_text("utf-8"))} == set(reasons)
