"""The main loop of a worker that stays: cells come one after another, their ends go back.

A second thread answers where the worker is, holds it and frees it while the main thread is in a cell. Between two cells
the kernel has collectives made usable again, variables given and taken, cells run once more in a new process, and what
was recorded copied.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
import pdb
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from dtk.compat import collectives
from dtk.compat import updates as update_counts
from dtk.compat.per_replica import Copies, copies
from dtk.environment import Here
from dtk.errors import DtkError
from dtk.interactive import shell
from dtk.interactive.barrier import Gate
from dtk.interactive.inspection import digest_of, is_plain, look, numbers, variables_of
from dtk.language import N_, _
from dtk.records import events, write_whole
from dtk.worker import ship, states, wire, worker
from dtk.worker.progress import progress, write_updates
from dtk.worker.wire import Message, Wire

_NOBODY = "EOF when reading a line"  # Python's own words where nobody answers
_LACKS = N_("worker {worker} has no {name}: run the cell that makes it there first")
_PROGRESS = ("steps", "epoch", "trainings", "looping", "rings")
_NOT_OF_A_RUN = ("display-", "result.pkl", "value-", "given-")  # how files of a session alone begin
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
        collectives.watch_waits(self.within)
        collectives.broadcast_locally(self.local)
        self.takes = shell.Takes(place)
        self.strategy = worker.strategy_of(place)
        self.shell = shell.make(self.folder, {"strategy": self.strategy})
        self.shell.display_pub.folder = self.folder
        path = place.run.path / wire.SOCKET
        self._cells, control = Wire(wire.connect(path)), Wire(wire.connect(path))
        for link, channel in ((self._cells, "cells"), (control, "control")):
            link.send({"worker": place.worker, "channel": channel})
        threading.Thread(target=self._answer_control, args=(control,), daemon=True, name="dtk-control").start()
        signal.signal(signal.SIGINT, self._on_interrupt)
        builtins.input = self._input
        # After `continue`, pdb would open its prompt again at an interrupt.
        pdb.Pdb.sigint_handler = lambda debugger, *_: self._on_interrupt()  # type: ignore[method-assign]

    def run(self, idle: float) -> None:
        """Ends the process when the kernel hangs up, or sends nothing for so many seconds."""
        while (message := self._cells.next(idle)) is not None:
            if "answers" in message:  # to a question that was interrupted
                continue
            self.gate.working = True
            try:
                answer = self._run(message) if message["do"] in ("cell", "call") else self._task(message)
            finally:
                self.gate.working = False
            self._cells.send({**answer, "id": message["id"]})
        os._exit(0)  # nobody to work for, and its memory is other people's, too

    def kept(self, value: Any, number: int) -> Message:
        """Writes the value to a file: nothing is unpickled that came by a socket."""
        try:
            data = ship.pack_result(value)
            _Reader(io.BytesIO(data)).load()
        except Exception:
            return {"stays": repr(value)[:200]}
        write_whole(self.folder / f"value-{number}.pkl", data)
        return {"value": f"{self.folder.name}/value-{number}.pkl"}

    # ---- the main thread

    def _task(self, message: Message) -> Message:
        try:
            return {"status": "ok", **(_TASKS[message["do"]](self, message) or {})}
        except Exception as error:
            return {"status": "error", "type": type(error).__name__, "message": str(error)}

    def _run(self, message: Message) -> Message:
        """Runs a cell, or calls a function; the answer is the cell's end."""
        number = message["id"]
        self.gate.begin()
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
        worker.flush()
        recorded = {"steps": progress(self.place).steps, "takes": self.takes.count}
        return {**end, **recorded, **self._collectives()}

    def _call(self, number: int) -> Message:
        folder = self.place.run.path / "calls"
        ship.unpack_sources(json.loads((folder / "sources.json").read_text()))
        try:
            fn, args, kwargs = pickle.loads((folder / f"{number}.pkl").read_bytes())
            if isinstance(fn, FunctionType):
                self.gate.files[fn.__code__.co_filename] = True
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
            raise EOFError(_NOBODY)  # it runs again, in a new process
        self._questions += 1
        worker.flush()
        self._cells.send({"ask": str(prompt), "number": self._questions})
        while (answer := self._cells.next()) is not None:
            if answer.get("answers") != self._questions:  # to an earlier one, which was interrupted
                continue
            if "said" not in answer:
                raise EOFError(_NOBODY) if "over" in answer else KeyboardInterrupt
            return str(answer["said"])
        os._exit(0)

    def _on_interrupt(self, *_: Any) -> None:
        if self.running is not None:
            raise KeyboardInterrupt

    # ---- the second thread: nothing here waits for TensorFlow, or for the main thread

    def _answer_control(self, link: Wire) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it is for the main thread
        while (message := link.next()) is not None:
            try:
                answer = self._controlled(message)
            except Exception as error:
                answer = {"error": str(error) if isinstance(error, DtkError) else f"{type(error).__name__}: {error}"}
            link.send({**answer, "id": message["id"]})

    def _controlled(self, message: Message) -> Message:
        do = message["do"]
        if do == "look":
            return {"rows": list(look(self.shell.user_ns))}
        if do == "pull":
            return self.kept(numbers(self._read(message["code"])), message["id"])
        if do == "hold":
            self.gate.hold(message["limits"], message["raises"])
        elif do == "abort":
            collectives.abort("dtk: freed")
        elif do == "interrupt" and self.running is not None and not self.within:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        state = {"cell": self.running, "place": self.gate.place(), "held": sorted(self.gate.held.values())}
        return {**state, "cpu": time.process_time(), "within": len(self.within), **self._collectives()}

    def _read(self, code: str) -> Any:
        """An expression's value; what would take a collective is refused: no other worker takes part in that.

        In a cell nothing is called: the main thread may hold TensorFlow's locks while it waits.
        """
        tree = ast.parse(code.strip(), mode="eval")
        if self.running is not None and not all(type(node).__name__ in _READABLE for node in ast.walk(tree)):
            words = N_("{code}: in a cell names alone are read, with attributes and numbers, such as model.weights[0]")
            raise DtkError(_(words, code=code))
        return eval(compile(tree, "<pull>", "eval"), dict(self.shell.user_ns))

    def _collectives(self) -> Message:
        """The next number of each counter, and this cell's last collectives, to be compared with other workers'."""
        return {"keys": collectives.keys(), "met": list(self.gate.met), "count": self.gate.count}


class _Reader(pickle.Unpickler):
    """Refuses what needs TensorFlow or Keras: the kernel imports neither."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in ("tensorflow", "keras", "tf_keras"):
            raise TypeError(module)
        return super().find_class(module, name)


# ---- what the kernel asks for between two cells: each task takes the loop and a message, and returns its answer if any


def _settle(loop: WorkerLoop, message: Message) -> None:
    """Every counter goes on from a number that no collective has had; enable: after an abort, or with a new peer."""
    loop.gate.hold(None)
    if message["enable"]:
        collectives.enable()
    collectives.set_keys(message["number"])


def _digests(loop: WorkerLoop, message: Message) -> Message:
    """Of all variables that are to be equal on all workers."""
    return {"digests": {name: digest_of(variable) for name, variable in _variables(loop, [])}}


def _variables(loop: WorkerLoop, names: list[str]) -> Iterator[tuple[str, Copies]]:
    """Those of these names in the namespace; without names all that are to be equal on all workers."""
    space = loop.shell.user_ns
    for name in names or [name for name in space if not name.startswith("_")]:
        if name not in space:
            raise DtkError(_(_LACKS, worker=loop.place.worker, name=name))
        for label, variable in variables_of(space[name]):
            if names or variable.kept == "mirrored":
                yield f"{name}{label}", variable


def _give(loop: WorkerLoop, message: Message) -> Message:
    """Writes the variables of these names to a file; without names all that are mirrored, and what else there is."""
    found = dict(_variables(loop, message["names"]))
    arrays = {name: variable.arrays()[0] for name, variable in found.items()}
    rest = {} if message["names"] else _rest(loop)
    write_whole(loop.place.run.path / message["file"], ship.pack_result((arrays, rest)))
    return {"count": len(arrays)}


def _take(loop: WorkerLoop, message: Message) -> None:
    """Takes over the variables that `_give` has written, of another worker of this user."""
    found = dict(_variables(loop, message["names"]))
    gives = loop.place.worker == message["giver"]
    arrays, _others = pickle.loads((loop.place.run.path / message["file"]).read_bytes())
    for name, array in arrays.items():
        if name not in found:
            if not message["names"]:
                continue
            raise DtkError(_(_LACKS, worker=loop.place.worker, name=name))
        if gives and found[name].kept != "mirrored":  # each of its replicas has its own part
            continue
        own = found[name].arrays()[0]
        if own.shape != array.shape:
            words = N_("{name} has the shape {shape} on worker {worker}, and {shape2} there")
            raise DtkError(_(words, name=name, shape=own.shape, worker=loop.place.worker, shape2=array.shape))
        found[name].assign([array])


# ---- a new process in the place of another
#
# The session's cells run again there, each up to its first collective: the other workers have those behind them and
# will not take part in them again. Variables begin with this worker's own initial values, and are synced afterwards;
# iterators begin anew.


def _rest(loop: WorkerLoop) -> dict[str, Any]:
    """What a new process has to have besides variables.

    names: of all there is. plain: values by name. optimizers: by name, the variables that each trains. progress, and
    counts of updates.
    """
    import numpy as np

    space, state = {k: value for k, value in loop.shell.user_ns.items() if not k.startswith("_")}, progress(loop.place)
    known = _trainable(loop)
    optimizers = {name: update_counts.optimizer_of(value) for name, value in space.items()}
    trained = {name: update_counts.trains(each, known) for name, each in optimizers.items() if each is not None}
    return {
        "names": list(space),
        "plain": {name: each for name, each in space.items() if isinstance(each, np.ndarray) or is_plain(each)},
        "optimizers": {name: paths for name, paths in trained.items() if paths},
        "progress": {name: getattr(state, name) for name in _PROGRESS},
        "counts": {each.name: each.state() for each in update_counts.counted()},
    }


def _replay(loop: WorkerLoop, message: Message) -> Message:
    """Runs the cells, and takes over what another worker has given and is lacking here.

    Answers which cells ended early, by number, {"cut": [...], "failed": [...]}, and names, {"taken": [...], "lacking":
    [...]}.
    """
    given = pickle.loads((loop.place.run.path / message["file"]).read_bytes())[1] if message["file"] else {}
    space = loop.shell.user_ns
    loop.local["on"] = True
    loop.gate.hold({}, raises=True)
    answer: dict[str, list[int]] = {"cut": [], "failed": []}
    try:
        for number, code in message["cells"]:
            end = shell.run(loop.shell, number, code, loop.gate.files)
            if end["status"] == "error":
                answer["cut" if end["stopped"] else "failed"].append(number)
        _build(loop, given.get("optimizers", {}))
    finally:
        loop.gate.hold(None)
        loop.local["on"] = False
    taken = {name: value for name, value in given.get("plain", {}).items() if name not in space}
    space.update(taken)
    for name, value in given.get("progress", {}).items():
        setattr(progress(loop.place), name, value)
    loop.owed = given.get("counts", {})
    _settle_counts(loop)
    return {**answer, "taken": list(taken), "lacking": [name for name in given.get("names", ()) if name not in space]}


def _build(loop: WorkerLoop, optimizers: Mapping[str, list[str]]) -> None:
    """Gives optimizers the variables that theirs have which have trained."""
    known = _trainable(loop)
    for name, paths in optimizers.items():
        optimizer = update_counts.optimizer_of(loop.shell.user_ns.get(name))
        built = optimizer is None or update_counts.trains(optimizer, known)
        if not built and all(path in known for path in paths):
            with loop.strategy.scope():
                optimizer.build([known[path] for path in paths])


def _trainable(loop: WorkerLoop) -> dict[str, Any]:
    """Each variable of the namespace and its models that can be trained, by its name."""
    known = {}
    for value in list(loop.shell.user_ns.values()):
        held = getattr(value, "trainable_variables", None)  # of a class it is a property
        for each in held if isinstance(held, (list, tuple)) and held else [value]:
            if (found := copies(each)) is not None:
                known[found.name] = each
    return known


def _settle_counts(loop: WorkerLoop) -> None:
    """Adds what was counted before this worker came, to each optimizer by its name; some come only with later cells."""
    for own in update_counts.counted():
        if own.name in loop.owed:
            own.go_on(loop.owed.pop(own.name))


def _snapshot(loop: WorkerLoop, message: Message) -> None:
    """Copies this worker's corner of the session's directory into a run's, as if its function had returned now.

    On all workers at once: weights that are put together when they are read need all of them.
    """
    place, corner = loop.place, loop.place.folder.path
    grown = [corner / name for name in ("states.bin", "units.jsonl", "events.jsonl")]
    before = {path: path.stat().st_size for path in grown if path.exists()}
    states.finish()
    _settle_counts(loop)
    progress(place).finish()
    write_updates(place)
    place.journal.event(events.Finished(place.now()))
    copy = Path(message["folder"]) / corner.name
    copy.mkdir(exist_ok=True)
    for each in corner.iterdir():
        if each.is_file() and each.suffix != ".part" and not each.name.startswith(_NOT_OF_A_RUN):
            shutil.copy(each, copy)
    (copy / "result.pkl").write_bytes(ship.pack_result(None))
    for path, size in before.items():
        os.truncate(path, size)  # here the session goes on


_TASKS: dict[str, Callable[[WorkerLoop, Message], Message | None]] = {
    "settle": _settle,
    "digests": _digests,
    "give": _give,
    "take": _take,
    "replay": _replay,
    "snapshot": _snapshot,
}
