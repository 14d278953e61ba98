"""Each check of `verify` passes at half its tolerance and fails at twice, with its own sentence and step."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fabricate import fabricate, losses

import dtk
from dtk import VerificationError, verify

STEPS = 20
START = [np.full((3, 2), 0.5, np.float32), np.zeros(2, np.float32)]
END = [np.full((3, 2), 0.75, np.float32), np.full(2, -0.25, np.float32)]


@pytest.fixture
def make(tmp_path):
    """make(**facts) -> Run: a cluster of 2, unless facts say otherwise; make(mode="single") is its baseline."""
    counter = iter(range(100))

    def make_run(mode="cluster", workers=None, final=END, **facts):
        workers = workers or (2 if mode == "cluster" else 1)
        facts = {"steps": STEPS, "initial": START, "replicas": 2 if mode == "mirrored" else 1, **facts}
        ends = final if final and isinstance(final[0], list) else [final] * workers
        return fabricate(tmp_path / str(next(counter)), mode=mode, workers=workers, final=ends, **facts)

    return make_run


def refused(*args, **tolerances) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify(*args, **tolerances)
    return caught.value


def edit_records(run, worker, change):
    """Rewrites a worker's records: change(rows) -> rows, a row being [replica, step, epoch, loss, examples, …]."""
    file = run.folder.worker(worker).path / "records.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))


def edit_events(run, worker, keep):
    file = run.folder.worker(worker).path / "events.jsonl"
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines() if keep(json.loads(line))))


def replaced(arrays, index, change):
    return [array + np.float32(change) * (i == index) for i, array in enumerate(arrays)]


def curve_of(workers, step=None, factor=1.0):
    """Equal shares, `(STEPS, workers)`, of the default losses; the global loss at `step` multiplied by factor."""
    curve = losses(STEPS)
    if step is not None:
        curve[step - 1] *= factor
    return np.repeat(curve[:, None] / workers, workers, axis=1)


# --- what it prints


def test_the_verdict_is_word_for_word(make, capsys):
    assert verify(make(), make("single")) is None
    assert capsys.readouterr().out.splitlines() == [
        "mode=cluster workers=2 replicas=2 global_batch=128 steps=20",
        "worker 0 (chief): 20 steps, exit 0",
        "worker 1: 20 steps, exit 0",
        "check replicas agree: PASS (20 steps)",
        "check loss vs single device: PASS (rtol=1e-4)",
        "check weights vs single device: PASS (atol=1e-4)",
    ]


def test_without_a_baseline_only_that_replicas_agree(make, capsys):
    verify(make(workers=4))
    assert capsys.readouterr().out.splitlines() == [
        "mode=cluster workers=4 replicas=4 global_batch=128 steps=20",
        "worker 0 (chief): 20 steps, exit 0",
        "worker 1: 20 steps, exit 0",
        "worker 2: 20 steps, exit 0",
        "worker 3: 20 steps, exit 0",
        "check replicas agree: PASS (20 steps)",
    ]


def test_mirrored_replicas_share_a_worker(make, capsys):
    verify(make("mirrored"), make("single"), rtol=1e-3, atol=2.5e-4)
    assert capsys.readouterr().out.splitlines() == [
        "mode=mirrored workers=1 replicas=2 global_batch=128 steps=20",
        "worker 0 (chief): 20 steps, exit 0",
        "check replicas agree: PASS (20 steps)",
        "check loss vs single device: PASS (rtol=1e-3)",
        "check weights vs single device: PASS (atol=2.5e-4)",
    ]


def test_one_replica_has_none_to_agree_with(make, capsys):
    verify(make("single"), make("single"))
    assert "replicas agree" not in capsys.readouterr().out
    verify(make(), make(workers=1))  # a cluster of one worker is a reference too
    assert "check weights vs single device: PASS" in capsys.readouterr().out


def test_a_check_that_failed_is_not_printed_as_passed(make, capsys):
    refused(make(shares=curve_of(2, step=7, factor=1.1)), make("single"))
    printed = capsys.readouterr().out
    assert "check replicas agree: PASS" in printed
    assert "vs single device" not in printed


# --- arguments


def test_arguments_swapped(make):
    error = refused(make("single"), make())
    assert "mode=cluster workers=2 replicas=2" in str(error)
    assert "swap them" in str(error)
    assert error.reason == "arguments"


def test_a_baseline_of_two_replicas(make):
    assert "make it with dtk.baseline(train)" in str(refused(make(), make("mirrored")))


def test_the_same_run_twice(make):
    run = make("single")
    assert "are the same run" in str(refused(run, run))


def test_one_replica_and_no_baseline(make):
    for run in (make("single"), make(workers=1)):
        assert "nothing to verify: the run has 1 replica" in str(refused(run))


@pytest.mark.parametrize("wrong", [3, "run", None, [1, 2], dtk.run_dir, dtk.Run])
def test_what_is_no_run(make, wrong):
    with pytest.raises(TypeError, match=r"verify compares what dtk\.run and dtk\.baseline return; `run` is"):
        verify(wrong)
    if wrong is not None:
        with pytest.raises(TypeError, match=r"`baseline` is .*: pass dtk\.baseline"):
            verify(make(), wrong)


@pytest.mark.parametrize("tolerance", [-1e-4, float("nan"), float("inf"), "1e-4", None])
def test_tolerances_are_numbers_from_0_up(make, tolerance):
    with pytest.raises(ValueError, match="rtol=.*finite number from 0 up"):
        verify(make(), make("single"), rtol=tolerance)
    with pytest.raises(ValueError, match="atol="):
        verify(make(), make("single"), atol=tolerance)


# --- records and steps


def test_no_records_at_all(make):
    for args in ([make(steps=0)], [make(steps=0), make("single", steps=0)]):
        error = refused(*args)
        assert "add dtk.Recorder() to the callbacks of fit" in str(error)
        assert error.reason == "records"


def test_records_in_one_only(make):
    assert "the baseline has records of 20 steps, the run has none" in str(refused(make(steps=0), make("single")))
    assert "the run has records of 20 steps, the baseline has none" in str(refused(make(), make("single", steps=0)))


def test_one_replica_recorded_nothing(make):
    run = make()
    edit_records(run, 1, lambda rows: [])
    assert "the cluster has 2 replicas, and replica 1 recorded nothing" in str(refused(run))


def test_a_replica_that_is_none(make):
    run = make()
    edit_records(run, 1, lambda rows: [*rows, [5, *rows[0][1:]]])
    assert "replica 5 recorded, but is none of them" in str(refused(run))


def test_a_step_is_missing(make):
    run = make()
    edit_records(run, 1, lambda rows: rows[:8] + rows[9:])
    error = refused(run, make("single"))
    assert "replica 1 has no step 9, but has step 20" in str(error)
    assert (error.step, error.reason) == (9, "records")


def test_a_step_is_recorded_twice(make):
    baseline = make("single")
    edit_records(baseline, 0, lambda rows: [*rows, rows[4]])
    error = refused(make(), baseline)
    assert "step 5 of replica 0 of the baseline is recorded more than once" in str(error)
    assert (error.step, error.reason) == (5, "records")


def test_a_worker_that_did_not_come_to_its_end(make):
    run = make()
    edit_events(run, 1, lambda event: event["state"] != "finished")
    assert "worker 1 of the cluster did not come to its end" in str(refused(run))


def test_workers_ran_different_numbers_of_steps(make):
    run = make(workers=4)
    edit_records(run, 2, lambda rows: rows[:-1])
    error = refused(run)
    assert "replica 0 (worker 0) ran 20 steps, replica 2 (worker 2) 19" in str(error)
    assert (error.step, error.reason) == (20, "steps")


def test_the_baseline_ran_twice_as_many_steps_of_half_the_examples(make):
    baseline = make("single", steps=40, examples=np.full((40, 1), 64))
    error = refused(make(), baseline)
    assert "baseline: 64 examples a step, cluster: 128 (40 steps against 20); pass the global batch" in str(error)
    assert (error.step, error.reason) == (1, "examples")


def test_the_baseline_ran_more_steps_of_the_same_size(make):
    error = refused(make(), make("single", steps=25))
    assert "baseline: 25 steps, cluster: 20, of 128 examples each" in str(error)
    assert (error.step, error.reason) == (21, "steps")


def test_examples_a_step_come_before_any_talk_of_losses(make):
    wrong = curve_of(1, step=1, factor=5.0)
    error = refused(make(), make("single", examples=np.full((STEPS, 1), 64), shares=wrong, seed=1))
    assert "baseline: 64 examples a step, cluster: 128; pass the global batch as an argument" in str(error)
    assert (error.step, error.reason) == (1, "examples")


def test_examples_are_off_by_one_at_one_step(make):
    examples = np.full((STEPS, 2), 64)
    examples[11, 1] = 63
    error = refused(make(examples=examples), make("single"))
    assert "step 12: baseline 128 examples, cluster 127 (64 on replica 0, 63 on replica 1)" in str(error)
    assert (error.step, error.reason) == (12, "examples")


# --- the start


def test_different_seeds(make):
    error = refused(make(seed=3), make("single", initial=replaced(START, 0, 1)))
    assert "baseline: seed 0, cluster: seed 3" in str(error)
    assert error.reason == "seeds"


def test_a_seed_left_to_the_function_is_judged_by_the_weights(make):
    verify(make(seed=None), make("single"))
    error = refused(make(seed=None), make("single", initial=replaced(START, 0, 1)))
    assert "(seeds: None and 0)" in str(error)


def test_initial_weights_differ(make):
    verify(make(), make("single", initial=replaced(START, 1, 0.5e-4)))
    error = refused(make(), make("single", initial=replaced(START, 1, 2e-4)))
    assert "start from different weights: w1 (array 1 of 2, shape (2,)) differs by up to 2e-4" in str(error)
    assert (error.step, error.reason) == (1, "initial weights")


def test_models_of_different_shape_or_size(make):
    wide = [np.full((3, 4), 0.5, np.float32), START[1]]
    error = refused(make(), make("single", initial=wide))
    assert "weight 0 (w0) has the shape (3, 4) in the baseline, (3, 2) in the cluster" in str(error)
    assert "1 weight arrays in the baseline, 2 in the cluster" in str(
        refused(make(), make("single", initial=START[:1]))
    )
    error = refused(make(), make("single", final=END[:1]))
    assert (error.reason, "the models differ" in str(error)) == ("final weights", True)


def test_layers_may_be_counted_differently(make):
    baseline = make("single")
    for which, arrays in (("initial", START), ("final", END)):
        baseline.folder.worker(0).save_weights(which, ["dense_7/kernel", "dense_7/bias"], arrays)
    verify(make(), baseline)


@pytest.mark.parametrize("which", ["initial", "final"])
@pytest.mark.parametrize("worker", [0, 1])
def test_weights_that_nothing_recorded(make, which, worker):
    run = make()
    (run.folder.worker(worker).path / f"weights-{which}.npz").unlink()
    error = refused(run, make("single"))
    assert f"nothing recorded the {which} weights of worker {worker}" in str(error)
    assert error.reason == f"{which} weights"


def test_weights_that_the_baseline_lacks(make):
    baseline = make("single")
    (baseline.folder.worker(0).path / "weights-final.npz").unlink()
    assert "nothing recorded the final weights of the baseline" in str(refused(make(), baseline))


# --- replicas


def test_one_worker_is_off_in_the_last_bit(make):
    other = [END[0].copy(), END[1]]
    other[0][2, 1] = np.nextafter(other[0][2, 1], np.float32(1))
    error = refused(make(workers=4, final=[END, END, other, END]))
    assert (
        "worker 0 and worker 2 hold different final weights: w0 (array 0 of 2, shape (3, 2)) differs by up to 6e-8"
        in str(error)
    )
    assert error.reason == "replicas"


def test_the_array_with_the_largest_difference_is_named(make):
    other = [END[0] + np.float32(1e-3), END[1] + np.float32(0.5)]
    assert "w1 (array 1 of 2, shape (2,)) differs by up to 5e-1" in str(refused(make(final=[END, other])))


def test_workers_start_from_different_weights(make):
    run = make()
    run.folder.worker(1).save_weights("initial", ["a", "b"], replaced(START, 0, 1e-6))
    assert "hold different initial weights: w0" in str(refused(run))


def test_workers_hold_different_models(make):
    assert "hold different models (2 and 1 weight arrays" in str(refused(make(final=[END, END[:1]])))


def test_replicas_of_one_worker_disagree(make):
    error = refused(make("mirrored", identical=False), make("single"))
    assert "the 2 replicas of the mirrored run hold different final weights, w0 among them" in str(error)
    assert error.reason == "replicas"


def test_replicas_of_one_worker_were_not_compared(make):
    error = refused(make("mirrored", identical=None))
    assert "nothing recorded whether they agree" in str(error)


# --- losses


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("step", [1, 13, STEPS])
def test_the_loss_at_one_step(make, workers, step):
    baseline = make("single")
    verify(make(workers=workers, shares=curve_of(workers, step, 1 + 0.5e-4)), baseline)
    for factor in (1 + 2e-4, 1 - 2e-4):
        error = refused(make(workers=workers, shares=curve_of(workers, step, factor)), baseline)
        assert f"the losses part at step {step}: both near" in str(error)
        assert "2e-4 of the baseline's apart, over rtol=1e-4" in str(error)
        assert (error.step, error.reason) == (step, "loss")


def test_a_doubled_loss_shows_its_numbers(make):
    error = refused(make(shares=curve_of(2) * 2), make("single"))
    assert "the losses part at step 1: baseline 2.3, cluster 4.6, 1 of the baseline's apart" in str(error)
    assert "mean over the global batch" in str(error)


def test_the_first_step_at_which_they_part_is_named(make):
    shares = curve_of(2)
    shares[5:] *= 1.01
    assert refused(make(shares=shares), make("single")).step == 6


def test_a_wider_tolerance_is_the_callers(make):
    shares = curve_of(2, 9, 1 + 2e-4)
    verify(make(shares=shares), make("single"), rtol=1e-3)


def test_a_loss_of_nearly_0_is_compared_to_float32s_rounding(make):
    tiny = np.full((STEPS, 1), 1e-6)
    verify(make(shares=np.full((STEPS, 2), 0.53e-6)), make("single", shares=tiny))
    assert refused(make(shares=np.full((STEPS, 2), 0.6e-6)), make("single", shares=tiny)).step == 1


@pytest.mark.parametrize(("value", "name"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_a_loss_that_is_no_number_in_both(make, value, name):
    shares, base = curve_of(2), curve_of(1)
    shares[10:] = base[10:] = value
    error = refused(make(shares=shares), make("single", shares=base))
    assert f"the loss is {name} from step 11 in both" in str(error)
    assert (error.step, error.reason) == (11, "loss")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_in_one(make, value):
    shares = curve_of(2)
    shares[3, 1] = value
    error = refused(make(shares=shares), make("single"))
    assert f"the loss at step 4 is not finite: baseline 2.02, cluster {value:g}" in str(error)
    assert error.step == 4


# --- the last batch


def short_batch(rng, counts, step=STEPS, size=128):
    """Shares as fit computes them, the baseline's loss, and both's examples; `counts` at `step`, even elsewhere."""
    replicas = len(counts)
    examples = np.full((STEPS, replicas), size // replicas)
    examples[step - 1] = counts
    shares, base = np.empty((STEPS, replicas)), np.empty((STEPS, 1))
    for i in range(STEPS):
        parts = [rng.random(n) + 0.2 for n in examples[i]]
        shares[i] = [part.mean() / replicas if len(part) else 0.0 for part in parts]
        base[i] = np.concatenate(parts).mean()
    return shares, base, examples


def uneven_pair(make, counts, step=STEPS, spoil=1.0, drift=1.0):
    """A cluster and a baseline; spoil multiplies the cluster's loss at `step`, drift all after it."""
    shares, base, examples = short_batch(np.random.default_rng(5), counts, step)
    shares[step - 1] *= spoil
    shares[step:] *= drift
    epochs = np.where(np.arange(STEPS) < step, 1, 2)
    mode, workers = ("cluster", len(counts))
    run = make(mode, workers=workers, shares=shares, examples=examples, epochs=epochs)
    return run, make("single", shares=base, examples=examples.sum(axis=1, keepdims=True), epochs=epochs)


def test_a_short_last_batch_that_splits_evenly_passes(make):
    verify(*uneven_pair(make, [3, 3]))
    verify(*uneven_pair(make, [1, 1, 1, 1], step=10))


def test_an_uneven_last_batch_is_explained(make):
    error = refused(*uneven_pair(make, [3, 2], step=15, drift=1.003))
    assert str(error) == (
        "step 15, the last batch of the epoch, has 5 examples: 3 on replica 0, 2 on replica 1; Keras fit averages the "
        "replicas' means, so that an example counts 1/6 where a replica has 3, 1/4 where a replica has 2, and 1/5 on "
        "one device (weighted by examples the losses agree); use drop_remainder=True, or a custom loop that divides by "
        "the global batch"
    )
    assert (error.step, error.reason) == (15, "uneven batch")


@pytest.mark.parametrize("counts", [[1, 0], [2, 1, 1, 1], [1, 1, 0, 0]])
def test_other_uneven_batches_are_explained(make, counts):
    error = refused(*uneven_pair(make, counts))
    assert (error.step, error.reason) == (STEPS, "uneven batch")


def test_a_replica_without_examples_whose_share_is_nan(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [1, 0])
    shares[-1, 1] = float("nan")
    baseline = make("single", shares=base, examples=examples.sum(axis=1, keepdims=True))
    assert refused(make(shares=shares, examples=examples), baseline).reason == "uneven batch"


def test_an_uneven_batch_within_the_tolerance_passes(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2])
    shares[-1] = base[-1] / 2
    verify(make(shares=shares, examples=examples), make("single", shares=base, examples=examples.sum(1, keepdims=True)))


@pytest.mark.parametrize("spoil", [1 + 2e-4, 2.0])
def test_a_wrong_loss_at_an_uneven_batch_is_not_explained_away(make, spoil):
    error = refused(*uneven_pair(make, [3, 2], step=15, spoil=spoil))
    assert (error.step, error.reason) == (15, "loss")
    assert "so that is not the reason, or not the only one" in str(error)


def test_a_wrong_loss_before_the_uneven_batch_is_not_explained_away(make):
    run, baseline = uneven_pair(make, [3, 2], step=15)
    edit_records(run, 0, lambda rows: [[*row[:3], row[3] * (1 + 0.01 * (row[1] == 8)), *row[4:]] for row in rows])
    error = refused(run, baseline)
    assert (error.step, error.reason) == (8, "loss")


def test_a_difference_after_an_uneven_batch_that_agreed_is_no_proof(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2], step=15)
    shares[14] = base[14] / 2
    shares[17:] *= 1.003
    baseline = make("single", shares=base, examples=examples.sum(axis=1, keepdims=True))
    error = refused(make(shares=shares, examples=examples), baseline)
    assert (error.step, error.reason) == (18, "loss")
    assert "step 15 had unequal batches (3 on replica 0, 2 on replica 1)" in str(error)


# --- the end


def test_one_final_weight(make):
    for change in (0.5e-4, -0.5e-4):
        verify(make(final=replaced(END, 1, change)), make("single"))
    for change in (2e-4, -2e-4):
        error = refused(make(final=replaced(END, 1, change)), make("single"))
        assert "the final weights differ: w1 (array 1 of 2, shape (2,)) differs by up to 2e-4, over atol=1e-4" in str(
            error
        )
        assert error.reason == "final weights"
    verify(make(final=replaced(END, 1, 2e-4)), make("single"), atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_final_weights_that_are_no_numbers(make, value):
    lost = replaced(END, 0, value)
    assert "holds NaN or infinite values in the cluster;" in str(refused(make(final=lost), make("single")))
    both = refused(make(final=lost), make("single", final=lost))
    assert "holds NaN or infinite values in the cluster and the baseline;" in str(both)


def test_no_sentence_has_a_pid_a_path_or_a_line_break(make):
    pairs = [(make(shares=curve_of(2) * 2), make("single")), (make(final=replaced(END, 0, 1)), make("single"))]
    for run, baseline in [*pairs, uneven_pair(make, [3, 2])]:
        message = str(refused(run, baseline))
        assert str(run.dir) not in message
        assert "\n" not in message
