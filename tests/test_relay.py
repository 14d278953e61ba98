"""Workers that stay on other machines, without workers: what an agent and a kernel pass on, and in which order."""

from __future__ import annotations

import contextlib
import os
import select
import time
from pathlib import Path

import pytest

from dtk.errors import ClusterConfigError
from dtk.interactive import processes
from dtk.launch import agent
from dtk.launch.links import Door, Doors
from dtk.launch.messages import Exited, FilePart, LinkCalls, LinkEnds, LinkSays, Remove, VitalSigns
from dtk.places.engine import Remote
from dtk.places.machines import LentMachine
from dtk.places.relay import Relay, Relayed
from dtk.worker import wire


@pytest.fixture
def doors(monkeypatch, tmp_path):
    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path / "scratch"))
    found = Doors()
    yield found
    found.close()


@contextlib.contextmanager
def called(path, channel, *messages, worker=1):
    """A worker that calls there, and says so much at once."""
    link = wire.call(Path(path))
    link.send({"worker": worker, "channel": channel})
    for message in messages:
        link.send(message)
    yield link
    link.close()


def test_what_a_worker_says_has_the_number_of_its_connection(doors):
    path = doors.open()
    assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0
    assert path == doors.open(), "one in another's place comes by the same door"
    with called(path, "cells", {"ready": 7}) as cells, called(path, "control") as control:
        assert doors.look() == [
            LinkCalls(1, 1, "cells"),
            LinkCalls(2, 1, "control"),
        ]
        assert doors.of_cells() == [LinkSays(1, {"ready": 7})]
        control.send({"id": 3})
        assert doors.look() == [LinkSays(2, {"id": 3})], "it waits for no file"
        doors.say(1, {"do": "cell"})
        assert cells.next(1) == {"do": "cell"}
    assert doors.look() == [LinkEnds(2)]
    assert doors.of_cells() == [LinkEnds(1)]
    doors.say(1, {"do": "cell"})
    doors.close()
    assert not os.path.exists(path)
    with called(doors.open(), "cells"):
        assert doors.look() == [LinkCalls(3, 1, "cells")], "of the next session"


def test_who_has_not_said_who_he_is_yet_is_waited_for(doors):
    link = wire.call(Path(doors.open()))
    link._link.sendall(b'{"worker": 0, "cha')
    assert doors.look() == []
    link._link.sendall(b'nnel": "cells"}\n')
    assert doors.look() == [LinkCalls(1, 0, "cells")]
    link.close()


class Source:
    """Of an agent whose worker runs."""

    ready = True

    def __init__(self):
        self.started, self.exited = {}, {}

    def lives(self):
        return True

    def poll(self, seconds): ...
    def close(self): ...


def test_what_a_cell_says_comes_after_what_its_worker_wrote(monkeypatch, tmp_path, doors):
    monkeypatch.setattr(agent.warm, "parent", lambda *_, **__: Source())
    there = agent.Agent(str(tmp_path))
    there._workers = {
        "w": {"dir": str(tmp_path / "run"), "workers": 1, "has_evaluator": False, "worker": 0, "port": None}
    }
    corner = tmp_path / "run" / "worker-0"
    corner.mkdir(parents=True)
    (corner / "log.txt").write_bytes(b"x" * (20 << 20))
    with called(there._doors.open(), "cells", {"id": 1}, worker=0):
        turns = [there.turn(0)]
        while not any(isinstance(message, LinkSays) for message in turns[-1]):
            assert len(turns) < 10
            turns.append(there.turn(0))
        assert len(turns) > 1
        kinds = [type(message) for message in turns[-1] if isinstance(message, (LinkSays, FilePart))]
        assert kinds[-1] is LinkSays
        assert kinds.count(LinkSays) == 1, "data before it"
        there.take(FilePart("run", "calls/1.pkl", 0, 1, "eA==", 0))
        assert (tmp_path / "run/calls/1.pkl").read_bytes() == b"x"
        there.take(Remove("run", ["calls/1.pkl", "../run/worker-0/log.txt", "/etc/hostname"]))
        assert not (tmp_path / "run/calls/1.pkl").exists()
        assert (corner / "log.txt").exists()
    there.close()


def test_a_file_that_was_cut_is_said_anew(tmp_path):
    corner, here = tmp_path / "there" / "worker-0", tmp_path / "here"
    corner.mkdir(parents=True)
    known = agent.News()
    for text in ("one\ntwo\n", "one\n", "one\nthree\n"):
        (corner / "events.jsonl").write_text(text)
        for message in known.of(corner)[0]:
            agent.write(here, message)
        assert (here / "worker-0/events.jsonl").read_text() == text
    assert known.of(corner) == ([], True)


# ---- the kernel's side


class Carrier:
    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def close(self): ...


def relayed(*said, reached=True):
    """A connection whose agent says these one after another, when it is asked."""
    left, carrier = list(said), Carrier()

    def poll(seconds):
        if left:
            link.take(left.pop(0))
        return reached

    link = Relayed(4, carrier.send, poll)
    return link, carrier


def test_a_connection_by_an_agent_is_as_one_here():
    link, carrier = relayed(LinkSays(4, {"id": 1}), LinkSays(4, {"id": 2}), LinkEnds(4))
    assert link.send({"do": "look"})
    assert carrier.sent == [LinkSays(4, {"do": "look"})]
    assert [link.next(1), link.next(1), link.next(1)] == [{"id": 1}, {"id": 2}, None]
    assert link.closed
    assert not link.send({"do": "look"})
    link.close()


def test_a_message_that_came_wakes_who_selects():
    link, _ = relayed()
    assert select.select([link], [], [], 0)[0] == []
    link.take(LinkSays(4, {"id": 1}))
    assert select.select([link], [], [], 0)[0] == [link]
    assert link.receive() == [{"id": 1}]
    assert select.select([link], [], [], 0)[0] == []
    began = time.monotonic()
    assert link.next(0.05) is None
    assert 0.04 < time.monotonic() - began < 1
    assert not link.closed
    link.close()


def test_a_machine_that_is_lost_has_hung_up():
    link, _ = relayed(reached=False)
    assert link.next(60) is None
    assert link.closed
    link.close()


def test_a_file_is_put_once_and_removed_where_it_is(tmp_path):
    run, there = tmp_path / "run", tmp_path / "there"
    (run / "worker-0").mkdir(parents=True)
    carriers = [Carrier(), Carrier(), Carrier()]
    relay = Relay(run, carriers, None, lambda member, seconds: True)
    data = os.urandom(100_000)
    (run / "worker-0/sync.npz").write_bytes(data)
    relay.put(1, "worker-0/sync.npz")
    relay.put(1, "worker-0/sync.npz")
    assert [len(carrier.sent) for carrier in carriers] == [0, 3, 0]
    assert all(len(message.data) < 100_000 for message in carriers[1].sent), "more than that Ray would store first"
    for message in carriers[1].sent:
        agent.write(there, message, "coming-1")
    assert (there / "worker-0/sync.npz").read_bytes() == data
    assert not list(there.rglob("*coming*"))
    (run / "worker-0/sync.npz").write_bytes(b"")
    relay.put(1, "worker-0/sync.npz")
    agent.write(there, carriers[1].sent[-1])
    assert (there / "worker-0/sync.npz").read_bytes() == b""
    relay.remove("worker-0/sync.npz")
    assert [carrier.sent[-1:] for carrier in carriers] == [[Remove("run", ["worker-0/sync.npz"])]] * 2 + [[]]
    assert not (run / "worker-0/sync.npz").exists()


def test_nobody_looks_for_hours_and_nothing_piles_up():
    heard = []

    def lend(takes):
        heard.extend(takes)
        return [LentMachine("127.0.0.1", Carrier())]

    remote = Remote("here", lend, 1)
    remote._member["w"] = 0
    for k in range(1000):
        heard[0](VitalSigns({"w": [float(k), False]}, ["w"]))
    assert remote._queue.empty()
    assert select.select([remote], [], [], 0)[0] == []
    heard[0](Exited("w", 3, 0.0))
    assert select.select([remote], [], [], 1)[0] == [remote]
    remote.poll(0)
    assert select.select([remote], [], [], 0)[0] == []
    assert remote.vitals("w")[:2] == (999.0, False)
    assert remote.exited["w"][0] == 3
    remote.forget(["w"])
    heard[0](VitalSigns({"w": [0.0, False]}, ["w"]))  # on its way when it was forgotten
    remote.poll(0)
    assert remote.vitals("w") is None
    assert remote.cut() == []
    remote.close()


def test_on_this_machine_nothing_is_put_anywhere(tmp_path):
    door = Door(tmp_path)
    (tmp_path / "a").touch()
    door.put(0, "a")
    door.remove("a")
    assert not (tmp_path / "a").exists()
    with called(tmp_path / "door", "cells"):
        ((worker, channel, link),) = door.calls()
        assert (worker, channel) == (1, "cells")
        link.close()
    door.close()
    assert not (tmp_path / "door").exists()


@pytest.mark.parametrize(
    ("on", "isolate", "words"),
    [
        (
            "somewhere",
            None,
            'on=\'somewhere\': it takes "ray", "slurm", or what a class of dtk.places makes',
        ),
        ("ray", True, "isolate=True with on='ray': a network of its own has no other machines"),
    ],
)
def test_where_a_cluster_can_not_be(on, isolate, words):
    with pytest.raises(ClusterConfigError) as error:
        processes.checked(2, 1, 0, None, "auto", isolate, on)
    assert str(error.value).startswith(words)
