"""The HTTP side of the stand-in for a Kubernetes cluster (kubernetes_here.py): paths, permissions, attaching."""

from __future__ import annotations

import json

import tornado.httpserver
import tornado.netutil
import tornado.web
import tornado.websocket
from kubernetes_here import NAMESPACE, PATH, TOKEN, Refusal

VERBS = {"POST": "create", "DELETE": "delete"}


def serve(cluster):
    """Starts to listen, in the loop of this thread; returns the port."""
    places = [
        (r"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Review),
        (PATH_OF_ATTACH, Attach),
        (r".*", Objects),
    ]
    application = tornado.web.Application(
        [(path, handler, {"cluster": cluster}) for path, handler in places],
        websocket_ping_interval=1.0,
        log_function=lambda _: None,
    )
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    tornado.httpserver.HTTPServer(application).add_sockets(sockets)
    return sockets[0].getsockname()[1]


PATH_OF_ATTACH = rf"/api/v1/namespaces/{NAMESPACE}/pods/([^/]+)/attach"


class Asked(tornado.web.RequestHandler):
    """A request, from someone who is known."""

    def initialize(self, cluster):
        self.cluster = cluster

    def prepare(self):
        if self.request.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(Refusal(401, "Unauthorized", "Unauthorized"))

    def refuse(self, refusal):
        self.set_status(refusal.status)
        self.finish(refusal.body)

    def check(self, verb, resource):
        self.cluster.asked.add((verb, resource))
        if (verb, resource) not in self.cluster.allowed:
            words = (
                f'{resource} is forbidden: User "me" cannot {verb} resource "{resource}" in the namespace "{NAMESPACE}"'
            )
            raise Refusal(403, "Forbidden", words, resource)


class Review(Asked):
    def post(self):
        about = json.loads(self.request.body)["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (about["resource"], about["subresource"])))
        self.set_status(201)
        self.finish({"status": {"allowed": (about["verb"], resource) in self.cluster.allowed}})


class Objects(Asked):
    def get(self):
        self.answer()

    post = delete = get

    def answer(self):
        try:
            found = PATH.fullmatch(self.request.path)
            if found is None:
                raise Refusal(404, "NotFound", "the server could not find the requested resource")
            what, name, sub = found["what"], found["name"], found["sub"]
            verb = VERBS.get(self.request.method) or ("get" if name else "list")
            self.check(verb, f"{what}/{sub}" if sub else what)
            if found["ns"] != NAMESPACE:
                raise Refusal(404, "NotFound", f'namespaces "{found["ns"]}" not found', "namespaces")
            self.finish(getattr(self, "_".join(filter(None, (verb, what, sub))))(name))
        except Refusal as refusal:
            self.refuse(refusal)

    def create_jobs(self, _):
        self.set_status(201)
        return self.cluster.create_job(json.loads(self.request.body))

    def create_services(self, _):
        self.set_status(201)
        return self.cluster.create_service(json.loads(self.request.body))

    def get_jobs(self, name):
        if name not in self.cluster.jobs:
            raise Refusal(404, "NotFound", f'jobs.batch "{name}" not found', "jobs")
        return self.cluster.jobs[name]

    def delete_jobs(self, name):
        options = json.loads(self.request.body or "{}")
        policy = self.get_query_argument("propagationPolicy", options.get("propagationPolicy", "Orphan"))
        return self.cluster.delete(name, policy)

    def _pod(self, name):
        if name not in self.cluster.pods:
            raise Refusal(404, "NotFound", f'pods "{name}" not found', "pods")
        return self.cluster.pods[name]

    def list_pods(self, _):
        label, _, value = self.get_query_argument("labelSelector").partition("=")
        pods = [pod.object for pod in self.cluster.pods.values() if pod.metadata["labels"].get(label) == value]
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}

    def get_pods(self, name):
        return self._pod(name).object

    def get_pods_log(self, name):
        lines = self._pod(name).log.decode(errors="replace").splitlines()
        return "\n".join(lines[-int(self.get_query_argument("tailLines", "1000")) :])

    def list_events(self, _):
        wanted = dict(each.split("=") for each in self.get_query_argument("fieldSelector").split(","))
        events = [
            each for each in self.cluster.events if each["involvedObject"]["name"] == wanted["involvedObject.name"]
        ]
        return {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": events}


class Attach(Asked, tornado.websocket.WebSocketHandler):
    """In frames of the protocol v4.channel.k8s.io or v5: a byte for the channel, then data."""

    async def get(self, name):
        try:
            self.check("get", "pods/attach")
            self.pod = self.cluster.pods.get(name)
            if self.pod is None:
                raise Refusal(404, "NotFound", f'pods "{name}" not found', "pods")
            if self.pod.status["phase"] != "Running":
                raise Refusal(400, "BadRequest", f"container {self.pod.container['name']} is not running")
        except Refusal as refusal:
            return self.refuse(refusal)
        wanted = {"stdout": 1, "stderr": 2}
        self.channels = {k for name, k in wanted.items() if self.get_query_argument(name, "false").lower() == "true"}
        await super().get(name)

    def select_subprotocol(self, offered):
        return self.cluster.protocol if self.cluster.protocol in offered else None

    def open(self, name):
        self.pod.attached = self

    async def on_message(self, data):
        if isinstance(data, bytes) and data[:1] == b"\0":
            await self.pod.hear(data[1:])

    def on_close(self):
        self.pod.detach()
