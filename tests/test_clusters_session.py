"""A long session: forty cells, with errors, an interrupt and a killed worker among them, is proved on one device."""

from __future__ import annotations

import pytest
from staying import RECORDED, interrupt_after

import dtk
from dtk.errors import RunInterrupted
from dtk.interactive.clusters import CellFailed

pytestmark = [pytest.mark.trains, pytest.mark.slow]

FIT = "model.fit(x, y, epochs=1, batch_size=16, verbose=0, callbacks=[dtk.Recorder()], shuffle=False)\nNone"


def fails(cluster, code, words):
    with pytest.raises(CellFailed, match=words) as caught:
        cluster.run(code)
    return caught.value


def interrupted(cluster, code):
    timer = interrupt_after(1.0)
    try:
        with pytest.raises(RunInterrupted, match="stopped before the next all-reduce"):
            cluster.run(code)
    finally:
        timer.cancel()


def test_a_session_of_forty_cells_is_proved(capsys):
    with dtk.cluster(workers=2) as cluster:
        cluster.run(RECORDED)
        cluster.run("import os\nme = 0 if dtk.is_chief() else 1")
        for k in range(8):
            cluster.run(f"train({1 + k % 3})")
        fails(cluster, "train(2)\n1 / 0\ntrain(1)", "workers 0-1 raised ZeroDivisionError")
        for k in range(6):
            cluster.run(f"train({1 + k % 2})")
        one_sided = fails(
            cluster, "train(1)\nif me:\n    raise KeyError('label')\ntrain(1)", "worker 1 raised KeyError"
        )
        assert one_sided.waits == {0: [1]}
        cluster.run("train(1)", workers=[1])  # the rest, there
        for k in range(5):
            cluster.run(f"rate = 0.01 / {k + 1}\noptimizer.learning_rate.assign(rate)\ntrain(1)")
        fails(cluster, "if me:\n    1 / 0\nstrategy.reduce('sum', tf.constant(1.0), axis=None)", "ZeroDivision")
        assert "replicas are equal" in cluster.free()
        interrupted(cluster, "while True: train(1)")
        for _ in range(4):
            cluster.run("train(2)")
        fails(cluster, "if me: os.kill(os.getpid(), 9)\nNone", "worker 1 was killed by SIGKILL")
        assert "replicas are equal" in cluster.restart(1)
        cluster.run("batches = iter(data)  # the new worker's begins anew, so all do")
        for _ in range(4):
            cluster.run("train(1)")
        cluster.run("with strategy.scope():\n    model.compile(keras.optimizers.SGD(0.01), 'mse')")
        for _ in range(3):
            cluster.run(FIT)
        assert len(cluster._session.cells) >= 40
        run, baseline = cluster.so_far(), cluster.baseline()
    assert run.records.step.max() == baseline.records.step.max() > 45
    capsys.readouterr()
    dtk.verify(run, baseline)
    said = capsys.readouterr().out
    assert "check every step vs one device: PASS" in said
