"""`diagnose` on runs made of numbers: its answer, what was trained, what it does not know, and no false alarm."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from live_folder import tell
from verifying import END, STEPS, edit_events, edit_records, replaced, restarted, short_batch

import dtk
from dtk.proof import bisection
from dtk.proof.evidence import aside, collect
from dtk.proof.mistakes import MISTAKES
from dtk.proof.proof import Part, Steps
from dtk.records.events import Called, Finished, Loop, Optimizer, Scope, Traced, Updates

EITHER = "own mean", "whole batch"
ALL = "regularisation", "divided twice", *EITHER
ROOT = Path(__file__).parent.parent


# --- pairs of runs: right, but for what a test changes


def curve(rng, steps):
    """A falling loss with the ups and downs of batches."""
    return (0.2 + 2.2 * np.exp(-np.arange(steps) / 15)) * (1 + 0.05 * rng.standard_normal(steps))


OTHER = np.random.default_rng(1).normal(size=(STEPS, 1))  # fingerprints of the baseline's batches


def means(replicas, steps=STEPS):
    """Each replica's mean loss, `(steps, replicas)`; the baseline's loss is their mean."""
    rng = np.random.default_rng(3)
    return curve(rng, steps)[:, None] * (1 + 0.1 * rng.standard_normal((steps, replicas)))


def pair(make, replicas=2, change=lambda shares: shares, mode="cluster", **facts):
    """A run whose shares a test changes, and its right baseline, with 32 examples a step and the same fingerprints."""
    each = means(replicas)
    parts = np.repeat(OTHER / replicas, replicas, axis=1) + np.linspace(-0.5, 0.5, replicas)
    run = {"shares": change(each / replicas), "data": parts, "examples": np.full((STEPS, replicas), 32 // replicas)}
    base = {"shares": each.mean(axis=1, keepdims=True), "data": OTHER, "examples": np.full((STEPS, 1), 32)}
    given = facts.pop("baseline", {})
    shape = {"replicas": replicas} if mode == "mirrored" else {"workers": replicas}
    return make(mode, **{**run, **shape, **facts}), make("single", **{**base, **given})


def told(*runs, mistake, also=()):
    diagnosis = dtk.diagnose(*runs)
    assert diagnosis.mistake == mistake, str(diagnosis)
    assert diagnosis.also == also
    if mistake not in ("none", "unknown"):
        assert MISTAKES[mistake].remedy in str(diagnosis)
        assert diagnosis.evidence[0] == f"symptom: {MISTAKES[mistake].symptom}"
    return str(diagnosis)


def said(run, kind, /, **facts):
    """The run, whose workers each wrote one more event."""
    for corner in run.folder.each:
        tell(corner, kind(0.7, **facts))
    return run


def scoped(run, replicas, strategy="MultiWorkerMirroredStrategy"):
    """The run, whose model was made in such a scope."""
    return said(run, Loop, kind="loop", scope=Scope(strategy, replicas))


def other_losses(shares):
    return shares * (1 + 0.1 * np.random.default_rng(9).standard_normal((STEPS, 1)))


def later(factor):
    """Shares that differ from step 2 on."""
    return lambda shares: np.concatenate([shares[:1], shares[1:] * factor])


def prints(change):
    """Fingerprints of two replicas that add up to the baseline's, changed."""
    return change(np.repeat(OTHER / 2, 2, axis=1) + np.array([0.4, -0.4]))


# --- the answer itself


def test_where_verify_passes_there_is_nothing_to_diagnose_and_what_nothing_explains_is_unknown(make, capsys):
    diagnosis = dtk.diagnose(*pair(make))
    assert capsys.readouterr().out == ""
    assert diagnosis.mistake == "none"
    assert repr(diagnosis) == str(diagnosis) == diagnosis.sentence
    assert str(diagnosis) == ("nothing to diagnose (mode=cluster workers=2 replicas=2 global_batch=32 steps=20)")
    assert diagnosis.evidence[-1].startswith("check every step vs one device: PASS")
    told(make(), mistake="none")
    diagnosis = dtk.diagnose(*pair(make, change=later(0.9)))
    assert diagnosis.mistake == "unknown"
    assert "what would decide" in diagnosis.evidence[-1]


def test_wrong_arguments_are_no_diagnosis(make):
    with pytest.raises(dtk.VerificationError, match="swap them"):
        dtk.diagnose(make("single"), make())
    with pytest.raises(TypeError, match="pass dtk.run"):
        dtk.diagnose(3, make("single"))


# --- what was trained


def test_the_global_batch_the_steps_and_the_seeds(make):
    twice, half = (np.full((STEPS, 2), count) for count in (32, 8))
    assert "32 on one device, 2 times as many" in told(*pair(make, examples=twice), mistake="global batch")
    later = np.where(np.arange(STEPS)[:, None] < 9, 16, twice)  # a second training
    assert "step 10 has 64 examples" in told(*pair(make, examples=later), mistake="global batch")
    some = np.where(np.arange(STEPS)[:, None] % 10 < 9, 16, twice)  # one side drops a short batch
    assert "step 10: cluster 64 examples" in told(*pair(make, examples=some), mistake="steps")
    assert "1/2 of it" in told(*pair(make, examples=half), mistake="global batch")
    assert "25 steps" in told(make(), make("single", steps=25), mistake="steps")
    assert "seed 4" in told(*pair(make, seed=4), mistake="start")


def test_what_nothing_recorded(make):
    run = make()
    edit_records(run, 1, lambda rows: rows[:4] + rows[5:])
    assert "step 5 of replica 1 of the cluster is recorded 0 times" in told(run, make("single"), mistake="records")
    run = make()
    edit_records(run, 1, lambda rows: rows[:-1])
    told(run, make("single"), mistake="steps")
    run, baseline = pair(make)
    edit_events(run, 0, lambda event: not isinstance(event, Finished))
    told(run, baseline, mistake="records")


UNDECIDED = ("order", "other data", "augmentation", "not reproducible")  # by a single epoch
TWO_EPOCHS = np.repeat([1, 2], STEPS // 2)


def test_the_same_examples_in_another_order_and_epochs_of_other_lengths(make):
    swapped = prints(lambda data: data[np.r_[1:10, 0, 10:20]])
    runs = pair(make, change=other_losses, data=swapped, epochs=TWO_EPOCHS, baseline={"epochs": TWO_EPOCHS})
    assert "at 10 of 20 steps, first at step 1" in told(*runs, mistake="order")
    later = np.repeat([1, 2], (STEPS // 2 + 1, STEPS // 2 - 1))
    spoiled = prints(lambda data: data + (np.arange(STEPS) >= STEPS // 2)[:, None])
    runs = pair(make, data=spoiled, epochs=later, baseline={"epochs": TWO_EPOCHS})
    assert "step 11 is in epoch 1 in the cluster, in epoch 2 on one device" in told(*runs, mistake="steps")


def test_shards_that_overlap_or_are_sharded_twice(make):
    spoiled = prints(lambda data: data + 0.1 * np.arange(STEPS)[:, None])
    runs = pair(make, change=other_losses, data=spoiled)
    assert "shards overlap" in told(*runs, mistake="unknown", also=("worker order", *UNDECIDED))
    whole = np.r_[OTHER[:10], OTHER[1:10], OTHER[:1]]  # each epoch of the baseline has all examples
    facts = {"epochs": TWO_EPOCHS, "baseline": {"epochs": TWO_EPOCHS, "data": whole}}
    told(*pair(make, change=other_losses, data=spoiled, **facts), mistake="worker order", also=("other data",))
    steady = np.repeat(whole / 2, 2, axis=1) + np.array([0.4, -0.2])
    runs = pair(make, change=other_losses, data=steady, **facts)
    told(*runs, mistake="unknown", also=("worker order", "other data", "not reproducible"))
    facts = {"epochs": TWO_EPOCHS, "baseline": {"epochs": np.ones(STEPS, int)}}
    sentence = told(*pair(make, change=other_losses, data=spoiled, **facts), mistake="other data")
    assert "an epoch has 10 steps, on one device 20" in sentence


def test_a_restart_that_did_not_hold_the_place_in_the_data(make):
    spoiled = prints(lambda data: data + 0.1 * (np.arange(STEPS) >= 8)[:, None])
    run, baseline = pair(make, change=other_losses, data=spoiled)
    restarted(run, 9)
    sentence = told(run, baseline, mistake="other data")
    assert "first at step 9" in sentence
    assert "attempt 2 began there, and its checkpoint does not hold the place in the data" in sentence


def test_other_examples_in_one_process(make):
    spoiled = prints(lambda data: data + 1)
    told(*pair(make, mode="mirrored", change=other_losses, data=spoiled), mistake="unknown", also=UNDECIDED)
    whole = {"epochs": TWO_EPOCHS, "data": np.r_[OTHER[:10], OTHER[1:10], OTHER[:1]]}
    data = np.repeat(whole["data"] / 2, 2, axis=1) + np.array([0.4, -0.2])
    facts = {"epochs": TWO_EPOCHS, "data": data, "baseline": whole}
    told(*pair(make, mode="mirrored", change=other_losses, **facts), mistake="other data")


def test_sharding_switched_off(make):
    data = np.repeat(OTHER, 2, axis=1)
    assert "saw the same 16 examples" in told(*pair(make, change=other_losses, data=data), mistake="sharding off")
    # Data that are all alike are no evidence of it.
    alike = {"data": np.full((STEPS, 2), 16.0), "baseline": {"data": np.full((STEPS, 1), 32.0)}}
    told(*pair(make, change=lambda s: s * 2, **alike), mistake="local mean")
    twice = pair(make, examples=np.full((STEPS, 2), 32), **alike)
    told(*twice, mistake="unknown", also=("sharding off", "global batch"))


# --- ratios


@pytest.mark.parametrize(("replicas", "mode"), [(2, "cluster"), (4, "cluster"), (2, "mirrored"), (4, "mirrored")])
def test_ratios_of_the_loss(make, replicas, mode):
    n, runs = replicas, lambda factor: pair(make, replicas, lambda shares: shares * factor, mode)
    assert f"{n} times, the number of replicas" in told(*runs(n), mistake="local mean")
    assert f"1/{n}, divided by the {n} replicas once more" in told(*runs(1 / n), mistake="divided twice")
    assert "32 times, the number of examples" in told(*runs(32), mistake="not divided")
    assert "1/32: a mean was divided" in told(*runs(1 / 32), mistake="sum over batch size")
    assert f"1/{32 // n}: a mean was divided" in told(*runs(n / 32), mistake="sum over batch size")


@pytest.mark.parametrize(("factor", "words"), [(15, "15 times"), (3, "3 times"), (1 / 5, "1/5"), (1 / 15, "1/15")])
def test_the_axes_of_labels(make, factor, words):
    loop = {"kind": "loop", "shapes": [[3, 5, 1], [3, 5, 1]]}
    assert words in told(*pair(make, change=lambda s: s * factor, loop=loop), mistake="label axes")


def test_one_ratio_of_two_mistakes_names_both(make):
    loop = {"kind": "loop", "shapes": [[7], [2]]}
    sentence = told(*pair(make, change=lambda s: s * 2, loop=loop), mistake="local mean", also=("label axes",))
    assert "the same is seen with: label axes" in sentence


def test_a_local_mean_of_uneven_batches(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [70, 58], step=1)
    base = {"shares": base, "examples": examples.sum(axis=1, keepdims=True)}
    told(*pair(make, shares=shares * 2, examples=examples, data=shares * np.nan, baseline=base), mistake="local mean")


def test_a_short_batch_divided_by_the_full_one(make):
    examples = np.full((STEPS, 2), 16)
    examples[6] = 5
    change = np.where(np.arange(STEPS)[:, None] < 6, 1, 10 / 32)
    baseline = {"examples": examples.sum(1, keepdims=True)}
    runs = pair(make, change=lambda s: s * change, examples=examples, baseline=baseline)
    assert "step 7 has 10 examples, and its loss is 10/32" in told(*runs, mistake="short batch")


def test_the_average_of_unequal_batches(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2])
    baseline = {"shares": base, "examples": examples.sum(axis=1, keepdims=True)}
    told(*pair(make, shares=shares, examples=examples, baseline=baseline), mistake="uneven batch")


def test_a_reduced_value_and_a_loss_that_is_no_number(make):
    runs = pair(make, change=lambda s: np.repeat(s.sum(axis=1, keepdims=True), 2, axis=1))
    assert "all 2 replicas recorded the same loss" in told(*runs, mistake="reduced value")
    spoiled = np.where(np.arange(STEPS)[:, None] < 3, 1, np.nan)
    assert "step 4" in told(*pair(make, change=lambda shares: shares * spoiled), mistake="not finite")


@pytest.mark.parametrize(
    ("way", "times", "also"),
    [(1, 2, ()), (1, 2.9, EITHER), ((1, 1, -1, -1), 2, EITHER), (-1, None, ALL), ((1, -0.9, 0.9, -1), 2, EITHER[1:])],
)
def test_a_loss_that_a_replicas_part_does_not_add_up_to(make, monkeypatch, way, times, also):
    """way: to which side each replica's errs. times: by how much more with twice as many replicas; None: not known."""
    off = np.resize(way, (STEPS, 2)) * np.linspace(0.5, 0.9, STEPS)[:, None]
    runs, (other, _) = (pair(make, change=partial(np.add, off * more)) for more in (1, times or 1))
    sides = None, times and collect(other, "4 replicas")
    monkeypatch.setattr(bisection, "followed", lambda *_: SimpleNamespace(sides=sides))
    mistake = {(): "whole batch", EITHER[1:]: "own mean"}.get(also, "unknown")
    told(*(said(run, Called, draws=[]) for run in runs), mistake=mistake, also=also)


# --- the weights


def test_workers_that_drifted_apart(make):
    ends = [END, replaced(END, 1, 1e-3)]
    assert "hold different final weights: w1" in told(*pair(make, final=ends), mistake="set by hand")
    told(make(final=ends), mistake="set by hand")
    run, baseline = pair(make, final=ends)
    for side, rate in ((run, 0.2), (baseline, 0.1)):  # which grows with the replicas
        said(side, Traced, optimizer="sgd", clips=None, rate=rate)
    told(run, baseline, mistake="set by hand")
    told(scoped(run, 1, None), baseline, mistake="not in scope")
    said(run, Updates, optimizers=[Optimizer(name="sgd", variables=["w:0"], made=1, recorded=1)], models=1)
    lines = [f'{{"name": "{name}", "trainable": true}}\n' for name in ("w", "copy")]
    (run.folder.worker(0).path / "variables.jsonl").write_text("".join(lines))
    assert [aside(run.folder, [name]) for name in ("w", "copy")] == [False, True]  # a copy may be trainable


def test_a_small_difference_is_a_penalty_only_along_the_weights():
    along = [Part("w", 9, 1e-4, 2e-5, 1, 1 - 5e-9, (to, 0)) for to in (1e-4, 0)]
    assert [bisection.beside_a_penalty([each], 1) for each in along] == [True, False]


def test_longer_gradients_are_told_by_what_optimizers_keep_of_them():
    adagrad = {"w": 1.98, "adagrad/w_accumulator": 4.0}  # which is the sum of all squares
    by_hand = {"w": 1.0, "its mean": 0.5, "its square": 0.25}  # as Adam's
    for longer, times in ({"w": 2.0}, [2]), ({"w": 2.0, "b": 1.9}, []), (adagrad, [2]), (by_hand, [0.5]):
        parts = tuple(Part(name, 9, 1.0, 2e-5, each, 1.0) for name, each in longer.items())
        steps = Steps((1,), 1, False, parts, 0, {}, (), [(name, 9) for name in longer], ())
        assert [each for each in (2, 0.5, 4, 0.25) if bisection.scaled(steps, each)] == times
    one_of_several = SimpleNamespace(one=steps, steps=9, failed=SimpleNamespace(loss="a term", step=1))
    assert bisection.scaled_alike(one_of_several, 3)  # of which all gradients are no multiple


def test_a_batch_for_each_worker_that_trains_alone(make):
    data = np.random.default_rng(4).normal(size=(STEPS, 2))
    facts = {"examples": np.full((STEPS, 2), 32), "data": data, "change": other_losses}
    told(*pair(make, **facts), mistake="global batch")
    run, baseline = pair(make, **facts)
    told(scoped(run, 2), baseline, mistake="global batch")
    run, baseline = pair(make, **facts)
    sentence = told(scoped(run, 1, None), baseline, mistake="not in scope")
    assert "made under the default strategy" in sentence
    assert "step 1: cluster 64 examples" in sentence
    run, baseline = pair(make, **facts)
    told(said(run, Traced, optimizer="sgd", clips=None, alone=True), baseline, mistake="not in scope")


# --- false alarms, the document, and what a new mistake needs


def test_each_mistake_is_said_and_each_recognizer_is_asked():
    trees = {path.stem: ast.parse(path.read_text("utf-8")) for path in (ROOT / "dtk" / "proof").glob("*.py")}
    nodes = [node for name, tree in trees.items() for node in ast.walk(tree) if name != "mistakes"]
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    asked = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in nodes}
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and "look_at_" in node.name}
    assert len(defined) > 10
    unsaid, unasked = sorted({*MISTAKES} - words), sorted(defined - asked)
    assert not unsaid, f"dtk/proof: no recognizer answers found(key, ...), of mistakes.py, with {', '.join(unsaid)}"
    assert not unasked, f"{', '.join(unasked)}: give it a place in _DATA or _STEPS of diagnose.py"
