"""What Kubernetes says of a pod, in its own words for reasons: whether it runs, what it waits for, why it ended.

Pods are objects as the API has them, https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/. Reasons are
fixed words of the API, and what is done depends on them alone; messages are passed on to people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dtk.language import N_, _

__all__ = ["CANT_START", "MAY_NOT_START", "Seen", "by_index", "last_words", "seen"]

Object = Mapping[str, Any]

_STATES = (N_("waiting"), N_("running"), N_("over"))

# No later attempt of the kubelet's goes better.
CANT_START = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
# The kubelet tries again, mostly in vain.
MAY_NOT_START = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "CreateContainerError", "RunContainerError")
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Seen:
    """One pod at one moment.

    reason, words: why it waits or has ended, as a word of the API's and as a message; "" where it says none. code: of
    its container, where that has ended. address: its own, once it runs.
    """

    pod: str
    node: str
    state: Literal["waiting", "running", "over"]
    reason: str = ""
    words: str = ""
    code: int | None = None
    address: str = ""

    @property
    def host(self) -> str:
        """How people call the machine that the pod is to them."""
        if self.node:
            return _("{node} (pod {pod})", node=self.node, pod=self.pod)
        return _("pod {pod}", pod=self.pod)

    @property
    def why(self) -> str:
        """ "OOMKilled (exit code 137)", "Unschedulable (0/3 nodes are available: ...)"."""
        exit_code = _("exit code {code}", code=self.code) if self.code is not None else ""
        more = _("; ").join(filter(None, (exit_code, self.words.strip().rstrip("."))))
        reason = self.reason or _(self.state)
        return _("{what} ({why})", what=reason, why=more) if more else reason


def by_index(pods: Sequence[Object]) -> dict[int, Seen]:
    """The pods of an Indexed Job; the newest where there are several for a number."""
    found = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        index = (pod["metadata"].get("annotations") or {}).get(INDEX)
        if index is not None:
            found[int(index)] = seen(pod)
    return found


def seen(pod: Object) -> Seen:
    """What there is to know of a pod."""
    status = pod.get("status") or {}
    name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName") or ""
    containers = status.get("containerStatuses") or [{}]
    container = next((each for each in containers if each.get("name") == "worker"), containers[0])
    state = container.get("state") or {}
    ended = state.get("terminated")
    if ended is not None or status.get("phase") in ("Failed", "Succeeded"):
        return Seen(name, node, "over", *_why_over(status, ended or {}), (ended or {}).get("exitCode"))
    if "running" in state and status.get("podIP"):
        return Seen(name, node, "running", address=_address(status))
    waits = state.get("waiting") or _unscheduled(status)
    return Seen(name, node, "waiting", waits.get("reason") or "Pending", waits.get("message") or "")


def _why_over(status: Object, ended: Object) -> tuple[str, str]:
    """What ended the pod from outside comes before what its container made of it: eviction, a node that is gone."""
    if status.get("reason"):
        return status["reason"], status.get("message") or ""
    disrupted = _condition(status, "DisruptionTarget", "True")
    if disrupted:
        return disrupted.get("reason") or "DisruptionTarget", disrupted.get("message") or ""
    return ended.get("reason") or "", ended.get("message") or ""


def _unscheduled(status: Object) -> Object:
    return _condition(status, "PodScheduled", "False")


def _condition(status: Object, kind: str, value: str) -> Object:
    for condition in status.get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == (kind, value):
            return condition
    return {}


def _address(status: Object) -> str:
    """The pod's own; of the fourth version of IP, where it has both: agents listen there."""
    addresses = [each.get("ip", "") for each in status.get("podIPs") or ()]
    return next((address for address in addresses if ":" not in address and address), status["podIP"])


def last_words(log: str) -> str:
    """The last line that an agent's container has printed, beside messages to the kernel."""
    lines = [line.strip() for line in log.splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith("{")), "")
