"""Workers on other machines, one agent for each: the same to `dtk.launch` as the parent process is on this machine.

Machines that will not do are found before a worker starts.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import errno
import importlib.util
import itertools
import pickletools
import platform
import queue
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dtk import environment
from dtk.errors import ClusterConfigError, library_of
from dtk.language import N_, _
from dtk.launch import messages
from dtk.launch.agent import MODULES, write
from dtk.launch.messages import Message
from dtk.launch.place import Machine, Place, Source
from dtk.records import RunFolder
from dtk.watch.signs import Vitals
from dtk.watch.waiting import called
from dtk.worker import ship
from dtk.worker.process import WorkerSpec

if TYPE_CHECKING:
    from dtk.launch.launch import RunJob

START_SECONDS = 300.0  # for an agent to say what its machine is, and for workers to be started: TensorFlow's import
ANSWER_SECONDS = 30.0
LOST_SECONDS = 10.0  # without a message from an agent, which speaks four times a second
_ROUNDS = 5  # questions, of which the quickest tells how far two machines' clocks are apart
END_SECONDS = 60.0  # for what a function wrote into the run's directory to come back

# Called from a thread of the carrier's own with each message of the agent's, and at the last with Gone.
OnMessage = Callable[[Message], None]


class Carrier(Protocol):
    """Brings messages to one agent."""

    def send(self, message: Message) -> None:
        """Without waiting for an answer; does nothing where the agent is gone."""

    def close(self) -> None:
        """Ends the agent and whatever it has started."""


@dataclass
class LentMachine:
    """One machine, as an engine lends it for one worker.

    address: by which the other workers reach it. carrier: to its agent. name: of the machine, where the engine has one.
    """

    address: str
    carrier: Carrier
    name: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    ahead: float = 0.0  # its monotonic clock minus this machine's, in seconds
    gone: str = ""
    port: int = 0

    @property
    def host(self) -> str:
        """How people call it."""
        return self.name or str(self.facts.get("host") or self.address)


class Remote(Source):
    """Agents on other machines, one for each member of a run; they stay for further runs.

    place: what the engine is called in sentences. lend: called once with what takes the messages of each member's
    agent; it yields their machines. folder: of the first run.
    """

    grace = LOST_SECONDS + 2.0
    answer_seconds = START_SECONDS

    def __init__(self, place: str, lend: Callable[[Sequence[OnMessage]], Iterator[LentMachine]], folder: RunFolder):
        super().__init__()
        count = len(folder.members)
        self.place, self._folder = place, folder
        self._queue: queue.Queue[tuple[int, Message]] = queue.Queue()
        self._heard = [time.monotonic()] * count  # when each agent last said something, by this machine's clock
        self._polled = 0.0
        self._member: dict[str, int] = {}
        self._answers: dict[int, messages.Answer] = {}
        self._numbers = itertools.count(1)
        self._newest: dict[int, messages.VitalSigns] = {}  # of each agent: nobody may look at them for hours
        self._files: dict[str, str] = {}  # of the run, for each agent
        self.lent = [*lend([partial(self._hear, member) for member in range(count)])]

    def _hear(self, member: int, message: Message) -> None:
        now = self._heard[member] = time.monotonic()
        if isinstance(message, messages.VitalSigns):
            self._newest[member] = message
            return
        if isinstance(message, messages.Answer):
            message = message._replace(arrived=now)
        self._queue.put((member, message))

    # ---- before a start of the cluster

    def prepare(self, folder: RunFolder, tick: Callable[[], None], shared: bool) -> None:
        """Looks at the machines before a start of the run in `folder`; ClusterConfigError names one that won't do.

        shared: whether they must see one directory, as a restart does that begins where another machine has stopped.
        """
        self._folder, self._files = folder, files_to_send(folder.path)
        if not self.lent[0].facts:
            for lent, answer in zip(self.lent, self._ask_all("facts", tick, START_SECONDS), strict=True):
                lent.facts = answer.found
            check_versions(self.lent)
            self._measure_clocks(tick)
        for lent, answer in zip(self.lent, self._ask_all("reserve", tick), strict=True):
            lent.port = answer.found["port"]
        self._check_reach(tick)
        if shared:
            self._check_storage(tick)

    def _measure_clocks(self, tick: Callable[[], None]) -> None:
        """Finds how far each machine's clock is ahead of this one's, by the quickest of some questions."""
        for k, lent in enumerate(self.lent):
            found = []
            for _round in range(_ROUNDS):
                asked = time.monotonic()
                answer = self._answer(k, self._send(k, "facts"), tick)
                found.append((answer.arrived - asked, answer.found["at"] - (asked + answer.arrived) / 2))
            lent.ahead = min(found)[1]

    def _check_reach(self, tick: Callable[[], None]) -> None:
        """Each worker's port, from each machine."""
        addresses = self.addresses(len(self.lent))
        for worker, answer in enumerate(self._ask_all("reach", tick, addresses=addresses)):
            for address, (_number, why) in answer.found["failed"].items():
                other = addresses.index(address)
                words = N_("{one} can't reach {other} at {address}, a port that is open there ({why})")
                names = {"one": _name_of(self.lent[worker], worker), "other": _name_of(self.lent[other], other)}
                what = _(words, address=self.lent[other].address, why=why.lower(), **names)
                raise ClusterConfigError(what, remedy=_("TensorFlow needs every port above 1023 open between workers"))

    def _check_storage(self, tick: Callable[[], None]) -> None:
        """One directory that each machine sees: the first makes a file there, which the others have to find."""
        name = f"{self._folder.path.name}/.shared"
        for k, lent in enumerate(self.lent):
            if not self._answer(k, self._send(k, "shares", name=name, touch=k == 0), tick).found["found"]:
                words = N_(
                    "restarts= or evaluator= on {place}: {one} and {other} have no directory in common, where one "
                    "would find what another has saved"
                )
                what = _(words, place=self.place, one=self.lent[0].host, other=lent.host)
                raise ClusterConfigError(what, remedy=_("pass storage=, a directory that all machines share"))

    def _send(self, member: int, what: str, **more: Any) -> int:
        number = next(self._numbers)
        self.lent[member].carrier.send(messages.Query(number, what, more))
        return number

    def _ask_all(
        self, what: str, tick: Callable[[], None], seconds: float = ANSWER_SECONDS, **more: Any
    ) -> list[messages.Answer]:
        """Each agent's answer."""
        numbers = [self._send(k, what, **more) for k in range(len(self.lent))]
        return [self._answer(k, number, tick, seconds) for k, number in enumerate(numbers)]

    def _answer(
        self, member: int, number: int, tick: Callable[[], None], seconds: float = ANSWER_SECONDS
    ) -> messages.Answer:
        deadline, lent = time.monotonic() + seconds, self.lent[member]
        while number not in self._answers:
            self.poll(0.1)
            tick()
            who = _name_of(lent, member, self._folder.members[member].name)
            if lent.gone:
                raise ClusterConfigError(_("{worker}: dtk's agent did not start: {why}", worker=who, why=lent.gone))
            if time.monotonic() > deadline:
                words = N_("{worker}: dtk's agent has not answered for {seconds:g} s")
                raise ClusterConfigError(_(words, worker=who, seconds=seconds))
        return self._answers.pop(number)

    def addresses(self, count: int) -> list[str]:
        return [f"{lent.address}:{lent.port}" for lent in self.lent[:count]]

    def machine(self, member: int, folder: RunFolder, share: int) -> Machine:
        lent = self.lent[member]
        share = sum(other.facts["machine"] == lent.facts["machine"] for other in self.lent)
        root = Path(lent.facts["root"]) / folder.path.name
        return Machine(lent.host, lent.facts["env"], lent.facts["cores"], share, root, lent.ahead)

    def lost(self) -> dict[int, str]:
        """Members whose agent is gone, or has not been heard of for 10 s."""
        now = time.monotonic()
        found = {}
        for member, (lent, heard) in enumerate(zip(self.lent, self._heard, strict=True)):
            if lent.gone:
                found[member] = _("is lost with its machine, or dtk's agent there: {why}", why=lent.gone)
            elif now - heard > LOST_SECONDS:
                words = N_("has not been heard of for {seconds:g} s: its machine is down, or the network to it is cut")
                found[member] = _(words, seconds=LOST_SECONDS)
        return found

    def cut(self) -> list[tuple[int, int, str]]:
        # An evaluator, the last member, has no server that others need.
        lost, addresses = self.lost(), self.addresses(self._folder.workers)
        running = [self._member[key] for key in self.started if key not in self.exited]
        by_address = {addresses[member]: member for member in running if member < len(addresses)}
        numbers = {k: self._send(k, "reach", addresses=[*by_address]) for k in by_address.values() if k not in lost}
        found = []
        for member, number in numbers.items():
            with contextlib.suppress(ClusterConfigError):  # lost in this moment
                answer = self._answer(member, number, partial(self._still_there, member))
                for address, (error, words) in answer.found["failed"].items():
                    # Refused: the machine is reached, and its worker has no server, or no more; its agent says why.
                    if error != errno.ECONNREFUSED and by_address[address] != member:
                        found.append((member, by_address[address], words))
        return found

    def _still_there(self, member: int) -> None:
        if member in self.lost():
            raise ClusterConfigError

    # ---- what `dtk.launch.launch` asks for

    def start(self, key: str, spec: WorkerSpec) -> None:
        member = self._member[key] = spec["worker"]
        # It sees nothing of the starts before.
        self.lent[member].carrier.send(messages.Start(key, spec, self._files, self._folder.attempt))

    def poll(self, timeout: float) -> None:
        now = time.monotonic()
        if now - self._polled > LOST_SECONDS / 2:  # this process was away, or had no run: what came has yet to be heard
            self._heard = [now] * len(self._heard)
        self._polled = now
        with contextlib.suppress(queue.Empty):
            self._take(*self._queue.get(timeout=timeout))
            while True:
                self._take(*self._queue.get_nowait())

    def kill(self, keys: list[str]) -> None:
        now, lost = time.monotonic(), self.lost()
        for key in keys:
            self.lent[self._member[key]].carrier.send(messages.Kill([key]))
        gone = [key for key in keys if self._member[key] in lost or key in self.refused]
        self.exited.update(dict.fromkeys(gone, (-9, now)))

    def vitals(self, key: str) -> Vitals | None:
        member = self._member.get(key)
        known = self._newest[member].vitals if member in self._newest else {}
        return Vitals(*known[key]) if key in known else None

    def ask(self, key: str) -> None:
        self.lent[self._member[key]].carrier.send(messages.WriteStacks(key))

    def close(self) -> None:
        for lent in self.lent:
            lent.carrier.close()

    def usable(self) -> bool:
        """Whether every agent is there: otherwise the next run asks for others."""
        self.poll(0)
        return not any(lent.gone for lent in self.lent)

    def end(self, folder: RunFolder) -> None:
        """Brings back what the function wrote into the run's directory, the chief's first, and has it removed."""
        for member in range(len(self.lent)):
            if member in self.lost():
                continue
            # What is here already need not come back.
            known = sorted({path.name for path in folder.path.iterdir()} | {*_SENT, MODULES, ".dataset", ".shared"})
            # Gone in this moment: its guard removes what ran, and the next agent there the files.
            with contextlib.suppress(ClusterConfigError):
                number = self._send(member, "end", run=folder.path.name, known=known)
                self._answer(member, number, lambda: None, END_SECONDS)

    # ---- what the agents say

    def _take(self, member: int, message: Message) -> None:
        lent = self.lent[member]
        match message:
            case messages.Gone(words):
                lent.gone = words
            # Nothing of a run that has ended.
            case messages.FilePart(run) if run == self._folder.path.name:
                write(self._folder.path, message)
            case messages.Exited(key, code, at):
                self.exited[key] = (code, at - lent.ahead)
            case messages.WorkerStarted(key, pid):
                self.started[key] = pid
            case messages.Refused(key, number, words):
                self.refused[key] = number, _("{name}: {words}", name=lent.host, words=words)
            case messages.Answer(number):
                self._answers[number] = message


# ---- machines that will not do are found before a worker starts: each in one sentence, with its name


def check_versions(lent: Sequence[LentMachine]) -> None:
    """Python that reads what this one pickles; TensorFlow, Keras and dtk the same on each."""
    own = environment.versions("dtk")
    for worker, each in enumerate(lent):
        what = _other_versions(each, own, lent)
        if what:
            raise ClusterConfigError(_("{name}: {words}", name=_name_of(each, worker), words=what))


def _other_versions(each: LentMachine, own: Mapping[str, Any], lent: Sequence[LentMachine]) -> str:
    """Why a machine can't take part, in words; "" where it can."""
    there, first = each.facts["versions"], lent[0].facts["versions"]
    if there["Python"].split(".")[:2] != own["Python"].split(".")[:2]:
        words = N_("Python {there} there, {here} here; a pickled function fits one minor version only")
        return _(words, there=there["Python"], here=own["Python"])
    wanted = {"tensorflow": (first, lent[0].host), "dtk": (own, platform.node()), "keras": (first, lent[0].host)}
    for package, (versions, other) in wanted.items():
        if there[package] is None and package != "keras":
            return _("{package} is not installed there, for the Python that is started", package=package)
        if there[package] != versions[package]:
            words = N_("{package} {there} there, {first} on {other}; install the same on every machine")
            return _(words, package=package, there=there[package], first=versions[package], other=other)
    return ""


def _name_of(lent: LentMachine, member: int, name: str = "worker") -> str:
    return _("{name} on {host}", name=called(name, member), host=lent.host)


def enough(machines: int, processes: int) -> None:
    """Raises ClusterConfigError where a place has fewer machines than a run has processes."""
    if machines < processes:
        what = _("{processes} processes on {machines} machines", processes=processes, machines=machines)
        raise ClusterConfigError(what, remedy=_("give as many machines, or ask for fewer workers"))


# ---- a run's directory here and there


_SENT = ("function.pkl", "sources.json", "job.json", "evaluator.pkl")


def files_to_send(run: Path) -> dict[str, str]:
    """What workers need to begin, in base64 by name; with the modules beside the notebook."""
    found = {name: (run / name).read_bytes() for name in _SENT if (run / name).exists()}
    pickles = [data for name, data in found.items() if name.endswith(".pkl")]
    found |= {f"{MODULES}/{name}": source for name, source in modules(named(*pickles)).items()}
    return {name: base64.b64encode(data).decode() for name, data in found.items()}


# ---- the learner's own modules: those beside the notebook or script, which another machine has to be given


def named(*pickles: bytes) -> set[str]:
    """Names of modules that pickled functions may import when they are called, and of those imported here.

    A pickled function has the names of what it imports as strings, among others: what is no module is none below.
    """
    strings = {text for each in pickles for _, text, _ in pickletools.genops(each) if isinstance(text, str)}
    here = {name for name in {*sys.modules} if ship.file_of(name)}
    return here | {text for text in strings if all(part.isidentifier() for part in text.split("."))}


def modules(names: Iterable[str]) -> dict[str, bytes]:
    """The sources of those that are the learner's own, and of what these import, by path from an entry of sys.path."""
    waiting, seen = list(names), set()
    found: dict[str, bytes] = {}
    while waiting:
        name = waiting.pop()
        if name in seen or name.startswith("__") or name.split(".")[0] == "dtk":
            continue
        seen.add(name)
        for path, file in _files(name):
            if path not in found:
                found[path] = file.read_bytes()
                waiting += imports(found[path], path)
    return found


def imports(source: str | bytes, path: str) -> Iterator[str]:
    """Names of modules that the source at a path imports; of `from a import b` both a and a.b, which may be one."""
    package = path.removesuffix("/__init__.py") if path.endswith("/__init__.py") else path.rpartition("/")[0]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # the worker that imports it says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            try:
                home = importlib.util.resolve_name(home, package.replace("/", "."))
            except ImportError:
                continue  # beyond its package
            yield from [home, *(f"{home}.{alias.name}" for alias in node.names)]


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """The sources of a module and of the packages that it is in, where they were not installed; imports nothing."""
    full, *rest = name.split(".")
    spec: ModuleSpec | None = None
    with contextlib.suppress(ValueError):  # of a module that was made by hand
        spec = importlib.util.find_spec(full)
    while spec is not None:
        package = spec.submodule_search_locations
        if spec.origin and spec.origin.endswith(".py") and not library_of(spec.origin):
            yield full.replace(".", "/") + (".py" if package is None else "/__init__.py"), Path(spec.origin)
        if package is None or not rest or all(map(library_of, package)):
            return
        full = f"{full}.{rest.pop(0)}"
        spec = PathFinder.find_spec(full, list(package))


# ---- an engine


class Engine(Place):
    """A place whose machines an engine lends, until `close`, or until nothing refers to it any more.

    given_back: what ends the lending, the last first; `lend` adds to it what is no carrier's.
    """

    def __init__(self) -> None:
        self._remote: Remote | None = None
        self._run: Path | None = None  # the one that is under way
        self.given_back = contextlib.ExitStack()
        weakref.finalize(self, self.given_back.close)  # also at the end of this process

    def lend(self, heard: Sequence[OnMessage], tick: Callable[[], None]) -> Iterator[LentMachine]:
        """Yields a machine for each member of a run, whose agent speaks to `heard`; ClusterConfigError where it can't.

        heard: by member. tick: to be called about ten times a second by one that waits.
        """
        raise NotImplementedError

    def open(self, job: RunJob, folder: RunFolder, tick: Callable[[], None]) -> Source:
        """Machines for the members of the run in `folder`, ready to start them; those of the run before, if it can."""
        count = len(folder.members)
        if self._run not in (None, folder.path):
            words = N_("another run is under way on this place ({name}); make one for each run")
            raise ClusterConfigError(_(words, name=_(self.name)))
        self._run = folder.path
        try:
            if self._remote is None or len(self._remote.lent) != count or not self._remote.usable():
                self._give_back()
                self._remote = Remote(_(self.name), lambda heard: self._lent(heard, tick), folder)
            self._remote.prepare(folder, tick, shared=bool(job.restarts or job.evaluator) and count > 1)
        except BaseException:
            self._give_back()
            raise
        return self._remote

    def _lent(self, heard: Sequence[OnMessage], tick: Callable[[], None]) -> Iterator[LentMachine]:
        for lent in self.lend(heard, tick):  # one that was lent is given back, also where the next can't be
            self.given_back.callback(lent.carrier.close)
            yield lent

    def end(self, folder: RunFolder) -> None:
        """Brings back what the function wrote into the run's directory, and removes it there."""
        if self._run != folder.path:
            return  # it never began here
        self._run = None
        if self._remote is not None:
            self._remote.end(folder)

    def _give_back(self) -> None:
        self._remote = None
        self.given_back.close()

    def close(self) -> None:
        """Ends the agents and gives their machines back; the next run asks the engine anew."""
        self._give_back()
