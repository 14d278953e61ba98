"""A worker's network goes dead, without any privilege: sockets that nobody answers take the places of its own.

`dup2` puts another socket under the number of each that leads to a peer. The old one stays open, and nobody reads it:
no connection breaks that a peer could notice, but neither side hears the other any more. So with the listening socket:
the system still takes new connections, and nobody answers them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

__all__ = ["drop_all"]

_EVERY = 0.02  # seconds between two looks for new connections


def drop_all(ports: set[int], own: int) -> None:
    """From now on this process and its peers, at `ports`, hear nothing of each other, nor others at its port `own`.

    A thread does the same to connections that are made later.
    """
    kept: dict[int, socket.socket] = {}  # old sockets, by new numbers: the far ends of those in their places
    _silence(ports, own, kept)

    def watch() -> None:
        while True:
            time.sleep(_EVERY)  # a new descriptor is no event that anybody tells
            _silence(ports, own, kept)

    threading.Thread(target=watch, daemon=True, name="dtk.faults.drop_network").start()


def _silence(ports: set[int], own: int, kept: dict[int, socket.socket]) -> None:
    ends = {}
    for fd in {int(name) for name in os.listdir("/dev/fd")} - {*kept}:
        with contextlib.suppress(OSError):  # no socket, or closed in the meantime
            ends[fd] = _ends(fd)
    both = {*ends.values()}
    for fd, (here, there) in ends.items():
        # Of a connection with itself, which stays, both ends are here.
        if (here == own or there in ports) and (there, here) not in both:
            with contextlib.suppress(OSError):
                _replace(fd, kept)


def _ends(fd: int) -> tuple[int, int]:
    """The ports of a TCP socket, its own and its peer's, 0 for none; (0, 0) for another socket."""
    each = socket.socket(fileno=fd)
    try:
        if each.family not in (socket.AF_INET, socket.AF_INET6) or each.type != socket.SOCK_STREAM:
            return 0, 0
        here = each.getsockname()[1]
        try:
            return here, each.getpeername()[1]
        except OSError:  # not connected: it listens
            return here, 0
    finally:
        each.detach()


def _replace(fd: int, kept: dict[int, socket.socket]) -> None:
    blocks = os.get_blocking(fd)
    dead, far = socket.socketpair()
    with dead:
        dead.setblocking(blocks)
        kept[os.dup(fd)] = far
        os.dup2(dead.fileno(), fd)
