"""A parent that can start no further process says so, and its run leaves nothing behind."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

import psutil
import pytest

import dtk
from dtk.launch import warm

pytestmark = pytest.mark.trains


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")


@contextmanager
def no_descriptor_for(pid):
    """A process that may open no further file meanwhile."""
    import resource

    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    first_free = min(set(range(len(used) + 1)) - used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="another process's limits can be set on Linux only")
def test_a_refused_process_is_one_sentence_and_the_next_run_works(start):
    dtk.run(os.getpid, start=start)
    source = warm.parent(start == "warm")
    guard = psutil.Process(source.pid)
    (inner,) = guard.children()
    with (
        no_descriptor_for(inner.pid),
        pytest.raises(
            dtk.DtkError, match=r"^no further file can be opened \(.*\); close some, or allow more"
        ) as caught,
    ):
        dtk.run(os.getpid, start=start)
    assert not isinstance(caught.value, dtk.WorkerFailed)
    assert len(dtk.run(os.getpid, start=start).results) == 2
    assert source.pid == guard.pid, "the same parent goes on"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_the_kernel_forked_has_a_parent_of_its_own():
    dtk.run(os.getpid, workers=1, start="cold")
    ours = warm.parent(False).pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dtk.run(os.getpid, workers=1, start="cold")
            os.write(write, str(warm.parent(False).pid).encode())
            warm.parent(False).close()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        theirs = int(answer.read())
    os.waitpid(child, 0)
    assert theirs != ours
    assert warm.parent(False).pid == ours
    assert len(dtk.run(os.getpid, workers=1, start="cold").results) == 1
