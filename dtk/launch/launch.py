"""From a job to worker processes and back: ports, start, the wait for the end, and the end itself."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk import environment, limits
from dtk.errors import ALONE, ClusterConfigError, RunTimeout, WorkerFailed, WorkerStalled, page
from dtk.language import ASKED, N_, _, language
from dtk.launch import folders, request
from dtk.launch.folders import on_free_ports
from dtk.launch.place import Machine, Place, Source, chief_config, tf_configs
from dtk.launch.warm import Localhost
from dtk.limits import refused_by_the_machine
from dtk.records import RunFolder, WorkerFolder
from dtk.watch import waiting
from dtk.watch.reader import Reader
from dtk.watch.signs import Signs, StallPolicy
from dtk.watch.waiting import Line, State, Waiting
from dtk.watch.watch import Watch, blame_of, error_of, is_settled
from dtk.worker import ship
from dtk.worker.process import WorkerSpec

if TYPE_CHECKING:
    from dtk.faults import Fault

_SAME_SECONDS = 1.0  # that others have to raise the same, where each comes from a machine of its own
# How many threads a worker computes with: TensorFlow's two pools, and OpenMP in other libraries.
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")

# Said once a kernel: there is nothing that the learner could do about it.
OPEN = N_("TensorFlow's servers listen on every address of this machine while a run lasts; see {page}")

Tick = Callable[[Sequence[Line]], None]
TFConfig = dict[str, Any]  # of one worker


@dataclass(frozen=True)
class RunJob:
    """What is to be run, checked and packed: nothing in it can be wrong in a way that is found only later."""

    payload: bytes
    workers: int
    share: int  # processes that the cores are divided among
    fork: bool
    replicas: int = 1
    mode: str = "cluster"
    seed: int | None = 0
    keras: int | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    evaluator: bytes | None = None  # what the evaluator calls, packed; None for a run without one
    faults: tuple[Fault, ...] = ()
    restarts: int = 0  # further starts of the cluster, each after a failure
    env: Mapping[str, str | None] = field(default_factory=dict)  # beyond the kernel's; None takes a variable away
    sources: Mapping[str, str] | None = None  # of cells; None: those of this process
    without: tuple[str, ...] = ()  # what is switched off in the workers (`dtk.compat.without`)
    follow: Mapping[str, Any] = field(default_factory=dict)  # the run whose steps are followed (`dtk.worker.follow`)
    states: bool = True  # each step's state is recorded, to be followed (`dtk.worker.states`)
    record: bool = False  # every Keras fit gets a Recorder
    program: str = ""  # the name of the program that is run in the place of a function
    gpus: tuple[str, ...] = ()  # what each worker sees of this machine's; (): all see all
    place: Place = field(default_factory=Localhost)


# What a run's directory keeps of its job, as JSON, to be run once more (`job_of`): all but what has a file of its own
# there, and what a further run does without; of that, the workers read the faults.
_KEPT_ELSEWHERE = ("payload", "evaluator", "sources", "faults", "restarts", "place")
AGAIN = tuple(each.name for each in fields(RunJob) if each.name not in _KEPT_ELSEWHERE)


@refused_by_the_machine()
def launch(job: RunJob, reader: Reader, clock: float, tick: Tick) -> list[TFConfig]:
    """Runs the job to its end and returns the TF_CONFIGs by member; raises WorkerFailed, WorkerStalled or RunTimeout.

    `tick` is called about ten times a second with each member's state; `reader` looks at the members' files more often.
    Whatever ends this call, an interrupt included, the workers are gone when it returns.
    """
    with folders.locked(reader.folder.path):
        return on_free_ports(reader.folder, lambda: _launched(job, reader, clock, tick))


def _launched(job: RunJob, reader: Reader, clock: float, tick: Tick) -> list[TFConfig]:
    folder = reader.folder
    source = job.place.open(job, folder, lambda: tick([Line.of("starting")] * len(folder.members)))
    configs, found = specs(job, folder, source, clock)
    members = Members(source, reader, found, clock)
    with members.running():
        _wait(members, job, clock, tick)
    return configs


def specs(job: RunJob, folder: RunFolder, source: Source, clock: float) -> tuple[list[TFConfig], list[WorkerSpec]]:
    """Each member's TF_CONFIG ([] where the job has no cluster), and what starts it."""
    members, beside = folder.members, job.evaluator is not None
    configs = tf_configs(source.addresses(len(members)), evaluator=beside) if job.mode == "cluster" else []
    of_each: list[TFConfig | None] = [*configs] if configs else [None] * len(members)
    machines = [source.machine(member.worker, folder, job.share) for member in members]
    return configs, [spec(job, *each, clock) for each in zip(machines, members, of_each, strict=True)]


def write_job(path: Path, job: RunJob) -> None:
    """Writes down what is to be run, for the workers and for `job_of`."""
    (path / "function.pkl").write_bytes(job.payload)
    if job.evaluator is not None:
        (path / "evaluator.pkl").write_bytes(job.evaluator)
    sources = ship.cell_sources() if job.sources is None else dict(job.sources)
    (path / "sources.json").write_text(json.dumps(sources))
    (path / "job.json").write_text(as_json(job))


def as_json(job: RunJob) -> str:
    """What job.json has of it."""
    faults = [asdict(fault) for fault in job.faults]
    return json.dumps({name: getattr(job, name) for name in AGAIN} | {"faults": faults})


@refused_by_the_machine()
def new_folder(job: RunJob) -> RunFolder:
    """A fresh directory with what the workers need to begin."""
    folder = folders.fresh(job.workers, job.evaluator is not None)
    write_job(folder.path, job)
    (folder.path / "versions.json").write_text(_versions())
    return folder


@functools.cache
def _versions() -> str:
    """Looked up once: packages that are replaced under a kernel are not what its workers have imported."""
    return json.dumps(environment.versions("tensorflow", "keras", "tf_keras"))


def spec(job: RunJob, machine: Machine, member: WorkerFolder, config: TFConfig | None, clock: float) -> WorkerSpec:
    """What starts one member on its machine."""
    env = {**_environment(job, machine, config), **request.gpu_environment(job.gpus, member.worker)}
    env["TMPDIR"] = str(machine.dir / member.path.name / "tmp")
    listen = None
    if config is not None and config["task"]["type"] != "evaluator":  # if that makes a server, it is for itself
        kind, index = config["task"]["type"], config["task"]["index"]
        listen = config["cluster"][kind][index].rpartition(":")[0]
    return {
        "dir": str(machine.dir),
        "worker": member.worker,
        "clock": clock + machine.ahead,
        # An evaluator that runs the workers' function is given a strategy of the workers' kind, of one replica.
        "alone": member.worker == job.workers and job.evaluator != job.payload,
        "env": env,
        "host": machine.host,
        "listen": listen,
        "core": None if machine.host else _own_core(job, member.worker, env),
        "cwd": machine.cwd,
        "sys_path": list(machine.sys_path),
        "again": False,
    }


def _environment(job: RunJob, machine: Machine, config: TFConfig | None) -> dict[str, str]:
    """The environment there without its TF_CONFIG and proxies, with a fair share of the cores."""
    env = environment.for_workers(machine.env)
    fair = str(max(1, machine.cores // machine.share))
    for name in THREADS:
        env.setdefault(name, fair)
    if fair == "1":  # a worker receives with eight threads otherwise, which one core only takes turns on
        env.setdefault("TF_GRPC_WORKER_CACHE_THREADS", "1")
        env.setdefault("TF_GRPC_WORKER_CACHE_QUEUES", "1")
    # TensorFlow takes a whole GPU at once, and leaves none of it to an evaluator or a second worker.
    env.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if config is not None:
        env["TF_CONFIG"] = json.dumps(config)
    if job.keras is not None:
        env["TF_USE_LEGACY_KERAS"] = "1" if job.keras == 2 else "0"
    # On another machine, or once the function has changed its directory, nothing else would tell it.
    env[ASKED] = language()
    return {name: value for name, value in {**env, **job.env}.items() if value is not None}


def _own_core(job: RunJob, worker: int, env: dict[str, str]) -> int | None:
    """The core that a worker keeps to, if any: not with `DTK_PIN=0`, and not with more threads than are fair."""
    if env.get("DTK_PIN") == "0" or env.get(THREADS[0]) != str(max(1, environment.cores() // job.share)):
        return None
    return limits.own_core(worker, job.share)


def _wait(members: Members, job: RunJob, clock: float, tick: Tick) -> None:
    folder, watch = members.folder, members.watch
    since, awaited = time.monotonic(), folder.each
    alone = False  # whether it was said that no strategy joins the workers
    policy = StallPolicy(job.stall_timeout)
    drawn = 0.0
    while True:
        members.look(0.03)
        now = time.monotonic()
        if now - drawn >= 0.1 or watch.finished:
            tick(waiting.board(members.signs.now()))
            drawn = now
        if not alone and any(heard.alone for heard in watch.heard):
            alone = True
            environment.say(_(ALONE, workers=job.workers))
        if any(heard.open for heard in watch.heard):
            environment.say(_(OPEN, page=page("guide/shared_machines.md")), once=True)
        if watch.failed:
            raise members.failure()
        if watch.finished:
            return
        if job.timeout is not None and now - clock > job.timeout:
            message = N_("the run was stopped after its timeout of {seconds:g} s; states: {states}")
            message = _(message, seconds=job.timeout, states=watch.words())
            stacks = members.signs.stacks(anew=True)
            members.explain()  # for a figure
            raise RunTimeout(message, folder, stacks, numbers={"timeout": job.timeout})
        if watch.training_ended and awaited == folder.each:
            since, awaited = now, [folder.evaluator]
        # An evaluator that looks for checkpoints is busy, and says nothing about workers that wait for each other.
        quiet = min(now - since, members.signs.quiet_seconds(awaited))
        pace = members.signs.step_seconds() if quiet > 1 else None
        limit = policy.limit(pace)
        if limit is not None and quiet > limit:
            raise _stall(members, limit)
        if policy.warns(quiet, pace):
            words = waiting.explain(members.workers()).sentence or watch.words()
            environment.say(policy.warning(quiet, pace, words))
        found = members.cut() or (members.uneven(limit) if limit is not None else None)
        if found is not None:
            waiting.save(folder, found)
            raise WorkerStalled(found.sentence, folder, members.signs.stacks(), found.reason, found.edges)


def _stall(members: Members, limit: float) -> WorkerStalled:
    watch, stacks = members.watch, members.signs.stacks(anew=True)
    found = members.explain()
    why = found.sentence or _("states: {states}", states=watch.words())
    what, remedy = _("no worker made progress for {seconds:g} s; {why}", seconds=limit, why=why), ""
    if watch.training_ended:
        what = _("the evaluator made no progress for {seconds:g} s after the workers had finished", seconds=limit)
        remedy = _(
            "let it end when dtk.training_ended() says so: "
            "tf.train.checkpoints_iterator(directory, timeout=1, timeout_fn=dtk.training_ended)"
        )
    numbers = {"seconds": limit}
    return WorkerStalled(what, members.folder, stacks, found.reason, found.edges, remedy=remedy, numbers=numbers)


KILL_SECONDS = 2.0
_CUT_SECONDS = 5.0  # of silence of all workers before their machines are asked, and between two times


class Members:
    """The processes of one attempt: the workers, then the evaluator where there is one."""

    def __init__(self, source: Source, reader: Reader, specs: list[WorkerSpec], clock: float):
        self.source, self.reader, self.specs = source, reader, specs
        self.folder = folder = reader.folder
        self._asked = 0.0
        self.keys = [f"{folder.path.name}-{time.monotonic_ns()}-{member.path.name}" for member in folder.members]
        self.watch = Watch(folder, clock, [spec["host"] for spec in specs])
        reader.begin(self.watch)
        self.signs = Signs(self.watch, reader, self.source, self.keys)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Starts them. Leaving the `with` block kills them and waits until they are gone, whatever happened."""
        begun = []  # keys of those that were asked for
        try:
            for key, spec in zip(self.keys, self.specs, strict=True):
                begun.append(key)
                self.source.start(key, spec)
            self.source.wait_started(self.keys)
            try:
                yield
            except KeyboardInterrupt:
                self.explain()  # where they were is a question of whoever interrupted them
                raise
        finally:
            if not self.source.kill_and_wait(begun, KILL_SECONDS):
                self.source.close()  # takes all its workers with it; the next run starts a new parent
            self.source.forget(self.keys)
            self.reader.watching = None

    def look(self, seconds: float) -> None:
        """Takes in what happened, waiting up to `seconds` for the end of a process."""
        self.source.poll(seconds)
        exits = self.source.ends(self.keys)
        self.watch.take_exits({k: exits[key] for k, key in enumerate(self.keys) if key in exits})
        for member, words in self.source.lost().items():
            self.watch.heard[member].lost = words
        self.reader.look()  # after the exits: what a process wrote before its end is then known
        self.signs.look()

    def explain(self) -> Waiting:
        """Who of the workers waits for whom, by what they answered last; also written to the run's directory."""
        found = waiting.explain(self.workers())
        waiting.save(self.folder, found)
        return found

    def uneven(self, stall_timeout: float) -> Waiting | None:
        """What to say of workers that wait for one that has ended and can't come any more; None where none does.

        Sooner than `stall_timeout`, and only of what can't be normal: every worker that has not ended is silent and
        sits in a collective (for longer, where that is not certain). A chief that saves, reads data, or computes
        alone after the others have ended does neither.
        """
        if not waiting.uneven(self.workers(), stall_timeout):
            return None
        self.signs.ask()  # where they are now, and not where they were when they fell silent
        states = self.workers()
        return waiting.explain(states) if waiting.uneven(states, stall_timeout) else None

    def cut(self, anew: bool = False) -> Waiting | None:
        """What to say of workers that can't reach each other any more; None where they can.

        Asked of the machines only where every worker is silent, or `anew`.
        """
        quiet = min(time.monotonic() - self._asked, self.signs.quiet_seconds(self.folder.each))
        if quiet < _CUT_SECONDS and not anew:
            return None
        self._asked = time.monotonic()
        found = self.source.cut()
        return waiting.cut(self.workers(), found, self.watch.hosts) if found else None

    def failure(self) -> WorkerFailed:
        """The error that names who failed first, or who made the others fail without failing itself."""
        now, grace = time.monotonic(), self.source.grace
        deadline, same = now + grace, now + min(grace / 2, _SAME_SECONDS)
        # A raise is written down before the process ends: wait for the exit code, for a cause behind a consequence,
        # and for the others to raise the same where it is a mistake in the function and not in one worker.
        while time.monotonic() < deadline and not is_settled(self.watch.failures(), time.monotonic() < same):
            self.look(0.02)
        self.reader.look()  # what they recorded in the moments before it failed
        self.signs.look(anew=True)
        states = self.workers()
        slept = 0.0 if any(self.watch.hosts) else self.signs.slept  # other machines did not sleep with this one
        found = blame_of(self.watch, states, slept, lambda: self.cut(anew=True))
        others = {failure.member for failure in self.watch.failures()} - {found.worker}
        marked = [replace(state, what="consequence") if state.member in others else state for state in states]
        graph = Waiting(marked, [], "order", found.words) if found.apart else waiting.explain(marked, found.worker)
        waiting.save(self.folder, graph)
        return error_of(self.watch, found)

    def workers(self) -> list[State]:
        """The workers' states; whom an evaluator waits for, no process shows."""
        return self.signs.now()[: self.folder.workers]


# ---- a run's job once more, from what its directory has of it: to run the same function again, or to follow it

_FOLLOWER_STALL = 60.0  # seconds without progress after which a follower ends


def folder_of(path: Path) -> RunFolder:
    """A run's directory as dtk reads it; ClusterConfigError where it is no run's."""
    try:
        return RunFolder.of(path)
    except (OSError, ValueError, LookupError, TypeError):
        words = N_("{folder} is no directory of a run: no job.json is there that can be read")
        raise ClusterConfigError(_(words, folder=path)) from None


def job_of(folder: RunFolder, changes: dict[str, Any], payload: bytes | None = None) -> RunJob:
    """The job of the run in `folder`, with changes; without its faults and restarts.

    payload: what is called, packed; None: what the directory has.

    Raises ClusterConfigError where the directory does not hold what it takes.
    """
    try:
        facts = folder.job
        payload = (folder.path / "function.pkl").read_bytes() if payload is None else payload
        sources = json.loads((folder.path / "sources.json").read_text())
        beside = (folder.path / "evaluator.pkl").read_bytes() if folder.has_evaluator else None
    except FileNotFoundError as error:
        words = N_("{folder} has no {file}: run it anew")
        raise ClusterConfigError(_(words, folder=folder.path, file=Path(error.filename).name)) from None
    known = {name: facts[name] for name in AGAIN if name in facts}  # of any version of dtk
    job = RunJob(payload=payload, evaluator=beside, sources=sources, **known)
    changed: dict[str, Any] = {**changes, "without": tuple(changes.get("without", job.without))}
    if job.share == job.workers:
        changed.setdefault("share", changes.get("workers", job.workers))
    return replace(job, **changed)


def whom(replicas: int, pipelines: int = 1) -> str:
    """What sentences call a follower with so many replicas, or input pipelines."""
    if pipelines > 1:
        return _("one device with {n} input pipelines", n=pipelines)
    return _("one device") if replicas == 1 else _("{n} replicas in one process", n=replicas)


def follower_of(
    run: RunFolder, source: RunFolder, replicas: int, levels: Mapping[int, float], how: Mapping[str, int], steps: int
) -> RunJob:
    """What a follower of `run` runs: the function of `source`, in one process with so many replicas.

    What was switched off in the run is switched off in its follower. how: "counts", how many replicas the function is
    told that there are, "cluster", how many workers its TF_CONFIG has, "pipelines", as how many workers it reads by,
    "each", with how many replicas each, "anew", whether it was followed like this before. steps: that it will make.
    """
    job = job_of(source, {"without": job_of(run, {}).without})
    env = dict(job.env)
    if job.program and job.mode == "cluster" and job.workers > 1:
        env.setdefault("TF_CONFIG", chief_config(job.workers))
    if "cluster" in how:
        env["TF_CONFIG"] = chief_config(how["cluster"])
    return replace(
        job,
        workers=1,
        replicas=replicas,
        mode="mirrored" if replicas > 1 else "single",
        share=1,
        env=env,
        evaluator=None,
        gpus=(),
        stall_timeout=_FOLLOWER_STALL,
        follow={
            "dir": str(run.path),
            "workers": run.workers,
            "levels": {str(number): level for number, level in levels.items()},
            **how,
            "title": _("each step again, by {whom}", whom=whom(replicas, how.get("pipelines", 1))),
            "steps": steps,
        },
    )
