"""Two hosts in namespaces of their own and an engine on them: machines, for `failures.py`, that may break."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

import netns
import ray_here
import slurm_here

import dtk

HOSTS = (1, 2)


class Here:
    """Hosts n1 and n2, reached by a command. own: what names the engine's processes, which stay on the hosts."""

    own: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()  # for the network, on a host that is cut off: one of the engine's that should end
    module = netns

    def __init__(self, stack: contextlib.ExitStack):
        # Not below a TMPDIR: the paths of Ray's sockets may have 107 bytes.
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dtk-failures-", dir="/tmp")))
        self.folder.chmod(0o755)
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)  # the scratch directory is in it
        self.network = stack.enter_context(netns.Network(len(HOSTS)))
        self.stale: set[str] = set()  # files on a host that died
        self.begin(stack)

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Starts the engine."""

    def place(self):
        return dtk.places.Hosts(self.network.commands, python=sys.executable)

    def called(self, k: int) -> str:
        """What sentences call host k."""
        return self.network.address(k)

    def repair(self, k: int) -> None:
        """Brings host k back into the cluster after its death, or its absence."""

    def left(self) -> dict[str, str]:
        """Processes and files on the hosts that are not the engine's; each with more words on it."""
        found = {}
        for k in HOSTS:
            for process in self.network.processes(k):
                with contextlib.suppress(Exception):  # it has ended meanwhile
                    words = " ".join(process.cmdline()) or process.name()
                    if not any(name in words for name in self.own):
                        found[f"n{k}: process {process.pid}"] = words[:120]
            # A stamp says that the cached data was read through once: for the next run, too.
            found |= {f"n{k}: {file}": "" for file in self.network.files(k) if not file.startswith("checked-")}
        return found

    def ours(self, k: int) -> dict[str, str]:
        """Processes on host k that need no network to end."""
        left = {what: words for what, words in self.left().items() if what.startswith(f"n{k}: process")}
        return {what: words for what, words in left.items() if not any(name in words for name in self.waits)}


class OnSlurm(Here):
    own, waits, module = ("slurmd ",), ("slurmstepd",), slurm_here

    def begin(self, stack):
        (self.folder / "slurm").mkdir()
        self.storage = self.folder / "storage"
        self.slurm = stack.enter_context(slurm_here.Slurm(self.folder / "slurm", self.network))

    def place(self):
        return dtk.places.Slurm(partition="short", storage=str(self.storage))

    def called(self, k):
        return f"n{k}"

    def repair(self, k):
        self.slurm.kill(f"n{k}")
        self.slurm.start(f"n{k}")

    def left(self):
        files = [f"storage: {path.name}" for path in self.storage.glob("*")]
        return super().left() | dict.fromkeys([*files, *(f"job {job}" for job in self.slurm.jobs())], "")


class OnRay(Here):
    own, module = ray_here.OWN, ray_here

    def begin(self, stack):
        (self.folder / "nodes").mkdir()
        self.ray = stack.enter_context(ray_here.Ray(self.folder / "nodes", len(HOSTS), network=self.network))

    def place(self):
        return dtk.places.Ray()

    def called(self, k):
        return f"n{k}"

    def repair(self, k):
        until = time.monotonic() + 20  # for the cluster to notice, where it was away
        while self.ray.alive(k) and time.monotonic() < until:
            time.sleep(0.5)
        if not self.ray.alive(k):
            self.ray.kill(k)
            self.ray.add(k)


HERE = {"hosts": Here, "slurm": OnSlurm, "ray": OnRay}


def reason_to_skip(on: str) -> str:
    """Why there can be no such place here; "" where there can."""
    return netns.reason_to_skip() or HERE[on].module.reason_to_skip()


def other_tensorflow(folder: Path) -> tuple[Path, Path]:
    """What says which TensorFlow is installed, and a copy that says another version."""
    site = Path(str(importlib.metadata.distribution("tensorflow").locate_file("")))
    found = next(site.glob("tensorflow-[0-9]*.dist-info/METADATA"))
    other = folder / "METADATA"
    version = importlib.metadata.version("tensorflow")
    other.write_text(found.read_text().replace(f"\nVersion: {version}\n", "\nVersion: 2.0.0\n", 1))
    return found, other
