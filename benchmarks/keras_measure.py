"""Runs each program in forked processes, with one release of Keras; no part of dtk is needed.

    python keras_measure.py keras programs.json results.json

TensorFlow and Keras are imported once, which starts nothing that a fork would break. Then each program gets a process
for one device, one for two replicas, and two for two workers.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import sys
import time
import traceback

IDLE, BUSY = 15.0, 0.5  # processes hang that use less than BUSY seconds of processor time in IDLE seconds

# Lines of an error that only say where.
_FRAMES = (
    "Graph execution error",
    "Exception encountered when calling",
    "Detected at node",
    "File ",
    "[[",
    "<stack",
    "Stack trace",
)


def free_port():
    """A port that is free, and the next with it."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("localhost", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("localhost", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def child(text, kind, port, path):
    """Runs the file's text as if it had been started with this argument, and never returns."""
    result = {}
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ["PORT"], sys.argv = str(port), ["program.py", kind]
        scope = {"__name__": "__main__"}
        exec(compile(text, "program.py", "exec"), scope)
        result = {"found": scope["found"]}
    except BaseException as error:
        result = {"raised": first_line(error), "trace": traceback.format_exc()[-4000:]}
    with open(path, "w") as file:
        json.dump(result, file)
    # Both workers have to be there until both are ready: a server that goes is an error of the other's.
    if "MultiWorkerMirroredStrategy" in text:
        until = time.monotonic() + 10
        while not os.path.exists(f"{path[:-1]}{1 - int(kind)}") and time.monotonic() < until:
            time.sleep(0.02)
    os._exit(0)


def first_line(error):
    """The error's kind, and the first line that says what is wrong."""
    lines = [re.sub(r"^(\x1b\[\d+m|{{.*?}} ?|\(\d\) )+", "", line.strip()) for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_FRAMES) and "root error(s) found" not in line]
    return f"{type(error).__name__}: {said[0] if said else ''}"


def seconds(pid):
    """Processor time of a process of ours."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(texts, folder):
    """What the processes found, by setting, of a program's text for each setting; all run at once."""
    started = {}
    for setting, text in texts.items():
        port = free_port()
        for kind in "01" if setting == "workers" else "0":
            path = os.path.join(folder, f"{setting}{kind}")
            if os.path.exists(path):
                os.unlink(path)
            pid = os.fork()
            if pid == 0:
                child(text, kind, port, path)
            started[pid] = setting, path
    hanging = wait(set(started))
    found = {setting: [] for setting in texts}
    for pid, (setting, path) in started.items():
        try:
            with open(path) as file:
                found[setting].append(json.load(file))
        except (OSError, ValueError):
            found[setting].append({"hangs": True} if pid in hanging else {"raised": "the process died"})
    return found


def wait(running):
    """Returns the processes that hung, after their end."""
    used, since = 0.0, time.monotonic()
    while running:
        time.sleep(0.02)
        running = {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0] == 0}
        now = sum(map(seconds, running))
        if abs(now - used) > BUSY:
            used, since = now, time.monotonic()
        if time.monotonic() - since > IDLE:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            break
    return running


def main():
    package, source, target = sys.argv[1:4]
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    tensorflow, keras = importlib.import_module("tensorflow"), importlib.import_module(package)
    corrected = importlib.import_module("dtk").correct_keras() if "--correct" in sys.argv else []
    with open(source) as file:
        programs = json.load(file)
    lines = {name: run(texts, os.path.dirname(os.path.abspath(target))) for name, texts in programs.items()}
    with_dtk = any(name.partition(".")[0] == "dtk" for name in sys.modules)
    facts = {"tensorflow": tensorflow.__version__, "keras": keras.__version__, "dtk": with_dtk, "corrected": corrected}
    with open(target, "w") as out:
        json.dump({**facts, "programs": lines}, out)


if __name__ == "__main__":
    main()
