"""Who waits for whom in a cell, who met in unlike collectives, what a gate and a wire do: without workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from dtk.errors import ClusterConfigError, DtkError
from dtk.interactive import clusters
from dtk.interactive.barrier import Gate, Stopped, Wait, Where, stuck, unlike
from dtk.worker import wire

HERE, THERE = ("<cell 1>", 3, "<cell 1>", 3), ("<cell 1>", 5, "<cell 1>", 5)


def at(number, place=HERE, cell=1):
    """A worker that has taken `number` of a counter, at a place of its code."""
    met = [("all", number, place)] if cell is not None else []
    return Where(cell, place, keys={"all": number + 1}, met=met, count=number)


def looks(*workers):
    """Two looks, between which no worker has moved."""
    return dict(enumerate(workers)), {k: replace(where, at=0.3) for k, where in enumerate(workers)}


def test_a_worker_waits_for_one_that_is_idle():
    assert stuck(*looks(at(8), at(7, cell=None))) == [Wait(0, HERE, (1,))]


def test_nobody_waits_for_one_that_may_still_come():
    before, now = looks(at(8), at(7, THERE))
    now[1] = replace(now[1], cpu=0.3)  # it computes
    assert stuck(before, now) == []


def test_one_waits_for_another_whose_collective_failed():
    assert stuck(*looks(at(8), at(8, cell=None)), broken=[1]) == [Wait(0, HERE, (1,))]


def test_two_that_wait_for_each_other_are_stuck():
    one = Where(1, HERE, keys={"a": 2, "b": 1}, met=[("a", 1, HERE)], count=1)
    two = Where(1, THERE, keys={"a": 1, "b": 2}, met=[("b", 1, THERE)], count=1)
    assert stuck(*looks(one, two)) == [Wait(0, HERE, (1,)), Wait(1, THERE, (0,))]


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": 0.2},  # computes
        {"held": ["all"]},  # by the gate, and not by another worker
        {"place": THERE},  # behind the collective
    ],
    ids=["computes", "is held", "has gone on"],
)
def test_a_worker_that_does_something_else_does_not_wait(change):
    before, now = looks(at(8), at(7, cell=None))
    now[0] = replace(now[0], **change)
    assert stuck(before, now) == []


def test_lines_that_met_in_one_collective_are_found():
    found = unlike({0: at(8), 1: at(8, THERE)}, {HERE: "a = reduce(x)", THERE: "b = reduce(y)"}.__getitem__)
    assert found == [(0, HERE), (1, THERE)]


def test_equal_lines_and_other_collectives_are_alike():
    assert unlike({0: at(8), 1: at(8, THERE)}, lambda _: "a = reduce(x)") == []
    assert unlike({0: at(8), 1: at(9, THERE)}, str) == []


# ---- the gate


@pytest.fixture
def gate():
    gate = Gate()
    gate.files[__file__] = True
    return gate


def test_a_closed_gate_holds_until_it_is_opened(gate):
    gate.hold({"all": 101})
    gate.arrive("all", 100)  # below the limit
    thread = threading.Thread(target=gate.arrive, args=("all", 101))
    thread.start()
    deadline = time.monotonic() + 5
    while not gate.held and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [*gate.held.values()] == ["all"]
    gate.hold(None)
    thread.join(5)
    assert not thread.is_alive()
    assert not gate.held


def test_a_gate_that_stops_raises_in_each_thread_what_it_passes_on(gate):
    gate.hold({}, raises=True)
    with pytest.raises(KeyboardInterrupt):
        gate.arrive("all", 100)
    raised = []

    def pool():
        with pytest.raises(Stopped):
            gate.arrive("all", 100)
        raised.append(True)

    thread = threading.Thread(target=pool)
    thread.start()
    thread.join(5)
    assert raised == [True]


def test_a_thread_that_a_cell_left_behind_may_not_take_part(gate):
    gate.working = False
    with pytest.raises(DtkError, match="outside of a cell no other worker takes part in an all-reduce"):
        gate.arrive("all", 100)


# ---- the wire


def test_lines_arrive_whole_and_in_order(tmp_path):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    door = wire.listen(long / "door")  # longer than a socket's address may be
    caller = wire.Wire(wire.connect(long / "door"))
    link, _ = door.accept()
    other = wire.Wire(link)
    thread = threading.Thread(target=lambda: [caller.send({"k": k, "text": "y" * 100_000}) for k in range(20)])
    thread.start()
    assert [other.next(5)["k"] for _ in range(20)] == list(range(20))
    thread.join(5)
    assert other.next(0.01) is None
    caller.close()
    assert other.next(5) is None
    assert other.closed
    other.close()
    door.close()


# ---- what is said


def test_a_syntax_error_is_found_before_anything_is_sent():
    with pytest.raises(
        ClusterConfigError, match=r"line 2 \(`y = 1 \+`\): invalid syntax; the cell was sent to no worker"
    ):
        clusters.checked("x = 1\ny = 1 +")
    clusters.checked("%timeit x\n!ls\nawait f()")


@pytest.mark.parametrize(("name", "line"), [("workers", ""), ("worker", "1")])
def test_a_magic_without_a_cluster(name, line, monkeypatch):
    monkeypatch.setattr(clusters, "_open", None)
    with pytest.raises(ClusterConfigError) as error:
        clusters.run_magic(f"%%{name}", line, "pass")
    assert str(error.value) == "no cluster is open here: cluster = dtk.cluster(workers=2) makes one"


def test_what_is_no_number_of_a_worker(monkeypatch):
    monkeypatch.setattr(clusters, "_open", object())
    for line in ("all", ""):
        with pytest.raises(
            ClusterConfigError, match=f"%%worker {line}: numbers of workers go there, such as %%worker 1"
        ):
            clusters.run_magic("%%worker", line, "pass")


def test_a_look_from_another_thread_collects_no_garbage():
    """Below Python 3.12 a collection within `sys._current_frames` that ends a `threading.local` never ends."""
    code = """
import gc, threading
from dtk.interactive.barrier import Gate

def look():
    for _ in range(100):
        garbage = [threading.local()]
        garbage[0].x = garbage
        del garbage
        gate.place()

gate, over = Gate(), threading.Event()
for _ in range(100):
    threading.Thread(target=over.wait, daemon=True).start()
gc.collect()
gc.set_threshold(40, 1000, 1000)
thread = threading.Thread(target=look)
thread.start()
thread.join()
assert gc.isenabled()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
