"""One namespace of a Kubernetes cluster, by the official client: what fails is one sentence."""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
from pathlib import Path
from typing import Any

from dtk import extras
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.published import page

__all__ = ["NEEDED", "Api", "Refused", "system_words"]

REQUEST_SECONDS = (5.0, 20.0)  # to connect; to answer
PAGE = page("guide/clusters.md")
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")  # of a pod that a kernel is in

# (verb, API group, resource, subresource). Those of PAGE's Role that no run goes without; the others give words.
NEEDED = (
    ("create", "batch", "jobs", ""),
    ("get", "batch", "jobs", ""),
    ("delete", "batch", "jobs", ""),
    ("create", "", "services", ""),
    ("get", "", "pods", ""),
    ("list", "", "pods", ""),
    ("get", "", "pods", "attach"),
)


class Refused(ClusterConfigError):
    """The API server has answered with a status that says no. status: HTTP's; reason: the API's word for it."""

    def __init__(self, message: str, status: int, reason: str):
        super().__init__(message)
        self.status, self.reason = status, reason


class Api:
    """What a place asks of the API server. Objects are as the API has them.

    context: of the kubeconfig; "": its current one, or that of the pod which this process is in. namespace: "": the
    context's.
    """

    def __init__(self, context: str = "", namespace: str = ""):
        try:
            from kubernetes import client
        except ImportError:
            words = N_("on Kubernetes: its client is not installed here; {command}")
            raise ClusterConfigError(_(words, command=extras.command("kubernetes"))) from None
        self._client = client
        self._configuration, own = _configured(client, context)
        self._configuration.retries = False  # its warnings would be printed between a run's lines
        self.server = self._configuration.host
        self.namespace = namespace or own or "default"

    def _fresh(self) -> Any:
        """A client of its own: that of an attached pod may be no other's, and a connection that idled may be dead.

        https://github.com/kubernetes-client/python/issues/928
        """
        return self._client.ApiClient(configuration=self._configuration)

    def _ask(self, kind: str, call: str, *args: Any, **more: Any) -> Any:
        """An answer as text. kind: the class of the client's that has the call."""
        import urllib3

        fresh = self._fresh()
        do = getattr(getattr(self._client, kind)(fresh), call)
        try:
            said = do(*args, _preload_content=False, _request_timeout=REQUEST_SECONDS, **more)
            return said.data.decode(errors="replace")
        except self._client.ApiException as error:
            if not error.status:  # none has answered: TLS
                raise self._unreachable(error) from None
            raise self._refused(error) from None
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            fresh.rest_client.pool_manager.clear()  # its `close` does so in newer versions alone

    def _unreachable(self, error: BaseException) -> ClusterConfigError:
        words = N_("no Kubernetes answers at {server}: {why}")
        return ClusterConfigError(_(words, server=self.server, why=system_words(error).lower()))

    def _refused(self, error: Any) -> Refused:
        try:
            status = json.loads(error.body)
            said, reason = str(status.get("message") or ""), str(status.get("reason") or "")
            about = (status.get("details") or {}).get("kind")
        except (TypeError, ValueError):
            said, reason, about = str(error.reason), "", None  # a proxy's answer
        words = N_("Kubernetes refused it ({status} {reason}): {said}")
        if error.status == 401:
            words = N_("Kubernetes at {server} does not accept the credentials (401): log in anew")
        elif error.status == 403:
            return Refused(self._not_allowed(said), error.status, reason)
        elif error.status == 404 and about == "namespaces":
            words = N_('there is no namespace "{namespace}" of {server}; name another, namespace=')
        where = {"server": self.server, "namespace": self.namespace}
        words = _(words, status=error.status, reason=reason or error.reason, said=said, **where)
        return Refused(words, error.status, reason)

    def _not_allowed(self, what: str) -> str:
        words = N_('not allowed in the namespace "{namespace}" of {server}: {what}; a Role that suffices is in {page}')
        return _(words, namespace=self.namespace, server=self.server, what=what, page=PAGE)

    # ---- what may be done

    def check(self) -> None:
        """ClusterConfigError where something that a run takes is not allowed."""
        missing = [each for each in NEEDED if not self._allowed(*each)]
        if missing:
            what = _(", ").join(f"{verb} {'/'.join(filter(None, of))}" for verb, _group, *of in missing)
            raise ClusterConfigError(self._not_allowed(what))

    def _allowed(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        about = {"namespace": self.namespace, "verb": verb, "group": group, "resource": resource}
        spec = {"resourceAttributes": {**about, "subresource": subresource}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        try:
            said = self._ask("AuthorizationV1Api", "create_self_subject_access_review", body)
        except Refused as error:
            if error.status not in (403, 404):
                raise
            return True  # it can't be asked; it shows when it is done
        return bool((json.loads(said).get("status") or {}).get("allowed"))

    # ---- Job and Service

    def apply(self, service: dict[str, Any], job: dict[str, Any]) -> None:
        """Makes the Job, and the Service as its own: it goes with it."""
        made = json.loads(self._ask("BatchV1Api", "create_namespaced_job", self.namespace, job))
        if "backoffLimitPerIndex" not in made["spec"]:
            words = N_("Kubernetes at {server} is older than 1.29, which dtk's Job needs")
            raise ClusterConfigError(_(words, server=self.server))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": made["metadata"]["name"]}
        service["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
        self._ask("CoreV1Api", "create_namespaced_service", self.namespace, service)

    def remove(self, name: str) -> None:
        """Deletes the Job, and with it its pods and its Service; nothing where it is gone."""
        # Of itself, the API would leave a Job's pods behind.
        try:
            self._ask("BatchV1Api", "delete_namespaced_job", name, self.namespace, propagation_policy="Background")
        except Refused as error:
            if error.status != 404:
                raise

    def given_up(self, name: str) -> str:
        """Why Kubernetes has ended a Job by itself, "DeadlineExceeded (...)"; "" where it has not."""
        job = json.loads(self._ask("BatchV1Api", "read_namespaced_job", name, self.namespace))
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition.get("type") in ("Failed", "FailureTarget") and condition.get("status") == "True":
                return f"{condition.get('reason')} ({(condition.get('message') or '').strip().rstrip('.')})"
        return ""

    # ---- pods

    def pods(self, job: str) -> list[dict[str, Any]]:
        said = self._ask("CoreV1Api", "list_namespaced_pod", self.namespace, label_selector=f"job-name={job}")
        return list(json.loads(said)["items"])

    def pod(self, name: str) -> dict[str, Any] | None:
        """None where there is no such pod any more."""
        try:
            return dict(json.loads(self._ask("CoreV1Api", "read_namespaced_pod", name, self.namespace)))
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def log(self, pod: str) -> str:
        """The last lines of its container; "" where there are none, or they may not be read."""
        with contextlib.suppress(ClusterConfigError):
            return str(self._ask("CoreV1Api", "read_namespaced_pod_log", pod, self.namespace, tail_lines=40))
        return ""

    def warning(self, name: str) -> str:
        """The last warning about a Job or a pod, "FailedCreate (...)"; "" for none, or where it may not be read."""
        about = f"involvedObject.name={name},type=Warning"
        with contextlib.suppress(ClusterConfigError):
            said = json.loads(self._ask("CoreV1Api", "list_namespaced_event", self.namespace, field_selector=about))
            events = sorted(said["items"], key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")))
            for event in events[-1:]:
                return f"{event.get('reason')} ({(event.get('message') or '').strip().rstrip('.')})"
        return ""

    def attach(self, pod: str) -> Any:
        """A connection to the input and output of its container; raises what the client or the system raises.

        Not to be called in the main thread: the client takes an interrupt there for an error of the connection.
        """
        from kubernetes.stream import stream

        call = self._client.CoreV1Api(self._fresh()).connect_get_namespaced_pod_attach
        streams = {"stdin": True, "stdout": True, "stderr": False, "tty": False}
        return stream(call, pod, self.namespace, container="worker", **streams, _preload_content=False, binary=True)


def _configured(client: Any, context: str) -> tuple[Any, str]:
    """The client's configuration, and the namespace that goes with it."""
    from kubernetes import config

    found = client.Configuration()
    # Read by the client when it is imported, and not again.
    files = os.environ.get("KUBECONFIG") or "~/.kube/config"
    there = any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file)
    try:
        if there or context:
            config.load_kube_config(files, context=context or None, client_configuration=found, persist_config=False)
            contexts, current = config.list_kube_config_contexts(files)
            chosen = next((each for each in contexts if each["name"] == context), current)
            return found, str(chosen["context"].get("namespace") or "")
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=found)
            return found, OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else ""
    except (
        config.ConfigException,
        OSError,
        TypeError,
        KeyError,
        ValueError,
    ) as error:  # a file that is none
        words = _("on Kubernetes: {files} can't be used: {why}", files=files, why=_in_short(error))
        raise ClusterConfigError(words) from None
    words = N_("on Kubernetes: there is no kubeconfig at {files}; set KUBECONFIG, or let your cluster's tool write one")
    raise ClusterConfigError(_(words, files=files))


def _in_short(error: BaseException) -> str:
    return textwrap.shorten(str(error), 200) or type(error).__name__


def system_words(error: BaseException) -> str:
    """The system's own words for why there is no connection: of the innermost error that has some."""
    words, each = "", error
    for _depth in range(10):
        if isinstance(each, OSError):
            words = each.strerror or str(each) or words
        elif getattr(each, "status_code", None):  # of an answer that is no websocket
            words = _("HTTP status {code}", code=each.status_code)  # type: ignore[attr-defined]
        inner = each.__cause__ or each.__context__
        if inner is None:
            break
        each = inner
    return words or _in_short(error)
