"""The evaluator beside the workers: its place, its end, and every way in which it or they can fail."""

from __future__ import annotations

import functools
import json
import os
import signal
import time

import pytest
from starting import mostly_warm

import dtk
from dtk.environment import here
from dtk.worker.progress import evaluated, evaluating

pytestmark = pytest.mark.trains


def write_checkpoints(count=3, last=0.0):
    """A chief that writes numbers to a file, as training writes checkpoints."""
    for number in range(1, count + 1):
        time.sleep(last if number == count else 0.05)
        if dtk.is_chief():
            with (dtk.run_dir() / "checkpoints.txt").open("a") as file:
                file.write(f"{number * 10}\n")
    return "trained"


def evaluate_them():
    """Looks first and asks afterwards, as `tf.train.checkpoints_iterator` does with its `timeout_fn`."""
    file, seen = dtk.run_dir() / "checkpoints.txt", 0
    while True:
        steps = [int(line) for line in file.read_text().split()] if file.exists() else []
        if len(steps) > seen:
            started = evaluating(here(), steps[seen])
            evaluated(here(), step=steps[seen], started=started, metrics={"accuracy": 1 - 1 / steps[seen]})
            seen += 1
        elif dtk.training_ended():
            return "evaluated", seen


def test_it_evaluates_to_the_last_checkpoint_and_ends(start):
    run = dtk.run(write_checkpoints, evaluator=evaluate_them, start=start)
    assert run.results == ["trained", "trained"]
    assert run.evaluator == ("evaluated", 3)
    table = run.evaluations
    assert list(table.columns) == ["step", "started", "ended", "accuracy"]
    assert table.step.tolist() == [10, 20, 30]
    assert table.accuracy.tolist() == [0.9, 0.95, 1 - 1 / 30]
    assert (table.started <= table.ended).all()
    assert len(run.logs) == len(run.tf_config) == run.workers == 2, "the evaluator is no worker"


def place():
    ended = dtk.training_ended()
    while not dtk.training_ended():
        pass
    config, mine = json.loads(os.environ["TF_CONFIG"]), here()
    print("the evaluator's place")
    return config, mine.role, mine.worker, dtk.is_chief(), str(mine.folder.path), os.environ["TMPDIR"], ended


def own_config():
    return json.loads(os.environ["TF_CONFIG"])


@mostly_warm
def test_its_place(start):
    run = dtk.run(own_config, evaluator=place, start=start)
    config, role, number, chief, folder, temporary, ended = run.evaluator
    assert config == run.tf_config.evaluator
    assert config["task"] == {"type": "evaluator", "index": 0}
    assert config["cluster"]["worker"] == run.tf_config[0]["cluster"]["worker"]
    assert len(set(config["cluster"]["worker"] + config["cluster"]["evaluator"])) == 3, "ports of their own"
    assert run.results == run.tf_config
    assert [list(config["cluster"]) for config in run.tf_config] == [["worker"]] * 2, "the workers don't know of it"
    assert (role, number, chief, ended) == ("evaluator", 2, False, False)
    assert folder == str(run.dir / "evaluator") == str(run.folder.evaluator.path)
    assert temporary == str(run.dir / "evaluator" / "tmp")
    assert "the evaluator's place" in run.evaluator_log
    assert run.evaluations.empty


def role_of_all(factor):
    return here().role, factor * here().worker


@mostly_warm
def test_true_runs_the_same_function_with_the_same_arguments(start):
    run = dtk.run(role_of_all, args=(2,), evaluator=True, start=start)
    assert run.results == [("worker", 0), ("worker", 2)]
    assert run.evaluator == ("evaluator", 4)


# ---- failures


def raise_it():
    print("a last line")
    raise ValueError("no such checkpoint")


def kill_it():
    os.kill(os.getpid(), signal.SIGKILL)


def sleep():
    time.sleep(60)


@mostly_warm
@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (raise_it, 1, "evaluator raised ValueError: no such checkpoint"),
        (kill_it, -9, "evaluator was killed by SIGKILL; the kernel's log or the memory limit may say why"),
    ],
)
def test_an_evaluator_that_fails_ends_the_run_and_is_named(start, end, code, words):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(sleep, evaluator=end, start=start)
    error = caught.value
    assert (str(error), error.worker, error.exitcode) == (words, "evaluator", code)
    assert len(error.logs) == 2
    if end is raise_it:
        assert "a last line" in error.evaluator_log
        assert "raise ValueError" in error.traceback
        assert error.detail.startswith("What the evaluator said:")


def evaluate_once_then_wait():
    evaluated(here(), step=5, started=here().now(), metrics={"loss": 2.0})
    (dtk.run_dir() / "evaluated").touch()
    while not dtk.training_ended():
        pass


def chief_raises_after_an_evaluation():
    while not (dtk.run_dir() / "evaluated").exists():
        time.sleep(0.02)
    if dtk.is_chief():
        raise ValueError("bad label 7")
    time.sleep(60)


@mostly_warm
def test_a_worker_that_fails_while_the_evaluator_waits(start):
    with pytest.raises(dtk.WorkerFailed, match="^worker 0 raised ValueError: bad label 7$") as caught:
        dtk.run(chief_raises_after_an_evaluation, evaluator=evaluate_once_then_wait, start=start)
    assert caught.value.worker == 0
    assert caught.value.evaluations.step.tolist() == [5], "what was evaluated until then stays readable"


def wait_for_a_file():
    while not (dtk.run_dir() / "never").exists():
        time.sleep(0.1)


@mostly_warm
def test_an_evaluator_without_end_is_a_stall_with_the_remedy(start):
    with pytest.raises(dtk.WorkerStalled, match="the evaluator made no progress for 1.5 s after the workers had") as e:
        dtk.run(write_checkpoints, evaluator=wait_for_a_file, stall_timeout=1.5, start=start)
    assert "timeout_fn=dtk.training_ended)" in str(e.value)
    assert "wait_for_a_file" in e.value.detail
    assert "evaluator: running" in e.value.detail
    assert "worker 1: finished" in e.value.detail


def busy(seconds=3.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return "done"


@pytest.mark.slow
def test_a_long_evaluation_and_a_long_wait_are_no_stalls(start):
    run = dtk.run(role_of_all, args=(1,), evaluator=busy, stall_timeout=1.2, start=start)
    assert run.evaluator == "done"
    assert dtk.run(busy, workers=1, evaluator=evaluate_them, stall_timeout=1.2, start=start).results == ["done"]


@mostly_warm
def test_a_busy_evaluator_does_not_hide_workers_that_stall(start):
    evaluator = functools.partial(busy, 60.0)
    with pytest.raises(dtk.WorkerStalled, match="no worker made progress for 1.2 s; .*, evaluator running"):
        dtk.run(sleep, evaluator=evaluator, stall_timeout=1.2, start=start)
