"""Cores and memory by the tightest limit: cgroups made of files, environment variables, and what a launch says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from starting import mostly_warm

import dtk
from dtk import limits
from dtk.compat import strategies
from dtk.launch import request, warm
from dtk.watch.explain import exit_in_words


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """group(path, file=content, ...) writes a cgroup's files; own(text) says which groups this process is in."""
    monkeypatch.delenv("CPU_LIMIT", raising=False)
    monkeypatch.setattr(limits, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "own")

    def group(path, **files):
        folder = tmp_path / "cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(f"{content}\n")

    def own(text):
        (tmp_path / "own").write_text(text)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    return group, own


def test_the_least_quota_of_this_group_and_those_above(groups):
    group, own = groups
    group("user", cpu__max="150000 50000")
    group("user/me", cpu__max="max 100000")
    own("0::/user/me\n")
    assert limits.cores() == limits.Limit(3, "a cgroup's limit")
    group("user/me", cpu__max="250000 100000")
    assert limits.cores().value == 2


def test_version_1_has_a_tree_for_each_controller(groups):
    group, own = groups
    group("cpu/me", cpu__cfs_quota_us=150_000, cpu__cfs_period_us=50_000)
    group("cpu", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100_000)
    group("memory/me", memory__limit_in_bytes=2_000_000, memory__usage_in_bytes=500_000, memory__stat="cache 1")
    group("memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=10**12)
    own("4:memory:/me\n1:cpu,cpuacct:/me\n0::/\n")
    assert limits.cores().value == 3
    assert limits.memory() == limits.Limit(1_500_000, "a cgroup's limit")


def test_a_container_sees_its_own_group_as_the_root(groups):
    group, own = groups
    group("", cpu__max="200000 100000", memory__max=3_000_000, memory__current=2_000_000)
    group("", memory__stat="anon 5\ninactive_file 500000")
    own("0::/docker/0123456789ab\n")
    assert limits.cores().value == 2
    assert limits.memory().value == 1_500_000, "the file cache can be given back"


@pytest.mark.parametrize(("stated", "cores"), [("3", 3), ("2.9", 2), ("0.5", 1), ("", 64), ("many", 64), ("0", 64)])
def test_what_jupyterhub_states(groups, monkeypatch, stated, cores):
    groups[1]("")
    monkeypatch.setenv("CPU_LIMIT", stated)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert limits.cores() == limits.Limit(cores, "this machine" if cores == 64 else "CPU_LIMIT")


def test_without_groups_the_machine_decides(groups):
    assert limits.cores().value == 64, "no file says which groups there are"
    assert limits.memory().source == "this machine"


@pytest.mark.trains
@pytest.mark.parametrize(("forked", "ready", "needed"), [(True, False, 1100), (True, True, 500), (False, False, 1100)])
def test_too_little_memory_is_said_before_anything_starts(monkeypatch, forked, ready, needed):
    monkeypatch.setattr(request, "is_warm", lambda fork: ready)
    monkeypatch.setattr(limits, "memory", lambda: limits.Limit(needed * 1e6, "a cgroup's limit"))
    request.check_memory(2, forked)
    monkeypatch.setattr(limits, "memory", lambda: limits.Limit(needed * 1e6 - 1e6, "a cgroup's limit"))
    request.check_memory(2, forked, force=True)
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.run(os.getpid, start="warm" if forked else "cold")
    assert str(caught.value) == (
        f"workers=2: they need about {needed:,} MB, and a cgroup's limit leaves {needed - 1:,}; shut down other "
        "kernels, ask for fewer workers (or replicas=2 in one), or dtk.run(..., force=True) to try"
    )


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [({}, 3600), ({"JUPYTERHUB_USER": "ada"}, 600), ({"JUPYTERHUB_USER": "ada", "DTK_WARM_IDLE": "60"}, 60)],
)
def test_a_parent_on_a_shared_machine_waits_for_less_long(monkeypatch, variables, seconds):
    for name in ("JUPYTERHUB_USER", "DTK_WARM_IDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert warm.idle_seconds() == seconds


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_a_time_that_is_none_is_said(monkeypatch, value):
    monkeypatch.setenv("DTK_WARM_IDLE", value)
    with pytest.raises(dtk.DtkError, match="DTK_WARM_IDLE=.*: it takes seconds above 0"):
        warm.idle_seconds()


KILLED = "was killed by SIGKILL; the system has killed"


@pytest.mark.parametrize(
    ("code", "before", "now", "words"),
    [
        (-9, 0, 2, f"{KILLED} processes for want of memory meanwhile (2); if it was one of them: smaller batches"),
        (-9, 3, 3, "was killed by SIGKILL; the kernel's log or the memory limit may say why"),
        (-9, None, None, "was killed by SIGKILL; the kernel's log or the memory limit may say why"),
        (-11, 3, 4, "was killed by SIGSEGV; the last Python lines before it are in its log"),
        (1, 3, 4, "ended itself with exit code 1 (os._exit?)"),
    ],
)
def test_want_of_memory_is_named_only_where_the_system_counted_it(monkeypatch, code, before, now, words):
    monkeypatch.setattr(limits, "memory_kills", lambda: now)
    assert exit_in_words(code, why=limits.of_the_memory(code, before)).startswith(words)


# ---- which cores a worker keeps to, and how much of a tensor goes into a message: what is set, and when it is not


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(count): cores of a made-up machine, without quotas."""
    monkeypatch.delenv("CPU_LIMIT", raising=False)
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "none")

    def make(count):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)), raising=False)

    return make


def shares(count):
    return [limits.own_core(index, count) for index in range(count)]


@pytest.mark.parametrize(
    ("cores", "processes", "expected"),
    [
        (2, 4, [0, 0, 1, 1]),
        (2, 6, [0, 0, 0, 1, 1, 1]),
        (1, 2, [0, 0]),
        (2, 1, [None]),
        (2, 2, [None] * 2),  # a core each: they may move away from other programs
        (4, 2, [None] * 2),
        (2, 3, [None] * 3),  # can't be divided evenly
    ],
)
def test_processes_that_outnumber_the_cores_keep_to_one_each(machine, cores, processes, expected):
    machine(cores)
    assert shares(processes) == expected


def kept_to():
    import threading

    seen = []
    thread = threading.Thread(target=lambda: seen.append(sorted(os.sched_getaffinity(0))))
    thread.start()
    thread.join()
    return sorted(os.sched_getaffinity(0)), seen[0]


MANY = 2 * dtk.environment.cores()
needs_even = pytest.mark.skipif(
    None in shares(MANY) or MANY > 16,
    reason="the workers can't be divided among the cores here: a quota, or unequal ones",
)


@pytest.mark.trains
@needs_even
@mostly_warm
def test_workers_keep_to_their_core_and_so_do_their_threads(start):
    ours = sorted(os.sched_getaffinity(0))
    found = dtk.run(kept_to, workers=MANY, start=start).results
    assert found == [([core],) * 2 for core in shares(MANY)]
    assert dtk.run(kept_to, workers=1, start=start).results == [(ours, ours)]
    assert sorted(os.sched_getaffinity(0)) == ours


def message_bytes(strategy):
    import tensorflow as tf

    config = tf.__internal__.eager_context.get_config().experimental
    return config.recv_buf_max_chunk, config.disable_thread_spinning


@pytest.mark.trains
@mostly_warm
def test_tensorflow_gets_the_size_of_messages(start):
    alone = dtk.environment.cores() // 2 <= 1
    assert dtk.run(message_bytes, workers=2, start=start).results == [(strategies.MESSAGE_BYTES, alone)] * 2


PUBLIC_WAY = """
import tensorflow as tf
wanted = tf.compat.v1.ConfigProto()
wanted.experimental.recv_buf_max_chunk = 4096
tf.compat.v1.enable_eager_execution(config=wanted)
print(tf.__internal__.eager_context.get_config().experimental.recv_buf_max_chunk)
"""


@pytest.mark.slow
def test_the_public_way_still_does_nothing():
    """When this fails, dtk/compat/strategies.py can go that way, and leave TensorFlow's context alone."""
    done = subprocess.run([sys.executable, "-c", PUBLIC_WAY], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def sum_of(strategy):
    import numpy as np
    import tensorflow as tf

    ours = np.random.default_rng(int(dtk.is_chief())).normal(size=300_001).astype("float32")

    @tf.function
    def summed(values):
        def add(part):
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(part))

        return strategy.run(add, args=(values,))

    return summed(ours).numpy()


@pytest.mark.trains
def test_the_sums_are_the_same_to_the_bit(monkeypatch):
    small = dtk.run(sum_of, workers=2).results
    monkeypatch.setenv("DTK_MESSAGE_BYTES", "0")
    whole = dtk.run(sum_of, workers=2).results
    assert [each.tobytes() for each in small] == [each.tobytes() for each in whole]
