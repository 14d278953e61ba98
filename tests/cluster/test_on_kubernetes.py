"""Workers in pods, by the official client: of what stands in for a cluster, as kubernetes_here.py says, and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from _thread import interrupt_main
from pathlib import Path

import kubernetes_here
import programs
import pytest
from programs import when_it_runs

import dtk
from dtk.places import kubernetes, manifests

pytestmark = [pytest.mark.slow, pytest.mark.trains]
ROOT = Path(__file__).parents[2]
IMAGE = "registry.example/me/train:1"


@pytest.fixture(scope="module")
def cluster(network, tmp_path_factory):
    """Two nodes, for a pod each."""
    why = kubernetes_here.reason_to_skip()
    if why:
        pytest.skip(why)
    with (
        kubernetes_here.Cluster(network, tmp_path_factory.mktemp("kubernetes")) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("KUBECONFIG", str(found.file))
        yield found


@pytest.fixture(scope="module")
def place(cluster):
    found = dtk.places.Kubernetes(image=IMAGE)
    yield found
    found.close()
    assert gone(cluster)


def gone(cluster, seconds=15):
    """Whether no Job, Service, pod or process is left."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        left = [*cluster.jobs, *cluster.services, *cluster.pods]
        left += [pid for k in (1, 2) for pid in cluster.network.processes(k)]
        if not left:
            return True
        time.sleep(0.1)
    return False


def on(worker):
    """A worker's pod, as sentences call it."""
    return rf"node-[12] \(pod dtk-[0-9a-f]+-{worker}-[0-9a-f]+\)"


def test_the_same_function_is_the_same_run(place, cluster, baseline):
    run = dtk.run(programs.digits, workers=2, on=place, timeout=180)
    dtk.verify(run, baseline)
    assert [config["cluster"]["worker"][0].rpartition(":")[0] for config in run.tf_config] == [
        cluster.network.address(1)
    ] * 2
    assert (run.dir / "saved.txt").read_text() == "by the chief"
    assert run.records.groupby("worker").size().to_dict() == {0: 12, 1: 12}
    pods = {*cluster.pods}
    again = dtk.run(programs.digits, workers=2, on=place, timeout=120)
    assert {*cluster.pods} == pods, "the same pods, with TensorFlow imported"
    assert again.weights[0].tolist() == run.weights[0].tolist()
    assert [*cluster.services] == [*cluster.jobs]
    assert cluster.asked <= cluster.allowed, "the Role of the guide suffices"


def test_who_raises_is_named_with_node_and_pod(place):
    words = f"^worker 1 on {on(1)} raised ValueError: no such thing$"
    with pytest.raises(dtk.WorkerFailed, match=words) as caught:
        dtk.run(programs.raises, workers=2, on=place, timeout=60)
    assert caught.value.host.startswith("node-")


def test_who_is_killed_is_named_with_node_and_pod(place):
    with pytest.raises(dtk.WorkerFailed, match=f"^worker 1 on {on(1)} was killed by SIGKILL"):
        dtk.run(programs.is_killed, workers=2, on=place, timeout=60)


def test_much_goes_both_ways(place):
    data = os.urandom(6 << 20)

    def swap():
        (dtk.run_dir() / f"{dtk.is_chief()}.bin").write_bytes(data)
        return len(data)

    run = dtk.run(swap, workers=2, on=place, timeout=60)
    assert run.results == [len(data)] * 2
    assert (run.dir / "True.bin").read_bytes() == (run.dir / "False.bin").read_bytes() == data


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("out_of_memory", r"OOMKilled \(exit code 137\)"),
        ("evict", r"TerminationByKubelet \(exit code 0; The node was low on resource: memory\)"),
    ],
)
def test_a_pod_that_is_ended_is_named_with_kubernetes_reason(place, cluster, what, why):
    doing = when_it_runs(lambda: getattr(cluster, what)(1))
    with pytest.raises(dtk.WorkerFailed, match=f"^worker 1 on {on(1)} is lost .*: {why}") as caught:
        dtk.run(programs.long, workers=2, on=place, timeout=100)
    doing.join()
    assert (caught.value.worker, caught.value.reason) == (1, "lost")
    assert dtk.run(lambda: 1, workers=2, on=place).results == [1, 1], "the next run makes another Job"
    assert len(cluster.jobs) == 1


def test_a_node_that_is_gone_is_named(place, cluster):
    node = []

    def take_away():
        node.append(cluster.pod(1).node)
        cluster.take_away(*node)

    doing = when_it_runs(take_away)
    try:
        with pytest.raises(dtk.WorkerFailed, match=f"^worker 1 on {on(1)} has not been heard of for 10 s") as caught:
            dtk.run(programs.long, workers=2, on=place, timeout=100)
    finally:
        doing.join()
        place.close()
        cluster.bring_back(*node)
    assert caught.value.reason == "lost"


def test_a_restart_has_a_job_of_its_own(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "VOLUME", str(tmp_path))  # what all nodes see here
    shared = dtk.places.Kubernetes(image=IMAGE, storage="runs")

    def train():
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        step = tf.function(
            lambda: strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
        )
        step()
        if (dtk.run_dir() / "first").exists():
            return "again"
        if dtk.is_chief():
            (dtk.run_dir() / "first").touch()
        print("began", flush=True)
        for _ in range(1200):
            step()
            time.sleep(0.05)
        return "once"

    doing = when_it_runs(lambda: cluster.out_of_memory(1))
    run = dtk.run(train, workers=2, on=shared, restarts=1, timeout=200)
    doing.join()
    assert run.results == ["again", "again"]
    assert len(cluster.jobs) == 1
    shared.close()
    assert gone(cluster)


def test_an_interrupt_leaves_no_job(cluster):
    place = dtk.places.Kubernetes(image=IMAGE)
    doing = when_it_runs(interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        dtk.run(programs.long, workers=2, on=place, timeout=60)
    doing.join()
    place.close()
    assert gone(cluster)
    cluster.holds[1] = "ContainerCreating"
    threading.Timer(4, interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        dtk.run(programs.long, workers=2, on=place, timeout=60)
    cluster.holds.clear()
    assert gone(cluster), "nor one whose pods don't run yet"


def test_an_image_that_does_not_come(cluster, monkeypatch, capsys):
    monkeypatch.setattr(kubernetes, "IMAGE_SECONDS", 4.0)
    cluster.holds[1] = "ImagePullBackOff"
    why = rf'ImagePullBackOff \(Back-off pulling image "{IMAGE}"\)'
    try:
        with pytest.raises(dtk.ClusterConfigError, match=f"^{on(1)} has not started for 4 s: {why}$"):
            dtk.run(programs.long, workers=2, on=dtk.places.Kubernetes(image=IMAGE))
    finally:
        cluster.holds.clear()
    assert f'waits: ImagePullBackOff (Back-off pulling image "{IMAGE}")' in capsys.readouterr().out
    assert gone(cluster)


def test_an_image_without_dtk(cluster):
    place = dtk.places.Kubernetes(image=IMAGE, python="/bin/ls")
    words = (
        r"(ended before dtk's agent answered|dtk's agent did not start): Error \(exit code 2\): Try '/bin/ls --help'"
    )
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.run(programs.long, workers=2, on=place)
    assert gone(cluster)


def test_more_workers_than_nodes(cluster, capsys):
    place = dtk.places.Kubernetes(image=IMAGE, wait=6)
    why = r"waits: Unschedulable \(0/2 nodes are available: 2 Insufficient cpu\)"
    words = (
        rf"^pod dtk-[0-9a-f]+-2-[0-9a-f]+ {why}, for 6 s now; ask for fewer workers, for less \(resources=\), or wait"
    )
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.run(programs.long, workers=3, on=place)
    assert "waits: Unschedulable (0/2 nodes are available" in capsys.readouterr().out
    assert gone(cluster)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({("create", "jobs"), ("get", "pods/attach")}, "create jobs, get pods/attach"),
        ({("create", "services")}, "create services"),
    ],
)
def test_what_is_not_allowed_is_named_before_anything_is_made(cluster, monkeypatch, missing, words):
    monkeypatch.setattr(cluster, "allowed", cluster.allowed - missing)
    server = f"http://127.0.0.1:{cluster.port}"
    said = rf'^not allowed in the namespace "lab" of {server}: {words}; a Role that suffices is in \S+/clusters.md$'
    with pytest.raises(dtk.ClusterConfigError, match=said):
        dtk.run(programs.long, workers=2, on=dtk.places.Kubernetes(image=IMAGE))
    assert gone(cluster)


def test_what_is_wrong_with_the_cluster_is_one_sentence(cluster, monkeypatch, tmp_path):
    def refused(words, **more):
        with pytest.raises(dtk.ClusterConfigError, match=words):
            dtk.run(programs.long, workers=2, on=dtk.places.Kubernetes(**{"image": IMAGE, **more}))

    refused('there is no namespace "none" of http://127.0.0.1:.*; name another, namespace=$', namespace="none")
    refused("can't be used: .*none", context="none")
    monkeypatch.delenv("DTK_IMAGE", raising=False)
    refused(r"name an image with TensorFlow and dtk: dtk.places.Kubernetes\(image=...\), or DTK_IMAGE", image=None)
    config = cluster.file.read_text()
    other = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(other))
    refused("^on Kubernetes: there is no kubeconfig at .*config; set KUBECONFIG")
    other.write_text(config.replace(kubernetes_here.TOKEN, "wrong"))
    refused(r"does not accept the credentials \(401\): log in anew$")
    other.write_text(config.replace(str(cluster.port), "9"))
    refused("^no Kubernetes answers at http://127.0.0.1:9: connection refused$")
    assert gone(cluster)


def test_the_newer_protocol_of_attaching(cluster, monkeypatch):
    monkeypatch.setattr(cluster, "protocol", "v5.channel.k8s.io")
    monkeypatch.setenv("DTK_IMAGE", IMAGE)
    assert dtk.run(lambda: 1, workers=2, on="kubernetes").results == [1, 1]
    dtk.places.named("kubernetes").close()
    assert gone(cluster)


def test_a_kernel_that_is_killed_leaves_no_agent(cluster, tmp_path):
    program = tmp_path / "kernel.py"
    program.write_text(
        f"import dtk, time\ndtk.run(lambda: time.sleep(100), workers=2, on=dtk.places.Kubernetes({IMAGE!r}))\n"
    )
    kernel = subprocess.Popen([sys.executable, program], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until = time.monotonic() + 60
        while not all(len(cluster.network.processes(k)) >= 5 for k in (1, 2)):  # unshare, agent, guard, parent, worker
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
    until = time.monotonic() + 20
    while any(cluster.network.processes(k) for k in (1, 2)):
        assert time.monotonic() < until
        time.sleep(0.2)
    (job,) = cluster.jobs.values()
    until = time.monotonic() + 5
    while not job["status"].get("conditions") and time.monotonic() < until:
        time.sleep(0.1)
    assert job["status"]["conditions"][0]["type"] == "Complete", "Kubernetes removes it a minute later"
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    cluster.call(cluster.delete, job["metadata"]["name"])
    assert gone(cluster)
