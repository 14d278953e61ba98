"""The parts of steps by time: the seconds that `step_parts` counts, where they were, without what is not known."""

from __future__ import annotations

import numpy as np
import pytest

from dtk.records import Journal, Record, RunFolder
from dtk.runs import Run
from dtk.scaling.parts import PARTS, Bins, Marks, Steps, seconds, step_parts
from dtk.scaling.timing import step_times

NAN = float("nan")
WIDTH = 0.25
BINS = Bins(0, 40, WIDTH)


def steps(*rows):
    return Steps(*(np.array(column) for column in zip(*rows, strict=True)))


def marks(*rows):
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    worker, kind, begin, end, size = (np.array(column) for column in columns)
    return Marks(worker.astype(int), kind == "reduce", *(each.astype(float) for each in (begin, end, size)))


def found(steps, marks, workers=2, whole=True, together=True):
    """By part, `(workers, bins)`."""
    table = seconds(steps, marks, BINS, np.full(workers, whole), together)
    assert table.shape == (workers, len(PARTS), BINS.number)
    return {part: table[:, k] for k, part in enumerate(PARTS)}


ONE = steps((0, 2, 2.0, 2.1, 3.0), (1, 2, 2.0, 2.1, 3.0))
OF_ONE = [
    (0, "take", NAN, 2.25, 0),
    (1, "take", NAN, 2.25, 0),
    (0, "reduce", 2.5, 2.9, 1000),
    (1, "reduce", 2.75, 2.9, 1000),
]


def test_each_part_lies_where_it_was():
    parts = found(ONE, marks(*OF_ONE))
    at = slice(8, 12)  # from 2.0 to 3.0
    assert parts["python"][0, at] == pytest.approx([0.1, 0, 0, 0])
    assert parts["input"][0, at] == pytest.approx([0.15, 0, 0, 0])
    assert parts["compute"][0, at] == pytest.approx([0, 0.25, 0, 0.1])
    assert parts["waiting"][0, at] == pytest.approx([0, 0, 0.25, 0])
    assert parts["all_reduce"][0, at] == pytest.approx([0, 0, 0, 0.15])
    assert parts["compute"][1, at] == pytest.approx([0, 0.25, 0.25, 0.1])
    assert parts["waiting"][1].sum() == 0
    assert sum(each.sum() for each in parts.values()) == pytest.approx(2.0)


def test_without_all_marks_the_rest_of_a_step_is_not_called_computing():
    parts = found(ONE, marks(), whole=False)
    assert parts["python"].sum() == pytest.approx(0.2)
    assert sum(each.sum() for part, each in parts.items() if part != "python") == 0


def test_an_all_reduce_that_another_worker_lacks_says_not_who_waited():
    parts = found(ONE, marks(*OF_ONE[:3]))
    assert all(each[0].sum() == 0 for each in parts.values()), "nothing is known of this step"
    assert parts["compute"][1].sum() == pytest.approx(0.75), "it took part in none"


def test_a_worker_alone_needs_no_other():
    alone = steps((0, 2, 2.0, 2.1, 3.0))
    parts = found(alone, marks((0, "take", 2.3, 2.4, 0), (0, "reduce", 2.5, 2.6, 8)), workers=1, together=False)
    for part, expected in {"python": 0.3, "input": 0.1, "all_reduce": 0.1, "waiting": 0, "compute": 0.5}.items():
        assert parts[part].sum() == pytest.approx(expected), part


def test_marks_outside_of_every_step_count_for_none():
    parts = found(ONE, marks(*OF_ONE, (0, "reduce", 1.0, 1.5, 1000), (1, "reduce", 3.1, 3.2, 1000)))
    assert parts["all_reduce"].sum() == pytest.approx(0.3)


def drawn(path, seed, workers, replicas, count=20):
    """A run with marks drawn at random: packs, small all-reduces, questions for data, overlaps, gaps between epochs."""
    chance = np.random.default_rng(seed)
    folder = RunFolder(path, workers)
    journals = [Journal(worker) for worker in folder.each]
    ended = 1.0
    for step in range(1, count + 1):
        ended += 0.4 * (step % 10 == 0)
        ended, lo = ended + chance.uniform(0.05, 0.3), ended
        length = ended - lo
        packs = chance.integers(0, 3)
        ends = np.sort(chance.uniform(0.6, 0.99, packs + 2)) * length + lo
        for worker, journal in enumerate(journals):
            own = ended - chance.uniform(0, 0.004)
            asked = NAN if chance.random() < 0.7 else lo + 0.1 * length
            journal.mark("take", asked, lo + chance.uniform(0.12, 0.3) * length, 0)
            journal.mark("reduce", lo + chance.uniform(0.1, 0.2) * length, lo + 0.25 * length, 8)
            for end, size in zip(ends, [*[40_000] * packs, 4, 4], strict=True):
                for _ in range(replicas):
                    journal.mark("reduce", end - chance.uniform(0, 0.3) * length, min(end, own), size)
            first = worker * replicas
            where = (step, 1 + step // 10, 0.5, 8, lo + 0.05 * length, own)
            journal.record([Record(worker, first + k, *where) for k in range(replicas)])
    return Run(folder, "cluster", replicas, 0, [None] * workers, ended)


@pytest.mark.parametrize(("workers", "replicas"), [(1, 1), (2, 1), (2, 2), (5, 1)])
@pytest.mark.parametrize("seed", range(2))
def test_it_counts_what_step_parts_counts(tmp_path, seed, workers, replicas):
    run = drawn(tmp_path / "run", seed, workers, replicas)
    table = step_times(run.records)
    table = table[table.step > table.groupby("worker").step.transform("min")]
    columns = (table.worker, table.step, table.ended - table.period, table.started, table.ended)
    rows = [(worker.worker, *mark) for worker in run.folder.each for mark in worker.marks]
    whole, bins = np.ones(workers, dtype=bool), Bins(0, 100, WIDTH)
    counted = seconds(Steps(*(column.to_numpy() for column in columns)), marks(*rows), bins, whole, workers > 1)
    said = step_parts(run).groupby("worker")[list(PARTS)].sum().to_numpy()
    assert counted.sum(axis=2) == pytest.approx(said, abs=1e-6)
    assert counted.sum(axis=1).max() <= WIDTH + 1e-6, "no bin holds more than its time"
