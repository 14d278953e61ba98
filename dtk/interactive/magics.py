"""`%%workers` and `%%worker 1`: a notebook's cell for the workers of the cluster that is open."""

from __future__ import annotations

from typing import Any

from dtk.errors import ClusterConfigError
from dtk.language import _

__all__ = ["magics", "register"]


def register(shell: Any) -> None:
    """Adds both to IPython."""
    for name, magic in magics().items():
        shell.register_magic_function(magic, "cell", name)


def magics() -> dict[str, Any]:
    """By name: functions of a magic's line and cell."""

    def workers(line: str, cell: str) -> None:
        from dtk.interactive import clusters  # late: `import dtk` in a notebook registers both

        cluster = clusters.current("%%workers")
        cluster.cell(cell, _numbers("%%workers", line) if line.strip() else None)

    def worker(line: str, cell: str) -> None:
        from dtk.interactive import clusters

        cluster = clusters.current("%%worker")
        numbers = _numbers("%%worker", line)
        if not numbers:
            words = _("%%worker: which? %%worker 1 runs the cell on worker 1, %%workers on all")
            raise ClusterConfigError(words)
        cluster.cell(cell, numbers)

    return {"workers": workers, "worker": worker}


def _numbers(magic: str, line: str) -> list[int]:
    """
    >>> _numbers("%%worker", "0, 2")
    [0, 2]
    """
    words = line.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        said = _("{magic} {line}: numbers of workers go there, such as {magic} 1", magic=magic, line=line.strip())
        raise ClusterConfigError(said)
    return sorted({int(word) for word in words})
