"""The starts of the cluster that a run with restarts made, each with what it recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder

__all__ = ["Attempt"]


@dataclass(frozen=True)
class Attempt:
    """One start of the cluster: `run.attempts`. A run without restarts has one.

    number: from 1. failed: what is said of its failure, None where it ended well. seconds: from this start to its
    end. records: all that it recorded, with the columns of `run.records`, also the steps that a later attempt has
    trained anew. steps: the first and the last step that it recorded, None without any.
    """

    folder: RunFolder

    def _said(self, name: str) -> Any:
        return json.loads((self.folder.path / "attempt.json").read_text())[name]

    @property
    def number(self) -> int:
        return int(self._said("number"))

    @property
    def failed(self) -> str | None:
        said = self._said("failed")
        return None if said is None else str(said)

    @property
    def ended(self) -> float:
        """Seconds since the call of `dtk.run`."""
        return float(self._said("ended"))

    @property
    def seconds(self) -> float:
        return self.ended - float(self._said("began"))

    @property
    def records(self) -> pandas.DataFrame:
        return self.folder.own_records

    @property
    def steps(self) -> tuple[int, int] | None:
        table = self.records
        return (int(table.step.min()), int(table.step.max())) if len(table) else None

    @property
    def logs(self) -> list[str]:
        """Everything each worker printed in this attempt, by worker."""
        return self.folder.logs

    def __repr__(self) -> str:
        # No seconds: this text stands in stored outputs of notebooks.
        steps = "no step" if self.steps is None else f"steps {self.steps[0]} to {self.steps[1]}"
        return f"<Attempt {self.number}: {steps}, {self.failed or 'finished'}>"
