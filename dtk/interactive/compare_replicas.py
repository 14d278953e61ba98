"""What a name is on all workers, beside each other, while they stand in a cell; values that are read there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtk.errors import ClusterConfigError
from dtk.interactive.peers import Peer
from dtk.interactive.waits import place_of
from dtk.interactive.words import workers_in_words
from dtk.language import N_, _, columns
from dtk.view.palette import worker_name

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
        return _("has ended") if talk.peers[worker].lost is not None else _("in no cell") if said else _("not known")
    words = talk.in_words(place_of(said["place"]))
    return _("held in {place}", place=words) if said["held"] else words


def read(peers: Sequence[Peer], code: str) -> dict[int, Message]:
    """The ends, as of cells, of reading a name on each, also while it waits in a cell."""
    found = {}
    for worker, said in ask(peers, READ_SECONDS, "read", code=code).items():
        if said is None:
            words = N_("pull: worker {worker} has ended or did not answer for {seconds:g} s")
            raise ClusterConfigError(_(words, worker=worker, seconds=READ_SECONDS))
        if "refused" in said:
            words = N_("pull: worker {worker}: {why}; while a worker is in a cell, names alone are read")
            raise ClusterConfigError(_(words, worker=worker, why=said["refused"]))
        if "message" in said:
            words = N_("pull: {name} can't be read on worker {worker}: {why}")
            raise ClusterConfigError(_(words, name=code, worker=worker, why=said["message"]))
        found[worker] = said
    return found


def side_by_side(code: str, answers: Mapping[int, Message | None], lines: Mapping[int, str], replicas: int) -> str:
    """A table, whether the replicas are equal in it, and where each worker stands.

    answers: by worker (`dtk.interactive.answers.answer`). lines: where each stands. replicas: of a worker.
    """
    stands = [f"{worker_name(worker)}: {line}" for worker, line in sorted(lines.items())]
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
    table = [["", _("value"), _("shape"), _("digest"), ""]]
    for worker, said in answers.items():
        why = _("did not answer") if said is None else said.get("none", "")
        for row in rows[worker] or [{"text": why}]:
            of = _("in {function}", function=row["of"]) if row.get("of") else ""
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
    table = [["", _("shape"), *(_whose(*column, replicas) for column in columns), ""]]
    for part, have in list(by_label.items())[:_MOST]:
        digests = [have.get(column, {}).get("digest", "") for column in columns]
        shape = _shape(next(iter(have.values())))
        table.append([f"{code}{part}", shape, *digests, "" if len({*digests}) == 1 else _("differ")])
    more = len(by_label) - _MOST
    return [*_aligned(table), *([_("... and {n} more", n=more)] if more > 0 else [])]


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
    some, parts = len(have) < len(rows), len(by_label)
    if not differ:
        words = N_("{name} is on {workers} only") if some else N_("{name} is equal on all replicas")
    elif parts > 1:
        words = N_("{name} differs in {differ} of {parts} parts")
        if some:
            words = N_("{name} differs in {differ} of {parts} parts, on {workers} only")
    else:
        words = N_("{name} differs, on {workers} only") if some else N_("{name} differs")
    return _(words, name=code, workers=workers_in_words(have), differ=differ, parts=parts)


def _whose(worker: int, replica: int | None, replicas: int) -> str:
    if replica is None:
        return worker_name(worker)
    return _("worker {worker}, replica {replica}", worker=worker, replica=worker * replicas + replica)


def _shape(row: Message) -> str:
    return str(tuple(row["shape"])) if "shape" in row else ""


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(columns(row[k]) for row in table) for k in range(len(table[0]))]
    cells = [[text + " " * (width - columns(text)) for text, width in zip(row, widths, strict=True)] for row in table]
    return ["  ".join(row).rstrip() for row in cells]
