"""A pod's container as processes on a host of netns.py, for the cluster of kubernetes_here.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
INDEX = "batch.kubernetes.io/job-completion-index"
# As a container has them: a process 1 of its own, which takes all others along, its own /proc and host name.
CONTAINED = "unshare --pid --fork --kill-child --mount --mount-proc --uts sh -c"
START = 'echo "$0" > /proc/sys/kernel/hostname; exec "$@"'


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Pod:
    """One pod of a Job: its object, and the process that is its container.

    node: its number, from 1; 0 before it has one. attached: the connection to its container, if any.
    """

    def __init__(self, job, index, folder):
        of = job["metadata"]["name"]
        self.index, self.of, self.node, self.attached, self.log = index, of, 0, None, b""
        self.process, self.reason, self.lost = None, "", False
        self.name = f"{of}-{index}-{secrets.token_hex(3)[:5]}"
        self.folder = folder / self.name
        self.spec = dict(job["spec"]["template"]["spec"])
        self.container = self.spec["containers"][0]
        self.metadata = {
            "name": self.name,
            "namespace": job["metadata"]["namespace"],
            "uid": secrets.token_hex(8),
            "creationTimestamp": now(),
            "labels": {"job-name": of, "batch.kubernetes.io/job-name": of},
            "annotations": {INDEX: str(index)},
        }
        self.status = {"phase": "Pending"}

    @property
    def object(self):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata, "spec": self.spec, "status": self.status}

    @property
    def over(self):
        return self.status["phase"] in ("Succeeded", "Failed")

    def says(self, **state):
        """Sets the state of its container: waiting=, running= or terminated=."""
        one = {"name": self.container["name"], "image": self.container["image"], "imageID": "", "restartCount": 0}
        self.status["containerStatuses"] = [{**one, "ready": "running" in state, "state": state}]

    def condition(self, kind, value, reason, message):
        self.status["conditions"] = [{"type": kind, "status": value, "reason": reason, "message": message}]

    async def run(self, network):
        """Its container, to the end, on a host of the network."""
        tmp = self.folder / "tmp"
        tmp.mkdir(parents=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith("DTK_")}
        env |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp), "DTK_SCRATCH": str(tmp / "dtk")}
        env |= {"JOB_COMPLETION_INDEX": str(self.index)}
        env |= {each["name"]: each["value"] for each in self.container.get("env", ())}
        program, *words = self.container["command"]
        inside = [sys.executable if program == "python" else program, *words]
        self.process = await asyncio.create_subprocess_exec(
            *network.command(self.node).split(),
            *CONTAINED.split(),
            *(START, self.name, *inside),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=tmp,
            start_new_session=True,
            limit=1 << 20,
        )
        if self.over:  # deleted in this moment
            self.kill()
            await self.process.communicate()
            return
        address = network.address(self.node)
        self.status |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        self.says(running={"startedAt": now()})
        await asyncio.gather(self._pass_on(self.process.stdout, 1), self._pass_on(self.process.stderr, 2))
        code = await self.process.wait()
        if not self.lost:  # otherwise its node says nothing any more
            self._ends(128 - code if code < 0 else code)

    async def _pass_on(self, stream, channel):
        while data := await stream.read(1 << 15):
            self.log = (self.log + data)[-100_000:]
            if self.attached is not None and channel in self.attached.channels:
                with contextlib.suppress(Exception):  # it went in this moment
                    await self.attached.write_message(bytes([channel]) + data, binary=True)

    def _ends(self, code):
        self.status["phase"] = "Failed" if code else "Succeeded"
        self.says(terminated={"exitCode": code, "reason": self.reason or ("Error" if code else "Completed")})
        if self.attached is not None:
            self.attached.close()

    async def hear(self, data):
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(data)
            await self.process.stdin.drain()

    def detach(self):
        """stdinOnce: the container's input ends with the first connection to it."""
        self.attached = None
        if self.container.get("stdinOnce") and self.process is not None:
            self.process.stdin.close()

    def terminate(self):
        """SIGTERM to process 1 of the container, and SIGKILL after its grace."""
        if self.process is None:
            self.status["phase"] = "Failed"
            return
        if self.process.returncode is not None:
            return
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                child.send_signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(self.spec.get("terminationGracePeriodSeconds", 30), self.kill)

    def kill(self):
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
