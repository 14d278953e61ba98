"""TensorFlow's servers listen on one address of this machine, in place of all.

A gRPC server of TensorFlow binds to the wildcard, whatever TF_CONFIG says, and accepts whoever connects: that is code
execution for anybody who reaches the machine. No option of TensorFlow's changes it (2.15 to 2.22;
https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md#running-a-tensorflow-server: keep them off the
network). So the relocation slots through which its libraries call the C library's `bind` get a function of ours, which
puts another address in the wildcard's place and calls the real one. What binds elsewhere in the process goes past it.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import mmap
import os
import platform
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dtk.compat.lazy import tf

__all__ = ["listen_on", "narrow", "patch"]

_JUMP_SLOT = {"x86_64": 7, "aarch64": 1026}.get(platform.machine(), 0)
_STRTAB, _SYMTAB, _STRSZ, _JMPREL, _PLTRELSZ = 5, 6, 10, 23, 2
_DYNAMIC = 2  # a kind of program header
_SYMBOL_WORDS = 6  # of four bytes, the first of which is the name
_BIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, use_errno=True)

_address: bytes | None = None  # 16 bytes, IPv4 in IPv6's form; None: the wildcard stays


def listen_on(host: str) -> bool:
    """The servers that this process makes from now on listen there alone, where `patch` finds the slots.

    host: an address of this machine, or a name that has one address alone; returns False for any other, and then they
    listen everywhere, as TensorFlow's do.
    """
    global _address
    _address = _only_address(host)
    return _address is not None


def narrow(host: str) -> bool:
    """In a process that has imported TensorFlow: `listen_on` and `patch`. `DTK_LISTEN=all` leaves everything as it is.

    Returns:
        Whether its servers will listen there alone, or are to listen everywhere because DTK_LISTEN says so.
    """
    return os.environ.get("DTK_LISTEN") == "all" or (listen_on(host) and patch() > 0)


def _only_address(host: str) -> bytes | None:
    try:
        given = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None  # a name that only others know
    found = {ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in given}
    # "localhost" has one of each kind, and gRPC takes the first that answers.
    known: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = sorted(found, key=lambda each: each.version)
    known = [each for each in known if each.version == known[0].version]
    # Debian's /etc/hosts gives a machine's own name an address that no other machine reaches.
    if len(known) != 1 or (known[0].is_loopback and not _is_loopback(host)):
        return None
    (only,) = known
    return only.packed if only.version == 6 else ipaddress.ip_address(f"::ffff:{only}").packed


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@cache
def patch() -> int:
    """In a process that has imported TensorFlow: its calls of `bind` go through ours; the number of slots.

    0 where none was found: on another system or processor, or because TensorFlow binds in another way now.
    """
    if not sys.platform.startswith("linux") or not _JUMP_SLOT:
        return 0
    address = ctypes.cast(_ours, ctypes.c_void_p).value
    assert address is not None
    changed = 0
    for library in _libraries():
        for slot in library.slots(b"bind"):
            changed += _write(slot, address)
    return changed


@cache
def _real() -> Any:
    return _BIND(("bind", ctypes.CDLL(None)))


@_BIND
def _ours(descriptor: int, address: int, length: int) -> int:
    """`bind`, with one address in the wildcard's place. Called by the thread that makes the server."""
    given = ctypes.string_at(address, length)
    changed = _narrowed(given)
    ctypes.set_errno(0)
    if changed is given:
        return int(_real()(descriptor, address, length))
    buffer = ctypes.create_string_buffer(changed, len(changed))
    status = int(_real()(descriptor, ctypes.addressof(buffer), len(changed)))
    if status and ctypes.get_errno() == errno.EADDRNOTAVAIL:  # a name for another machine's address, which leads here
        return int(_real()(descriptor, address, length))
    return status


def _narrowed(given: bytes) -> bytes:
    """A `sockaddr` with our address where it has the wildcard; otherwise the same object."""
    if _address is None or len(given) < 2:
        return given
    (family,) = struct.unpack_from("=H", given)
    if family == socket.AF_INET6 and given[8:24] == bytes(16):
        return given[:8] + _address + given[24:]
    if family == socket.AF_INET and given[4:8] == bytes(4) and _address[:12] == bytes(10) + b"\xff\xff":
        return given[:4] + _address[12:] + given[8:]
    return given


@dataclass(frozen=True)
class _Library:
    """A shared library of this process. base: what its addresses are counted from."""

    base: int
    dynamic: dict[int, int]

    def slots(self, name: bytes) -> Iterator[int]:
        """Addresses of the slots through which it calls the function `name` of another library."""
        import numpy as np

        if not {_STRTAB, _STRSZ, _JMPREL, _PLTRELSZ} <= self.dynamic.keys():
            return
        strings = ctypes.string_at(self._at(_STRTAB), self.dynamic[_STRSZ])
        relocation = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
        rows = np.frombuffer(_memory(self._at(_JMPREL), self.dynamic[_PLTRELSZ]), relocation)
        rows = rows[(rows["info"] & 0xFFFFFFFF) == _JUMP_SLOT]
        if not len(rows):
            return
        numbers = rows["info"] >> np.uint64(32)
        words = _SYMBOL_WORDS * (int(numbers.max()) + 1)
        # Of each symbol: where its name begins.
        names = np.frombuffer(_memory(self._at(_SYMTAB), 4 * words), "<u4")[::_SYMBOL_WORDS]
        for offset in rows["offset"][np.isin(names[numbers], list(_ends(strings, name)))]:
            yield self.base + int(offset)

    def _at(self, tag: int) -> int:
        """glibc has added the base to the addresses in this table already; musl and the vDSO have not."""
        value = self.dynamic.get(tag, 0)
        return value if not value or value >= self.base else self.base + value


def _memory(at: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(at)).cast("B")


def _ends(strings: bytes, name: bytes) -> Iterator[int]:
    """Where `name` ends a string of the table: the tail of a longer one is used for it as well."""
    at = strings.find(name + b"\0")
    while at >= 0:
        yield at
        at = strings.find(name + b"\0", at + 1)


class _Info(ctypes.Structure):
    """What `dl_iterate_phdr` says of a library (struct dl_phdr_info)."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16),
    )


def _libraries() -> list[_Library]:
    """TensorFlow's own."""
    home = str(Path(tf.__file__).parent).encode()
    found: list[_Library] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_size_t, ctypes.c_void_p)
    def see(info: Any, _size: int, _data: Any) -> int:
        each = info.contents
        if (each.name or b"").startswith(home):
            for k in range(each.count):
                kind, _flags, _offset, at = struct.unpack("=IIQQ", ctypes.string_at(each.headers + 56 * k, 24))
                if kind == _DYNAMIC:
                    found.append(_Library(each.base, _table(each.base + at)))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(see, None)
    return found


def _table(at: int) -> dict[int, int]:
    found: dict[int, int] = {}
    while True:
        tag, value = struct.unpack("=qQ", ctypes.string_at(at, 16))
        if tag == 0:
            return found
        found[tag] = value
        at += 16


def _write(slot: int, value: int) -> bool:
    """Into a page that may be for reading alone since the library was loaded (RELRO)."""
    page = slot - slot % mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE):
        return False
    ctypes.c_uint64.from_address(slot).value = value
    return True
