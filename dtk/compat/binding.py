"""TensorFlow's servers listen on one address of this machine, in place of all.

A gRPC server of TensorFlow binds to the wildcard, whatever TF_CONFIG says, and accepts whoever connects: that is code
execution for anybody who reaches the machine. No option of TensorFlow's changes it (2.15 to 2.22;
https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md#running-a-tensorflow-server: keep them off the
network). So wherever the data of its libraries hold the address of the C library's `bind`, they get that of a function
of ours, which puts another address in the wildcard's place and calls the real one. What binds elsewhere in the process
goes past it. Python loads libraries with all of these addresses filled in (`sys.getdlopenflags()`).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from dtk.compat.libraries import tf

_BIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, use_errno=True)
_real: Any = _BIND(("bind", ctypes.CDLL(None)))

_address: bytes | None = None  # of IPv4; None: the wildcard stays


def narrow(host: str) -> bool:
    """The servers that this process, which has imported TensorFlow, makes from now on listen on `host` alone.

    host: an address of this machine, or a name that has one address alone, of IPv4; with any other they listen
    everywhere, as TensorFlow's do, and so they do with `DTK_LISTEN=all`.

    Returns:
        Whether they will listen there alone, or are to listen everywhere because DTK_LISTEN says so.
    """
    global _address
    if os.environ.get("DTK_LISTEN") == "all":
        return True
    _address = _only_address(host)
    return _address is not None and patch() > 0


def _only_address(host: str) -> bytes | None:
    try:
        # "localhost" has an address of IPv6 as well, and gRPC takes the first that answers.
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None, socket.AF_INET)}
    except OSError:
        return None  # a name that only others know
    only = min(found)
    # Debian's /etc/hosts gives a machine's own name an address that no other machine reaches.
    elsewhere = only.startswith("127.") and host != "localhost" and not host.startswith("127.")
    return None if len(found) > 1 or elsewhere else socket.inet_aton(only)


@cache
def patch() -> int:
    """In a process that has imported TensorFlow: its calls of `bind` go through ours; the number of places changed.

    0 where none was found: on another system than Linux, or because TensorFlow binds in another way now.
    """
    real, ours = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (ctypes.CDLL(None).bind, _ours))
    return sum(_write(place, ours) for place in list(_places(real)))


@_BIND
def _ours(descriptor: int, address: int, length: int) -> int:
    """`bind`, with one address in the wildcard's place. Called by the thread that makes the server."""
    given = ctypes.string_at(address, length)
    changed = _narrowed(given)
    ctypes.set_errno(0)
    if changed is given:
        return int(_real(descriptor, address, length))
    buffer = ctypes.create_string_buffer(changed, len(changed))
    status = int(_real(descriptor, ctypes.addressof(buffer), len(changed)))
    if status and ctypes.get_errno() == errno.EADDRNOTAVAIL:  # a name for another machine's address, which leads here
        return int(_real(descriptor, address, length))
    return status


def _narrowed(given: bytes) -> bytes:
    """A `sockaddr` with our address where it has the wildcard; otherwise the same object."""
    if _address is None or len(given) < 2:
        return given
    (family,) = struct.unpack_from("=H", given)
    if family == socket.AF_INET6 and given[8:24] == bytes(16):
        return given[:8] + bytes(10) + b"\xff\xff" + _address + given[24:]
    return given[:4] + _address + given[8:] if family == socket.AF_INET and given[4:8] == bytes(4) else given


def _places(value: int) -> Iterator[int]:
    """Where the data of TensorFlow's libraries hold this address: where they may write, and what lies right before.

    There the loader has filled in the addresses of other libraries' functions, and made it read-only (RELRO).
    """
    import numpy as np

    maps, home = Path("/proc/self/maps"), str(Path(tf.__file__).resolve().parent)
    lines = [line.split(maxsplit=5) for line in maps.read_text().splitlines()] if maps.exists() else []
    for before, each in pairwise(lines):
        if each[1] != "rw-p" or not each[-1].startswith(home):
            continue
        for span, *_ in (before, each) if (before[1], before[-1]) == ("r--p", each[-1]) else (each,):
            start, end = (int(at, 16) for at in span.split("-"))
            words = np.ctypeslib.as_array((ctypes.c_uint64 * ((end - start) // 8)).from_address(start))
            yield from (start + 8 * int(k) for k in np.flatnonzero(words == value))


def _write(place: int, value: int) -> bool:
    """Into a page that may be read-only."""
    page = place - place % mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE):
        return False
    ctypes.c_uint64.from_address(place).value = value
    return True
