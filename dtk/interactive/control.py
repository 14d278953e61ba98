"""A worker's second thread: answers where it is, holds it, frees it, while the main thread is in a cell."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

from dtk.compat import collectives
from dtk.interactive.answers import answer, found
from dtk.interactive.frames import NoName, frames
from dtk.interactive.inspection import local_rows, look, numbers
from dtk.worker import wire

__all__ = ["Control"]

Message = dict[str, Any]


class Control(threading.Thread):
    """life: of `serve`. Nothing here waits for TensorFlow, or for the main thread."""

    def __init__(self, life: Any, door: Path):
        super().__init__(daemon=True, name="dtk-control")
        self.life, self.gate = life, life.gate
        self.wire = wire.call(door)
        self.wire.send({"worker": life.place.worker, "channel": "control"})

    def run(self) -> None:
        self.gate.lookers.add(threading.get_ident())
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it is for the main thread
        while (message := self.wire.next()) is not None:
            try:
                answer = self._answer(message)
            except Exception as error:
                answer = {"status": "error", "type": type(error).__name__, "message": str(error)}
            self.wire.send({**answer, "id": message["id"]})

    def _answer(self, message: Message) -> Message:
        do = message["do"]
        if do == "look":
            return {"rows": look(self.life.shell.user_ns), "locals": local_rows(frames(self.gate.files))}
        if do == "beside":
            return answer(self.life, message["code"])
        if do == "read":
            return self._read(message)
        if do == "hold":
            self.gate.hold(message["limits"], message["raises"])
        elif do == "open":
            self.gate.open()
        elif do == "cancel":
            collectives.cancel()
        elif do == "abort":
            collectives.abort("dtk: freed")
        elif do == "interrupt" and self.life.running is not None and not self.life.within:
            main = threading.main_thread().ident
            assert main is not None, "it runs"
            signal.pthread_kill(main, signal.SIGINT)
        return self._where()

    def _read(self, message: Message) -> Message:
        """A value in a file, of a plain name: nothing is computed, so that it is there while the main thread waits."""
        try:
            values = [numbers(value) for _, value, _ in found(self.life, message["code"])]
        except NoName as error:
            return {"refused": str(error)}
        return self.life.kept(values[0] if len(values) == 1 else values, message["id"])

    def _where(self) -> Message:
        state = {
            "cell": self.life.running,
            "last": self.life.last,
            "place": self.gate.place(),
            "held": sorted(self.gate.held.values()),
        }
        cpu = {"cpu": time.process_time(), "within": len(self.life.within)}
        return {**state, **cpu, "keys": collectives.keys(), **self.gate.report()}
