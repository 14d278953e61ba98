"""What a machine may refuse: disk, ports, descriptors, processes. Each refusal in one sentence, with the remedy."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dtk.errors import DtkError, in_words
from dtk.language import N_, _, ngettext

__all__ = ["memory_kills", "of_the_disk", "of_the_memory", "refused_by_the_machine", "sentence"]

_ENOUGH = 1 << 16  # bytes: a disk with less can't take the few lines that a worker writes at its end
_TEMPORARY = N_("free some, or set TMPDIR to a directory on another disk")


@contextmanager
def refused_by_the_machine() -> Iterator[None]:
    """Raises DtkError in the place of an OSError whose cause and remedy are known. Also for use as a decorator."""
    try:
        yield
    except DtkError:
        raise
    except OSError as error:
        words = sentence(error)
        if words is None:
            raise
        raise DtkError(words) from error


def sentence(error: OSError) -> str | None:
    """What the system's refusal means and what to do; None where that is not known.

    >>> sentence(OSError(errno.EADDRINUSE, "Address already in use"))[:40]
    'no TCP port is free on this machine (of '
    """
    number, name = error.errno, error.filename
    if number in (errno.ENOSPC, errno.EDQUOT):
        where = name or _("the temporary files")
        return in_words(_("no space is left on the disk that has {file}", file=where), _(_TEMPORARY))
    if number in (errno.EACCES, errno.EPERM, errno.EROFS) and name:
        words = N_("{file} can't be written ({reason}); set TMPDIR to a directory of your own")
        return _(words, file=name, reason=error.strerror)
    if number in (errno.EMFILE, errno.ENFILE):
        words = N_("no further file can be opened ({limit}); close some, or allow more: ulimit -n 1024")
        return _(words, limit=_descriptors())
    if number in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        words = N_("no TCP port is free on this machine (of {ports}); end programs that hold many, or wait a minute")
        return _(words, ports=_ports())
    if number in (errno.EAGAIN, errno.ENOMEM):
        words = N_("no further process can be started ({reason}); end some, or ask for fewer workers")
        return _(words, reason=error.strerror)
    if number == errno.ENOENT and not _has_directory():
        return _("the working directory has been removed; change to another one (os.chdir)")
    return None


def _descriptors() -> str:
    try:
        import resource

        return _("the limit is {limit} a process", limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    except ImportError:
        return _("the limit is reached")


def _ports() -> str:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return _("{low} to {high}, net.ipv4.ip_local_port_range", low=low, high=high)
    except (OSError, ValueError):
        return _("those that the system gives out")


def _has_directory() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def memory_kills() -> int | None:
    """How many processes Linux has killed for want of memory, a cgroup's included; None where it doesn't say."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counts["oom_kill"])  # since Linux 4.13
    except (OSError, KeyError, ValueError):
        return None


def of_the_memory(code: int | None, before: int | None) -> str:
    """Why SIGKILL may have ended a worker; "" unless the system killed any. before: `memory_kills` as the run began."""
    now = memory_kills() if code == -9 else None
    if now is None or before is None or now <= before:
        return ""
    # Other users' processes are among them, and which ones, the kernel's log alone says.
    return ngettext(
        "the system has killed {n} process for want of memory meanwhile; if it was that one: smaller batches, fewer "
        "workers, or more memory",
        "the system has killed {n} processes for want of memory meanwhile; if it was one of them: smaller batches, "
        "fewer workers, or more memory",
        now - before,
    )


def of_the_disk(folder: Path) -> str:
    """What is to be added about a worker that ended without a word: "" unless the disk of its directory is full."""
    try:
        full = shutil.disk_usage(folder).free < _ENOUGH
    except OSError:
        return ""
    words = N_("no space is left on the disk that has the run's directory: {remedy}")
    return _(words, remedy=_(_TEMPORARY)) if full else ""
