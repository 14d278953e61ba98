"""Workers in the pods of a Kubernetes cluster: an Indexed Job whose containers run dtk's agent."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.places import kube_pods, manifests
from dtk.places.carriers import Heard, Lent
from dtk.places.engine import Engine
from dtk.places.kube_api import PAGE, Api, Refused, system_words
from dtk.places.kube_attach import Attached
from dtk.places.kube_pods import Seen

__all__ = ["Kubernetes"]

LOOK_SECONDS = 1.0
SAY_SECONDS = 3.0  # after which what a pod waits for is said: most are there sooner
IMAGE_SECONDS = 40.0  # in which the kubelet has tried an image or a container three times
PATIENCE_SECONDS = 300  # in which an agent is spoken to, or ends: its kernel was killed before it ran
ANSWER_SECONDS = 30.0  # without an answer of the API server's
ENDED_SECONDS = 5.0  # in which the API server hears why a container has ended


class Kubernetes(Engine):
    """Pods of a Kubernetes cluster, a worker in each: `pip install "dtk-toolkit[kubernetes]"`, a kubeconfig or a pod.

        dtk.run(train, workers=2, on=dtk.places.Kubernetes(image="registry.example/me/train:1"))

    The pods are an Indexed Job's, stay for further runs with TensorFlow imported, and keep what they were given;
    `close()` deletes the Job and all that belongs to it, and so does the end of this process. Where that is killed,
    the agents end by themselves, and Kubernetes removes the Job a minute later.

    Args:
        image: of the containers, with TensorFlow and this version of dtk, such as one from the Dockerfile that
            `dtk.export(fn, "kubernetes", ...)` writes; None: what DTK_IMAGE says.
        namespace: by default the context's.
        context: of the kubeconfig; by default its current one, or the cluster that this process runs in.
        resources: of each pod, as request and as limit, such as {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}.
        storage: a PersistentVolumeClaim that pods on several nodes can write (ReadWriteMany), for the runs'
            directories; needed for `restarts`.
        pod: more of the pods' spec, such as {"nodeSelector": {"pool": "gpu"}}.
        python: the interpreter in the image.
        wait: seconds for all pods to run: for nodes to have room for them, and for the image to arrive.
        deadline: seconds after which Kubernetes ends the Job, whatever it does.
    """

    name = "kubernetes"

    def __init__(
        self,
        image: str | None = None,
        namespace: str = "",
        context: str = "",
        resources: Mapping[str, str | int] | None = None,
        storage: str = "",
        pod: Mapping[str, Any] | None = None,
        python: str = "python",
        wait: float = 600.0,
        deadline: float = 24 * 3600.0,
    ):
        super().__init__()
        self.image, self.namespace, self.context = image, namespace, context
        chosen = resources or {"cpu": "2", "memory": "4Gi"}
        self.resources = {name: str(amount) for name, amount in chosen.items()}
        self.storage, self.pod, self.python = storage, dict(pod or {}), python
        self.wait, self.deadline = wait, deadline

    def lend(self, heard: Sequence[Heard], tick: Callable[[], None]) -> list[Lent]:
        image = self.image or os.environ.get("DTK_IMAGE")
        if not image:
            words = N_(
                "on Kubernetes: name an image with TensorFlow and dtk: dtk.places.Kubernetes(image=...), or "
                "DTK_IMAGE; {page} says how to make one"
            )
            raise ClusterConfigError(_(words, page=PAGE))
        api = Api(self.context, self.namespace)
        api.check()
        name = f"dtk-{secrets.token_hex(4)}"
        self.given_back.callback(_remove, api, name)  # before: an interrupt may come between
        api.apply(*self._objects(name, len(heard), image))
        return self._lent(_Waiting(api, name, len(heard), self.wait), heard, tick)

    def _objects(self, name: str, count: int, image: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The Service and the Job of so many agents, as objects of the API."""
        command = [self.python, "-m", "dtk", "agent", "--patience", str(PATIENCE_SECONDS)]
        command += ["--storage", manifests.VOLUME] if self.storage else []
        given = manifests.for_agents(name, count, image, command, self.resources, self.storage, self.deadline)
        given[1]["spec"]["template"]["spec"] |= self.pod
        return given

    def _lent(self, waiting: _Waiting, heard: Sequence[Heard], tick: Callable[[], None]) -> list[Lent]:
        """A machine for each pod, attached to as soon as it runs."""
        found: dict[int, Lent] = {}
        while True:
            for index, pod in waiting.look().items():
                if index not in found and pod.state == "running":
                    api = waiting.api
                    why = partial(_why_ended, api, waiting.job, pod.pod)
                    carrier = Attached(partial(api.attach, pod.pod), heard[index], why)
                    self.given_back.callback(carrier.close)
                    found[index] = Lent(pod.address, carrier, pod.host)
            if len(found) == len(heard):
                return [found[index] for index in range(len(heard))]
            until = time.monotonic() + LOOK_SECONDS
            while time.monotonic() < until:
                tick()
                time.sleep(0.1)


class _Waiting:
    """What the pods of a Job wait for, said once for each reason; ClusterConfigError where they wait in vain."""

    def __init__(self, api: Api, job: str, count: int, seconds: float):
        self.api, self.job, self._count, self._seconds = api, job, count, seconds
        self._until = time.monotonic() + seconds
        self._answered = time.monotonic()  # when the API server last did
        self._reasons: dict[str, float] = {}  # since when pods wait for it; infinite where it is said
        self._failed: dict[str, tuple[float, Seen]] = {}  # by pod: when, and how, the kubelet first failed to start it

    def look(self) -> dict[int, Seen]:
        """The pods that there are, by number."""
        now = time.monotonic()
        try:
            pods = kube_pods.by_index(self.api.pods(self.job))
        except Refused:
            raise
        except ClusterConfigError:  # no answer: that may pass
            if now - self._answered > ANSWER_SECONDS:
                raise
            return {}
        self._answered = now
        for pod in pods.values():
            self._refuse(pod, now)
        for reason, words in self._words(pods).items():
            if now > self._until:
                remedy = _("ask for fewer workers, for less (resources=), or wait longer (wait=)")
                late = _("{words}, for {seconds:g} s now", words=words, seconds=self._seconds)
                raise ClusterConfigError(late, remedy=remedy)
            if now - self._reasons.setdefault(reason, now) >= SAY_SECONDS:
                self._reasons[reason] = float("inf")
                environment.say(words)
        return pods

    def _refuse(self, pod: Seen, now: float) -> None:
        """ClusterConfigError for one that won't run."""
        if pod.state == "over":
            words = kube_pods.last_words(self.api.log(pod.pod))
            why = _("{what}: {why}", what=pod.why, why=words) if words else pod.why
            raise ClusterConfigError(_("{host} ended before dtk's agent answered: {why}", host=pod.host, why=why))
        if pod.reason in kube_pods.CANT_START:
            raise ClusterConfigError(_("{host} can't start: {why}", host=pod.host, why=pod.why))
        if pod.reason in kube_pods.MAY_NOT_START:
            since, first = self._failed.setdefault(pod.pod, (now, pod))
            if now - since > IMAGE_SECONDS:
                same = first.reason == pod.reason
                why = pod.why if same else _("{why}, first {first}", why=pod.why, first=first.why)
                words = N_("{host} has not started for {seconds:g} s: {why}")
                raise ClusterConfigError(_(words, host=pod.host, seconds=IMAGE_SECONDS, why=why))

    def _words(self, pods: Mapping[int, Seen]) -> dict[str, str]:
        """{reason: a sentence} of the pods that don't run."""
        found: dict[str, str] = {}
        for pod in pods.values():
            if pod.state != "running":
                others = sum(other.reason == pod.reason for other in pods.values()) - 1
                words = N_("{host} and {n} more wait: {why}") if others else N_("{host} waits: {why}")
                found.setdefault(pod.reason, _(words, host=pod.host, n=others, why=self._why(pod)))
        if len(pods) < self._count:
            given_up = self.api.given_up(self.job)
            if given_up:
                words = N_("Kubernetes has ended the Job {job} before its pods ran: {why}")
                raise ClusterConfigError(_(words, job=self.job, why=given_up))
            why = self.api.warning(self.job)
            words = N_("the Job {job} waits: {missing} of {count} pods are not there yet")
            said = _(words, job=self.job, missing=self._count - len(pods), count=self._count)
            said = _("{what}: {why}", what=said, why=why) if why else said
            found[f"missing {why.partition(' ')[0]}"] = said
        return found

    def _why(self, pod: Seen) -> str:
        """What it waits for; a warning says more than that it is being made."""
        warning = "" if pod.words else self.api.warning(pod.pod)
        return _("{first}, {more}", first=pod.why, more=warning) if warning else pod.why


def _why_ended(api: Api, job: str, pod: str, error: BaseException | None) -> str:
    """What became of a pod whose agent can't be spoken to any more."""
    until = time.monotonic() + ENDED_SECONDS
    while True:
        try:
            there = api.pod(pod)
            now = kube_pods.seen(there) if there is not None else None
            if now is None or (now.state == "over" and now.reason in ("", "Completed")):
                why = api.given_up(job)  # its container was asked to end
                if why:
                    return _("Kubernetes has ended its Job: {why}", why=why)
        except ClusterConfigError as refused:
            return str(refused)
        if now is None:
            return _("its pod was deleted")
        if now.state == "over":
            words = kube_pods.last_words(api.log(pod)) if now.reason == "Error" else ""
            return _("{what}: {why}", what=now.why, why=words) if words else now.why
        if time.monotonic() > until:
            if error is None:
                return _("there is no connection to its container any more, though it runs")
            words = N_("there is no connection to its container any more ({why}), though it runs")
            return _(words, why=system_words(error))
        time.sleep(0.5)


def _remove(api: Api, name: str) -> None:
    with contextlib.suppress(ClusterConfigError):
        api.remove(name)
        return
    try:
        api.remove(name)
    except ClusterConfigError as error:
        words = N_("the Job {job} could not be deleted, and ends by itself: {why}")
        environment.say(_(words, job=name, why=error))
