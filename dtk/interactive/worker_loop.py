"""The main loop of a worker that stays: cells come one after another, their ends go back.

A second thread answers where the worker is, holds it and frees it while the main thread is in a cell.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import io
import json
import os
import pdb
import pickle
import signal
import threading
import time
from types import FunctionType
from typing import Any

from dtk.compat import collectives
from dtk.environment import Here
from dtk.errors import DtkError
from dtk.interactive import shell, tasks
from dtk.interactive.barrier import Gate, OutsideCell, frames
from dtk.interactive.inspection import local_rows, look, numbers
from dtk.language import N_, _
from dtk.records import weights
from dtk.worker import ship, states, wire, worker
from dtk.worker.progress import progress
from dtk.worker.wire import Message, Wire

__all__ = ["WorkerLoop"]

_READABLE = ["Expression", "Name", "Attribute", "Subscript", "Tuple", "Constant", "UnaryOp", "USub", "Load"]


class WorkerLoop:
    """A worker's state. running: the number of its cell; None between cells. within: threads in an eager collective.

    owed: updates of optimizers that an earlier process in this place has made. local: {"on": whether variables begin
    with this worker's own values}.
    """

    def __init__(self, place: Here):
        self.place, self.folder = place, place.folder.path
        self.gate = Gate()
        self.running: int | None = None
        self.owed: dict[str, list[int]] = {}
        self.within: set[int] = set()
        self.local = {"on": False}
        self._questions = 0  # how many it has asked
        collectives.let_peers_come_back()
        collectives.watch_keys(self.gate.arrive, self.gate.took)
        if place.mode == "mirrored":  # one worker with several replicas
            collectives.watch_sums(self.gate.arrive, self.gate.took)
        collectives.watch_waits(self.within)
        collectives.broadcast_locally(self.local)
        self.takes = shell.Takes(place)
        self.strategy = worker.strategy_of(place, {})
        self.shell = shell.make(self.folder, {"strategy": self.strategy})
        path = place.run.path / wire.SOCKET
        self._cells, control = wire.call(path), wire.call(path)
        for link, channel in ((self._cells, "cells"), (control, "control")):
            link.send({"worker": place.worker, "channel": channel})
        threading.Thread(target=self._answer_control, args=(control,), daemon=True, name="dtk-control").start()
        signal.signal(signal.SIGINT, self._on_interrupt)
        builtins.input = self._input
        self._extend_debugger()

    def run(self) -> None:
        """Ends the process when the kernel hangs up."""
        self._cells.send({"ready": os.getpid()})
        while (message := self._cells.next()) is not None:
            if "answers" in message:  # to a question that was interrupted
                continue
            self.gate.working = True
            try:
                answer = self._run(message) if message["do"] in ("cell", "call") else self._task(message)
            finally:
                self.gate.working = False
            self._cells.send({**answer, "id": message["id"]})
        os._exit(0)  # without the kernel there is nobody to work for

    def kept(self, value: Any, number: int) -> Message:
        """Writes the value to a file: nothing is unpickled that came by a socket."""
        try:
            data = ship.pack_result(value)
            _Reader(io.BytesIO(data)).load()
        except Exception:
            return {"stays": repr(value)[:200]}
        weights.replace(self.folder / f"value-{number}.pkl", data)
        return {"value": f"{self.folder.name}/value-{number}.pkl"}

    # ---- the main thread

    def _task(self, message: Message) -> Message:
        try:
            return {"status": "ok", **tasks.TASKS[message["do"]](self, message)}
        except Exception as error:
            return {"status": "error", "type": type(error).__name__, "message": str(error)}

    def _run(self, message: Message) -> Message:
        """Runs a cell, or calls a function; the answer is the cell's end."""
        number = message["cell"]
        self.gate.begin()
        collectives.cancellable()
        self.running = number
        states.pause(not message["everywhere"])
        try:
            if message["do"] == "cell":
                end = shell.run(self.shell, number, message["code"], self.gate.files)
            else:
                end = self._call(number)
        except KeyboardInterrupt as error:  # it came when the cell was through
            end = shell.failure(error, self.gate.files)
        finally:
            self.running = None
        if message["value"] and end["status"] == "ok":
            end |= self.kept(self.shell.last, number)
        shell.flush()
        ctypes.CDLL(None).fflush(None)
        recorded = {"steps": progress(self.place).steps, "takes": self.takes.count}
        return {**end, **shell.sizes(), **recorded, **self._collectives()}

    def _call(self, number: int) -> Message:
        folder = self.place.run.path / "calls"
        ship.unpack_sources(json.loads((folder / "sources.json").read_text()))
        try:
            fn, args, kwargs = pickle.loads((folder / f"{number}.pkl").read_bytes())
            if isinstance(fn, FunctionType):
                self.gate.files.add(fn.__code__.co_filename)
                if fn.__module__ == "__main__":  # what it names and did not bring along is in the namespace here
                    for name in {*ship.names(fn.__code__)} & {*self.shell.user_ns} - {*fn.__globals__}:
                        fn.__globals__[name] = self.shell.user_ns[name]
            if ship.takes_strategy(fn):
                args, kwargs = ship.fill_strategy(fn, args, kwargs, self.strategy)
            self.shell.last = fn(*args, **kwargs)
        except BaseException as error:  # KeyboardInterrupt and SystemExit too: a cell may end so, a worker not
            return shell.failure(error, self.gate.files)
        return {"status": "ok"}

    def _input(self, prompt: object = "") -> str:
        """What `input` is here: the kernel asks, and says whose question it is."""
        if self.running is None:
            raise EOFError(_("nobody is asked while a cell runs again in a new process"))
        answer = self._ask({"ask": str(prompt)})
        if "said" not in answer:
            raise EOFError("the cell is to end") if "over" in answer else KeyboardInterrupt
        return str(answer["said"])

    def _ask(self, question: Message) -> Message:
        """The kernel's answer; an earlier one, whose question was interrupted, is skipped."""
        self._questions += 1
        shell.flush()
        self._cells.send({**question, "number": self._questions, **shell.sizes()})
        while (answer := self._cells.next()) is not None:
            if answer.get("answers") == self._questions:
                return answer
        os._exit(0)

    def _on_interrupt(self, *_: Any) -> None:
        if self.running is not None:
            raise KeyboardInterrupt

    def _extend_debugger(self) -> None:
        """`replicas NAME` at the prompt of `breakpoint()` and `%debug`: the kernel asks the others, and shows all."""

        def do_replicas(debugger: Any, arg: str) -> None:
            """replicas NAME

            What a name is on all workers: where this one stops, and where each of the others is.
            Also NAME.attribute, NAME[0]. Without a name: where each worker is.
            """
            # To read f_locals anew would undo what was assigned at the prompt.
            names = getattr(debugger, "curframe_locals", None) or debugger.curframe.f_locals
            code = arg.strip()
            rows, why = [], ""
            try:
                rows = look({code: self._read(code, {**debugger.curframe.f_globals, **names})}) if code else []
            except Exception as error:
                why = _in_words(error)
            self._ask({"replicas": code, "rows": rows, "why": why})

        pdb.Pdb.do_replicas = do_replicas  # type: ignore[attr-defined]
        # After `continue`, pdb would open its prompt again at an interrupt.
        pdb.Pdb.sigint_handler = lambda debugger, *_: self._on_interrupt()  # type: ignore[method-assign]

    # ---- the second thread: nothing here waits for TensorFlow, or for the main thread

    def _answer_control(self, link: Wire) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it is for the main thread
        while (message := link.next()) is not None:
            try:
                answer = self._controlled(message)
            except Exception as error:
                answer = {"error": _in_words(error)}
            link.send({**answer, "id": message["id"]})

    def _controlled(self, message: Message) -> Message:
        do = message["do"]
        if do == "look":
            return {"rows": [*local_rows(frames(self.gate.files)), *look(self.shell.user_ns)]}
        if do in ("look at", "pull"):
            names = dict(self.shell.user_ns)
            for frame in reversed(frames(self.gate.files)):
                names |= frame.names
            value = self._read(message["code"], names)
            if do == "look at":
                return {"rows": look({message["code"]: value})}
            return self.kept(numbers(value), message["id"])
        if do == "hold":
            self.gate.hold(message["limits"], message["raises"])
        elif do == "open":
            self.gate.open()
        elif do == "cancel":
            collectives.cancel()
        elif do == "abort":
            collectives.abort("dtk: freed")
        elif do == "interrupt" and self.running is not None and not self.within:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return self._where()

    def _read(self, code: str, names: dict[str, Any]) -> Any:
        """An expression's value; what would take a collective is refused: no other worker takes part in that.

        In a cell nothing is called: the main thread may hold TensorFlow's locks while it waits.
        """
        tree = ast.parse(code.strip(), mode="eval")
        if self.running is not None and not all(type(node).__name__ in _READABLE for node in ast.walk(tree)):
            words = N_("{code}: in a cell names alone are read, with attributes and numbers, such as model.weights[0]")
            raise DtkError(_(words, code=code))
        try:
            return eval(compile(tree, "<pull>", "eval"), names)
        except OutsideCell:
            words = N_(
                "{code}: its value is made by all workers together (a metric's result, a reduction): run "
                "it in a cell on all"
            )
            raise DtkError(_(words, code=code)) from None

    def _where(self) -> Message:
        state = {"cell": self.running, "place": self.gate.place(), "held": sorted(self.gate.held.values())}
        return {**state, "cpu": time.process_time(), "within": len(self.within), **self._collectives()}

    def _collectives(self) -> Message:
        """The next number of each counter, and this cell's last collectives, to be compared with other workers'."""
        return {"keys": collectives.keys(), "met": list(self.gate.met), "count": self.gate.count}


class _Reader(pickle.Unpickler):
    """Refuses what needs TensorFlow or Keras: the kernel imports neither."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in ("tensorflow", "keras", "tf_keras"):
            raise TypeError(module)
        return super().find_class(module, name)


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, DtkError) else f"{type(error).__name__}: {error}"
