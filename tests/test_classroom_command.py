"""`dtk class boxed` and `dtk class kernel`: what other graders run in, tried with commands and with a real kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from dtk.classroom.boxed import Limits, Rules, can_be_apart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_be_apart(Rules(Limits())), reason="this system refuses namespaces to this user"),
]


def boxed(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dtk", "class", "boxed", *given]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_command_has_a_copy_of_the_directory_and_brings_back_what_is_asked_for(tmp_path):
    (tmp_path / "lesson.ipynb").write_text("{}")
    script = "ls; echo 5 > points; echo 6 > other; rm lesson.ipynb; exit 3"
    done = boxed(tmp_path, "--bring", "points", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (3, "lesson.ipynb\n"), done.stderr
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"lesson.ipynb": "{}", "points": "5\n"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("ln -s /etc/passwd points", "points is not there"),
        ("mkfifo points", "points is no file"),
        ("mkdir points", "points is no file"),
        ("truncate -s 100M points", "more than 64 MB"),
        ("true", "points is not there"),
    ],
)
def test_what_is_no_file_is_not_brought(tmp_path, script, said):
    done = boxed(tmp_path, "--bring", "points", "--", "sh", "-c", script)
    assert done.returncode == 1
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_takes_too_much_is_ended_and_nothing_stays(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "word").touch()
    (tmp_path / "work").mkdir()
    hungry = "kept = []\nwhile True: kept.append(bytearray(1 << 24))"
    done = boxed(tmp_path / "work", "--memory", "400M", "--", sys.executable, "-c", hungry)
    assert done.returncode != 0
    done = boxed(tmp_path / "work", "--total", "2", "--", "sh", "-c", f"ls {tmp_path}/secret; sleep 86398 & wait")
    assert (done.returncode, done.stdout) == (137, "")
    assert "its time is over" in done.stderr
    assert "86398" not in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout


def test_a_kernel_in_a_box(tmp_path, monkeypatch):
    """A cell that hangs costs itself, also one that catches what stops it; one that hangs in C ends the kernel."""
    subprocess.run(
        [sys.executable, "-m", "dtk", "class", "kernel", str(tmp_path), "--seconds", "2", "--hide", str(tmp_path)],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    manager = KernelManager(kernel_name="python3", transport="ipc")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        looked = f"import os; print(os.path.exists('kernels'), os.path.exists('{tmp_path}/kernels'))"
        assert ran(client, looked) == ("ok", "True False\n")
        assert ran(client, "while True: pass")[0] == "TimeoutError"
        deaf = "for _ in range(2):\n    try:\n        time.sleep(60)\n    except TimeoutError: pass\nprint('deaf')"
        ran(client, "import time")
        assert ran(client, deaf) == ("ok", "deaf\n")
        status, text = ran(client, "for _ in range(64): print('x' * (1 << 20))")
        assert status == "ok"
        assert len(text) == 1 << 20
        assert ran(client, "print('still here')") == ("ok", "still here\n")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert not [each for each in tmp_path.iterdir() if each.name != "kernels"]


def ran(client, code: str) -> tuple[str, str]:
    """(ok or the exception's name, what was printed) of a cell."""
    printed = []

    def hear(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=60, output_hook=hear)["content"]
    return reply.get("ename", reply["status"]), "".join(printed)


def test_a_kernel_with_a_network_is_refused(tmp_path):
    (tmp_path / "kernel.json").write_text(json.dumps({"transport": "tcp", "ip": "127.0.0.1"}))
    done = boxed(tmp_path, "--kernel", "kernel.json")
    assert done.returncode == 1
    assert "--KernelManager.transport=ipc" in done.stderr
