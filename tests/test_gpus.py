"""Each worker gets its own GPUs. There are none here: a stand-in for nvidia-smi, and names in CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import re

import pytest

import dtk
from dtk.errors import ClusterConfigError
from dtk.launch import request

FOUR = "".join(f"GPU {k}: NVIDIA A100-SXM4-40GB (UUID: GPU-{k})\n" for k in range(4))


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """nvidia-smi -L prints what is given; without it there is no such program."""

    def put(text):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && printf '%s' '{text}'\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return put


@pytest.mark.parametrize(
    ("named", "seen"), [("0,2", ["0", "2"]), (" 1, GPU-7 ", ["1", "GPU-7"]), ("", []), ("-1", []), ("2,-1,1", ["2"])]
)
def test_what_cuda_visible_devices_names_is_what_there_is(named, seen, listed, monkeypatch):
    listed(FOUR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert request.visible_gpus() == (seen, f"CUDA_VISIBLE_DEVICES={named}")


def test_otherwise_nvidia_smi_lists_them_and_parts_of_one_count_with_it(listed):
    listed(FOUR + "  MIG 1g.5gb     Device  0: (UUID: MIG-0)\n")
    assert request.visible_gpus() == (["0", "1", "2", "3"], "nvidia-smi")


def test_without_nvidia_smi_there_is_none(listed):
    assert request.visible_gpus()[0] == []


def test_an_evaluator_sees_none_and_without_a_request_nothing_is_set():
    assert request.gpu_environment(["0,1", "2,3"], 1) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert request.gpu_environment(["0,1", "2,3"], 2) == {"CUDA_VISIBLE_DEVICES": "-1"}
    assert request.gpu_environment([], 0) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"workers": 3, "gpus_per_worker": 2, "replicas": 2},
            "gpus_per_worker=2 with workers=3: they need 6 GPUs, and this machine shows 4 (by nvidia-smi)",
        ),
        ({"gpus_per_worker": 0}, "gpus_per_worker=0: it takes a whole number of at least 1"),
        (
            {"gpus_per_worker": 2, "replicas": 4},
            "gpus_per_worker=2 with replicas=4: each of a worker's GPUs has one replica; pass replicas=2",
        ),
    ],
)
def test_what_can_not_be_is_refused_with_the_numbers(given, said, listed):
    listed(FOUR)
    with pytest.raises(ClusterConfigError, match=re.escape(said)):
        dtk.run(print, **given)


@pytest.mark.trains
def test_each_worker_sees_its_own_and_the_evaluator_none(monkeypatch):
    def seen():
        return os.environ["CUDA_VISIBLE_DEVICES"]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,GPU-7,0,2")
    run = dtk.run(seen, workers=2, replicas=2, gpus_per_worker=2, evaluator=seen, start="cold", force=True)
    assert run.results == ["3,1", "GPU-7,0"]
    assert run.evaluator == "-1"
    assert run.again().results == run.results
