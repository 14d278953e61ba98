"""Workers through an agent, on this machine: what a kernel and an agent say to each other, without an engine."""

from __future__ import annotations

import base64
import functools
import gc
import os
import select
import signal
import sys
import threading
import time

import psutil
import pytest

import dtk
from dtk.launch import agent, outside
from dtk.launch.agent import News
from dtk.launch.messages import FilePart, Gone, Query, as_line
from dtk.places import hosts
from dtk.places.engine import LentMachine
from dtk.places.hosts import Pipes
from dtk.records import GROWING

HERE = {"127.0.0.1": "env A=1", "localhost": "env A=2"}


def test_each_byte_is_said_once_and_what_is_whole_comes_first(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there" / "run"
    corner = there / "worker-0"
    corner.mkdir(parents=True)
    here.mkdir()
    news = News()
    (corner / "events.jsonl").write_text("one\n")
    (corner / "result.pkl").write_bytes(b"\x00" * 10)
    (corner / "result.part").write_bytes(b"half")
    messages, whole = news.of(corner)
    assert whole
    assert [message.file for message in messages] == ["worker-0/result.pkl", "worker-0/events.jsonl"]
    for message in messages:
        agent.write(here, message)
    assert (here / "worker-0/result.pkl").read_bytes() == b"\x00" * 10
    assert news.of(corner) == ([], True)
    with (corner / "events.jsonl").open("a") as file:
        file.write("two\n")
    for message in news.of(corner)[0]:
        agent.write(here, message)
    assert (here / "worker-0/events.jsonl").read_text() == "one\ntwo\n"
    os.replace(corner / "result.part", corner / "result.pkl")
    for message in news.of(corner)[0]:
        agent.write(here, message)
    assert (here / "worker-0/result.pkl").read_bytes() == b"half"
    with (corner / "result.pkl").open("ab") as file:  # no file that grows line by line, and yet it has grown
        file.write(b"and more")
    for message in news.of(corner)[0]:
        agent.write(here, message)
    assert (here / "worker-0/result.pkl").read_bytes() == b"halfand more"
    assert news.of(corner) == ([], True)


def test_large_files_come_in_parts_and_their_event_after_them(tmp_path):
    here, corner = tmp_path / "here", tmp_path / "run" / "worker-0"
    corner.mkdir(parents=True)
    here.mkdir()
    data = os.urandom(1 << 20) * 13
    (corner / "weights-final.npz").write_bytes(data)
    (corner / "events.jsonl").write_text("finished\n")
    news, looks = News(), 0
    while True:
        looks += 1
        messages, whole = news.of(corner)
        for message in messages:
            agent.write(here, message)
        assert (here / "worker-0/events.jsonl").exists() == whole
        if whole:
            break
    assert looks > 1
    assert (here / "worker-0/weights-final.npz").read_bytes() == data
    assert GROWING[-1] == "events.jsonl"


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/out.txt", "worker-0/../../out.txt"])
def test_nothing_is_written_outside_of_the_run(tmp_path, name):
    (tmp_path / "run").mkdir()
    agent.write(tmp_path / "run", FilePart("run", name, 0, 1, "eA=="))
    assert list(tmp_path.rglob("out.txt*")) == []


class Silent:
    """An agent that has nothing to do."""

    def __init__(self, said=()):
        self.said = list(said)

    def wait(self, heard):
        return heard in select.select([heard], [], [], 0.1)[0]

    def turn(self, seconds):
        return self.said

    def take(self, message):
        pass


def test_an_agent_ends_when_it_has_not_heard_of_its_kernel_for_long(monkeypatch):
    monkeypatch.setattr(agent, "LEASE_SECONDS", 0.5)
    commands, kernel = os.pipe()
    events_out, events = os.pipe()
    began = time.monotonic()
    os.write(kernel, as_line(Query(0, "alive")))
    with pytest.raises(TimeoutError):
        agent.serve(Silent(), commands, events)
    assert time.monotonic() - began >= 0.5
    os.set_blocking(events, False)
    with pytest.raises(TimeoutError):  # nothing takes what it says, and the pipe is full
        agent.serve(Silent([FilePart("run", "a", 0, 1000, "x" * 1000)]), commands, events)
    os.close(kernel)
    agent.serve(Silent(), commands, events)  # the kernel has ended
    for each in (commands, events, events_out):
        os.close(each)


def test_a_kernel_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr("dtk.places.hosts.ALIVE_SECONDS", 0.2)
    speaks = "import sys, time\nfor _ in range(20):\n    print('{}', flush=True)\n    time.sleep(0.05)\n"
    heard = threading.Event()
    command = [sys.executable, "-c", f"{speaks}print(sys.stdin.readline(), file=sys.stderr, flush=True)"]
    pipes = Pipes(command, lambda message: heard.set() if isinstance(message, Gone) else None, tmp_path / "log")
    assert heard.wait(10), "a line came by its stdin, and it ended"
    assert (tmp_path / "log").read_text().split("\n")[0] == '["Query", 0, "alive", null]'
    pipes.close()


def test_who_a_worker_is_by_tf_config_first():
    config = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    assert outside.find({"TF_CONFIG": config, "JOB_COMPLETION_INDEX": "1"})["task"]["index"] == 0
    assert outside.find({}) is None


def three():
    return dtk.run_dir().name, 3


@pytest.fixture(scope="module")
def place():
    found = dtk.places.Hosts(HERE, python=sys.executable)
    yield found
    found.close()


@pytest.mark.trains
def test_a_run_through_agents_is_a_run(place):
    run = dtk.run(three, workers=2, on=place)
    assert run.results == [(run.dir.name, 3)] * 2
    assert [config["cluster"]["worker"][1].split(":")[0] for config in run.tf_config] == ["localhost"] * 2


@pytest.mark.trains
def test_who_is_killed_is_said_soon(place):
    def dies():
        if not dtk.is_chief():
            (dtk.run_dir() / "moment.txt").write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(dtk.WorkerFailed, match="^worker 1 on localhost was killed by SIGKILL") as caught:
        dtk.run(dies, workers=2, on=place, timeout=60)
    assert time.monotonic() - float((caught.value.folder.path / "moment.txt").read_text()) < 5


@pytest.mark.trains
def test_an_agent_that_is_killed_takes_its_worker_along(place, tmp_path):
    dtk.run(three, workers=2, on=place)
    agents = [p for p in psutil.Process().children() if p.cmdline()[-2:] == ["dtk", "agent"]]
    assert len(agents) == 2
    below = agents[1].children(recursive=True)

    def wait():
        if not dtk.is_chief():
            (tmp_path / "there").touch()
        time.sleep(60)

    def kill():
        while not (tmp_path / "there").exists():
            time.sleep(0.1)
        agents[1].send_signal(signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(dtk.WorkerFailed, match="^worker 1 on localhost is lost with its machine, or dtk's agent there"):
        dtk.run(wait, workers=2, on=place, timeout=60)
    assert psutil.wait_procs(below, 10)[1] == []


@pytest.mark.slow  # two starts of agents
def test_a_place_that_nothing_refers_to_ends_its_agents():
    place = dtk.places.Hosts(HERE, python=sys.executable)
    dtk.run(three, workers=2, on=place)
    agents = [p for p in psutil.Process().children() if p.cmdline()[-2:] == ["dtk", "agent"]]
    del place
    gc.collect()
    assert psutil.wait_procs(agents[-2:], 10)[1] == []


def test_an_agents_workers_are_never_in_a_network_of_their_own(monkeypatch, tmp_path):
    """Also where DTK_ISOLATE=1 has come along with the kernel's environment."""
    made = []
    monkeypatch.setenv("DTK_ISOLATE", "1")
    monkeypatch.setattr(agent.warm, "parent", lambda fork: made.append(dtk.environment.isolated()))
    agent.Agent(str(tmp_path))
    assert made == [False]


# ---- machines to practice on: each is this one


@pytest.mark.parametrize(
    ("arguments", "words"), [({"count": 0}, "count=0.*whole number from 1 to 16"), ({"count": True}, "count=True")]
)
def test_what_can_not_be_made(arguments, words):
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.places.Practice(**arguments)


def test_a_trap_waits_for_its_own_worker_to_stand_still(monkeypatch):
    broken, heard = [], []
    monkeypatch.setattr(hosts, "signal_below", lambda pid, how: broken.append((pid, how)))
    machines = [LentMachine(f"127.0.0.{k + 1}", None, facts={"pid": k}) for k in (0, 1)]
    traps = hosts._Traps({1: signal.SIGSTOP}, machines=machines)
    takes = functools.partial(traps.watch, 1, heard.append)
    event = b'{"at": 1.0, "state": "fault", "kind": "stall", "step": 3}\n'
    data = base64.b64encode(event).decode()
    takes(FilePart("run", "worker-0/events.jsonl", 0, len(event), data))
    takes(FilePart("run", "worker-1/log.txt", 0, len(event), data))
    takes(Gone("the agent's last words"))
    assert broken == []
    takes(FilePart("run", "worker-1/events.jsonl", 0, len(event), data))
    takes(FilePart("run", "worker-1/events.jsonl", 0, len(event), data))
    assert broken == [(1, signal.SIGSTOP)], "once"
    takes(Gone("a pipe that ended"))
    traps.broken[1] = signal.SIGKILL
    takes(Gone("the agent's last words"))
    said = [message for message in heard if isinstance(message, Gone)]
    assert said == [Gone("the agent's last words"), Gone("the connection to it has ended")], "no word of a silent one"
