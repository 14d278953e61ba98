"""Machines to practise on: each is this one, and they are lent, lost and replaced as others are."""

from __future__ import annotations

import base64
import signal

import psutil
import pytest

import dtk
from dtk.launch.messages import FilePart, Gone
from dtk.places import hosts
from dtk.places.machines import LentMachine


def train(strategy):
    import keras
    import tensorflow as tf

    (images, _), _ = dtk.datasets.load("mnist", source="embedded")
    batches = images.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).batch(128, drop_remainder=True).take(5)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss=loss)
    backup = keras.callbacks.BackupAndRestore(str(dtk.run_dir() / "backup"))
    model.fit(batches, epochs=3, callbacks=[backup, dtk.Recorder()], verbose=0)


@pytest.mark.slow  # lesson 12 has it, too
@pytest.mark.trains
def test_a_node_dies_another_takes_its_place_and_then_falls_silent():
    machines, baseline = dtk.places.Practice(3), dtk.baseline(train)
    try:
        lost = machines.power_off(worker=1, step=8)
        run = dtk.run(train, workers=2, on=machines, faults=[lost], restarts=1, timeout=240)
        first, second = run.attempts
        assert repr(first).startswith("<Attempt 1: steps 1 to 7, worker 1 on node-1 is lost with its machine")
        assert repr(second) == "<Attempt 2: steps 6 to 15, finished>", "it counts on, and begins with the chief's save"
        dtk.verify(run, baseline)
        silent = machines.fall_silent(worker=1, step=3)
        with pytest.raises(dtk.WorkerFailed, match="^worker 1 on node-2 has not been heard of for 10 s") as caught:
            dtk.run(train, workers=2, on=machines, faults=[silent], timeout=240)
        assert (caught.value.host, caught.value.reason) == ("node-2", "lost")
        with pytest.raises(dtk.ClusterConfigError, match="^2 processes on 1 practice machines, as 2 of 3 are lost"):
            dtk.run(train, workers=2, on=machines)
        here = psutil.Process().children(recursive=True)
        assert not [each for each in here if each.status() == psutil.STATUS_STOPPED], "what was stopped is ended"
    finally:
        machines.close()
    assert not [each for each in psutil.Process().children(recursive=True) if "agent" in each.cmdline()]


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
