"""A model's weights at a moment, as files: before the first step and at the end.

In a worker's directory:

    weights-initial.npz  weights-final.npz      of the first model that was recorded
    weights-initial-1.npz  weights-final-1.npz  of the second, and so on
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Weights", "exists", "load", "replace", "save", "take"]


@dataclass(frozen=True)
class Weights:
    """Weights at one moment: names and arrays in the models' own order."""

    names: list[str]
    arrays: list[np.ndarray]


def load(folder: Path, which: str) -> Weights | None:
    """Of all models, one after the other; None where nothing recorded them."""
    import numpy as np

    found, files = Weights([], []), _parts(folder, which)
    for _, file in files:
        with np.load(file, allow_pickle=False) as archive:
            names = [str(name) for name in archive["names"]]
            found.names.extend(names)
            found.arrays.extend(archive[f"{i:05d}"] for i in range(len(names)))
    return found if files else None


def save(folder: Path, which: str, names: Sequence[str], arrays: Sequence[Any], part: int = 0) -> None:
    """Writes one model's weights whole or not at all; types that NumPy's format lacks (bfloat16) become float32."""
    import numpy as np

    plain = [a if a.dtype.kind in "biufc" else a.astype(np.float32) for a in map(np.asarray, arrays)]
    named: dict[str, Any] = {f"{i:05d}": a for i, a in enumerate(plain)}
    target = _file(folder, which, part)
    unfinished = target.with_suffix(".part.npz")
    np.savez(unfinished, names=np.array(list(names), dtype=np.str_), **named)
    os.replace(unfinished, target)


def exists(folder: Path, which: str, part: int) -> bool:
    return _file(folder, which, part).exists()


def take(folder: Path, which: str, other: Path) -> None:
    """Puts the other folder's weights of this name, where there are any, in the place of this folder's."""
    for _, file in _parts(other, which):
        replace(folder / file.name, file.read_bytes())


def replace(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    os.replace(part, path)


def _file(folder: Path, which: str, part: int) -> Path:
    return folder / f"weights-{which}{f'-{part}' if part else ''}.npz"


def _parts(folder: Path, which: str) -> list[tuple[int, Path]]:
    """Each model's place and file; a model without any is left out."""
    found = [(re.fullmatch(rf"weights-{which}(?:-(\d+))?\.npz", file.name), file) for file in folder.glob("weights-*")]
    return sorted((int(match[1] or 0), file) for match, file in found if match)
