"""What stands in for a Kubernetes cluster here: an API server over HTTP, whose pods are processes on hosts of netns.py.

No Kubernetes can be had on a machine like this one. The official client speaks to this server as to any other: the
paths, objects, reasons and frames are those of the published API, and what the Role of docs/guide/clusters.md does not
allow is refused. Each pod really runs its container's command, with an address of its own; a node holds one pod. What
is not here: images, a container runtime, rules of the network between nodes, TLS, admission, other versions, and the
timing of a real control plane. A test that passes here shows that dtk keeps to the API as it is written down, and not
that each cluster does.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import secrets
import threading
from pathlib import Path

import netns
from containers import Pod, now

NAMESPACE, TOKEN = "lab", "let-me-in"
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{server}"}}}}]
users: [{{name: me, user: {{token: {token}}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me, namespace: {namespace}}}}}]
"""
PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>batch)/v1)/namespaces/(?P<ns>[^/]+)/(?P<what>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?"
)
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "clusters.md"


def reason_to_skip():
    """Why there can be none here; "" where there can."""
    for package in ("kubernetes", "tornado", "yaml"):
        if importlib.util.find_spec(package) is None:
            return f'{package} is not installed: pip install "dtk-toolkit[cluster]"'
    return netns.reason_to_skip()


def documented():
    """{(verb, resource)} that the Role in the guide allows."""
    import yaml

    text = re.search(r"```yaml\n(.*?kind: Role\n.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    rules = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Role")["rules"]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


class Refusal(Exception):
    """An answer that says no, as the API words it."""

    def __init__(self, status, reason, message, kind=""):
        super().__init__(message)
        self.status = status
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
        self.body |= {"reason": reason, "details": {"kind": kind}}


class Cluster:
    """While it lives, KUBECONFIG of `file` leads to it. nodes: as many as the network has hosts.

    allowed: what this user may. holds: {index: why} of pods whose image does not come. protocol: of attaching.
    """

    def __init__(self, network, folder):
        self.network, self.folder, self.file = network, folder, folder / "kubeconfig"
        self.jobs, self.pods, self.services, self.events = {}, {}, {}, []
        self.holds, self.dead, self.allowed, self.asked = {}, set(), documented(), set()
        self.protocol = "v4.channel.k8s.io"

    def __enter__(self):
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(20)
        words = {"server": f"http://127.0.0.1:{self.port}", "token": TOKEN, "namespace": NAMESPACE}
        self.file.write_text(KUBECONFIG.format(**words))
        return self

    def __exit__(self, *_):
        for pod in self.pods.values():
            pod.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _serve(self, ready):
        from kubernetes_server import serve

        asyncio.set_event_loop(self._loop)
        self._running = []
        self.port = serve(self)
        self._running.append(self._loop.create_task(self._control()))
        self._loop.call_soon(ready.set)
        self._loop.run_forever()

    def call(self, do, *args):
        """In the server's thread, for the tests."""
        done = asyncio.run_coroutine_threadsafe(self._called(do, *args), self._loop)
        return done.result(20)

    async def _called(self, do, *args):
        return do(*args)

    # ---- what happens to pods, for the tests

    def pod(self, index):
        return next(pod for pod in self.pods.values() if pod.index == index and not pod.over)

    def out_of_memory(self, index):
        """As the kernel ends a container at its limit of memory, and the kubelet reports it."""

        def do():
            pod = self.pod(index)
            pod.reason = "OOMKilled"
            pod.kill()

        self.call(do)

    def evict(self, index):
        """As the kubelet does on a node that is short of something."""

        def do():
            pod = self.pod(index)
            pod.condition("DisruptionTarget", "True", "TerminationByKubelet", "The node was low on resource: memory.")
            pod.terminate()

        self.call(do)

    def take_away(self, node):
        """The node's power is cut: no one hears of it again, its API server neither."""

        def do():
            self.dead.add(node)
            for pod in self.pods.values():
                pod.lost |= pod.node == node

        self.call(do)
        self.network.kill(node)

    def bring_back(self, node):
        self.call(self.dead.discard, node)

    # ---- what a control plane does

    async def _control(self):
        while True:
            for job in list(self.jobs.values()):
                self._keep(job)
            for pod in list(self.pods.values()):
                self._place(pod)
                if pod.metadata.get("deletionTimestamp") and (pod.over or pod.lost or not pod.node):
                    del self.pods[pod.name]
            await asyncio.sleep(0.05)

    def _keep(self, job):
        """Makes a Job's pods, each once, as with backoffLimitPerIndex: 0; says when it is over."""
        name, spec, status = job["metadata"]["name"], job["spec"], job["status"]
        for index in range(spec["completions"]):
            if index not in status.setdefault("made", []):
                status["made"].append(index)
                pod = Pod(job, index, self.folder)
                self.pods[pod.name] = pod
        own = [pod for pod in self.pods.values() if pod.of == name]
        if not status.get("conditions") and own and all(pod.over for pod in own):
            failed = any(pod.status["phase"] == "Failed" for pod in own)
            status["conditions"] = [{"type": "Failed" if failed else "Complete", "status": "True"}]
            wait = spec.get("ttlSecondsAfterFinished")
            if wait is not None:
                self._loop.call_later(wait, self.delete, name)

    def _place(self, pod):
        if pod.node or pod.metadata.get("deletionTimestamp"):
            return
        nodes = range(1, self.network.count + 1)
        taken = {other.node for other in self.pods.values() if not other.over and not other.lost} | self.dead
        free = [node for node in nodes if node not in taken]
        if not free:
            words = f"0/{len(nodes)} nodes are available: {len(nodes)} Insufficient cpu."
            pod.condition("PodScheduled", "False", "Unschedulable", words)
            return
        pod.node = free[0]
        pod.spec["nodeName"] = f"node-{pod.node}"
        pod.condition("PodScheduled", "True", "", "")
        held = self.holds.get(pod.index)
        if held:
            pod.says(waiting={"reason": held, "message": f'Back-off pulling image "{pod.container["image"]}"'})
        else:
            pod.says(waiting={"reason": "ContainerCreating"})
            self._running.append(self._loop.create_task(pod.run(self.network)))

    # ---- what the API does; each gives an object, or raises Refusal

    def create_job(self, job):
        _validate(job)
        self._identify(job)
        self.jobs[job["metadata"]["name"]] = job
        job["status"] = {}
        return job

    def create_service(self, service):
        _validate(service)
        self._identify(service)
        self.services[service["metadata"]["name"]] = service
        return service

    @staticmethod
    def _identify(made):
        made["metadata"] |= {"uid": secrets.token_hex(8), "creationTimestamp": now(), "namespace": NAMESPACE}

    def delete(self, name, policy="Background"):
        """A Job, and what belongs to it: its pods unless they are to be orphans, and what names it as its owner."""
        job = self.jobs.pop(name, None)
        if job is None:
            raise Refusal(404, "NotFound", f'jobs.batch "{name}" not found', "jobs")
        uid = job["metadata"]["uid"]
        for service in list(self.services.values()):
            if any(owner["uid"] == uid for owner in service["metadata"].get("ownerReferences", ())):
                del self.services[service["metadata"]["name"]]
        for pod in self.pods.values() if policy != "Orphan" else ():
            if pod.of == name:
                pod.metadata["deletionTimestamp"] = now()
                pod.terminate()
        return job


def _validate(made):
    try:
        import kubernetes_validate
    except ImportError:
        return
    try:
        kubernetes_validate.validate(made, "1.30", strict=True)
    except kubernetes_validate.ValidationError as error:
        raise Refusal(422, "Invalid", f"{made['kind']}: {error.message}") from None


def as_json(made):
    return json.dumps(made)
