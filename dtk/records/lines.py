"""One line of a worker's events.jsonl: from an event to the line, and from the line of any version to an event.

`events` has the kinds of events. A line is {"at": seconds, "state": NAME, FIELD: value, ...}. A field that has its
default is not written, so that a new field with a default does no harm to old lines; fields that a reader does not know
it ignores, and a line of a kind that it does not know becomes `Unknown`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

__all__ = ["KINDS", "Event", "Kind", "Tail", "Unknown", "of_kind", "parse", "write"]


@dataclass(frozen=True)
class Event:
    """Something that happened to a member of the run. at: seconds since the call of `dtk.run`."""

    state: ClassVar[str] = ""  # the kind's name on disk
    what: ClassVar[str] = ""  # where several kinds share a state: which one
    at: float

    def __init_subclass__(cls, state: str = "", what: str = "") -> None:
        if state:
            cls.state, cls.what = state, what
            KINDS[state, what] = cls


KINDS: dict[tuple[str, str], type[Event]] = {}  # every kind that is written, by state and what
Kind = TypeVar("Kind", bound=Event)  # one kind


@dataclass(frozen=True)
class Unknown(Event):
    """A line that this version has no kind for, or that lacks what its kind needs. name: its state. facts: the rest."""

    name: str
    facts: dict[str, Any]


def write(event: Event) -> str:
    """The event as a line. Raises TypeError for one of no kind, and for a field that JSON can't hold."""
    if KINDS.get((event.state, event.what)) is not type(event):
        raise TypeError(f"{type(event).__name__} is no kind of event that is written")
    which = {"what": event.what} if event.what else {}
    facts = {name: value for name, value in _plain(event).items() if name != "at"}
    return json.dumps({"at": event.at, "state": event.state, **which, **facts}) + "\n"


def parse(line: str | bytes) -> Event:
    """The event of a line, as any version wrote it."""
    facts = json.loads(line)
    at, state = facts.pop("at"), facts.pop("state")
    kind = KINDS.get((state, "")) or KINDS.get((state, str(facts.get("what", ""))))
    if kind is not None:
        with contextlib.suppress(TypeError):  # where it lacks a field, or has something else there
            return _made(kind, {"at": at, **facts})
    return Unknown(at, state, facts)


def of_kind(events: Iterable[Event], kind: type[Kind]) -> list[Kind]:
    """Those of the events that are of this kind, in their order."""
    return [event for event in events if isinstance(event, kind)]


def _plain(record: Any) -> dict[str, Any]:
    """The fields for JSON, without those that have their default."""
    held = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if _has_default(each, value):
            continue
        value = _plain(value) if "of" in each.metadata and value is not None else value
        held[each.name] = [_plain(one) for one in value] if "each" in each.metadata else value
    return held


def _has_default(each: Field[Any], value: Any) -> bool:
    if each.default_factory is not MISSING:
        return bool(value == each.default_factory())
    return each.default is not MISSING and value is each.default


def _made(kind: type[Any], facts: dict[str, Any]) -> Any:
    """An object of this kind, without the facts that it has no field for. Raises TypeError where it lacks one."""
    return kind(**{each.name: _nested(each, facts[each.name]) for each in fields(kind) if each.name in facts})


def _nested(each: Field[Any], value: Any) -> Any:
    if "of" in each.metadata:
        return None if value is None else _made(each.metadata["of"], value)
    return [_made(each.metadata["each"], one) for one in value] if "each" in each.metadata else value


# ---- a file that grows by lines


class Tail:
    """Reads a growing file from where it left off; bytes of an unfinished last line wait for the next read."""

    def __init__(self, path: Path):
        self.path = path
        self.offset = 0  # bytes handed out so far

    def lines(self, limit: int | None = None) -> list[bytes]:
        """Complete lines written since the last call; `limit` bounds the bytes read at once."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(-1 if limit is None else limit)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and limit is not None and len(data) == limit:
            end = limit  # a line longer than the bound is handed out in pieces rather than waited for
        self.offset += end
        return data[:end].splitlines()
