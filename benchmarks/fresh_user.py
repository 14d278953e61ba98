"""A new account with Python, the wheel and nothing else: `sudo python benchmarks/fresh_user.py dist/*.whl`.

It installs the wheel, loses its network, and goes the way of a learner: lessons, doctor, demo, lesson 00 to its proof;
then the account is removed. The clone is hidden from it. Each step is timed and has to say what it should; what does
not is printed, and the exit code is 1. pip's cache is empty, as a new account's is; `--twice` installs once more, from
what it keeps.

Root, as accounts, networks and mounts are root's. The Python that runs this is the account's, too, unless `--python`
names another; it has to be readable for everybody.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 1200.0  # seconds for a step
ENDED = 15.0  # seconds in which what a step has started ends by itself
PROOF = "check every step vs one device: PASS"
# How this machine reaches packages
KEPT = re.compile(r"PIP_|.*_proxy$|SSL_CERT_FILE$|REQUESTS_CA_BUNDLE$", re.IGNORECASE)

# The clone is covered by an empty folder; without a network the loopback is all there is.
ENTER = """
set -e
mount -t tmpfs -o size=64k,mode=755 tmpfs "$1"
[ "$2" = online ] || ip link set lo up
uid=$3; gid=$4
shift 4
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups -- "$@"
"""


class Failed(Exception):
    """A step did not do or say what it should."""


@dataclass
class Step:
    name: str
    seconds: float
    said: str = ""


class Account:
    """A new user of this machine, in a home of its own."""

    def __init__(self, name: str, home: Path):
        self.name, self.home = name, home
        self.uid, self.gid = pwd.getpwnam(name)[2:4]
        self.steps: list[Step] = []

    def run(self, name: str, *command: str, offline: bool = True, cwd: str = "", fails: bool = False) -> str:
        """Runs a command as the account, timed; returns what it printed. Raises Failed where that is wrong."""
        env = {
            "HOME": str(self.home),
            "USER": self.name,
            "LANG": "C.UTF-8",
            "PATH": f"{self.home}/env/bin:/usr/bin:/bin",
        }
        env |= {key: value for key, value in os.environ.items() if KEPT.match(key)}
        enter = ["unshare", "--mount", *(["--net"] if offline else []), "sh", "-c", ENTER, "sh", str(ROOT)]
        whole = [*enter, "offline" if offline else "online", str(self.uid), str(self.gid), *command]
        began = time.monotonic()
        done = subprocess.run(
            whole,
            cwd=self.home / cwd,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LONGEST,
        )
        self.steps.append(Step(name, round(time.monotonic() - began, 1)))
        print(f"{self.steps[-1].seconds:7.1f} s  {name}", flush=True)
        if (done.returncode != 0) != fails:
            raise Failed(f"{name}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        self.wait_for_the_end(name)
        return done.stdout + done.stderr

    def wait_for_the_end(self, name: str) -> None:
        deadline = time.monotonic() + ENDED
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        if self.processes():
            raise Failed(f"{name}: left processes {self.processes()}")

    def processes(self) -> list[int]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if place.stat().st_uid == self.uid:
                    found.append(int(place.name))
            except FileNotFoundError:  # it has just ended
                pass
        return found


@contextmanager
def account() -> Iterator[Account]:
    place = Path(tempfile.mkdtemp(prefix="dtk-fresh-"))
    place.chmod(0o755)
    name = place.name.lower().replace("_", "x")[:32]
    subprocess.run(["useradd", "--create-home", "--home-dir", str(place / "home"), name], check=True)
    user = Account(name, place / "home")
    try:
        yield user
    finally:
        for pid in user.processes():
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["userdel", name], check=True)
        shutil.rmtree(place)


def expect(condition: object, what: str, said: str) -> None:
    if not condition:
        raise Failed(f"{what}; it said:\n{said}")


def install(user: Account, wheel: str, python: str, cache: str) -> None:
    user.run("venv", python, "-m", "venv", "env", offline=False)
    user.run(f"pip install, pip's cache {cache}", "env/bin/pip", "install", "--quiet", wheel, offline=False)
    size = sum(file.lstat().st_size for file in (user.home / "env").rglob("*"))
    user.steps[-1].said = f"{size / 1e6:,.0f} MB"


def learn(user: Account) -> None:
    """What a learner does, without a network; JupyterLab comes in between, as `dtk lab` says."""
    said = user.run("dtk lessons", "dtk", "lessons")
    expect("files of lessons are in dtk-lessons" in said, "the lessons are not there", said)
    user.run("dtk lessons --language zh", "dtk", "lessons", "--language", "zh")
    said = user.run("dtk doctor", "dtk", "doctor")
    expect(not re.search(r"^bad ", said, re.MULTILINE), "doctor finds something bad", said)
    user.steps[-1].said = "; ".join(re.findall(r"^note +(.*)$", said, re.MULTILINE))
    said = user.run("dtk demo", "dtk", "demo")
    expect(PROOF in said and "`dtk lab`" in said, "the demo proves nothing, or does not say how to go on", said)
    expect((user.home / "out" / "loss_scaling.png").stat().st_size > 10_000, "the demo draws nothing", said)
    said = user.run("dtk lab, without JupyterLab", "dtk", "lab", fails=True)
    command = re.search(r"; (pip install \S+)\n", said)
    expect(command, "dtk lab does not say what to install", said)
    assert command
    user.run(command[1], *shlex.split(command[1]), "--quiet", offline=False)
    said = user.run("dtk lab -- --version", "dtk", "lab", "--", "--version")
    arguments = ("execute", "--timeout=300", "--output=done.ipynb", "00_start_here.ipynb")
    user.run("lesson 00", "jupyter", *arguments, cwd="dtk-lessons")
    cells = json.loads((user.home / "dtk-lessons" / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = "".join("".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", ()))
    expect(PROOF in shown, "lesson 00 ends without its proof", shown)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The wheel in the hands of a new account of this machine.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=str(Path(sys.executable).resolve()), help="readable for everybody")
    parser.add_argument("--twice", action="store_true", help="install once more, from pip's warm cache")
    parser.add_argument("--out", type=Path, help="the steps as JSON")
    options = parser.parse_args(argv)
    with account() as user:
        wheel = user.home / options.wheel.name
        shutil.copy(options.wheel, wheel)
        wheel.chmod(0o644)
        try:
            install(user, f"./{wheel.name}", options.python, "cold")
            if options.twice:
                shutil.rmtree(user.home / "env")
                install(user, f"./{wheel.name}", options.python, "warm")
            learn(user)
        except (Failed, subprocess.TimeoutExpired) as failed:
            print(f"FAILED: {failed}", file=sys.stderr)
            return 1
        finally:
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps([asdict(step) for step in user.steps], indent=1) + "\n")
    print("\n".join(f"{step.name}: {step.said}" for step in user.steps if step.said))
    print("PASS: a new account went from the wheel to lesson 00's proof, without a network from the installation on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
