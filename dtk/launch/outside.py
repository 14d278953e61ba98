"""A worker that an engine starts by itself, without a kernel: `python -m dtk worker DIR`; and who it is, by the engine.

DIR is what `dtk.export` wrote: what a run's directory has of its job, or a readable program in the function's place.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch import launch
from dtk.launch.agent import MODULES, TURN_SECONDS, Agent
from dtk.launch.messages import Exited, FilePart, Kill, Refused, Start
from dtk.launch.place import Machine, tf_configs
from dtk.launch.program import Program
from dtk.records import RunFolder
from dtk.records.events import Finished, of_kind
from dtk.watch.explain import exit_in_words
from dtk.watch.waiting import called
from dtk.worker import ship

PORT = 23456  # of worker 0; the others count on from it, as several may be on one machine
PROGRAM = "train.py"  # in DIR, where the function could be written as a program
NAME_SECONDS = 300.0  # for the other workers' names to be known: Kubernetes makes a pod's name with the pod
END_SECONDS = 60.0  # for the others to end: a chief that leaves early breaks its peers' collectives
_KEY = "worker"


def main(directory: Path, out: Path | None) -> int:
    """Runs one worker to its end, its log on stdout; returns its exit code."""
    folder = launch.folder_of(directory.absolute())
    config = find(os.environ)
    if config is None:
        words = N_(
            "dtk worker: no engine says who this worker is: neither TF_CONFIG nor SLURM_PROCID nor "
            "JOB_COMPLETION_INDEX is set; `dtk run` starts workers on this machine"
        )
        raise ClusterConfigError(_(words))
    wait_for_names(config)
    root = (out or directory / "runs").absolute()
    number = os.environ.get("SLURM_JOB_ID") or os.environ.get("DTK_RUN")  # the same for all workers of one start
    run = RunFolder(root / (f"run-{number}" if number else "run"), len(config["cluster"]["worker"]))
    agent = Agent(str(root))
    try:
        return _carry_out(agent, folder, run, config)
    finally:
        agent.close()


def wait_for_names(config: Mapping[str, Any]) -> None:
    """Returns when every worker's name is known; ClusterConfigError names one that stays unknown."""
    deadline, said = time.monotonic() + NAME_SECONDS, False
    hosts = [address.rpartition(":")[0] for address in config["cluster"]["worker"]]
    while hosts:
        try:
            socket.getaddrinfo(hosts[0], None)
            del hosts[0]
        except OSError as error:
            if time.monotonic() > deadline:
                words = N_("dtk worker: no address is known of {host} ({why}); does its pod or node run?")
                raise ClusterConfigError(_(words, host=hosts[0], why=error.strerror)) from None
            if not said:
                said = True
                environment.say(_("waits until the name {host} is known", host=hosts[0]))
            time.sleep(1)


def _carry_out(agent: Agent, folder: RunFolder, run: RunFolder, config: dict[str, Any]) -> int:
    index, addresses = config["task"]["index"], config["cluster"]["worker"]
    program = folder.path / PROGRAM
    payload = ship.pack(Program(str(program), module=False), (), {}) if program.exists() else None
    job = replace(launch.job_of(folder, {}, payload), workers=len(addresses))
    run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = run.path / "began"  # by the first of the workers that see this directory: their common zero
    with contextlib.suppress(FileExistsError):
        mark.open("x").close()
    began = mark.stat().st_mtime
    hosts = [address.rpartition(":")[0] for address in addresses]
    machine = Machine(platform.node(), os.environ, environment.cores(), hosts.count(hosts[index]), run.path)
    spec = launch.spec(job, machine, run.worker(index), config, time.monotonic() - (time.time() - began))
    files = {path.name: path.read_bytes() for path in folder.path.glob("*.pkl")} | {"function.pkl": job.payload}
    files |= {"sources.json": (folder.path / "sources.json").read_bytes(), "job.json": launch.as_json(job).encode()}
    files |= {str(path.relative_to(folder.path)): path.read_bytes() for path in folder.path.glob(f"{MODULES}/**/*.py")}
    encoded = {name: base64.b64encode(data).decode() for name, data in files.items()}
    agent.take(Start(_KEY, spec, encoded))
    began_as = N_("worker {worker} of {workers} on {host}, {folder}")
    environment.say(_(began_as, worker=index, workers=len(addresses), host=platform.node(), folder=run.path))
    code = _follow(agent, run, index)
    if index == 0:
        words = None if code == 0 else _("{name} {words}", name=called("worker", 0), words=exit_in_words(code))
        run.save_attempt(1, words, 0.0, time.time() - began)
    return 128 - code if code < 0 else code


def _follow(agent: Agent, run: RunFolder, index: int) -> int:
    """Prints the worker's log until it ends, or has finished and the others have; returns its exit code."""
    finished: float | None = None
    while True:
        for message in agent.turn(TURN_SECONDS):
            match message:
                case FilePart() if message.file == f"worker-{index}/log.txt":
                    sys.stdout.buffer.write(base64.b64decode(message.data))
                    sys.stdout.flush()
                case Refused():
                    raise ClusterConfigError(_("{name}: {words}", name="dtk worker", words=message.words))
                case Exited():
                    return 0 if finished is not None else message.code
        if finished is None and of_kind(run.worker(index).events, Finished):
            finished = time.monotonic()
        if finished is not None:
            seen = [worker for worker in run.each if worker.path.exists()]  # not those of other machines' directories
            ended = all(of_kind(worker.events, Finished) or worker.error for worker in seen)
            if ended or time.monotonic() > finished + END_SECONDS:
                agent.take(Kill([_KEY]))


# ---- who a worker is, by what its engine says: TF_CONFIG, or the environment of Slurm's tasks and Kubernetes' pods


def find(env: Mapping[str, str]) -> dict[str, Any] | None:
    """The TF_CONFIG of this process: as it is set, or by SLURM_PROCID or JOB_COMPLETION_INDEX; None for none of these.

    >>> pod = {"JOB_COMPLETION_INDEX": "1", "DTK_JOB": "train", "DTK_SERVICE": "train", "DTK_WORKERS": "2"}
    >>> find(pod)["cluster"]
    {'worker': ['train-0.train:23456', 'train-1.train:23457']}
    >>> find(pod)["task"]
    {'type': 'worker', 'index': 1}
    """
    if "TF_CONFIG" in env:
        return dict(json.loads(env["TF_CONFIG"]))
    if "SLURM_PROCID" in env:
        index = int(env["SLURM_PROCID"])
        nodes = slurm_says(["scontrol", "show", "hostnames", env["SLURM_STEP_NODELIST"]]).split()
        tasks = zip(nodes, _counts(env["SLURM_STEP_TASKS_PER_NODE"]), strict=True)
        hosts = [node_address(node) for node, count in tasks for _task in range(count)]
    elif "JOB_COMPLETION_INDEX" in env:
        hosts = [f"{env['DTK_JOB']}-{k}.{env['DTK_SERVICE']}" for k in range(int(env["DTK_WORKERS"]))]
        index = int(env["JOB_COMPLETION_INDEX"])
    else:
        return None
    first = int(env.get("DTK_PORT", PORT))
    return tf_configs([f"{host}:{first + k}" for k, host in enumerate(hosts)])[index]


def _counts(text: str) -> list[int]:
    """How many tasks each node has, as Slurm writes it.

    >>> _counts("2(x3),1")
    [2, 2, 2, 1]
    """
    found = []
    for part in text.split(","):
        count, times = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part).groups()  # type: ignore[union-attr]
        found += [int(count)] * int(times or 1)
    return found


def node_address(node: str) -> str:
    """The address by which Slurm reaches a node: a name need not be known to the others' resolvers."""
    fields = dict(word.partition("=")[::2] for word in slurm_says(["scontrol", "show", "node", "-o", node]).split())
    return fields.get("NodeAddr", node)


def slurm_says(command: Sequence[str], given: str = "") -> str:
    """What one of Slurm's programs prints; ClusterConfigError with its words where it fails."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        words = N_("on Slurm: there is no {command} on this machine; run it on a login node")
        raise ClusterConfigError(_(words, command=command[0])) from None
    except subprocess.TimeoutExpired as error:
        raise ClusterConfigError(_("on Slurm: {why}", why=error)) from None
    if done.returncode:
        words = (done.stderr.strip().splitlines() or [_("ended with exit code {code}", code=done.returncode)])[-1]
        raise ClusterConfigError(_("on Slurm: {why}", why=words.removeprefix(f"{command[0]}: error: ")))
    return done.stdout
