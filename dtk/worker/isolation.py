"""A network of a process's own, with loopback alone: nobody else on the machine can connect to what listens there.

On Linux, by namespaces (man 7 network_namespaces, user_namespaces): what is started from there is in it as well. A
process that is not root's needs a user namespace besides, in which it is the same user as outside; many systems allow
that to everybody, some to nobody.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from dtk.language import _

__all__ = ["enter"]

_NEWUSER, _NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # <linux/sockios.h>, <linux/if.h>


def enter() -> None:
    """Moves this process, which has one thread, there. OSError where the system doesn't allow it or knows no such."""
    if not sys.platform.startswith("linux"):
        raise OSError(0, _("{system} has no network namespaces", system=sys.platform))
    if os.geteuid() != 0 or _unshare(_NEWNET):
        user, group = os.geteuid(), os.getegid()
        number = _unshare(_NEWUSER | _NEWNET)
        if number:
            raise OSError(number, os.strerror(number))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        (flags,) = struct.unpack_from("=H", fcntl.ioctl(asking, _GET_FLAGS, struct.pack("16sH22x", b"lo", 0)), 16)
        fcntl.ioctl(asking, _SET_FLAGS, struct.pack("16sH22x", b"lo", flags | _UP))


def _unshare(what: int) -> int:
    """The error's number; 0 where it went well."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.unshare(what) else 0
