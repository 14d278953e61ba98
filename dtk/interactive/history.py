"""The cells of a session: what was sent to whom, and how it ended there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Cell", "History"]


@dataclass
class Cell:
    """code: None for a function. ends: by worker, whether it ended without an error, recorded steps, batches taken."""

    number: int
    code: str | None
    workers: tuple[int, ...]
    ends: dict[int, tuple[bool, int, int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all went through it."""
        return all(self.ends.get(worker, (False,))[0] for worker in self.workers)


class History:
    """workers: how many the cluster has."""

    def __init__(self, workers: int):
        self.workers = workers
        self.cells: dict[int, Cell] = {}

    def add(self, number: int, code: str | None, workers: list[int]) -> None:
        self.cells[number] = Cell(number, code, tuple(workers))

    def take(self, ends: Mapping[int, Mapping[str, Any]]) -> None:
        """Ends of cells, by worker."""
        for worker, end in ends.items():
            if end["id"] in self.cells:
                self.cells[end["id"]].ends[worker] = (end["status"] == "ok", int(end["steps"]), int(end["takes"]))

    def failed(self) -> bool:
        """Whether a cell that all workers were sent has ended otherwise than by its end, on any of them."""
        shared = [cell for cell in self.cells.values() if len(cell.workers) == self.workers]
        return any(not ok for cell in shared for ok, *_ in cell.ends.values())

    def of(self, worker: int) -> list[tuple[int, str]]:
        """(number, code) of the cells that went through on a worker; one that was interrupted may take for ever."""
        through = [cell for cell in self.cells.values() if cell.ends.get(worker, (False,))[0]]
        return [(cell.number, cell.code) for cell in through if cell.code is not None]

    def to_replay(self) -> tuple[list[tuple[int, str, tuple[int, int] | None]], list[int]]:
        """(number, code, limit) of what all workers were sent, and the numbers of what is left out.

        limit: recorded steps and batches taken when a cell that was not gone through ended; None for one that was.
        """
        found, left = [], []
        for cell in self.cells.values():
            if cell.code is None or len(cell.workers) < self.workers:
                left.append(cell.number)
                continue
            limits = max((limits for _, *limits in cell.ends.values()), default=[0, 0])
            found.append((cell.number, cell.code, None if cell.ok else (limits[0], limits[1])))
        return found, left
