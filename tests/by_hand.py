"""Programs that run without dtk: the code of docs/guide/without_dtk.md, its commands, and what its processes leave."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil

from dtk.launch.place import free_ports

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guide" / "without_dtk.md").read_text(encoding="utf-8")
SECONDS = 240.0


def environment(**changes):
    """A plain process's environment, which finds this checkout, and nothing of a cluster."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    inherited = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "TF_USE_LEGACY_KERAS")}
    return {**inherited, **own, **changes}


def blocks(language):
    """The page's blocks of code in this language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def started_by_hand(folder, program, **changes):
    """Runs the page's commands on a program, in their own processes; returns what each worker printed."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    (commands,) = blocks("bash")
    for written, port in zip(("4001", "4002"), free_ports(2), strict=True):
        assert written in commands
        commands = commands.replace(written, str(port))
    finished(["bash", "-c", commands], folder, **changes)
    return [(folder / f"worker-{index}.log").read_text(encoding="utf-8") for index in range(2)]


def finished(command, folder, **changes):
    """Waits for a command and ends what it has left; returns what it printed."""
    with (folder / "printed.log").open("w+", encoding="utf-8") as printed:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(**changes), start_new_session=True, stdout=printed, stderr=printed
        )
        try:
            process.wait(SECONDS)
        finally:
            end(process.pid)
            process.wait()
        printed.seek(0)
        return printed.read()


def end(session):
    """Kills all processes of a session; `timeout` has put its own into groups of their own."""
    for each in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(each) == session:
                os.kill(each, signal.SIGKILL)


def weights(folder):
    """Of the chief, and of worker 1."""
    files = [folder / "out" / "weights.npz", folder / "out" / "worker-1" / "weights.npz"]
    return [list(np.load(file).values()) for file in files]
