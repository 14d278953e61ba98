"""An agent that a command starts on another machine: lines of JSON by its pipes, as long as there is a kernel.

The kernel's end of the pipes closes with it, where both are on one machine. From another machine that takes the
network, which may be cut: so the kernel gives signs of life, and without them the agent ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

from dtk.launch.agent import Agent

__all__ = ["ALIVE_SECONDS", "LEASE_SECONDS", "main", "serve"]

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
    begun, heard = b"", time.monotonic()
    while True:
        if agent.wait(commands):
            data = os.read(commands, 1 << 20)
            if not data:
                return
            heard = time.monotonic()
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                agent.take(json.loads(line))
        elif time.monotonic() - heard > LEASE_SECONDS:
            raise TimeoutError
        for message in agent.turn(0):
            _put(events, json.dumps(message).encode() + b"\n")


def _put(events: int, data: bytes) -> None:
    while data:
        if not select.select([], [events], [], LEASE_SECONDS)[1]:
            raise TimeoutError
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(events, data) :]
