"""What a worker's namespace holds, without any collective: of each variable this worker's own copy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from dtk.compat.per_replica import Copies, copies
from dtk.interactive.frames import Frame
from dtk.interactive.parts import MOST, arrays_of, digest, kept, parts_of

__all__ = ["digest_of", "is_plain", "local_rows", "look", "numbers", "variables_of"]

_HIDDEN = ("In", "Out", "exit", "quit", "get_ipython", "open", "strategy")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def look(names: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each variable, array and plain value: {"name", "kind", "shape", "digest", "kept", "text"}.

    kept: "mirrored" (to be equal on all workers), "by replica" (each has its own part) or "own" (of this worker).
    digest: of several replicas with spaces between, where they differ, and always where each has its own.
    """
    rows = []
    for name, value in list(names.items()):
        if name.startswith("_") or name in _HIDDEN or isinstance(value, (ModuleType, type)):
            continue
        held = list(variables_of(value))
        for label, variable in held:
            rows.append(_row(f"{name}{label}", variable))
        if not held:
            rows += _of_value(name, value)
    return rows


def variables_of(value: Any) -> Iterator[tuple[str, Copies]]:
    """A variable itself; the variables of a model, an optimizer, a metric, each with a label; nothing for others."""
    alone = copies(value)
    if alone is not None:
        yield "", alone
        return
    if not type(value).__module__.startswith(("keras", "tf_keras", "tensorflow", "__main__")):
        return
    seen: set[str] = set()
    yield from _held(value, "", seen)
    if seen and hasattr(value, "optimizer"):  # a model that was compiled
        yield from _held(value.optimizer, ".optimizer", seen)


def numbers(value: Any) -> Any:
    """What `Cluster.pull` gives: of a variable its array (several replicas: a list), of a model all by name.

    In short lists, tuples and dictionaries, of each of what they hold.
    """
    if type(value) in (list, tuple) and len(value) <= MOST:
        return type(value)(numbers(each) for each in value)
    if type(value) is dict and len(value) <= MOST:
        return {key: numbers(each) for key, each in value.items()}
    held = list(variables_of(value))
    if held and held[0][0]:
        return {variable.name: variable.arrays()[0] for _, variable in held}
    arrays = held[0][1].arrays() if held else arrays_of(value)
    return value if arrays is None else arrays[0] if len(arrays) == 1 else arrays


def local_rows(stack: list[Frame]) -> list[dict[str, Any]]:
    """Rows of what is local to the functions and scripts in which the worker stands, named "loss in step()"."""
    rows: dict[str, dict[str, Any]] = {}
    for frame in stack:
        for row in look(dict(frame.names)) if frame.within else []:
            replica = f", replica {frame.replica}" if frame.replica else ""
            name = f"{row['name']} in {frame.within}{replica}"
            rows.setdefault(name, {**row, "name": name})
    return list(rows.values())


def _held(value: Any, head: str, seen: set[str]) -> Iterator[tuple[str, Copies]]:
    for attribute in ("weights", "variables"):
        held = getattr(value, attribute, None)
        if callable(held):  # Keras 2's optimizers
            held = held()
        for k, each in enumerate(held if isinstance(held, (list, tuple)) else ()):
            found = copies(each)
            if found is not None and found.key not in seen:
                seen.add(found.key)
                yield f"{head}.{attribute}[{k}]", found
        if held:
            return


def _row(name: str, variable: Copies) -> dict[str, Any]:
    array = variable.arrays()[0]
    return {
        "name": name,
        "kind": "variable",
        "called": variable.name,
        "shape": list(array.shape),
        "type": str(array.dtype),
        "digest": digest_of(variable),
        "kept": variable.kept,
    }


def _of_value(name: str, value: Any) -> Iterator[dict[str, Any]]:
    if is_plain(value):
        text = repr(value)
        yield {
            "name": name,
            "kind": type(value).__name__,
            "kept": "own",
            "digest": hashlib.sha256(text.encode()).hexdigest()[:12],
            "text": text[:60],
        }
        return
    for label, part, arrays in parts_of(value):
        yield {
            "name": f"{name}{label}",
            "kind": type(part).__name__.lstrip("_"),
            "shape": list(arrays[0].shape),
            "type": str(arrays[0].dtype),
            "digest": " ".join(digest(array) for array in arrays),
            "kept": kept(part),
        }


def is_plain(value: Any, depth: int = 2) -> bool:
    """Whether a value is a number, a text or None, or a short list or dictionary of them."""
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) <= 1000 and all(is_plain(each, depth - 1) for each in value)
    if isinstance(value, dict):
        return depth > 0 and len(value) <= 1000 and all(is_plain(each, depth - 1) for each in value.values())
    return isinstance(value, _PLAIN)


def digest_of(variable: Copies) -> str:
    """Of all its copies here, where they are equal; otherwise one for each replica, with spaces between."""
    parts = [digest(array) for array in variable.arrays()]
    return parts[0] if len({*parts}) == 1 else " ".join(parts)
