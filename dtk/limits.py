"""What this user may use of the machine, cores and memory, by whichever limit is the tightest here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dtk.language import N_, _

__all__ = ["Limit", "cores", "held", "memory", "own_core"]

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
CPUS = Path("/sys/devices/system/cpu")
_UNLIMITED = 1 << 60  # bytes; cgroup v1 has no word for "no limit", but a number near 2**63


@dataclass(frozen=True, order=True)
class Limit:
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
        found += [Limit(quota, N_("a cgroup's quota")) for quota in _quotas(folder)]
    stated = _stated("CPU_LIMIT")
    if stated:
        found.append(Limit(stated, "CPU_LIMIT"))
    least = min(limit for limit in found if limit.value > 0)
    return Limit(max(1, int(least.value)), least.source)


def own_core(index: int, share: int) -> int | None:
    """The core that process `index` (from 0) of `share` keeps to where they outnumber the cores; None for any core.

    Processes that take turns on one core find their data in its cache; docs/explanation/scaling.md has what that gives.
    None where it would be unfair or in others' way: the processes can't be divided evenly among the cores, some cores
    are faster than others, or a quota holds, with which everybody would keep to the same cores. And none where each
    has a core or more: it would give less than it costs when another program takes one of them.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    ours = sorted(os.sched_getaffinity(0))
    if not 0 <= index < share or share <= len(ours) or share % len(ours) or len(ours) != cores().value:
        return None
    return ours[index * len(ours) // share] if len({_fastest(core) for core in ours}) == 1 else None


def _fastest(core: int) -> str:
    """kHz; "" where nothing tells, as in most virtual machines."""
    return _read(CPUS / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq")


def memory() -> Limit:
    """Bytes that are still free, by the machine, the cgroups (v2, v1; also those above) and `MEM_LIMIT`.

    What a group could give back at once (its inactive file cache) counts as free, as it does for the system's own
    "available". Of `MEM_LIMIT`, which JupyterHub sets in bytes, what this process and its children hold is taken off.
    """
    import psutil

    found = [Limit(psutil.virtual_memory().available, N_("this machine"))]
    for folder in _groups("memory"):
        found += [Limit(max(0.0, free), N_("a cgroup's memory limit")) for free in _free(folder)]
    stated = _stated("MEM_LIMIT")
    if stated:
        found.append(Limit(max(0.0, stated - _held()), "MEM_LIMIT"))
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


def _stated(name: str) -> float:
    try:
        return max(0.0, float(os.environ.get(name, "")))
    except ValueError:
        return 0.0  # not set, or no number: no limit is stated


def _held() -> float:
    """Bytes that this process and its children hold."""
    import psutil

    own = psutil.Process()
    return sum(held(process.pid) for process in (own, *own.children(recursive=True)))


def held(pid: int) -> float:
    """Bytes that a process holds, shared pages divided among those that share them (PSS); 0 where it has just ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        return float(process.memory_full_info().pss if sys.platform == "linux" else process.memory_info().rss)
    except psutil.Error:
        return 0.0
