"""On another machine, for a kernel that is elsewhere: starts workers, and says what they write and how they end.

An agent belongs to one kernel. It is to its workers what a kernel is on localhost, with a parent and a guard below it,
so that they end when it does. What it hears and says are `dtk.launch.messages`, the same in an actor of Ray's as
through the pipes of `python -m dtk agent`. The kernel's end of the pipes closes with it, where both are on one machine.
From another machine that takes the network, which may be cut: so without the kernel's signs of life the agent ends.
"""

from __future__ import annotations

import base64
import contextlib
import os
import platform
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from multiprocessing import connection
from pathlib import Path
from typing import Any

from dtk import environment
from dtk.errors import DtkError
from dtk.launch import folders, messages, warm
from dtk.launch.messages import Incoming, Message, as_line
from dtk.records import GROWING, RunFolder
from dtk.watch.reader import size
from dtk.worker.process import WorkerSpec

MODULES = "modules"  # in a run's directory: those that the kernel has beside its notebook
TURN_SECONDS = 0.25  # in which nothing is heard and no worker ends: between two looks at files and vitals
_REACH_SECONDS = 4.0
# What decides how many threads a worker has, where it is set on the machine.
_COUNTS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "TF_GRPC_WORKER_CACHE_THREADS")

Found = dict[str, Any]  # what an answer has, by name


class Agent:
    """One agent. storage: a directory that all machines of the cluster share, for the runs' directories; "": its own.

    `take` hears a message, `turn` gives those that it has to say.
    """

    def __init__(self, storage: str = ""):
        self._own = None if storage else folders.new_path()
        self.root = self._own or Path(storage).expanduser()
        os.environ.pop("DTK_ISOLATE", None)  # its workers have others to reach
        self.source = warm.parent(environment.forks())
        self._said: list[Message] = []
        self._waiting: dict[str, tuple[Path, WorkerSpec]] = {}  # workers to be started when the parent is ready
        self._workers: dict[str, Path] = {}  # each with its corner of the run's directory
        self._news = News()
        self._port = contextlib.ExitStack()  # what holds the next worker's port open

    # ---- what it hears

    def take(self, message: Message) -> None:
        """Does what a message asks for; what there is to say of it comes with the next turns."""
        match message:
            case messages.Start():
                self._start(message)
            case messages.Kill(keys):
                self._waiting = {key: start for key, start in self._waiting.items() if key not in keys}
                self.source.kill(keys)
            case messages.WriteStacks(key) if key in self.source.started:
                self.source.ask(key)
            case messages.Query(number, what, given) if number:
                answer: Callable[..., Found] = getattr(self, f"answer_{what}")
                self._said.append(messages.Answer(number, answer(**(given or {}))))

    def answer_facts(self) -> Found:
        """What this machine is and has."""
        return {
            "at": time.monotonic(),
            "host": platform.node(),
            "machine": folders.machine(),
            "pid": os.getpid(),
            "versions": environment.versions("tensorflow", "keras", "tf_keras", "dtk", "cloudpickle"),
            "cores": environment.cores(),
            "env": {name: os.environ[name] for name in _COUNTS if name in os.environ},
            "root": str(self.root),
        }

    def answer_reserve(self) -> Found:
        """A port that is free, and held open until a worker starts."""
        self._port.close()
        held = self._port.enter_context(socket.create_server(("", 0)))
        return {"port": held.getsockname()[1]}

    def answer_reach(self, addresses: list[str]) -> Found:
        """Addresses that this machine can't reach, each with the error's number and the system's words."""
        failed = {}
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
            except OSError as error:
                failed[address] = [error.errno, error.strerror or str(error)]
        return {"failed": failed}

    def answer_shares(self, name: str, touch: bool) -> Found:
        """Whether a file is there, in its storage; made where it has to be touched."""
        path = self.root / name
        with contextlib.suppress(OSError):  # it is not found, then
            if touch:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch()
        return {"found": os.path.exists(path)}

    def _start(self, message: messages.Start) -> None:
        self._port.close()
        spec, attempt = message.spec, message.attempt
        run = Path(spec["dir"])
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in (message.files or {}).items():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            # Others may write it at the same moment, into shared storage, and on another machine with the same pid.
            part = run / f"{name}.{spec['worker']}"
            part.write_bytes(base64.b64decode(data))
            part.replace(run / name)
        corner = RunFolder.of(run).members[spec["worker"]].path
        for number in range(1, attempt):
            (run / f"attempt-{number}").mkdir(exist_ok=True)
        before = run / f"attempt-{attempt - 1}" / corner.name
        if attempt > 1 and corner.exists() and not before.exists():
            corner.replace(before)  # a worker counts on from there, as on localhost
        shutil.rmtree(corner, ignore_errors=True)  # of a start that found its port taken; the kernel has it
        self._news.forget(corner)
        base = environment.for_workers(os.environ)
        own = {name: base[name] for name in ("DTK_SCRATCH", "DTK_PROXIES")}
        spec["env"] = {**base, **spec["env"], **own}
        spec["cwd"] = os.getcwd()
        spec["sys_path"] = [str(run / MODULES), *(path or os.getcwd() for path in sys.path)]
        self._waiting[message.key] = corner, spec

    def answer_end(self, run: str, known: list[str]) -> Found:
        """Says first what the function wrote into the run's directory, but for names at its top that are known."""
        folder = self.root / run
        self._said += self._news.of_the_rest(folder, known)
        shutil.rmtree(folder, ignore_errors=True)
        self._news.forget(folder)
        return {}

    # ---- what it says

    def wait(self, heard: int) -> bool:
        """Until the descriptor `heard` can be read (then True), something happens to a worker, or a turn is over."""
        sources = [heard, self.source.fileno()] if self.source.lives() else [heard]
        return heard in connection.wait(sources, TURN_SECONDS)

    def turn(self, seconds: float) -> list[Message]:
        """What there is to say, after a wait of up to `seconds` for the end of a worker."""
        self._start_waiting()
        self.source.poll(seconds)
        exited = self.source.ends(self._workers)
        said, self._said = self._said, []
        ended: list[Message] = []
        for key, corner in list(self._workers.items()):
            news, whole = self._news.of(corner)
            said += news
            if key in exited and whole:  # after all that it wrote
                code, at = exited[key]
                ended.append(messages.Exited(key, code, at))
                del self._workers[key]
                self.source.forget([key])
        vitals = {key: self.source.vitals(key) for key in self._workers if key in self.source.started}
        signs = messages.VitalSigns({key: list(seen) for key, seen in vitals.items() if seen is not None})
        return [*said, *ended, signs]

    def _start_waiting(self) -> None:
        if not self._waiting or not (self.source.ready or not self.source.lives()):
            return  # its imports go on
        waiting, self._waiting = self._waiting, {}
        try:
            self.source.wait_ready(lambda: None)
            for key, (corner, spec) in waiting.items():
                self._workers[key] = corner
                self.source.start(key, spec)
            self.source.wait_started([*waiting])
            self._said += [messages.WorkerStarted(key, self.source.started[key]) for key in waiting]
        except (DtkError, OSError, KeyError) as error:
            number = getattr(error, "errno", None) or 0
            words = getattr(error, "strerror", None) or str(error)
            self._said += [messages.Refused(key, number, words) for key in waiting]

    def close(self) -> None:
        """Ends every worker, and removes what is left here of their runs."""
        self._port.close()
        self.source.close()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)


ALIVE_SECONDS = 5.0  # between two signs of life
LEASE_SECONDS = 120.0  # without any, after which an agent ends


def main(storage: str) -> None:
    """`python -m dtk agent`: messages come by stdin and leave by stdout, a line each, until stdin ends."""
    commands, events = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # nothing that is imported may speak among the messages
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    agent = Agent(storage)
    os.set_blocking(events, False)
    try:
        serve(agent, commands, events)
    except BrokenPipeError:
        pass  # the kernel is gone
    except TimeoutError:
        print("dtk's agent has not heard of its kernel for so long that it ends", file=sys.stderr)
    finally:
        agent.close()


def serve(agent: Agent, commands: int, events: int) -> None:
    """Until `commands` ends; TimeoutError where nothing comes or goes any more. events: does not block."""
    incoming, heard = Incoming(), time.monotonic()
    while True:
        if agent.wait(commands):
            data = os.read(commands, 1 << 20)
            if not data:
                return
            heard = time.monotonic()
            for message in incoming.take(data):
                agent.take(message)
        elif time.monotonic() - heard > LEASE_SECONDS:
            raise TimeoutError
        for message in agent.turn(0):
            _put(events, as_line(message))


def _put(events: int, data: bytes) -> None:
    while data:
        if not select.select([], [events], [], LEASE_SECONDS)[1]:
            raise TimeoutError
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(events, data) :]


# ---- what workers write, as messages


_CHUNK = 1 << 20  # bytes of a file in one message
_MOST = 8 << 20  # bytes that one look says, so that it stays short


class News:
    """Says each byte of a file once."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[int, int, int]] = {}  # (inode, bytes said, of how many)
        self._behind = False  # whether more of the file that was read last is still to be said

    def of(self, corner: Path) -> tuple[list[messages.FilePart], bool]:
        """What a worker has written since the last look, and whether that is all.

        What it puts there whole (its result, an error, weights) goes before the lines that say so, and those are only
        read as far as they had come before.
        """
        grown = {corner / name: size(corner / name) for name in GROWING}
        inside = sorted(corner.glob("*"))  # nothing, as long as the worker has not made it
        whole = {path: None for path in inside if path not in grown and path.is_file() and path.suffix != ".part"}
        said: list[messages.FilePart] = []
        for path, length in {**whole, **grown}.items():
            left = _MOST - sum(len(part.data) for part in said)
            said += self._of_file(path, corner.parent, length, left if length is None else max(_CHUNK, left))
            if self._behind:
                return said, False
        return said, True

    def of_the_rest(self, run: Path, known: Collection[str]) -> list[messages.FilePart]:
        """What the function itself wrote into the run's directory, but for names at its top that are `known`."""
        said: list[messages.FilePart] = []
        for path in sorted(run.rglob("*")):
            top = path.relative_to(run).parts[0]
            if path.is_file() and top not in known and not top.startswith("worker-"):
                said += self._of_file(path, run, None, sys.maxsize)
        return said

    def forget(self, folder: Path) -> None:
        """Nothing in it has been said: it will be made anew."""
        self._files = {path: said for path, said in self._files.items() if folder not in path.parents}

    def _of_file(self, path: Path, run: Path, until: int | None, most: int) -> list[messages.FilePart]:
        """A file's bytes that were not said yet, `most` of them. until: its size, for one that grows line by line."""
        self._behind = False
        found: list[messages.FilePart] = []
        try:
            state = path.stat()
            known, said, whole = self._files.get(path, (0, 0, 0))
            length = state.st_size if until is None else until
            if known == state.st_ino and said == length:
                return []
            if known != state.st_ino or said > length or (until is None and said == whole):
                said = 0  # it is another one; or it was cut, or whole before and has changed
            with path.open("rb") as file:
                file.seek(said)
                while most > 0 and (said < length or not found):
                    data = file.read(min(_CHUNK, length - said))
                    encoded = base64.b64encode(data).decode()
                    found.append(messages.FilePart(run.name, str(path.relative_to(run)), said, length, encoded))
                    said, most = said + len(data), most - len(data)
                    if not data:
                        break
        except OSError:
            return []  # replaced in this very moment, or removed: the next look sees
        self._behind = said < length
        self._files[path] = (state.st_ino, said, length)
        return found


def write(run: Path, part: messages.FilePart) -> None:
    """Writes a part of a file: lines at once, all else when it is whole."""
    path = run / part.file
    if ".." in path.parts or not path.is_relative_to(run):
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data, at = base64.b64decode(part.data), part.at
    target = path if path.name in GROWING else path.with_name(f"{path.name}.coming")
    with target.open("r+b" if at else "wb") as file:
        file.seek(at)
        file.write(data)
    if target is not path and at + len(data) >= part.of:
        target.replace(path)
