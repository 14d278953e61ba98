"""What the workers' namespaces hold, without any collective: rows of each worker's own copies, and a table of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dtk.compat.per_replica import Copies, copies, is_mirrored, local_values
from dtk.language import _
from dtk.live import text

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]

_HIDDEN = ("In", "Out", "exit", "quit", "get_ipython", "open", "strategy")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST = 100  # entries of a list that are looked at


def look(names: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each variable, array and plain value: {"name", "kind", "shape", "digest", "kept", "text"}.

    kept: "mirrored" (to be equal on all workers), "by replica" (each has its own part) or "own" (of this worker).
    digest: of several replicas with spaces between, where they differ, and always where each has its own.
    """
    for name, value in list(names.items()):
        if name.startswith("_") or name in _HIDDEN or isinstance(value, (ModuleType, type)):
            continue
        variables = [_of_variable(f"{name}{label}", variable) for label, variable in variables_of(value)]
        yield from variables or _of_value(name, value)


def variables_of(value: Any) -> Iterator[tuple[str, Copies]]:
    """A variable itself; the variables of a model, an optimizer, a metric, each with a label; nothing for others."""
    if (alone := copies(value)) is not None:
        yield "", alone
        return
    if not type(value).__module__.startswith(("keras", "tf_keras", "tensorflow", "__main__")):
        return
    seen: set[str] = set()
    yield from _held(value, "", seen)
    if seen and hasattr(value, "optimizer"):  # a model that was compiled
        yield from _held(value.optimizer, ".optimizer", seen)


def _held(value: Any, head: str, seen: set[str]) -> Iterator[tuple[str, Copies]]:
    for attribute in ("weights", "variables"):
        held = getattr(value, attribute, None)
        if callable(held):  # Keras 2's optimizers
            held = held()
        for k, each in enumerate(held if isinstance(held, (list, tuple)) else ()):
            if (found := copies(each)) is not None and found.key not in seen:
                seen.add(found.key)
                yield f"{head}.{attribute}[{k}]", found
        if held:
            return


def numbers(value: Any) -> Any:
    """What `Cluster.pull` returns: the array of a variable (several replicas: a list), all of a model's by name.

    In short lists, tuples and dictionaries, of each of what they hold.
    """
    if type(value) in (list, tuple) and len(value) <= _MOST:
        return type(value)(numbers(each) for each in value)
    if type(value) is dict and len(value) <= _MOST:
        return {key: numbers(each) for key, each in value.items()}
    held = list(variables_of(value))
    if held and held[0][0]:
        return {variable.name: variable.arrays()[0] for _, variable in held}
    arrays = held[0][1].arrays() if held else _arrays_of(value)
    return value if arrays is None else arrays[0] if len(arrays) == 1 else arrays


def is_plain(value: Any, depth: int = 2) -> bool:
    """Whether a value is a number, a text or None, or a short list or dictionary of them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) <= 1000 and all(is_plain(each, depth - 1) for each in value)
    return isinstance(value, _PLAIN)


def digest_of(variable: Copies) -> str:
    """The digest of all its copies here, where they are equal; otherwise one for each replica, with spaces between."""
    parts = [_digest(array) for array in variable.arrays()]
    return parts[0] if len({*parts}) == 1 else " ".join(parts)


def _of_variable(name: str, variable: Copies) -> Row:
    array = variable.arrays()[0]
    facts = {"kind": "variable", "called": variable.name, "kept": variable.kept, "digest": digest_of(variable)}
    return {"name": name, **facts, "shape": list(array.shape), "type": str(array.dtype)}


def _of_value(name: str, value: Any) -> Iterator[Row]:
    if is_plain(value):
        text = repr(value)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        yield {"name": name, "kind": type(value).__name__, "kept": "own", "digest": digest, "text": text[:60]}
        return
    for label, part, arrays in _parts_of(value):
        row = {
            "name": f"{name}{label}",
            "kind": type(part).__name__.lstrip("_"),
            "shape": list(arrays[0].shape),
            "type": str(arrays[0].dtype),
            "digest": " ".join(_digest(array) for array in arrays),
            "kept": "mirrored" if is_mirrored(part) else "by replica" if len(local_values(part)) > 1 else "own",
        }
        if all(array.shape == () for array in arrays):
            row["text"] = " ".join(str(array.item()) for array in arrays)[:60]
        yield row


def _parts_of(value: Any, label: str = "", depth: int = 2) -> Iterator[tuple[str, Any, list[Any]]]:
    """(label, part, arrays): of an array or a tensor itself, with an empty label; of lists and dictionaries of them."""
    if (arrays := _arrays_of(value)) is not None:
        yield label, value, arrays
    elif depth and isinstance(value, (list, tuple)):
        for k, each in enumerate(value[:_MOST]):
            yield from _parts_of(each, f"{label}[{k}]", depth - 1)
    elif depth and isinstance(value, dict):
        for key in list(value)[:_MOST]:
            yield from _parts_of(value[key], f"{label}[{key!r}]", depth - 1)


def _arrays_of(value: Any) -> list[Any] | None:
    """By replica; None for what is no array, and for a tensor that has no value, as in a function that is traced.

    Nor for a variable: some are added up over all workers where they are read (`dtk.compat.per_replica.copies`).
    """
    if hasattr(value, "assign"):
        return None
    found = [_array(each) for each in local_values(value)]
    return None if any(array is None for array in found) else found


def _array(value: Any) -> Any:
    if hasattr(value, "numpy") and hasattr(value, "shape"):
        try:
            value = value.numpy()
        except Exception:
            return None
    return value if all(hasattr(value, name) for name in ("dtype", "shape", "tobytes")) else None


def _digest(array: Any) -> str:
    """12 hexadecimal digits of a hash of shape, type and bytes."""
    head = f"{array.shape} {array.dtype} ".encode()
    # The bytes of texts are where they lie in this process.
    data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return hashlib.sha256(head + data).hexdigest()[:12]


# ---- in the kernel


def table(looks: Mapping[int, Sequence[Row]]) -> pandas.DataFrame:
    """One row a name. looks: the rows of each worker."""
    import pandas as pd

    by_worker = {worker: {row["name"]: row for row in rows} for worker, rows in looks.items()}
    found = []
    for name in dict.fromkeys(name for rows in by_worker.values() for name in rows):
        have = {worker: rows[name] for worker, rows in by_worker.items() if name in rows}
        first = next(iter(have.values()))
        facts = {
            "name": name,
            "called": first.get("called", ""),
            "kind": first["kind"],
            "shape": tuple(first["shape"]) if "shape" in first else "",
            "type": first.get("type", ""),
            "kept": first["kept"],
            "workers": _verdict(have, len(looks), first["kept"]),
        }
        shown = {worker: row.get("text", row["digest"]) for worker, row in have.items()}
        found.append({**facts, **{f"worker {worker}": shown.get(worker, "") for worker in looks}})
    of_workers = ["workers", *(f"worker {k}" for k in looks)]  # beside the names, so that a narrow page shows them
    return pd.DataFrame(found, columns=["name", *of_workers, "shape", "type", "kind", "kept", "called"])


def _verdict(have: Mapping[int, Row], workers: int, kept: str) -> str:
    """ "equal", "differ", "only on 0": with what is to be expected of each kind.

    >>> _verdict({0: {"digest": "a"}, 1: {"digest": "b"}}, 2, "mirrored")
    'DIFFER'
    >>> _verdict({0: {"digest": "a b"}}, 1, "mirrored")  # two replicas in one worker
    'DIFFER'
    >>> _verdict({0: {"digest": "a"}}, 2, "own")
    'only on 0'
    """
    if len(have) < workers:
        return _("only on {workers}", workers=text.label(sorted(have)))
    if len({part for row in have.values() for part in row["digest"].split()}) == 1:
        return _("equal")
    return _("DIFFER") if kept == "mirrored" else _("differ, as each has its own")
