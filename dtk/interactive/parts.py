"""A value as arrays: its parts, each with one array for each replica of this worker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from dtk.compat.per_replica import is_mirrored, local_values

__all__ = ["MOST", "arrays_of", "digest", "kept", "parts_of"]

MOST = 100  # entries of a list that are looked at


def parts_of(value: Any, label: str = "", depth: int = 2) -> Iterator[tuple[str, Any, list[Any]]]:
    """(label, part, arrays): of an array or a tensor itself, with an empty label; of lists and dictionaries of them."""
    arrays = arrays_of(value)
    if arrays is not None:
        yield label, value, arrays
    elif depth and isinstance(value, (list, tuple)):
        for k, each in enumerate(value[:MOST]):
            yield from parts_of(each, f"{label}[{k}]", depth - 1)
    elif depth and isinstance(value, dict):
        for key in list(value)[:MOST]:
            yield from parts_of(value[key], f"{label}[{key!r}]", depth - 1)


def arrays_of(value: Any) -> list[Any] | None:
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


def kept(value: Any) -> str:
    """As a row of `dtk.interactive.inspection` says it."""
    if is_mirrored(value):
        return "mirrored"
    return "by replica" if len(local_values(value)) > 1 else "own"


def digest(array: Any) -> str:
    """12 hexadecimal digits of a hash of shape, type and bytes."""
    head = f"{array.shape} {array.dtype} ".encode()
    # The bytes of texts are where they lie in this process.
    data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return hashlib.sha256(head + data).hexdigest()[:12]
