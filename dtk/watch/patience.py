"""How long a silence is none: when it is said, and when it ends the run, by how long the run's own steps take."""

from __future__ import annotations

from dataclasses import dataclass

from dtk.language import N_, _

__all__ = ["Patience"]

_SOONEST, _STEPS = 5.0, 50.0  # it is said after so many seconds, and so many of the run's longest steps
_AHEAD = 5.0  # ... if that is so long before the end
_LONGEST = 3.0  # a silence of so many of its longest steps does not end a run


@dataclass
class Patience:
    """stall_timeout: seconds without any progress that end the run; None: nothing does."""

    stall_timeout: float | None
    said: bool = False

    def limit(self, step_seconds: float | None) -> float | None:
        """Seconds of silence that end the run: `stall_timeout`, or three of its longest steps where that is more."""
        if self.stall_timeout is None:
            return None
        return max(self.stall_timeout, _LONGEST * (step_seconds or 0.0))

    def says(self, quiet: float, step_seconds: float | None) -> bool:
        """Whether a silence is to be said now: once, and only where the run's own steps tell that it is long."""
        if quiet < _SOONEST:
            self.said = False
        if self.said or step_seconds is None:
            return False
        after, limit = max(_SOONEST, _STEPS * step_seconds), self.limit(step_seconds)
        self.said = quiet >= after and (limit is None or limit - after >= _AHEAD)
        return self.said

    def words(self, quiet: float, step_seconds: float | None, sentence: str) -> str:
        """The line, with its numbers."""
        limit = self.limit(step_seconds)
        seconds = step_seconds or 0.0
        took = _("{ms:.0f} ms", ms=1000 * seconds) if seconds < 1 else _("{seconds:.1f} s", seconds=seconds)
        words = N_("nothing has moved for {quiet:.0f} s, where a step took {took} at most: {sentence}")
        if limit is not None:
            words = N_(
                "nothing has moved for {quiet:.0f} s, where a step took {took} at most: {sentence}; the run ends after "
                "{limit:g} s of that"
            )
        return _(words, quiet=quiet, took=took, sentence=sentence, limit=limit)
