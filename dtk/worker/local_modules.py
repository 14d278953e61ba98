"""The learner's own modules: those beside the notebook or script, which another machine has to be given."""

from __future__ import annotations

import ast
import importlib.util
import pickletools
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["file_of", "imports", "modules", "named"]

_INSTALLED = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"))  # parts of paths


def file_of(module: str) -> str:
    """The file of an imported module that was not installed; "" for any other."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "" if _installed(file) or module.split(".")[0] == "dtk" else file


def named(*pickles: bytes) -> set[str]:
    """Names of modules that pickled functions may import when they are called, and of those imported here.

    A pickled function has the names of what it imports as strings, among others: what is no module is none below.
    """
    strings = {text for each in pickles for _, text, _ in pickletools.genops(each) if isinstance(text, str)}
    here = {name for name in {*sys.modules} if file_of(name)}
    return here | {text for text in strings if all(part.isidentifier() for part in text.split("."))}


def modules(names: Iterable[str]) -> dict[str, bytes]:
    """The sources of those that are the learner's own, and of what these import, by path from an entry of sys.path."""
    waiting, seen = list(names), set()
    found: dict[str, bytes] = {}
    while waiting:
        name = waiting.pop()
        if name in seen or name.startswith("__") or name.split(".")[0] == "dtk":
            continue
        seen.add(name)
        for path, file in _files(name):
            if path not in found:
                found[path] = file.read_bytes()
                waiting += imports(found[path], path)
    return found


def imports(source: str | bytes, path: str) -> Iterator[str]:
    """Names of modules that the source at a path imports; of `from a import b` both a and a.b, which may be one."""
    package = path.removesuffix("/__init__.py") if path.endswith("/__init__.py") else path.rpartition("/")[0]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # the worker that imports it says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            try:
                home = importlib.util.resolve_name(home, package.replace("/", "."))
            except ImportError:
                continue  # beyond its package
            yield from [home, *(f"{home}.{alias.name}" for alias in node.names)]


def _installed(file: str) -> bool:
    return any(part in file for part in _INSTALLED)


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """The sources of a module and of the packages that it is in, where they were not installed; imports nothing."""
    top, *rest = name.split(".")
    full, spec = top, _spec(top)
    while spec is not None:
        package = spec.submodule_search_locations
        if spec.origin and spec.origin.endswith(".py") and not _installed(spec.origin):
            yield full.replace(".", "/") + (".py" if package is None else "/__init__.py"), Path(spec.origin)
        if package is None or not rest or all(map(_installed, package)):
            return
        full = f"{full}.{rest.pop(0)}"
        spec = PathFinder.find_spec(full, list(package))


def _spec(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # of a module that was made by hand
        return None
