"""The life of a worker that stays: cells come one after another by a wire, their ends go back."""

from __future__ import annotations

import builtins
import ctypes
import io
import json
import os
import pickle
import signal
from pathlib import Path
from types import FunctionType
from typing import Any

from dtk import environment
from dtk.environment import Here
from dtk.language import _
from dtk.records import weights
from dtk.worker import ship, wire
from dtk.worker.progress import progress

__all__ = ["serve"]

Message = dict[str, Any]


def serve() -> None:
    """What such a worker is called with, as another one with the learner's function; the door is in its environment.

    Ends the process when the kernel hangs up.
    """
    place = environment.here()
    assert place is not None, "a worker has its place before its function is called"
    _Life(place, Path(os.environ[wire.DOOR])).live()


class _Life:
    def __init__(self, place: Here, door: Path):
        # Here, and not above: the kernel imports this module, to name `serve`.
        from dtk.compat import collectives
        from dtk.interactive import answers as beside
        from dtk.interactive import shell
        from dtk.interactive.barrier import Gate
        from dtk.interactive.control import Control
        from dtk.interactive.replay import Takes
        from dtk.worker import states, worker

        self.place, self.folder = place, place.folder.path
        self.collectives, self.shells, self.beside = collectives, shell, beside
        self.gate = Gate()
        self.running: int | None = None
        self.last = 0  # the cell that it was in last
        self.questions = 0  # how many it has asked
        self.owed: dict[str, list[int]] = {}  # updates of optimizers that an earlier process in this place has made
        collectives.let_peers_come_back()
        collectives.watch_keys(self.gate.arrive, self.gate.took)
        if place.mode == "mirrored":  # one worker with several replicas
            collectives.watch_sums(self.gate.arrive, self.gate.took)
        self.states = states
        self.within: set[int] = set()  # threads that are in an eager collective
        collectives.watch_waits(self.within)
        self.local = {"on": False}
        collectives.broadcast_locally(self.local)
        self.takes = Takes(place)
        self.strategy = worker.strategy_of(place, {})
        self.shell = shell.make(self.folder, {"strategy": self.strategy})
        self.wire = wire.call(door)
        self.wire.send({"worker": place.worker, "channel": "cells"})
        Control(self, door).start()
        signal.signal(signal.SIGINT, self._on_interrupt)
        builtins.input = self._input
        beside.add_command(self._show_beside, self._on_interrupt)

    def live(self) -> None:
        self.wire.send({"ready": os.getpid()})
        while (message := self.wire.next()) is not None:
            if "answers" in message:  # to a question that was interrupted
                continue
            self.gate.working = True
            try:
                answer = self._answer(message)
            finally:
                self.gate.working = False
            self.wire.send({**answer, "id": message["id"]})
        os._exit(0)  # without the kernel there is nobody to work for

    def _answer(self, message: Message) -> Message:
        if message["do"] in ("cell", "call"):
            return self._run(message)
        from dtk.interactive import tasks

        try:
            return tasks.do(self, message)
        except Exception as error:
            return {"status": "error", "type": type(error).__name__, "message": str(error)}

    def _run(self, message: Message) -> Message:
        number = message["cell"]
        self.gate.begin()
        self.gate.files.add(self.shells.name_of_cell(number))
        self.collectives.cancellable()
        self.running = self.last = number
        self.states.pause(not message["everywhere"])
        try:
            end = self._cell(message) if message["do"] == "cell" else self._call(message)
        except KeyboardInterrupt as error:  # it came when the cell was through
            end = self.shells.failure(error, self.gate.files)
        finally:
            self.running = None
        if message.get("value") and end["status"] == "ok":
            end |= self.kept(self.shell.last, number)
        self.shells.flush()
        ctypes.CDLL(None).fflush(None)
        so_far = {"steps": progress(self.place).steps, "takes": self.takes.count}
        return {**end, **self.shells.sizes(), "keys": self.collectives.keys(), **so_far, **self.gate.report()}

    def _cell(self, message: Message) -> Message:
        return self.shells.run(self.shell, message["cell"], message["code"], self.gate.files)

    def _call(self, message: Message) -> Message:
        folder = self.place.run.path / message["folder"]
        ship.unpack_sources(json.loads((folder / "sources.json").read_text()))
        try:
            fn, args, kwargs = pickle.loads((folder / f"{message['cell']}.pkl").read_bytes())
            if isinstance(fn, FunctionType):
                self.gate.files.add(fn.__code__.co_filename)
                if fn.__module__ == "__main__":
                    _share(fn, self.shell.user_ns)
            if ship.takes_strategy(fn):
                args, kwargs = ship.fill_strategy(fn, args, kwargs, self.strategy)
            self.shell.last = fn(*args, **kwargs)
        except BaseException as error:  # KeyboardInterrupt and SystemExit too: a cell may end so, a worker not
            return self.shells.failure(error, self.gate.files)
        return {"status": "ok"}

    def kept(self, value: Any, number: int) -> Message:
        """The value, in a file: nothing is unpickled that came by a socket."""
        try:
            data = ship.pack_result(value)
        except TypeError:
            data = None
        if data is None or _needed_by(data) & {"tensorflow", "keras", "tf_keras"}:  # the kernel imports none of them
            return {"stays": type(value).__name__, "text": repr(value)[:200]}
        weights.replace(self.folder / f"value-{number}.pkl", data)
        return {"value": f"{self.folder.name}/value-{number}.pkl"}

    def _input(self, prompt: object = "") -> str:
        """What `input` is here: the kernel asks, and says whose question it is."""
        if self.running is None:
            raise EOFError(_("nobody is asked while a cell runs again in a new process"))
        answer = self._asked({"ask": str(prompt)})
        if "said" not in answer:
            raise EOFError("the cell is to end") if "over" in answer else KeyboardInterrupt
        return str(answer["said"])

    def _show_beside(self, code: str) -> None:
        """At a debugger's prompt: the kernel asks the other workers, and shows what it is there and here."""
        self._asked({"beside": code, "own": self.beside.answer(self, code)})

    def _asked(self, question: Message) -> Message:
        """The kernel's answer; an earlier one, whose question was interrupted, is not it."""
        self.questions += 1
        self.shells.flush()
        self.wire.send({**question, "number": self.questions, **self.shells.sizes()})
        while (answer := self.wire.next()) is not None:
            if answer.get("answers") == self.questions:
                return answer
        os._exit(0)

    def _on_interrupt(self, *_: Any) -> None:
        if self.running is not None:
            raise KeyboardInterrupt


def _needed_by(data: bytes) -> set[str]:
    """The packages without which a pickled value can't be read."""
    found: set[str] = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.add(module.partition(".")[0])
            return super().find_class(module, name)

    try:
        Reader(io.BytesIO(data)).load()
    except Exception:
        return {"tensorflow"}  # what can't be read here can't be read there
    return found


def _share(fn: FunctionType, names: dict[str, Any]) -> None:
    """What the function names and did not bring along, it finds in the worker's own namespace."""
    for name in ship.names(fn.__code__):
        if name not in fn.__globals__ and name in names:
            fn.__globals__[name] = names[name]
