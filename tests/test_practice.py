"""Machines to practise on: each is this one, and they are lent, lost and replaced as others are."""

from __future__ import annotations

import base64
import signal

import pytest

import dtk
from dtk.launch.messages import FilePart, Gone
from dtk.places import hosts
from dtk.places.engine import LentMachine


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": 0}, "count=0.*whole number from 1 to 16"),
        ({"count": True}, "count=True"),
    ],
)
def test_what_can_not_be_made(arguments, words):
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.places.Practice(**arguments)


def test_a_trap_waits_for_its_own_worker_to_stand_still(monkeypatch):
    broken, heard = [], []
    monkeypatch.setattr(hosts._Machine, "breaks", lambda self, how: broken.append((self.name, how)))
    machine, traps = hosts._Machine("node-1", "127.0.0.2", LentMachine("127.0.0.2", None)), {1: signal.SIGSTOP}
    takes = hosts._watched(heard.append, 1, machine, traps)
    event = b'{"at": 1.0, "state": "fault", "kind": "stall", "step": 3}\n'
    data = base64.b64encode(event).decode()
    takes(FilePart("run", "worker-0/events.jsonl", 0, len(event), data))
    takes(FilePart("run", "worker-1/log.txt", 0, len(event), data))
    assert broken == []
    takes(FilePart("run", "worker-1/events.jsonl", 0, len(event), data))
    takes(FilePart("run", "worker-1/events.jsonl", 0, len(event), data))
    assert broken == [("node-1", signal.SIGSTOP)], "once"
    takes(Gone("the agent's last words"))
    machine.broken = True
    takes(Gone("the agent's last words"))
    assert heard[-2:] == [Gone("the agent's last words"), Gone("the connection to it has ended")]
    machine.stopped = True
    takes(Gone("a pipe that ended"))
    assert heard[-1] == Gone("the connection to it has ended"), "a silent machine says nothing"
