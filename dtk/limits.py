"""What this user may use of the machine, by whichever limit is the tightest here, and what the machine may refuse."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dtk.errors import DtkError, in_words
from dtk.language import N_, _

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # bytes; cgroup v1 has no word for "no limit", but a number near 2**63
_ENOUGH = 1 << 16  # bytes: a disk with less can't take the few lines that a worker writes at its end


class Limit(NamedTuple):
    """value: cores, or bytes of memory that are still free. source: what sets it, in words, marked for translation."""

    value: float
    source: str

    def __str__(self) -> str:
        return _("{limit:g}, by {source}", limit=self.value, source=_(self.source))


def cores() -> Limit:
    """The least of affinity mask, cgroup quotas (v2, v1; also of the groups above) and `CPU_LIMIT`; from 1 up.

    JupyterHub's spawners set `CPU_LIMIT`, whether or not a cgroup holds it.
    """
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = [Limit(mask, N_("this machine") if mask == os.cpu_count() else N_("the affinity mask (taskset)"))]
    for folder in _groups("cpu"):
        found += [Limit(quota, N_("a cgroup's limit")) for quota in _quotas(folder)]
    with contextlib.suppress(KeyError, ValueError):  # not set, or no number: no limit is stated
        found.append(Limit(float(os.environ["CPU_LIMIT"]), "CPU_LIMIT"))
    least = min(limit for limit in found if limit.value > 0)
    return Limit(max(1, int(least.value)), least.source)


def own_core(index: int, share: int) -> int | None:
    """The core that process `index` (from 0) of `share` keeps to where they outnumber the cores; None for any core.

    Processes that take turns on one core find their data in its cache; docs/explanation/scaling.md has what that gives.
    None where it would be unfair or in others' way: the processes can't be divided evenly among the cores, or a quota
    holds, with which everybody would keep to the same cores. And none where each has a core or more: it would give less
    than it costs when another program takes one of them.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    ours = sorted(os.sched_getaffinity(0))
    if not 0 <= index < share or share <= len(ours) or share % len(ours) or len(ours) != cores().value:
        return None
    return ours[index * len(ours) // share]


def memory() -> Limit:
    """Bytes that are still free, by the machine and the cgroups (v2, v1; also those above).

    What a group could give back at once (its inactive file cache) counts as free, as in the system's "available".
    """
    import psutil

    found = [Limit(psutil.virtual_memory().available, N_("this machine"))]
    for folder in _groups("memory"):
        found += [Limit(max(0.0, free), N_("a cgroup's limit")) for free in _free(folder)]
    return min(found)


def _groups(controller: str) -> Iterator[Path]:
    """The directories of this process's own group and of those above it; in a container the root is the container's."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return  # not Linux
    for number, names, path in (line.split(":", 2) for line in lines):
        version_2 = number == "0" and not names
        if version_2 or controller in names.split(","):
            root = CGROUPS if version_2 else CGROUPS / controller
            own = root / path.lstrip("/")
            for folder in (own, *own.parents):
                if folder.is_relative_to(root) and folder.is_dir():
                    yield folder


def _quotas(folder: Path) -> Iterator[float]:
    words = _read(folder / "cpu.max").split()  # v2: "200000 100000", or "max 100000"
    if len(words) == 2 and words[0] != "max":
        yield float(words[0]) / float(words[1])
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota and period and float(quota) > 0:  # v1: -1 is no limit
        yield float(quota) / float(period)


def _free(folder: Path) -> Iterator[float]:
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = _read(folder / limit), _read(folder / used)
        if now and most.isdecimal() and int(most) < _UNLIMITED:
            stat = dict(line.split() for line in _read(folder / "memory.stat").splitlines())
            yield int(most) - int(now) + int(stat.get(cache, 0))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def nvidia_smi(*options: str) -> str:
    """What NVIDIA's program prints of the GPUs; "" where there is no such program, or it fails."""
    try:
        done = subprocess.run(["nvidia-smi", *options], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


# ---- what the machine refuses


@contextlib.contextmanager
def refused_by_the_machine() -> Iterator[None]:
    """Raises DtkError in the place of an OSError whose cause and remedy are known. Also for use as a decorator."""
    try:
        yield
    except OSError as error:  # also one of dtk's, which has no number and stays as it is
        words = sentence(error)
        if words is None:
            raise
        raise DtkError(words) from error


def sentence(error: OSError) -> str | None:
    """What the system's refusal means and what to do; None where that is not known.

    >>> sentence(OSError(errno.EADDRINUSE, "Address already in use"))[:40]
    'no TCP port is free on this machine; end'
    """
    number, name = error.errno, error.filename
    if number in (errno.ENOSPC, errno.EDQUOT):
        what = _("no space is left on the disk that has {file}", file=name or _("the temporary files"))
        return in_words(what, _("free some, or set TMPDIR to a directory on another disk"))
    if number in (errno.EACCES, errno.EPERM, errno.EROFS) and name:
        words = N_("{file} can't be written ({reason}); set TMPDIR to a directory of your own")
        return _(words, file=name, reason=error.strerror)
    if number in (errno.EMFILE, errno.ENFILE):
        words = N_(
            "no further file can be opened (the limit is {limit} a process); close some, or allow more: ulimit -n 1024"
        )
        return _(words, limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if number in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return _("no TCP port is free on this machine; end programs that hold many, or wait a minute")
    if number in (errno.EAGAIN, errno.ENOMEM):
        words = N_("no further process can be started ({reason}); end some, or ask for fewer workers")
        return _(words, reason=error.strerror)
    return None


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
    words = N_(
        "the system has killed processes for want of memory meanwhile ({n}); if it was one of them: smaller batches, "
        "fewer workers, or more memory"
    )
    return _(words, n=now - before)


def of_the_disk(folder: Path) -> str:
    """What is to be added about a worker that ended without a word: "" unless the disk of its directory is full."""
    try:
        full = shutil.disk_usage(folder).free < _ENOUGH
    except OSError:
        return ""
    return sentence(OSError(errno.ENOSPC, "", _("the run's directory"))) or "" if full else ""
