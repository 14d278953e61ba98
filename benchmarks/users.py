"""Many people on one machine, as on a JupyterHub: does each one's run work, within his limits, apart from the others?

    python benchmarks/users.py [--users 10]

Each user is a program of its own with its own HOME, temporary directory and JUPYTERHUB_USER, in a cgroup with a limit
of memory and of cores where this user may make cgroups (version 1 or 2; otherwise CPU_LIMIT states that of cores).
All train two workers at once, one in a cgroup with too little memory, and one is killed on the way. Afterwards: what
each computed, what it was told, whose files others could read, and what is left. Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

import dtk
from dtk import limits

CORES, MEMORY, TOO_LITTLE = 1, 2_000_000_000, 400_000_000  # bytes
PATIENCE = 900  # s, for all of them
ROOT = Path(__file__).parent.parent


def train(strategy, user):
    import keras
    import numpy as np

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    x, y = np.full((64, 4), user, "float32"), np.zeros((64, 1), "float32")
    model.fit(x, y, batch_size=32, epochs=10, verbose=0, callbacks=[dtk.Recorder()])
    return user


def one(user: int) -> None:
    """A user's program: prints what came of his run as JSON."""
    began = time.monotonic()
    told: dict[str, Any] = {"cores": limits.cores().value, "free": limits.memory().source}
    try:
        run = dtk.run(train, args=(user,), workers=2, seed=user)
        told |= {"results": run.results, "loss": float(run.records.loss.tail(2).sum()), "dir": str(run.dir)}
    except dtk.DtkError as error:
        told["said"] = str(error)
    print(json.dumps({**told, "seconds": time.monotonic() - began}), flush=True)


@contextlib.contextmanager
def group(name: str, memory: int) -> Iterator[Callable[[], None] | None]:
    """What a child process calls to enter a cgroup of its own; None where none can be made."""
    roots = {"memory": limits.CGROUPS / "memory", "cpu": limits.CGROUPS / "cpu"}
    first = os.access(roots["memory"], os.W_OK) and (roots["memory"] / "memory.limit_in_bytes").exists()
    folders = [root / name for root in roots.values()] if first else [limits.CGROUPS / name]
    try:
        for folder in folders:
            folder.mkdir()
        if first:
            (folders[0] / "memory.limit_in_bytes").write_text(str(memory))
            (folders[1] / "cpu.cfs_quota_us").write_text(str(CORES * 100_000))
        else:
            (folders[0] / "memory.max").write_text(str(memory))
            (folders[0] / "cpu.max").write_text(f"{CORES * 100_000} 100000")
    except OSError:
        remove(folders)
        yield None
        return

    def enter() -> None:
        for folder in folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    try:
        yield enter
    finally:
        remove(folders)


def remove(folders: list[Path]) -> None:
    deadline = time.monotonic() + 10
    for folder in folders:
        while folder.is_dir():
            try:
                folder.rmdir()
            except OSError:  # a process in it is about to end
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)


def start(user: int, place: Path, enter: Callable[[], None] | None) -> subprocess.Popen[str]:
    home = place / f"user-{user}"
    home.mkdir(mode=0o700)
    env = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "JUPYTERHUB_USER": f"user-{user}", "DTK_LIVE": "off"}
    if enter is None:
        env["CPU_LIMIT"] = str(CORES)
    env["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "benchmarks")))
    code = f"import users; users.one({user})"
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=pipe, text=True, preexec_fn=enter)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--users", type=int, default=10)
    count = parser.parse_args().users
    poor, killed = count - 1, count - 2
    wrong: list[str] = []
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dtk-users-")))
        programs = []
        for user in range(count):
            memory = TOO_LITTLE if user == poor else MEMORY
            enter = stack.enter_context(group(f"dtk-user-{os.getpid()}-{user}", memory))
            programs.append(start(user, place, enter))
        time.sleep(8)  # the killed one is in the midst of its start
        of_killed = psutil.Process(programs[killed].pid).children(recursive=True)
        programs[killed].send_signal(signal.SIGKILL)
        most = 0.0
        deadline = time.monotonic() + PATIENCE
        while any(program.poll() is None for program in programs) and time.monotonic() < deadline:
            most = max(most, used(programs))
            time.sleep(0.5)
        told = [
            json.loads(program.communicate()[0].splitlines()[-1] if u != killed else "{}")
            for u, program in enumerate(programs)
        ]
        for user in range(count):
            if user not in (poor, killed):
                wrong += check(user, told[user])
        said = told[poor].get("said", "")
        if enter is not None and "shut down other kernels" not in said:
            wrong.append(f"user {poor} had too little memory and was told: {said or told[poor]}")
        readable = [path for path in place.glob("user-*/dtk-*/runs/*") if path.stat().st_mode & 0o077]
        wrong += [f"{path} can be read by others" for path in readable]
        time.sleep(3)
        wrong += [f"process {process.pid} of the killed user is left" for process in of_killed if process.is_running()]
        report(told, [killed, poor], enter is not None, most)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def used(programs: list[subprocess.Popen[str]]) -> float:
    """Bytes (PSS) of the programs and of all that dtk runs for them."""
    held = 0.0
    for program in programs:
        with contextlib.suppress(psutil.Error):  # it has just ended
            own = psutil.Process(program.pid)
            held += sum(each.memory_full_info().pss for each in (own, *own.children(recursive=True)))
    return held


def check(user: int, told: dict[str, Any]) -> Iterator[str]:
    if told.get("results") != [user, user] or told["loss"] != (4.0 * user) ** 2:
        yield f"user {user}: {told}"
    elif told["cores"] != CORES or f"user-{user}" not in told["dir"]:
        yield f"user {user} saw {told['cores']} cores, and ran in {told['dir']}"


def report(told: list[dict[str, Any]], apart: list[int], grouped: bool, most: float) -> None:
    seconds = [each["seconds"] for user, each in enumerate(told) if user not in apart]
    limit = "cgroups" if grouped else "CPU_LIMIT, and no limit of memory"
    print(f"{len(told)} users, {CORES} core and {MEMORY / 1e6:,.0f} MB each by {limit}, two workers each")
    print(f"runs that went well: {len(seconds)} of {len(seconds)}, {min(seconds):.0f} to {max(seconds):.0f} s")
    print(f"memory of all at most: {most / 1e6:,.0f} MB (PSS)")
    print(f"too little memory: {told[apart[1]].get('said')}")


if __name__ == "__main__":
    sys.exit(main())
