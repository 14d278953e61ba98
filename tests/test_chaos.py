"""Runs of a made-up machine by the thousand: whatever happens in whatever order, each ends, and as it should.

All that starts, reads, waits, names and restarts is dtk's; only the machine is made up (`chaotic`), with a clock of its
own. `SEQUENCES=20000 SEED=7 python -m pytest tests/test_chaos.py` draws others; a failure prints its Plan.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
from chaotic import Clock, Plan, World
from chaotic_members import FAILS, HANGS, LAG, LEAVES, PARTS, REAPED, Mishap
from hypothesis import strategies as st

from dtk import live, records, runs
from dtk.environment import scratch
from dtk.errors import DtkError, RunInterrupted, WorkerFailed, WorkerStalled
from dtk.launch import folders, launch
from dtk.records.events import Event, parse
from dtk.scaling.timing import fates
from dtk.watch import signs, waiting

SEQUENCES = int(os.environ.get("SEQUENCES", 400))
SEED = int(os.environ.get("SEED", 0))
STALL = 6.0  # s; TensorFlow gives up a member without heartbeats sooner
ASKED = 7.0  # s that it takes to ask all where they are, on a machine that sleeps meanwhile
KEPT = 5  # directories of runs
STAGES = ("starting", "running", "imported", "building", "training", "finished")
BY = {
    "raises": "raised ValueError",
    "exits": "exit code 4",
    "is killed": "SIGKILL",
    "is lost": "is lost",
    "has left": "returned",
}

mishaps = st.builds(Mishap, st.sampled_from(FAILS + HANGS + PARTS + LEAVES), st.integers(0, 2), st.integers(0, 2))
one_start = mishaps.map(lambda one: (one,)) | st.lists(mishaps, max_size=2).map(tuple)
plans = st.builds(
    Plan,
    workers=st.integers(1, 3),
    evaluator=st.sampled_from((False, False, True)),
    steps=st.integers(1, 2),
    starts=one_start.map(lambda one: (one,)) | st.lists(one_start, min_size=2, max_size=3).map(tuple),
    late=st.frozensets(st.integers(0, 2), max_size=1),
    ports_taken=st.sampled_from((0,) * 8 + (1, 2)),
    refused=st.sampled_from((False,) * 39 + (True,)),
    interrupts=st.sampled_from(((),) * 60 + (*((k,) for k in range(30)), *((k, k + 1) for k in range(30)))),
    parent_killed=st.sampled_from((None,) * 120 + (*range(30),)),
    looked_at=st.sampled_from((None,) * 190 + (*range(10),)),  # tables take their time
    looks=st.binary(min_size=20, max_size=20).map(lambda drawn: [*zip(drawn[::2], drawn[1::2], strict=True)]),
)


def written(path, name):
    """The whole lines of a member's file."""
    file = path / name
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


class View:
    """In the live view's place: it sees what a view sees, and holds it against what is true."""

    def __init__(self, world, read):
        self.world, self.reader = world, read
        self.heard = [[] for _ in read.folder.members]
        self.start, self.stages = 0, []
        read.following = self

    def take(self, member, news):
        self.heard[member].append(news)

    def update(self, lines):
        if self.start != self.world.opened:
            self.start, self.stages = self.world.opened, [0] * len(lines)
        for member, line in zip(self.world.members, lines, strict=False):
            word = str(line).split()[0].strip(",")
            assert word != "failed" or member.number in self.world.seen, "a healthy member is shown as failed"
            stage = 4 if word == "step" else STAGES.index(word) if word in STAGES else self.stages[member.number]
            assert stage >= self.stages[member.number], f"back from stage {self.stages} to {line}"
            self.stages[member.number] = stage

    def close(self, outcome, finished=False):
        """Nothing was lost, nothing doubled: neither here, nor in the starts that found a port taken."""
        self.reader.look()
        folder = self.reader.folder
        for number, member in enumerate(folder.members):
            places = [*sorted(folder.path.glob(f"port-taken-*-{folder.attempt}/{member.path.name}")), member.path]
            said = [parse(line) for place in places for line in written(place, "events.jsonl")]
            rows = [json.loads(line) for place in places for line in written(place, "records.jsonl")]
            heard = self.heard[number]
            assert sorted(map(str, said)) == sorted(str(each) for each in heard if isinstance(each, Event))
            assert rows == [list(each[1:]) for each in heard if not isinstance(each, Event)]


def look_in(folder):
    """What another kernel sees, at any moment: all that has been written whole."""
    run = runs.opened(folder.path)
    whole = sum(len(written(member.path, "records.jsonl")) for member in folder.each)
    assert len(run.folder.own_records) == whole
    assert len(run.records) >= whole
    waiting.load(folder)
    assert repr(run).endswith(">")
    assert all(repr(each).endswith(">") for each in run.attempts)
    assert len(run.evaluations) <= 1


def judge(world, outcome):
    """A result, or a culprit that is one."""
    right = culprits(world)
    if isinstance(outcome, WorkerFailed):
        named = world.plan.workers if outcome.worker == "evaluator" else outcome.worker
        assert named in right, f"{outcome}, but it was {world.failed or world.cut_off or world.silent}"
        how = world.failed.get(named, ("", "is given up"))[1]
        if named in world.left:
            how = "has left"
        words = next((words for begin, words in BY.items() if how.startswith(begin)), "")
        assert words in str(outcome) or world.plan.parent_killed is not None
    elif isinstance(outcome, WorkerStalled):
        since = min(world.seen.values(), default=world.clock.now)
        assert world.clock.now - since < ASKED, "a failure was there to be named"
        blamed = {whom for each in outcome.waits.values() for whom in each}
        workers = {k for k in world.hang if k < world.plan.workers}
        assert blamed <= workers | {*world.cut_off}
        if not workers | {*world.cut_off}:
            assert world.hang
            assert "the evaluator made no progress" in str(outcome)
        elif len(workers) < world.plan.workers and not world.cut_off and world.lives():
            assert blamed, f"nobody is named: {outcome}"
    elif isinstance(outcome, RunInterrupted):
        assert min(world.plan.interrupts) < world.look
    elif isinstance(outcome, DtkError):
        assert world.plan.refused
        assert "no further process can be started" in str(outcome)
    else:
        assert not world.failed
        assert outcome.results == list(range(world.plan.workers))
        assert outcome.attempts[-1].failed is None


def culprits(world):
    """Who may be named: who failed first as far as anybody can tell, or was given up by the others."""
    failed = {k: how for k, how in world.failed.items() if k in world.seen}
    first = min((at for at, _ in failed.values()), default=0.0)
    same = [how for at, how in failed.values() if at == first and how == "the same"]
    slack = REAPED + LAG * bool(world.plan.late)
    real = {k for k, (at, how) in failed.items() if at <= first + slack or how in same or how == "is lost"}
    given_up = {*world.cut_off, *world.silent, *world.left}
    return real | given_up | ({*range(world.plan.workers)} if 0 in world.cut_off else set())


@pytest.fixture
def play(monkeypatch):
    """play(plan): runs it; what became of it."""
    clock, stage = Clock(), SimpleNamespace()
    for module in (launch, runs, signs):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(live, "show", lambda *size, **words: View(stage.world, size[3]))
    monkeypatch.setattr(records, "_append", lambda *line: stage.world.append(*line))
    monkeypatch.setattr(folders, "KEPT_RUNS", KEPT)
    memory = Path("/dev/shm")  # where a file is opened in a fifth of the time
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        monkeypatch.setenv("DTK_SCRATCH", place)

        def one(plan):
            stage.world = World(plan, clock)
            return carried_out(stage.world)

        yield one


def carried_out(world):
    """What became of the run in that world, after all that must hold was looked at."""
    plan = world.plan
    world.others_look = lambda: look_in(world.folder)
    job = launch.RunJob(
        payload=b"",
        workers=plan.workers,
        replicas=1,
        mode="cluster",
        seed=0,
        keras=None,
        share=1,
        fork=False,
        timeout=None,
        stall_timeout=STALL,
        evaluator=b"" if plan.evaluator else None,
        restarts=len(plan.starts) - 1,
        place=world,
    )
    outcome: object
    try:
        outcome = runs.carry_out(job, world.clock.now)
    except (DtkError, RunInterrupted) as error:
        outcome = error
    assert not world.runs(), "a process outlives its run"
    judge(world, outcome)
    starts = world.folder.attempt
    assert [each.number for each in world.folder.attempts] == list(range(1, starts + 1))
    if plan.looked_at is not None:
        look_in(world.folder)
        assert {*fates(world.folder).attempt} <= {*range(1, starts + 1)}
    return outcome


@pytest.mark.timeout(60 + SEQUENCES)
def test_every_sequence_ends_with_a_result_or_a_named_culprit(play, pytestconfig):
    seen = Counter()

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=min(SEQUENCES, 20) if pytestconfig.getoption("--fast") else SEQUENCES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(plan=plans)
    def look(plan):
        seen[type(play(plan)).__name__] += 1

    look()
    print(seen)
    if not pytestconfig.getoption("--fast"):
        assert {*seen} >= {"Run", "WorkerFailed", "WorkerStalled", "RunInterrupted"}
    gc.collect()
    folders.fresh(1, False)  # makes room
    assert len([*(scratch() / "runs").iterdir()]) <= KEPT + 1


def test_a_short_standstill_is_no_reason_for_a_missed_heartbeat(play):
    """Found beside a busy machine: the kernel stood still for 3 s, and a machine that slept was blamed for a cut."""
    looks = [(0, 0)] * 8 + [(240, 0), (0, 16)]
    cut = Mishap("is cut off", 1, 0)
    error = play(Plan(2, False, 1, ((cut,),), frozenset(), 0, False, (), None, None, looks))
    assert error.worker == 1
    assert "TensorFlow heard no heartbeat of worker 1 any more" in str(error)


def test_a_worker_that_is_killed_when_its_function_has_returned_is_named(play):
    """Found by the first sequences that had it: the other was named, which raised what is said of a lost peer."""
    harm = Mishap("ends early and is killed", 0, 0)
    calm = [(0x60, 0xF0)] * 10
    plan = Plan(2, False, 1, ((harm,),), frozenset(), 0, False, (), None, None, calm)
    error = play(plan)
    words = "worker 0 was killed by SIGKILL after its function had returned, while others still needed it"
    assert (str(error), error.worker, error.exitcode, error.reason) == (words, 0, -9, "exited")
    assert "Worker 1 raised" in error.detail
    assert "(a consequence; in full in .logs[1])" in error.detail
