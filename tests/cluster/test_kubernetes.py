"""What `dtk.export(..., "kubernetes")` writes: against the published schemas, and run as a Job's pods would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import programs
import pytest
import yaml

import dtk
from dtk.runs import opened

pytestmark = [pytest.mark.slow, pytest.mark.trains]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("k8s") / "My_train"
    return dtk.export(programs.digits, "kubernetes", folder, workers=2, image="example.org/me/train:1")


def test_the_manifests_hold_to_the_published_schemas(written):
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate").validate
    service, job = yaml.safe_load_all((written / "job.yaml").read_text())
    for each in (service, job):
        validate(each, "1.30", strict=True)
    assert (service["kind"], service["spec"]["clusterIP"], job["kind"]) == ("Service", "None", "Job")
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"] == "my-train"


@pytest.fixture
def names(network, written, tmp_path):
    """The names that the headless Service would give: in the hosts file of each host."""
    service = yaml.safe_load((written / "job.yaml").read_text().split("---")[0])["metadata"]["name"]
    lines = [f"{network.address(k + 1)} {service}-{k}.{service}\n" for k in range(2)]
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    for k in (1, 2):
        network.cover(k, "/etc/hosts", tmp_path / "hosts")
    yield
    for k in (1, 2):
        network.uncover(k, "/etc/hosts")


def test_pods_train_together(network, names, written, tmp_path, baseline):
    container = yaml.safe_load((written / "job.yaml").read_text().split("---")[1])["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert container["command"] == ["python", "-m", "dtk", "worker", "/job"]
    pods = []
    for k in range(2):
        env = {**os.environ, **{each["name"]: each["value"] for each in container["env"]}}
        env |= {"JOB_COMPLETION_INDEX": str(k), "PYTHONPATH": str(ROOT)}
        command = [*network.command(k + 1).split(), sys.executable, *container["command"][1:-1], str(written)]
        command += ["--out", str(tmp_path / f"pod-{k}")]  # a pod's storage is its own
        log = (tmp_path / f"pod-{k}.log").open("w")
        with log:
            pods.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
    for k, pod in enumerate(pods):
        assert pod.wait(150) == 0, (tmp_path / f"pod-{k}.log").read_text()
    records = [opened(tmp_path / f"pod-{k}" / "run").records for k in range(2)]
    shares = [its[its.worker == k].loss.to_numpy() for k, its in enumerate(records)]
    assert shares[0] + shares[1] == pytest.approx(baseline.records.loss.to_numpy(), rel=1e-4)
    for there, here in zip(opened(tmp_path / "pod-0" / "run").weights, baseline.weights, strict=True):
        assert there == pytest.approx(here, abs=1e-4)
