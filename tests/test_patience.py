"""How long a silence is none: said by the run's own steps, and not taken for one where this process was away."""

from __future__ import annotations

import pytest

from dtk.records import Journal, Record
from dtk.watch import signs
from dtk.watch.reader import Reader
from dtk.watch.signs import StallPolicy, Vitals
from dtk.watch.watch import Watch


@pytest.mark.parametrize(
    ("step_seconds", "quiet", "says"),
    [
        (0.005, 4.9, False),
        (0.005, 5.0, True),
        (0.2, 9.0, False),
        (0.2, 10.0, True),
        (2.0, 59.0, False),
        (None, 50, False),
    ],
    ids=["fast, not yet", "fast", "slower, not yet", "slower", "so slow that the end comes first", "steps unknown"],
)
def test_a_silence_is_said_by_how_long_steps_take(step_seconds, quiet, says):
    assert StallPolicy(60.0).warns(quiet, step_seconds) is says


def test_it_is_said_once_until_something_moves():
    patience = StallPolicy(60.0)
    assert [patience.warns(quiet, 0.005) for quiet in (6, 7, 20, 0.1, 3, 6)] == [True, False, False, False, False, True]


@pytest.mark.parametrize(
    ("timeout", "step_seconds", "limit"),
    [(60.0, None, 60.0), (60.0, 0.005, 60.0), (60.0, 70.0, 210.0), (None, 0.005, None)],
)
def test_minute_long_steps_are_no_stall(timeout, step_seconds, limit):
    assert StallPolicy(timeout).limit(step_seconds) == limit


def test_the_line_has_its_numbers():
    words = "nothing has moved for 6 s, where a step took {} at most: worker 0 waits{}"
    assert StallPolicy(60.0).warning(6.2, 0.0051, "worker 0 waits") == words.format(
        "5 ms", "; the run ends after 60 s of that"
    )
    assert StallPolicy(None).warning(6.2, 1.25, "worker 0 waits") == words.format("1,250 ms", "")


# ---- what is seen of workers


@pytest.fixture
def reader(folder):
    return Reader(folder)


def record(reader, worker, step, ended):
    Journal(reader.folder.each[worker]).record([Record(worker, worker, step, 1, 0.5, 8, ended - 0.001, ended)])
    reader.look()


class Source:
    def __init__(self):
        self.seen = Vitals(0.0, False, 0)
        self.started, self.exited = {"a": 11, "b": 12}, {}

    def vitals(self, key):
        return self.seen

    def ask(self, key): ...
    def poll(self, seconds): ...


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(signs, "time", found)
    return found


@pytest.fixture
def seen(reader, clock):
    source = Source()
    found = signs.Signs(Watch(reader.folder, 0.0), reader, source, ["a", "b"])

    def look(seconds, **vitals):
        source.seen = source.seen._replace(**vitals)
        clock.now += seconds
        found.look()
        return found.quiet_seconds(reader.folder.each)

    look(0)
    look.of = found
    return look


def test_a_machine_that_slept_is_no_silence(seen):
    seen(1.0)
    assert seen.of.slept == 0.0
    assert seen(3600.0) == pytest.approx(1.0 + signs._AWAY)
    assert seen.of.slept == 3600.0
    for _ in range(61):
        seen(1.0)
    assert seen.of.slept == 0.0, "what fails now has another reason"


def test_a_slow_disk_is_work_and_an_answer_to_us_is_not(seen):
    seen(1.0)
    assert seen(1.0, disk=60_000) == 2.0
    assert seen(1.0, disk=2_000_000) == 0.0
    assert seen(1.0, disk=2_060_000) == 1.0


def test_how_long_steps_take(reader, seen):
    def steps(first, *ends):
        for step, ended in enumerate(ends, first):
            for worker in (0, 1):
                record(reader, worker, step, ended + worker)
        return seen.of.step_seconds()

    assert steps(1, 9.0, 12.0, 12.1, 12.2) is None  # the first may take longer
    assert steps(5, 12.3, 12.4, 12.5) == pytest.approx(0.1)
    assert steps(8, 12.9) == pytest.approx(0.4)
