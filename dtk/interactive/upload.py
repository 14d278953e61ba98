"""What a cell or a function needs beside itself, on workers that see no file of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dtk.interactive.begin import Started
from dtk.launch.agent import MODULES
from dtk.worker import local_modules as beside

__all__ = ["files", "modules"]


def files(started: Started, workers: Sequence[int], names: Sequence[str]) -> None:
    """Files of the session's directory."""
    for worker in workers:
        for name in names:
            started.links.put(worker, name)


def modules(started: Started, workers: Sequence[int], code: str | bytes) -> None:
    """The learner's own modules that a cell imports, or that a pickled function may import."""
    if started.links.here:
        return
    from IPython.core.inputtransformer2 import TransformerManager

    if isinstance(code, bytes):
        names: Iterable[str] = beside.named(code)
    else:
        names = beside.imports(TransformerManager().transform_cell(code), "cell.py")
    for path, source in beside.modules(names).items():
        file = started.folder.path / MODULES / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source)
        files(started, workers, [f"{MODULES}/{path}"])
