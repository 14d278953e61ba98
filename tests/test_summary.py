"""A run in a few lines, equal lines of several workers as one, and the pages made of a run's directory."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from fabricate import fabricate
from verifying import edit_records

from dtk import cli
from dtk.live.text import Fold, label
from dtk.records import Journal, events
from dtk.scaling import summary


@pytest.fixture
def fold(now):
    return Fold(3, ["evaluator"])


def ready(fold, last=False):
    return [f"{label} {line}" for label, line in fold.ready(last)]


def test_lines_that_all_print_stand_once(fold):
    for member in range(4):
        fold.add(member, ["Epoch 1/2", "Epoch 2/2"])
    assert ready(fold) == ["[worker 0-2, evaluator] Epoch 1/2", "[worker 0-2, evaluator] Epoch 2/2"]


def test_a_line_waits_for_the_others_and_not_for_ever(fold, now):
    fold.add(1, ["hello"])
    assert ready(fold) == []
    fold.add(2, ["hello"])
    now[0] = 0.4
    assert ready(fold) == []
    now[0] = 0.6
    assert ready(fold) == ["[worker 1-2] hello"]
    fold.add(0, ["hello"])
    assert ready(fold) == []
    assert ready(fold, last=True) == ["[worker 0] hello"]


def test_nothing_is_lost_whatever_the_order():
    draw = np.random.default_rng(0)
    groups = {f"[worker {label(each)}]": each for n in (1, 2, 3) for each in combinations(range(3), n)}
    for _ in range(200):
        fold, given = Fold(3), [[str(n) for n in draw.integers(0, 3, draw.integers(0, 6))] for _ in range(3)]
        for member, lines in enumerate(given):
            fold.add(member, lines)
        got = [[], [], []]
        for line in ready(fold, last=True):
            head, words = line.rsplit(" ", 1)
            for member in groups[head]:
                got[member].append(words)
        assert got == given


@pytest.fixture
def run(tmp_path):
    made = fabricate(tmp_path, steps=20, step_seconds=0.02)
    asked = {"workers": 2, "replicas": 1, "mode": "cluster", "seed": 0, "program": "train.py"}
    (tmp_path / "job.json").write_text(json.dumps(asked))
    (tmp_path / "versions.json").write_text(json.dumps({"tensorflow": "2.21.0"}))
    made.folder.save_attempt(1, None, 0.0, 2.0)
    return made


def test_the_facts_are_the_records(run):
    found = summary.facts(run)
    assert (found["steps"], found["epochs"], found["global_batch"]) == (20, 1, 128)
    assert found["examples_per_second"] == pytest.approx(128 / 0.02)
    assert found["first_step_seconds"] == pytest.approx(1.018)
    assert found["first_loss"] == pytest.approx(2.3)
    assert [(row["steps"], row["examples"]) for row in summary.rows(run)] == [(20, 1280), (20, 1280)]
    assert [row["ended"] for row in summary.rows(run)] == ["finished", "finished"]


def test_the_table_is_aligned_and_says_where_the_rest_is(run, capsys):
    assert cli.main(["show", str(run.dir)]) == 0
    head, facts, *table, last = capsys.readouterr().out.splitlines()
    assert head == "train.py: cluster of 2 workers: finished in 2.0 s"
    assert facts == "20 steps in 1 epoch, global batch 128, loss 2.3 to 1.073, 6,400 examples/s, first step after 1.0 s"
    assert len({line.index(word) for line, word in zip(table[1:], ("finished", "finished"), strict=True)}) == 1
    assert last == f"logs and records: {run.dir}"
    assert cli.main(["show", "--json", str(run.dir)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["program"], found["steps"], found["members"][1]["examples"]) == ("train.py", 20, 1280)


def test_a_run_that_failed_is_shown_with_its_cause(run, capsys):
    edit_records(run, 1, lambda rows: rows[:5])
    Journal(run.folder.worker(1)).event(events.Failed(1.2))
    run.folder.save_attempt(1, "worker 1 raised ValueError: no such color", 0.0, 1.3)
    cli.main(["show", str(run.dir)])
    said = capsys.readouterr().out
    assert "cluster of 2 workers: worker 1 raised ValueError: no such color" in said
    assert "loss 2.3 to 1.937," in said, "of the last step that both recorded"


def test_a_directory_of_no_run_is_refused(tmp_path, capsys):
    for command in ("show", "report"):
        assert cli.main([command, str(tmp_path)]) == 1
        assert "is no directory of a run" in capsys.readouterr().err


def test_the_report_has_all_that_people_look_for(run, tmp_path, capsys):
    single = fabricate(tmp_path / "single", workers=1, mode="single", steps=20)
    asked = {"workers": 1, "replicas": 1, "mode": "single", "seed": 0}
    (tmp_path / "single" / "job.json").write_text(json.dumps(asked))
    out = tmp_path / "page.html"
    assert cli.main(["report", str(run.dir), "--baseline", str(single.dir), "--out", str(out)]) == 0
    page = out.read_text()
    for words in ("train.py: cluster of 2 workers", "20 steps in 1 epoch", "worker 0 speaking", "versions"):
        assert words in page
    assert "check replicas agree: PASS" in page
    assert page.count("<figure ") >= 4
    assert page.count("<img alt=") == page.count("<figure ")


@pytest.mark.slow  # TensorFlow in this process
def test_tensorboard_shows_each_replicas_loss_and_rate(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    run = fabricate(tmp_path / "run", workers=2, steps=4)
    read = EventAccumulator(str(run.to_tensorboard(tmp_path / "scalars") / "replica-1")).Reload()
    tags = read.Tags()["tensors"]
    shown = {tag: [float(make_ndarray(each.tensor_proto)) for each in read.Tensors(tag)] for tag in tags}
    assert shown["loss"] == pytest.approx(list(run.records[run.records.replica == 1].loss))
    assert shown["examples per second"][1:] == pytest.approx([3200.0] * 3)
    assert [each.step for each in read.Tensors("loss")] == [1, 2, 3, 4]
