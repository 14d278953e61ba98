"""What a name is on all workers, beside each other, while they stand in a cell; values that are read there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtk.errors import ClusterConfigError
from dtk.interactive.peers import Peer
from dtk.interactive.waits import place_of
from dtk.live.fold import label

if TYPE_CHECKING:
    from dtk.interactive.talk import Talk

__all__ = ["read", "show", "side_by_side"]

Message = dict[str, Any]
ANSWER_SECONDS, READ_SECONDS = 2.0, 60.0
_MOST = 40  # parts of a value that are shown


def ask(peers: Sequence[Peer], seconds: float, do: str, **more: Any) -> dict[int, Message | None]:
    """What their control threads answer, all within this time; None for who has ended or says nothing."""
    numbers = {peer.number: peer.begin(do, **more) for peer in peers}
    deadline = time.monotonic() + seconds
    return {peer.number: peer.answer(numbers[peer.number], deadline) for peer in peers}


def show(talk: Talk, peer: Peer, message: Message) -> None:
    """What a debugger's `replicas` asks for: the worker's own answer, which came with it, and the others'."""
    talk.output.end({peer.number: (message["log"], message["shown"])})
    code = message["beside"]
    others = [each for each in talk.peers if each is not peer]
    answers = {peer.number: message["own"], **ask(others, ANSWER_SECONDS, "beside", code=code)}
    lines = {worker: _stand(talk, worker, said) for worker, said in answers.items()}
    print(side_by_side(code, answers, lines, talk.started.job.replicas), flush=True)


def _stand(talk: Talk, worker: int, said: Message | None) -> str:
    """Where a worker stands, in words."""
    if said is None or said.get("cell") is None:
        return "has ended" if talk.peers[worker].lost is not None else "in no cell" if said else "not known"
    words = talk.in_words(place_of(said["place"]))
    return f"held in {words}" if said["held"] else words


def read(peers: Sequence[Peer], code: str) -> dict[int, Message]:
    """The ends, as of cells, of reading a name on each, also while it waits in a cell."""
    found = {}
    for worker, said in ask(peers, READ_SECONDS, "read", code=code).items():
        if said is None:
            raise ClusterConfigError(f"pull: worker {worker} has ended or did not answer for {READ_SECONDS:g} s")
        if "refused" in said:
            names = "while a worker is in a cell, names alone are read"
            raise ClusterConfigError(f"pull: worker {worker}: {said['refused']}; {names}")
        if "message" in said:
            raise ClusterConfigError(f"pull: {code} can't be read on worker {worker}: {said['message']}")
        found[worker] = said
    return found


def side_by_side(code: str, answers: Mapping[int, Message | None], lines: Mapping[int, str], replicas: int) -> str:
    """A table, whether the replicas are equal in it, and where each worker stands.

    answers: by worker (`dtk.inside.beside.answer`). lines: where each stands. replicas: of a worker.
    """
    stands = [f"worker {worker}: {line}" for worker, line in sorted(lines.items())]
    rows = {worker: (said or {}).get("values", []) for worker, said in sorted(answers.items())}
    whys = list(dict.fromkeys((said or {}).get("none", "") for said in answers.values()))
    if not code or (not any(rows.values()) and whys != [""]):
        return "\n".join([*(why for why in whys if why), *stands])
    several = any(row["label"] for each in rows.values() for row in each)
    table = _by_part(code, rows, replicas) if several else _by_replica(rows, answers, replicas)
    return "\n".join([*table, _verdict(code, rows), *stands])


def _by_replica(
    rows: Mapping[int, Sequence[Message]], answers: Mapping[int, Message | None], replicas: int
) -> list[str]:
    table = [["", "value", "shape", "digest", ""]]
    for worker, said in answers.items():
        why = "did not answer" if said is None else said.get("none", "")
        for row in rows[worker] or [{"text": why}]:
            of = f"in {row['of']}" if row.get("of") else ""
            table.append(
                [_whose(worker, row.get("replica"), replicas), row["text"], _shape(row), row.get("digest", ""), of]
            )
    return _aligned([table[0], *sorted(table[1:])])


def _by_part(code: str, rows: Mapping[int, Sequence[Message]], replicas: int) -> list[str]:
    """Digests, a line for each part of the value."""
    columns = list(dict.fromkeys((worker, row["replica"]) for worker in rows for row in rows[worker]))
    by_label: dict[str, dict[tuple[int, Any], Message]] = {}
    for worker in rows:
        for row in rows[worker]:
            by_label.setdefault(row["label"], {})[worker, row["replica"]] = row
    table = [["", "shape", *(_whose(*column, replicas) for column in columns), ""]]
    for part, have in list(by_label.items())[:_MOST]:
        digests = [have.get(column, {}).get("digest", "") for column in columns]
        shape = _shape(next(iter(have.values())))
        table.append([f"{code}{part}", shape, *digests, "" if len({*digests}) == 1 else "differ"])
    more = len(by_label) - _MOST
    return [*_aligned(table), *([f"... and {more} more"] if more > 0 else [])]


def _verdict(code: str, rows: Mapping[int, Sequence[Message]]) -> str:
    """
    >>> _verdict("loss", {0: [{"label": "", "text": "1.0"}], 1: []})
    'loss is on worker 0 only'
    """
    have = [worker for worker in rows if rows[worker]]
    by_label: dict[str, list[str]] = {}
    for row in (row for worker in have for row in rows[worker]):
        by_label.setdefault(row["label"], []).append(row.get("digest") or row["text"])
    differ = sum(len({*digests}) > 1 for digests in by_label.values())
    of = f" in {differ} of {len(by_label)} parts" if len(by_label) > 1 else ""
    words = f"differs{of}" if differ else "is equal on all replicas" if len(have) == len(rows) else "is"
    only = f" on worker{'s' * (len(have) > 1)} {label(have)} only" if len(have) < len(rows) else ""
    return f"{code} {words}{',' * (words != 'is' and bool(only))}{only}"


def _whose(worker: int, replica: int | None, replicas: int) -> str:
    return f"worker {worker}" if replica is None else f"worker {worker}, replica {worker * replicas + replica}"


def _shape(row: Message) -> str:
    return str(tuple(row["shape"])) if "shape" in row else ""


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    cells = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in table]
    return ["  ".join(row).rstrip() for row in cells]
