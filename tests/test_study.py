"""Scaling studies: what is run, what comes of it, what fails. Mostly with steps of known times."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import dtk
from dtk.environment import here
from dtk.records import Record
from dtk.scaling import summary
from dtk.studies import study as studies
from dtk.studies.study import study_runs
from dtk.worker.progress import progress

STEPS = 6
PER_EXAMPLE = 0.001  # s
REDUCE, LATE = 0.004, 0.002  # s; worker 0 begins each all-reduce so much before the last


def steps(global_batch, only=None):
    """A step computes 1 ms an example, on more than two processes at once twice as long, and then reduces.

    only: (mode, workers) that raises.
    """
    place = here()
    if only == (place.mode, place.workers):
        raise ValueError("no luck")
    together = place.workers if place.mode == "cluster" else 1
    examples = global_batch // together
    compute = examples * PER_EXAMPLE * (2 if place.workers > 2 else 1)
    period = compute + (REDUCE + LATE) * (together > 1)
    state = progress(place)
    for i in range(STEPS):
        state.before_step()
        began, end = 1 + i * period, 1 + (i + 1) * period
        early = LATE * (place.worker == 0)
        if together > 1:
            place.journal.mark("reduce", end - REDUCE - early, end, 4000)
        place.journal.record([Record(place.worker, place.worker, i + 1, 1, 0.5, examples, began, end)])
        state.steps += 1


def silent(global_batch):
    """Records nothing."""


@pytest.fixture(autouse=True, scope="module")
def two_cores():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTK_LIVE", "off")
        patch.setattr(studies.environment, "cores", lambda: 2)
        yield


@pytest.fixture(scope="module")
def both():
    return dtk.study(steps, workers=[1, 2, 4], per_replica_batch=16, global_batch=64, repeats=1)


def row(study, scaling, workers):
    (found,) = study.summary.query(f"scaling == '{scaling}' and workers == {workers}").to_dict("records")
    return found


@pytest.mark.trains
def test_a_study_runs_cluster_ceiling_and_baseline(both):
    points = both.points
    assert not points.failed.any()
    runs = points.groupby(["kind", "workers", "global_batch"]).size()
    assert set(runs) == {1}
    assert set(runs.loc["baseline"].index) == {(1, 16), (1, 32), (1, 64)}
    assert set(runs.loc["ceiling"].index) == {(2, 32), (2, 64), (4, 64)}
    assert set(runs.loc["cluster"].index) == {(1, 16), (1, 64), (2, 32), (2, 64), (4, 64)}
    shared = points[(points.kind == "cluster") & (points.workers == 4)]
    assert set(shared.scaling) == {"strong, weak"}, "4 times 16 is 64: one run for both curves"


@pytest.mark.trains
def test_strong_scaling_is_measured_against_one_process_with_the_whole_batch(both):
    two, four = row(both, "strong", 2), row(both, "strong", 4)
    assert two["baseline"] == pytest.approx(1000)
    assert two["ceiling"] == pytest.approx(2000)
    assert two["measured"] == pytest.approx(64 / 0.038)
    assert (two["efficiency"], two["of_ceiling"]) == pytest.approx((0.032 / 0.038, 0.032 / 0.038))
    assert four["measured"] == pytest.approx(64 / 0.038)
    assert four["ceiling"] == pytest.approx(2000)
    assert (four["efficiency"], four["of_ceiling"]) == pytest.approx((0.016 / 0.038, 0.032 / 0.038))


@pytest.mark.trains
def test_the_gap_is_named_and_adds_up(both):
    two, four = row(both, "weak", 2), row(both, "weak", 4)
    assert (two["gap"], four["gap"]) == ("communication", "cores")
    assert two["communication"] == pytest.approx(0.004)
    assert two["stragglers"] == pytest.approx(0.001), "the median of a worker that waits 2 ms and one that does not"
    assert four["cores"] == pytest.approx(0.016)
    for each in (two, four):
        longer = each["global_batch"] / each["measured"] - each["global_batch"] / each["ideal"]
        assert sum(each[name] for name in summary.GAPS) == pytest.approx(longer)
        assert sum(summary.losses(each).values()) == pytest.approx(1 - each["efficiency"])


@pytest.mark.trains
def test_repeats_have_a_range():
    two = row(dtk.study(steps, workers=[2], global_batch=64, repeats=2), "strong", 2)
    assert two["measured_n"] == 2
    assert two["measured_min"] <= two["measured"] <= two["measured_max"]


def test_workers_without_communication_count_while_all_compute():
    from dtk.records.tables import frame

    rows = [(0, 0, s, 1, 0.5, 10, s, s + 1) for s in range(1, 9)]
    rows += [(1, 1, s, 1, 0.5, 10, 3 + 2 * s, 5 + 2 * s) for s in range(1, 9)]
    fast_alone = [(0, 0, 9, 1, 0.5, 10, 9, 9.1)]
    assert summary.apart(frame(rows + fast_alone)) == pytest.approx(10 / 1 + 10 / 2)
    assert np.isnan(summary.apart(frame([])))
    never_together = [(w, w, s, 1, 0.5, 10, s + 9 * w, s + 9 * w + 1) for w in (0, 1) for s in range(1, 9)]
    assert np.isnan(summary.apart(frame(never_together)))


@pytest.mark.trains
def test_a_failing_point_is_kept_and_the_rest_goes_on(capsys):
    fn = functools.partial(steps, only=("cluster", 2))
    study = dtk.study(fn, workers=[1, 2], per_replica_batch=4, repeats=1)
    points = study.points
    failed = points[points.failed != ""]
    assert list(failed.kind) == ["cluster"]
    assert failed.failed.item() == "worker 0 raised ValueError: no luck"
    assert np.isnan(failed.examples_per_second.item())
    assert np.isfinite(points[points.failed == ""].examples_per_second).all()
    two = row(study, "weak", 2)
    assert two["failed"] == "worker 0 raised ValueError: no luck"
    assert np.isfinite(two["ceiling"])
    assert "1 of 4 runs failed; the first: worker 0 raised ValueError: no luck" in capsys.readouterr().out
    assert repr(study) == "<Study steps workers=1,2 runs=4 failed=1>"


@pytest.mark.trains
def test_without_records_a_point_says_what_to_add():
    study = dtk.study(silent, workers=[1], global_batch=4, repeats=1)
    assert study.points.failed.str.contains("add dtk.Recorder").all()


def test_the_other_curve_starts_from_the_same_point():
    runs = study_runs([2, 4], None, 8, "both", 1)
    cluster = {(one.workers, one.global_batch, one.scaling) for one in runs if one.kind == "cluster"}
    assert cluster == {(2, 16, "strong, weak"), (4, 16, "strong"), (4, 32, "weak")}


@pytest.mark.trains
def test_threads_reach_the_workers():
    def seen(global_batch):
        import os

        names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
        raise ValueError(" ".join(str(os.environ.get(name)) for name in names))

    points = dtk.study(seen, workers=[1], global_batch=8, repeats=1).points
    assert points.failed.str.endswith("2 2 2").all(), points.failed.tolist()


# ---- with TensorFlow


def training(strategy, global_batch):
    from training import batches, classifier

    model = classifier(strategy)
    model.fit(batches(25 * global_batch, batch=global_batch), verbose=0, callbacks=[dtk.Recorder()])


@pytest.mark.slow
def test_a_study_of_a_fit():
    study = dtk.study(training, workers=[2], global_batch=64, repeats=1)
    points = study.points
    assert not points.failed.any(), points.failed.tolist()
    assert (points.examples_per_second > 0).all()
    assert (points[points.kind == "ceiling"].all_reduce == 0).all()
    assert (points[points.kind == "cluster"].all_reduce > 0).all()


# ---- studies and benchmarks that can't be: each is refused in one sentence, before anything starts


@pytest.mark.trains
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": [], "global_batch": 8}, "workers=[]: it takes a list of whole numbers"),
        ({"workers": [1]}, "neither global_batch nor per_replica_batch is given"),
        ({"global_batch": 10}, "global_batch=10 can't be divided equally among workers=4; take 12, or leave"),
        ({"global_batch": 8, "repeats": 0}, "repeats=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "scaling": "both ways"}, "scaling='both ways': it takes one of strong, weak, both"),
        ({"global_batch": 9, "workers": [2, 4], "scaling": "weak"}, "can't be divided equally among workers=2"),
        ({"fn": lambda size: None, "global_batch": 8}, "can't be called so: missing a required argument"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(asked, words, monkeypatch):
    monkeypatch.setattr(studies, "carry_out", lambda *job: pytest.fail("a run was started"))
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.study(**{"fn": steps, **asked})
    assert words in str(caught.value)


def test_on_colab_several_workers_have_to_be_forced(monkeypatch):
    monkeypatch.setattr(studies.environment, "on_colab", lambda: True)
    with pytest.raises(dtk.ClusterConfigError, match="force=True"):
        dtk.study(steps, workers=[1, 2], global_batch=8)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"sizes": [3]}, "sizes=3: it takes a whole number of at least 4"),
        ({"implementation": "MPI"}, "implementation='MPI': it takes one of AUTO, RING, NCCL"),
        ({"repeats": 0}, "repeats=0: it takes a whole number of at least 1"),
    ],
)
def test_a_benchmark_that_cannot_be_made_is_refused(asked, words):
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.benchmark_allreduce(**asked)
    assert words in str(caught.value)
