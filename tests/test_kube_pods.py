"""What is said of pods, and how messages pass to an agent in one, without a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time

import pytest

import dtk
from dtk.places import kube_pods, manifests
from dtk.places.kube_attach import Attached

yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab, or with dtk-toolkit[kubernetes]")


def pod(index=0, node="n1", name="", **status):
    spec = {"nodeName": node} if node else {}
    about = {"name": name or f"dtk-1-{index}-x", "annotations": {kube_pods.INDEX: str(index)}}
    return {"metadata": {**about, "creationTimestamp": "2026-11-22T21:00:00Z"}, "spec": spec, "status": status}


def container(**state):
    return [{"name": "sidecar", "state": {"running": {}}}, {"name": "worker", "state": state}]


CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available.",
}
GONE = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "node is gone"}
ENDED = {"exitCode": 137, "reason": "OOMKilled"}


@pytest.mark.parametrize(
    ("status", "state", "why"),
    [
        ({"phase": "Pending"}, "waiting", "Pending"),
        ({"phase": "Pending", "conditions": [CONDITION]}, "waiting", "Unschedulable (0/2 nodes are available)"),
        (
            {"phase": "Pending", "containerStatuses": container(waiting={"reason": "ErrImagePull", "message": "none"})},
            "waiting",
            "ErrImagePull (none)",
        ),
        ({"phase": "Running", "containerStatuses": container(running={})}, "waiting", "Pending"),  # without an address
        ({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": container(running={})}, "running", "running"),
        ({"phase": "Running", "containerStatuses": container(terminated=ENDED)}, "over", "OOMKilled (exit code 137)"),
        (
            {"phase": "Failed", "conditions": [GONE], "containerStatuses": container(terminated=ENDED)},
            "over",
            "DeletionByTaintManager (exit code 137; node is gone)",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "short of memory."}, "over", "Evicted (short of memory)"),
    ],
)
def test_what_a_pod_is_and_why(status, state, why):
    found = kube_pods.seen(pod(**status))
    assert (found.state, found.why) == (state, why)


def test_a_pod_is_called_by_its_node_where_it_has_one():
    assert kube_pods.seen(pod(node="n1")).host == "n1 (pod dtk-1-0-x)"
    assert kube_pods.seen(pod(node="")).host == "pod dtk-1-0-x"


def test_the_newest_pod_of_each_number_counts():
    newer = pod(1, name="newer")
    newer["metadata"]["creationTimestamp"] = "2026-11-22T21:05:00Z"
    stranger = {"metadata": {"name": "other"}, "status": {}}
    found = kube_pods.by_index([newer, pod(1, name="older"), stranger, pod(0)])
    assert {index: each.pod for index, each in found.items()} == {0: "dtk-1-0-x", 1: "newer"}


def test_workers_meet_at_addresses_of_the_fourth_version_where_there_are_some():
    both = {"podIP": "fd00::7", "podIPs": [{"ip": "fd00::7"}, {"ip": "10.0.0.7"}]}
    assert kube_pods.seen(pod(phase="Running", containerStatuses=container(running={}), **both)).address == "10.0.0.7"


def test_last_words_are_not_messages():
    assert kube_pods.last_words('{"a": 1}\nNo module named dtk\n\n{"vitals": {}}\n') == "No module named dtk"
    assert kube_pods.last_words("") == ""


def test_the_job_of_agents_is_the_exported_one_but_for_what_agents_need():
    place = dtk.places.Kubernetes("example.org/me/train:1", storage="runs", pod={"nodeSelector": {"pool": "gpu"}})
    service, job = place._objects("dtk-1", 3, "example.org/me/train:1")
    exported_service, exported = yaml.safe_load_all(manifests.kubernetes("dtk-1", 3, "other", plain=False))
    assert service == exported_service
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    added = {"backoffLimitPerIndex": 0, "ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 86400}
    same = {name: value for name, value in exported["spec"].items() if name not in ("backoffLimit", "template")}
    assert {name: value for name, value in spec.items() if name != "template"} == {**same, **added}
    inside = spec["template"]["spec"]
    assert (inside["subdomain"], inside["restartPolicy"], inside["nodeSelector"]) == ("dtk-1", "Never", {"pool": "gpu"})
    (one,) = inside["containers"]
    assert one["command"] == ["python", "-m", "dtk", "agent", "--patience", "300", "--storage", "/dtk"]
    assert (one["image"], one["stdin"], one["stdinOnce"]) == ("example.org/me/train:1", True, True)
    assert one["resources"] == {kind: {"cpu": "2", "memory": "4Gi"} for kind in ("requests", "limits")}
    assert one["volumeMounts"][0]["name"] == inside["volumes"][0]["name"] == "runs"


def test_without_the_client_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(
        dtk.ClusterConfigError, match=r'its client is not installed here; pip install "dtk-toolkit\[kubernetes\]"'
    ):
        dtk.places.Kubernetes("example.org/me/train:1").lend([], lambda: None)


def test_without_an_image_one_sentence(monkeypatch):
    monkeypatch.delenv("DTK_IMAGE", raising=False)
    with pytest.raises(dtk.ClusterConfigError, match=r"dtk.places.Kubernetes\(image=...\), or DTK_IMAGE"):
        dtk.places.named("kubernetes").lend([], lambda: None)


# ---- messages, over a real websocket


class Connection:
    """As the official client's: what the carrier uses of it."""

    def __init__(self, port):
        websocket = pytest.importorskip("websocket", reason="websocket-client comes with JupyterLab")
        self.sock = websocket.WebSocket()
        self.sock.connect(f"ws://127.0.0.1:{port}/", subprotocols=["v4.channel.k8s.io"])

    def write_stdin(self, data):
        self.sock.send(b"\0" + data, opcode=2)

    def close(self, **more):
        self.sock.close(**more)


class Server:
    """A container at the other end. said: what it says, a frame each; heard: what came."""

    def __init__(self, said=(), ends=False):
        self.said, self.ends, self.heard, self.ended = said, ends, bytearray(), threading.Event()

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _serve(self, ready):
        tornado_web = pytest.importorskip("tornado.web", reason="tornado comes with JupyterLab")
        import tornado.httpserver
        import tornado.netutil
        import tornado.websocket

        server = self

        class Handler(tornado.websocket.WebSocketHandler):
            def select_subprotocol(self, offered):
                return offered[0]

            async def open(self):
                for frame in server.said:
                    await self.write_message(frame, binary=True)
                if server.ends:
                    self.close()

            def on_message(self, data):
                assert data[:1] == b"\0"
                server.heard += data[1:]

            def on_close(self):
                server.ended.set()

        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        http = tornado.httpserver.HTTPServer(tornado_web.Application([("/", Handler)]))
        http.add_sockets(sockets)
        self._loop.call_soon(ready.set)
        self._loop.run_forever()
        http.stop()


def until(there, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_messages_come_whole_whatever_the_frames_are():
    lines = [{"n": 1, "words": "größer"}, {"n": 2}]
    data = b'st of one"}\n' + b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
    frames = [b"\x01" + data[k : k + 1] for k in range(len(data))]
    heard = []
    said = [b"\x02on stderr\n", *frames[:20], b"\x03{}", b"\x01", *frames[20:], b"\x01Hello\n[1]\n{}\n"]
    with Server(said) as server:
        carrier = Attached(lambda: Connection(server.port), heard.append, lambda error: "never")
        carrier.send({"kill": ["a"]})
        until(lambda: len(heard) == 3 and server.heard.count(b"\n") == 2)
        carrier.close()
        assert server.ended.wait(5), "the connection ends, and with it the container's input"
    assert heard == [*lines, {}]
    assert [json.loads(line) for line in server.heard.splitlines()] == [{}, {"kill": ["a"]}]


def test_much_in_both_directions_at_once_and_all_of_it_before_the_end():
    big = {"data": "x" * (3 << 20)}
    heard = []
    said = [b"\x01" + json.dumps(big).encode() + b"\n" for _ in range(4)]
    with Server(said) as server:
        carrier = Attached(lambda: Connection(server.port), heard.append, lambda error: "never")
        for _ in range(4):
            carrier.send(big)
        until(lambda: len(heard) == 4)
        carrier.close()
        assert server.ended.wait(5)
    assert heard == [big] * 4
    assert [json.loads(line) for line in server.heard.splitlines()] == [{}, *[big] * 4]


def test_a_connection_that_ends_is_said_once_and_why():
    heard = []
    with Server([b"\x01{}\n"], ends=True) as server:
        carrier = Attached(lambda: Connection(server.port), heard.append, lambda error: "OOMKilled")
        until(lambda: len(heard) == 2)
        carrier.send({"kill": []})
        carrier.close()
    assert heard == [{}, {"gone": "OOMKilled"}]


def test_attaching_is_tried_again_and_its_error_passed_on(monkeypatch):
    monkeypatch.setattr("dtk.places.kube_attach.PAUSE_SECONDS", 0.01)
    heard, tried = [], []

    def connect():
        tried.append(1)
        raise OSError(111, os.strerror(111))

    Attached(connect, heard.append, lambda error: error.strerror)
    until(lambda: heard)
    assert (heard, len(tried)) == ([{"gone": "Connection refused"}], 3)


@pytest.mark.slow
@pytest.mark.trains
def test_an_agent_that_no_kernel_speaks_to_ends():
    import subprocess

    agent = [sys.executable, "-m", "dtk", "agent", "--patience", "2"]
    with subprocess.Popen(agent, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as alone:
        assert alone.wait(30) == 0
    with subprocess.Popen(agent, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as spoken_to:
        spoken_to.stdin.write(b"{}\n")
        spoken_to.stdin.flush()
        time.sleep(5)
        assert spoken_to.poll() is None
        spoken_to.stdin.close()
        assert spoken_to.wait(30) == 0
