"""A worker's network goes dead, without any privilege: its sockets to its peers drop all that arrives.

On Linux a socket takes a packet filter from its owner (`SO_ATTACH_FILTER`, socket(7)). One that accepts nothing drops
each segment before TCP sees it, acknowledgements included: the connection stays open, requests of the peers are not
heard, and neither are their answers. What this worker sends does go out, until TCP waits for acknowledgements. The
same filter on the listening socket keeps new connections away. Where there is no such filter, the sockets are shut
down, which the peers do notice. (SO_MAX_PACING_RATE, the one unprivileged brake on what goes out, lets single
messages pass: tried on Linux 6.18.)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator

__all__ = ["drop_all", "peers_sockets"]

_SO_ATTACH_FILTER = 26  # <asm-generic/socket.h>
_RETURN = 0x06  # BPF_RET | BPF_K, <linux/bpf_common.h>; with k = 0 it accepts 0 bytes of each packet
_EVERY = 0.02  # seconds between two looks for new connections


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def drop_all(ports: set[int], own: int) -> int:
    """From now on this process hears nothing from `ports`, its peers', nor on its port `own`; returns how many sockets.

    A thread does the same to connections that are made later.
    """
    done: set[tuple[int, int]] = set()
    count = _silence(ports, own, done)

    def watch() -> None:
        while True:
            time.sleep(_EVERY)  # a new descriptor is no event that anybody tells
            _silence(ports, own, done)

    threading.Thread(target=watch, daemon=True, name="dtk.faults.drop_network").start()
    return count


def peers_sockets(ports: set[int], own: int) -> list[int]:
    """This process's descriptors of TCP sockets to `ports` or on `own`; connections with itself are left out."""
    ends: dict[int, tuple[int, int]] = {}
    listens = set()
    for name in os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"):
        with contextlib.suppress(OSError), _opened(int(name)) as each:
            if each is None or each.family not in (socket.AF_INET, socket.AF_INET6) or each.type != socket.SOCK_STREAM:
                continue
            here = int(each.getsockname()[1])
            try:
                ends[int(name)] = here, int(each.getpeername()[1])
            except OSError:  # not connected: it listens
                listens.add(int(name))
                ends[int(name)] = here, 0
    both = set(ends.values())
    return [
        fd
        for fd, (here, there) in ends.items()
        if (fd in listens and here == own) or ((here == own or there in ports) and (there, here) not in both)
    ]


@contextlib.contextmanager
def _opened(fd: int) -> Iterator[socket.socket | None]:
    """A second descriptor of the socket, for the block; None for what is no socket."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):  # `socket.socket` would keep a copy of it open
        yield None
        return
    with socket.socket(fileno=os.dup(fd)) as each:
        yield each


def _silence(ports: set[int], own: int, done: set[tuple[int, int]]) -> int:
    count = 0
    for fd in peers_sockets(ports, own):
        with contextlib.suppress(OSError):  # closed in the meantime
            known = (fd, os.fstat(fd).st_ino)  # numbers of descriptors come again, those of sockets don't
            if known not in done:
                _drop(fd)
                done.add(known)
                count += 1
    return count


def _drop(fd: int) -> None:
    if sys.platform == "linux":
        instruction = _Instruction(_RETURN, 0, 0, 0)
        program = _Program(1, ctypes.pointer(instruction))
        size = ctypes.c_uint32(ctypes.sizeof(program))
        where = fd, socket.SOL_SOCKET, _SO_ATTACH_FILTER
        if ctypes.CDLL(None).setsockopt(*where, ctypes.byref(program), size) == 0:
            return
    with _opened(fd) as each:
        assert each is not None, "only sockets come here"
        each.shutdown(socket.SHUT_RDWR)
