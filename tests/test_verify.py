"""What `verify` prints, what it refuses before it compares any loss, and how near losses have to be."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from fabricate import updated
from live_folder import tell
from verifying import END, STEPS, curve_of, edit_events, edit_records, refused, restarted, short_batch, uneven_pair

import dtk
from dtk import verify
from dtk.proof.proof import kept
from dtk.records.events import Finished, Updates

PROVED = "check every step vs one device: PASS (20 steps; same examples, same settings, same update)"


# --- what it prints


@pytest.mark.parametrize(("workers", "with_baseline"), [(2, True), (4, False)])  # False: its own function is followed
def test_the_verdict_is_word_for_word(make, capsys, workers, with_baseline):
    proof = verify(make(workers=workers), make("single") if with_baseline else None)
    assert proof.verdict == "one device"
    assert capsys.readouterr().out.splitlines() == [
        f"mode=cluster workers={workers} replicas={workers} global_batch=128 steps=20",
        "worker 0 (chief): 20 steps, exit 0",
        *(f"worker {k}: 20 steps, exit 0" for k in range(1, workers)),
        "check updates: PASS (20 of 20 updates recorded, 1 model)",
        "check replicas agree: PASS (20 steps)",
        PROVED,
    ]


def test_one_replica_has_none_to_agree_with(make, capsys):
    verify(make("single"), make("single"))
    assert "replicas agree" not in capsys.readouterr().out
    verify(make(), make(workers=1))  # a cluster of one worker is a reference too
    assert PROVED in capsys.readouterr().out


def test_updates_of_earlier_starts_are_not_counted(make, capsys):
    run = restarted(make(), 11)
    verify(counting(run, 10), make("single"))
    assert "check updates: PASS (10 of 10 updates recorded since attempt 2 began, 1 model)" in capsys.readouterr().out
    run = restarted(make(), 11)
    edit_records(run, 0, lambda rows: [])  # the training was complete before
    edit_records(run, 1, lambda rows: [])
    verify(counting(run, 0), make("single"))
    printed = capsys.readouterr().out
    assert "updates: none since attempt 2 began, 1 model; earlier starts are not counted" in printed
    assert "check updates: PASS" not in printed


def counting(run, made):
    """The run, whose workers say that the last start made so many updates, all of them recorded."""
    for corner in run.folder.each:
        tell(corner, updated(2.0, "sgd", made) if made else Updates(2.0, optimizers=[], models=1))
    return run


def test_a_check_that_failed_is_not_printed_as_passed(make, capsys):
    refused(make(shares=curve_of(2, step=7, factor=1.1)), make("single"))
    printed = capsys.readouterr().out
    assert "check replicas agree: PASS" in printed
    assert "vs one device" not in printed


# --- arguments


def test_arguments_swapped(make):
    error = refused(make("single"), make())
    assert "mode=cluster workers=2 replicas=2" in str(error)
    assert "swap them" in str(error)
    assert error.reason == "arguments"


def test_a_baseline_of_two_replicas(make):
    assert "make the baseline with dtk.baseline(train)" in str(refused(make(), make("mirrored")))


def test_the_same_run_twice(make):
    run = make("single")
    assert "are the same run" in str(refused(run, run))


def test_a_run_without_states(make):
    run = make()
    for corner in run.folder.each:
        (corner.path / "units.jsonl").unlink()
    error = refused(run, make("single"))
    assert (error.reason, error.proof.verdict) == ("not followed", "not followed")


@pytest.mark.parametrize("gone", ["run", "baseline"])
def test_a_run_whose_directory_is_gone(make, gone):
    pair = {"run": make(), "baseline": make("single")}
    shutil.rmtree(pair[gone].dir)
    error = refused(*pair.values())
    assert (error.reason, f"the directory of `{gone}` is gone" in str(error)) == ("arguments", True)


def test_different_seeds(make):
    error = refused(make(), make("single", seed=3))
    assert (error.reason, error.numbers) == ("seeds", {"baseline": 3, "run": 0})


@pytest.mark.parametrize("wrong", [3, "run", None, [1, 2], dtk.run_dir, dtk.Run])
def test_what_is_no_run(make, wrong):
    with pytest.raises(TypeError, match=r"verify compares what dtk\.run and dtk\.baseline return; `run` is"):
        verify(wrong)
    if wrong is not None:
        with pytest.raises(TypeError, match=r"`baseline` is .*: pass dtk\.baseline"):
            verify(make(), wrong)


@pytest.mark.parametrize("tolerance", ["rtol", "atol"])
def test_tolerances_are_said_to_have_no_effect(make, tolerance):
    with pytest.warns(DeprecationWarning, match="rtol and atol have no effect"):
        verify(make(), make("single"), **{tolerance: 1e-2})


def test_a_proof_is_kept_with_the_run(make):
    run = make(shares=curve_of(2, 9, 1.5))
    error = refused(run, make("single"))
    for proof in (error.proof, kept(run.dir)):
        assert (proof.verdict, proof.failed, len(proof.lines)) == ("failed", str(error), 5)


# --- records and steps


def test_no_records_at_all(make):
    run = make(steps=0)
    for corner in run.folder.each:
        (corner.path / "units.jsonl").unlink()
    error = refused(run)
    assert "has no records; add dtk.Recorder() to the callbacks of fit" in str(error)
    assert error.reason == "records"


def test_one_replica_recorded_nothing(make):
    run = make()
    edit_records(run, 1, lambda rows: [])
    assert "the cluster has 2 replicas, and its records are of the replicas 0; add" in str(refused(run))


@pytest.mark.parametrize("step", [1, 9])
def test_a_step_is_missing(make, step):
    run = make()
    edit_records(run, 1, lambda rows: [row for row in rows if row[1] != step])
    error = refused(run, make("single"))
    assert f"step {step} of replica 1 of the cluster is recorded 0 times, and its last is 20" in str(error)
    assert (error.step, error.reason) == (step, "records")


def test_a_step_is_recorded_twice(make):
    run = make()
    edit_records(run, 0, lambda rows: [*rows, rows[4]])
    error = refused(run)
    assert "step 5 of replica 0 of the cluster is recorded 2 times" in str(error)
    assert (error.step, error.reason) == (5, "records")


def test_a_worker_that_did_not_come_to_its_end(make):
    run = make()
    edit_events(run, 1, lambda event: not isinstance(event, Finished))
    assert "worker 1 of the cluster did not come to its end" in str(refused(run))


def test_workers_ran_different_numbers_of_steps(make):
    run = make(workers=4)
    edit_records(run, 2, lambda rows: rows[:-1])
    error = refused(run)
    assert "replica 0 (worker 0) ran 20 steps, replica 2 (worker 2) 19" in str(error)
    assert (error.step, error.reason) == (20, "steps")


def test_one_device_reads_fewer_examples(make):
    error = refused(make(), make("single", examples=np.full((STEPS, 1), 120)))
    assert (error.step, error.reason, error.numbers) == (1, "examples", {"baseline": 120, "run": 128})


def test_one_device_makes_more_steps(make):
    error = refused(make(), make("single", steps=25))
    assert (error.step, error.reason) == (21, "steps")


# --- the weights


def test_one_worker_is_off_in_the_last_bit(make):
    end = [array.copy() for array in END]
    end[0].reshape(-1)[3] = np.nextafter(end[0].reshape(-1)[3], np.float32(1))
    run = make(final=[END, end])
    error = refused(run)
    assert "worker 0 and worker 1 hold different final weights: w0" in str(error)
    assert error.reason == "replicas"
    variable = {"number": 0, "name": "w0", "identity": ["w0"], "kept": "by replica"}
    (run.folder.worker(0).path / "variables.jsonl").write_text(json.dumps(variable) + "\n")
    verify(run)  # of what each replica holds for itself, as gradients that it has gathered


# --- the losses of the steps: half the tolerance passes, twice as much fails; uneven batches are explained


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("step", [1, 13, STEPS])
def test_the_loss_at_one_step(make, workers, step):
    baseline = make("single")
    verify(make(workers=workers, shares=curve_of(workers, step, 1 + 0.5e-4)), baseline)
    for factor in (1 + 2e-4, 1 - 2e-4):
        error = refused(make(workers=workers, shares=curve_of(workers, step, factor)), baseline)
        assert "relative difference 0.00020 (0.020 %)" in str(error)
        assert (error.step, error.reason) == (step, "loss")


def test_a_doubled_loss_shows_its_numbers(make):
    error = refused(make(shares=curve_of(2) * 2), make("single"))
    assert "one device 2.3, cluster 4.6, relative difference 1.0 (100 %)" in str(error)
    assert error.numbers["run"] == pytest.approx(2 * error.numbers["baseline"])


def test_a_loss_of_nearly_0_is_compared_to_float32s_rounding(make):
    shares, base = curve_of(2) * 0 + 5e-8, np.full((STEPS, 1), 1.3e-7)
    verify(make(shares=shares), make("single", shares=base))
    assert refused(make(shares=shares), make("single", shares=base + 1e-6)).step == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("both", [True, False])
def test_a_loss_that_is_no_number(make, value, both):
    shares, base = curve_of(2), curve_of(1)
    shares[3:, 1] = value
    base[3:] = value if both else base[3:]
    error = refused(make(shares=shares), make("single", shares=base))
    assert "the loss at step 4 is not finite" in str(error)
    assert ("replica 1" in str(error), "replica 0" in str(error)) == (True, False)
    assert (error.step, error.reason) == (4, "loss")


def test_a_short_last_batch_that_splits_evenly_passes(make):
    verify(*uneven_pair(make, [8, 8]))


@pytest.mark.parametrize(("kind", "who"), [("fit", "Keras fit"), ("loop", "the loop")])
def test_an_uneven_last_batch_is_explained(make, kind, who):
    error = refused(*uneven_pair(make, [8, 7], kind=kind))
    assert error.reason == "uneven batch"
    assert f"has 15 examples: 8 on replica 0, 7 on replica 1; {who} averages the replicas' means" in str(error)


def test_a_wrong_loss_at_an_uneven_batch_is_not_explained_away(make):
    assert refused(*uneven_pair(make, [8, 7], spoil=1.2)).reason == "loss"


def test_the_second_uneven_batch_is_explained_where_the_first_agreed(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [8, 7])
    examples[4] = [60, 68]
    base[4] = (shares[4] * 2 * examples[4]).sum() / 128
    shares[4] = base[4] / 2  # the means are the same, so that it does not matter how many examples each has
    counts = examples.sum(axis=1, keepdims=True)
    error = refused(make(shares=shares, examples=examples), make("single", shares=base, examples=counts))
    assert (error.step, error.reason) == (STEPS, "uneven batch")
