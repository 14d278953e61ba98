"""Machines that refuse something: a run works there, or says in one sentence what is missing and what to do."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dtk

ROOT = Path(__file__).parent.parent
HEAD = f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}\nimport dtk, hostile\n"
# Said in one line, as a learner sees it: a DtkError, or what else came.
TAIL = "\n".join(
    ["try:", "    print('RESULT', {call})", "except dtk.DtkError as error:", "    print('SAID', error)", ""]
)


@functools.cache
def command(kind):
    """What begins a command in a namespace of that kind ("--mount", "--net"); () where that is not allowed here."""
    for way in (["unshare", kind], ["unshare", "--map-root-user", kind]):
        if shutil.which("unshare") and not subprocess.run([*way, "true"], capture_output=True).returncode:
            return tuple(way)
    return ()


def confined(call, tmp_path, before="true", kind="--mount", limit="", **variables):
    """What `call` (Python) came to, after the shell's `before`: "RESULT ..." or "SAID <a DtkError's sentence>"."""
    way = command(kind)
    if not way:
        pytest.skip(f"no namespace of one's own is allowed here (unshare {kind})")
    return plain(call, tmp_path, [*way, "sh", "-ec", f'{before}\n{limit}\nexec "$@"', "sh"], **variables)


def plain(call, tmp_path, way=(), **variables):
    """The same without a namespace; variables: of the environment, None for one that shall not be set."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "DTK_LIVE": "off", **variables}
    env = {name: value for name, value in env.items() if value is not None}
    line = [*way, sys.executable, "-c", HEAD + TAIL.format(call=call)]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=280)
    said = [line for line in done.stdout.splitlines() if line.startswith(("RESULT", "SAID"))]
    assert len(said) == 1, f"{done.stdout}\n{done.stderr}"
    return said[0]


pytestmark = pytest.mark.slow  # full disks, no ports, no descriptors: real processes each, warm and cold

WORKS = "RESULT [(0, True), (1, True)]"
TMPFS = "mkdir -p {0} && mount -t tmpfs -o size={1} none {0}"


def small_disk(path, size="1m"):
    return TMPFS.format(path, size)


def test_no_shared_memory(tmp_path):
    said = confined("hostile.run(hostile.add_up)", tmp_path, "umount /dev/shm || mount --bind /proc /dev/shm")
    assert said == "RESULT [3.0, 3.0]"


def test_localhost_that_means_ipv6_only(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("::1 localhost ip6-localhost\n")
    said = confined("hostile.run(hostile.add_up)", tmp_path, f"mount --bind {hosts} /etc/hosts")
    assert said == "RESULT [3.0, 3.0]"


def test_proxies_that_lead_nowhere(tmp_path):
    names = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    variables = dict.fromkeys(names, "http://127.0.0.1:9")
    assert plain("hostile.run(hostile.add_up)", tmp_path, **variables, no_proxy=None) == "RESULT [3.0, 3.0]"


def test_temporary_files_elsewhere(tmp_path):
    elsewhere = tmp_path / "else where, ünd more"
    elsewhere.mkdir()
    assert plain("hostile.run()", tmp_path, TMPDIR=str(elsewhere)) == WORKS
    assert (elsewhere / f"dtk-{os.getuid()}" / "runs").exists()


@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("home", ["/nonexistent", "/proc", None])
def test_a_home_that_takes_no_files(tmp_path, home, start):
    if start == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    said = plain(f"hostile.run(hostile.import_all, workers=1, start={start!r})", tmp_path, HOME=home, KERAS_HOME=None)
    assert said == "RESULT [[True, True]]"


@pytest.mark.skipif(
    (3, 13) <= sys.version_info < (3, 13, 3), reason="this Python can't import NumPy there (python/cpython#130932)"
)
def test_a_working_directory_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    call = f"(__import__('os').chdir({str(gone)!r}), __import__('os').rmdir({str(gone)!r}), hostile.run())[2]"
    said = plain(call, tmp_path)
    assert said == "SAID the working directory has been removed; change to another one (os.chdir)"


@pytest.mark.parametrize("files", [64, 32])
def test_few_descriptors(tmp_path, files):
    assert plain(f"hostile.limited({files})", tmp_path) == WORKS


def test_no_descriptor_left(tmp_path):
    said = plain("hostile.used_up()", tmp_path)
    assert said == (
        "SAID no further file can be opened (the limit is 64 a process); close some, or allow more: ulimit -n 1024"
    )


@pytest.mark.parametrize("name", ["TMPDIR", "DTK_SCRATCH"])
def test_no_space_for_a_run(tmp_path, name):
    disk = tmp_path / "disk"
    before = f"{small_disk(disk)}; chmod 700 {disk}; head -c 2000000 /dev/zero > {disk}/full 2>/dev/null || true"
    said = confined("hostile.run()", tmp_path, before, **{name: str(disk)})
    if name == "TMPDIR":  # Python passes over it, to /tmp
        assert said == WORKS
    else:
        assert re.fullmatch(r"SAID no space is left on the disk that has .*; free some, or set TMPDIR .*", said)


@pytest.mark.parametrize("how", ["fill_by_printing", "fill_by_records"])
def test_no_space_for_logs_and_records(tmp_path, how):
    disk = tmp_path / "disk"
    said = confined(f"hostile.run(hostile.{how})", tmp_path, small_disk(disk), TMPDIR=str(disk))
    assert said.startswith("SAID worker 0 ")
    assert "no space" in said.lower()
    assert "\n" not in said


def test_temporary_directories_that_take_no_files(tmp_path):
    said = plain("hostile.run_without_temporary_directory()", tmp_path)
    assert said.startswith("SAID No usable temporary directory found in")
    assert said.endswith("set TMPDIR to a directory of your own")


def test_a_scratch_directory_without_permission(tmp_path):
    disk = tmp_path / "disk"
    scratch = disk / f"dtk-{os.getuid()}"
    before = f"{small_disk(disk)}; mkdir -m 700 {scratch}; mount -o remount,ro {disk}"
    said = confined("hostile.run()", tmp_path, before, DTK_SCRATCH=str(scratch))
    assert re.fullmatch(
        r"SAID \S+ can't be written \(Read-only file system\); set TMPDIR to a directory of your own", said
    )


def test_all_ports_of_the_range_taken(tmp_path):
    before = "ip link set lo up 2>/dev/null || true; echo 40000 40015 > /proc/sys/net/ipv4/ip_local_port_range"
    said = confined("hostile.run_without_ports()", tmp_path, before, kind="--net")
    assert said == "SAID no TCP port is free on this machine; end programs that hold many, or wait a minute"


def test_a_clock_that_jumps(tmp_path):
    assert plain("hostile.with_jumping_clock()", tmp_path) == "RESULT [True, True, True]"
