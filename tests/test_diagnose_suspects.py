"""`diagnose` on runs made of numbers, where step 1 differs in no known ratio: what is named, refuted, and left open."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from diagnosing import OTHER, means, other_losses, pair, prints, said, scoped, told, traced
from fabricate import updated
from verifying import END, STEPS, maker, refused

import dtk
from dtk import events
from dtk.compat.steps import targets
from dtk.records import Journal

DROPOUT = ["StatelessRandomUniformV2 at model/dropout"]


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


def test_draws_are_blamed_where_there_are_some(make):
    sentence = told(*traced(pair(make, change=other_losses), DROPOUT), mistake="random", also=("whole batch",))
    assert "StatelessRandomUniformV2 at model/dropout draws at random in the step" in sentence


def test_several_draws_are_named_by_their_layers(make):
    inside = "stateless_dropout/stateless_random_uniform/StatelessRandomUniformV2"
    names = [f"model/dropout/{inside}", f"model/dropout_1/{inside}", f"model/dropout/{inside}"]
    kinds = [(name, "StatelessRandomUniformV2") for name in names] + [("random_normal/RandomStandardNormal", "MatMul")]
    operations = [SimpleNamespace(name=name, type=kind) for name, kind in kinds]
    draws = targets.drawn(SimpleNamespace(get_operations=lambda: operations))
    assert draws == [f"StatelessRandomUniformV2 at model/{layer}" for layer in ("dropout", "dropout_1")]
    sentence = told(*traced(pair(make, change=other_losses), draws), mistake="random", also=("whole batch",))
    assert "at model/dropout, StatelessRandomUniformV2 at model/dropout_1 draw at random in the step" in sentence


def test_nothing_is_blamed_on_draws_that_there_are_not(make):
    assert "depends on the whole batch" in told(
        *traced(pair(make, change=other_losses)), mistake="unknown", also=("whole batch",)
    )


def test_unknown_draws_leave_two(make):
    sentence = told(*pair(make, change=other_losses), mistake="unknown", also=("random", "whole batch"))
    assert "one of these two: something draws at random" in sentence
    assert "both runs with nothing drawn at random and a run with another number of replicas would decide" in sentence
    assert "try_it=True" in sentence
    # One side's graph was seen, the other's not.
    run, baseline = pair(make, change=other_losses)
    told(traced([run])[0], baseline, mistake="unknown", also=("random", "whole batch"))


def test_a_word_in_the_function_is_no_evidence(make):
    run, baseline = traced(pair(make, change=other_losses))
    (run.dir / "function.pkl").write_bytes(b"...Dropout...")
    told(run, baseline, mistake="unknown", also=("whole batch",))


def test_a_part_of_the_loss_added_whole_or_a_whole_batch(make):
    """The excess is steady, so it is not drawn at random, whatever the graph holds."""
    for draws in ([], DROPOUT, None):
        runs = traced(pair(make, change=lambda s: s + 0.0834), draws)
        sentence = told(*runs, mistake="unknown", also=("regularisation", "whole batch"))
        assert "a run with another number of replicas would decide" in sentence


def test_a_smaller_loss_is_no_penaltys(make):
    told(*traced(pair(make, change=lambda s: s - 0.0834)), mistake="unknown", also=("whole batch",))


@pytest.mark.parametrize("kinds", [[True], [True, True], [False], [True, False]])
def test_a_synchronized_batch_norm_is_not_to_blame(make, kinds):
    run, baseline = traced(pair(make, change=other_losses), DROPOUT)
    layers = [
        ["BatchNormalization", f"bn_{i}", *([{"synchronized": True}] if one else [])] for i, one in enumerate(kinds)
    ]
    said(run, events.Loop, kind="fit", layers=[["Dense", "dense"], *layers])
    for corner in run.folder.each:
        for which in ("initial", "final"):
            corner.save_weights(which, ["kernel", "bn/moving_mean"], corner.weights(which).arrays)
    assert dtk.diagnose(run, baseline).mistake == ("random" if all(kinds) else "batch norm")


# --- small, from step 1 on


@pytest.mark.parametrize("failing", ["loss", "weights"])
def test_what_differs_from_step_1_on_is_no_rounding(make, failing):
    """6e-5 of the loss: 60 times what rounding is at most."""

    def offset(shares):
        shares = shares + 6e-5 * shares[0].sum() / 2
        return shares * (1 + 2e-4 * (np.arange(STEPS) > 12)[:, None]) if failing == "loss" else shares

    ends = END if failing == "loss" else [e + np.float32(2e-4) for e in END]
    runs = traced(pair(make, change=offset, final=ends))
    told(*runs, mistake="offset", also=("regularisation", "whole batch"))


def test_a_loss_of_nearly_0_is_rounded_by_more_than_its_size(make):
    tiny = 1e-6 * means(2)
    runs = pair(make, change=lambda s: 1e-6 * s + 2e-8, final=[e + np.float32(2e-4) for e in END])
    base = make("single", shares=tiny.mean(axis=1, keepdims=True), data=OTHER, examples=np.full((STEPS, 1), 32))
    assert dtk.diagnose(*traced([runs[0], base])).mistake != "offset"


def test_a_tiny_penalty_is_recognised(make):
    start = [np.random.default_rng(2).normal(size=(60, 50)).astype(np.float32), np.zeros(50, np.float32)]
    extra = 2.3e-8 * float((start[0] ** 2).sum())
    facts = {"initial": start, "final": start}
    base = {**facts, "shares": means(2).mean(axis=1, keepdims=True) + extra}
    late = 1 + 2e-4 * (np.arange(STEPS) > 12)[:, None]
    runs = pair(make, change=lambda s: (s + extra) * late, **facts, baseline=base)
    told(*traced(runs), mistake="offset", also=("regularisation", "whole batch"))  # too small to be measured well
    extra = 2e-6 * float((start[0] ** 2).sum())
    base = {**facts, "shares": means(2).mean(axis=1, keepdims=True) + extra}
    runs = pair(make, change=lambda s: s + extra, **facts, baseline=base)
    assert "2e-06 times the sum of squares of all kernels" in told(*runs, mistake="regularisation")


# --- the data


def test_fingerprints_of_constant_data_prove_nothing(make):
    alike = {"data": np.full((STEPS, 2), 8.0), "baseline": {"data": np.full((STEPS, 1), 16.0)}}
    diagnosis = dtk.diagnose(*traced(pair(make, change=other_losses, **alike)))
    assert diagnosis.mistake == "unknown"
    assert "other data" in diagnosis.also
    assert any("the fingerprints prove nothing" in fact for fact in diagnosis.evidence)


def test_one_batch_on_one_replica_is_no_constant_data(make):
    facts = {"steps": 1, "examples": np.full((1, 1), 32), "data": OTHER[:1], "shares": np.array([[2.0]])}
    run = make("cluster", workers=1, **facts)
    baseline = make("single", **{**facts, "shares": np.array([[1.0]])})
    assert any("the same at every step" in fact for fact in dtk.diagnose(run, baseline).evidence)


def test_augmentation(make):
    spoiled = prints(lambda data: data + 0.1 * np.arange(STEPS)[:, None])
    run, baseline = pair(make, change=other_losses, data=spoiled)
    said(run, events.Augments, draws=["RandomUniform"])
    sentence = told(run, baseline, mistake="augmentation", also=("worker order", "order"))
    assert "a map of the dataset draws at random (RandomUniform)" in sentence


def test_what_draws_by_a_seed_may_draw_by_the_examples_number(make):
    spoiled = prints(lambda data: data + 0.1 * np.arange(STEPS)[:, None])
    run, baseline = pair(make, change=other_losses, data=spoiled)
    said(run, events.Augments, draws=["StatelessRandomUniformV2"])
    known = ("worker order", "order", "other data", "augmentation", "not reproducible")
    told(run, baseline, mistake="unknown", also=known)


def test_a_baseline_whose_epochs_are_equal_has_no_map_that_changes_them(make):
    epochs = np.repeat([1, 2], STEPS // 2)
    whole = {"epochs": epochs, "data": np.r_[OTHER[:10], OTHER[1:10], OTHER[:1]]}
    spoiled = prints(lambda data: data + 0.1 * np.arange(STEPS)[:, None])
    run, baseline = pair(make, change=other_losses, data=spoiled, epochs=epochs, baseline=whole)
    said(run, events.Augments, draws=["RandomUniform at a map of validation data"])
    told(run, baseline, mistake="worker order")


def test_the_same_examples_over_an_epoch_are_an_order_though_a_map_draws(make):
    run, baseline = pair(make, change=other_losses, data=prints(lambda data: data[::-1]))
    said(run, events.Augments, draws=["StatelessRandomUniformV2"])
    told(run, baseline, mistake="order")


# --- what was recorded


def test_a_recorder_that_recorded_nothing(make):
    run = make(steps=0)
    sentence = told(run, make("single"), mistake="records")
    assert "fit began in the cluster with a dtk.Recorder" in sentence
    assert "its train function never called train_step" in sentence


def counting(run, *made, recorded=STEPS):
    """The run, whose workers each say how many updates they have made."""
    for corner, count in zip(run.folder.each, made, strict=True):
        journal = Journal(corner)
        journal.event(updated(2.0, "adam", count, min(count, recorded)))
        journal.close()
    return run


def test_updates_that_nobody_recorded(make):
    sentence = told(counting(make(), 30, 30), make("single"), mistake="unrecorded")
    assert "10 of the 30 updates that the cluster made were not recorded" in sentence
    told(make(), counting(make("single"), 30), mistake="unrecorded")


def test_other_updates_are_no_unrecorded_ones(make):
    assert "made other updates" in told(counting(make(), STEPS, 10), make("single"), mistake="steps")
    sentence = told(counting(make(), 40, 40, recorded=40), counting(make("single"), 20), mistake="steps")
    assert "baseline: 20 updates in 20 steps, cluster: 40" in sentence
    assert "nothing tells how many updates" in told(make(updates=False), make("single"), mistake="records")
    assert "the baseline has made" in told(make(), make("single", updates=False), mistake="records")


# --- what verify says to do


def test_the_remedy_of_verify_looks_at_fingerprints(make):
    same = refused(*pair(make, change=other_losses))
    assert "read the same examples, by their fingerprints, so check that the loss is a mean" in str(same)
    other = refused(*pair(make, change=other_losses, data=prints(lambda data: data + 1)))
    assert "read other examples, by their fingerprints" in str(other)
    nowhere = {"data": np.full((STEPS, 2), np.nan), "baseline": {"data": np.full((STEPS, 1), np.nan)}}
    assert "check that they are the same in the same order" in str(refused(*pair(make, change=other_losses, **nowhere)))


def test_the_remedy_of_verify_at_a_later_step(make):
    def part(factor, **facts):
        late = np.ones((STEPS, 1))
        late[9:] = factor
        return str(refused(*pair(make, change=lambda s: s * late, **facts)))

    assert "both read the same examples at step" not in part(1.005)
    assert "kink such as relu" in part(1.005)
    late = prints(lambda data: data + (np.arange(STEPS) >= 9)[:, None])
    assert "by their fingerprints they read other examples by step 10" in part(1.005, data=late)
    offset = str(refused(*pair(make, change=lambda s: s * (1 + 1e-5 * np.arange(5, 5 + STEPS)[:, None]))))
    assert "kink such as relu" not in offset
    assert "the losses of step 1 differ already, relative difference 5.0e-5 (0.0050 %)" in offset


def test_verify_does_not_send_one_to_the_scope_where_the_model_was_made_there(make):
    run = scoped(make(final=[END, [END[0], END[1] + 1]]), 2)
    assert "the model was made in the strategy's scope, so look for" in str(refused(run))


def test_verify_names_the_scope_where_each_worker_trains_a_whole_batch(make):
    run = scoped(make(examples=np.full((STEPS, 2), 128)), 1, None)
    error = refused(run, make("single"))
    assert "made under the default strategy, so that each worker trains by itself" in str(error)
