"""Studies and benchmarks that can't be: each is refused in one sentence, before anything starts."""

from __future__ import annotations

import functools
import json

import pytest
from studying import counted, other_steps, steps

import dtk
from dtk.studies import study as studies


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    monkeypatch.setattr(studies.environment, "cores", lambda: 2)


@pytest.mark.trains
def test_another_function_or_another_machine_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "study.json"
    dtk.study(steps, workers=[1], global_batch=4, repeats=1, path=path)
    ask = functools.partial(dtk.study, workers=[1], global_batch=4, repeats=1, path=path)
    with pytest.raises(
        dtk.ClusterConfigError,
        match="^study.json holds another study: of `steps` on 2 cores, or",
    ):
        ask(other_steps)
    with pytest.raises(dtk.ClusterConfigError, match="holds another study"):
        ask(functools.partial(steps, slower=3.0))
    monkeypatch.setattr(studies.environment, "cores", lambda: 8)
    with pytest.raises(dtk.ClusterConfigError, match="on 2 cores"):
        ask(steps)


@pytest.mark.trains
def test_a_file_that_is_no_study_is_refused(tmp_path):
    path = tmp_path / "study.json"
    for text in ("{", "[]", json.dumps({"format": 2}), json.dumps({"format": 1, "rows": [], "more": 1})):
        path.write_text(text)
        with pytest.raises(dtk.ClusterConfigError, match="study.json is no study that dtk has saved"):
            dtk.study(steps, workers=[1], global_batch=4, path=path)


@pytest.mark.trains
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": [], "global_batch": 8}, "workers=[]: a study of nothing"),
        ({"workers": [1]}, "neither global_batch nor per_replica_batch is given"),
        ({"per_replica_batch": []}, "per_replica_batch=[]: a study of nothing"),
        ({"global_batch": 10}, "global_batch=10 can't be divided equally among workers=4; take 12, or leave"),
        ({"global_batch": 0}, "global_batch=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "repeats": 0}, "repeats=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "workers": [0]}, "workers=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "workers": [99]}, "workers=99: this machine has 2 cores"),
        ({"global_batch": 8, "scaling": "both ways"}, "scaling='both ways': it takes one of strong, weak, both"),
        ({"global_batch": 8, "threads": -1}, "threads=-1: it takes a whole number of at least 0"),
        ({"global_batch": 8, "batch_argument": "size"}, "can't be called so: missing a required argument"),
        ({"global_batch": 8, "path": "no/such/study.json"}, "there is no such directory"),
        ({"global_batch": 8, "switches": {"x": {"bytes_per_pack": -1}}}, "bytes_per_pack=-1: it takes a whole number"),
        ({"global_batch": 8, "switches": {"x": {"message_bytes": -1}}}, "message_bytes=-1: it takes a whole number"),
        ({"global_batch": 8, "switches": {"x": {"pinned": 1}}}, "pinned=1: it takes True or False"),
        ({"global_batch": 8, "switches": {"x": {"implementation": "MPI"}}}, "takes one of AUTO, RING, NCCL"),
        ({"global_batch": 8, "switches": {"x": {"implementation": "RING"}}}, "makes its own; give it a parameter"),
        ({"global_batch": 8, "switches": {"x": {"no_such": 1}}}, "can't be called so: got an unexpected keyword"),
        ({"global_batch": 8, "switches": {"x": 3}}, "it takes names and what each changes"),
        ({"global_batch": 8, "timeout": -1}, "timeout=-1: it takes seconds above 0"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(asked, words, monkeypatch):
    made = counted(monkeypatch)
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.study(steps, **asked)
    assert words in str(caught.value)
    assert not made


def test_on_colab_several_workers_have_to_be_forced(monkeypatch):
    monkeypatch.setattr(studies.environment, "on_colab", lambda: True)
    with pytest.raises(dtk.ClusterConfigError, match="force=True"):
        dtk.study(steps, workers=[1, 2], global_batch=8)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": []}, "workers=[]: it takes a list of whole numbers"),
        ({"sizes": [3]}, "sizes: 3, but it takes bytes from 4"),
        ({"implementation": "MPI"}, "implementation='MPI': it takes one of AUTO, RING, NCCL"),
        ({"repeats": 0}, "repeats=0: it takes a whole number of at least 1"),
    ],
)
def test_a_benchmark_that_cannot_be_made_is_refused(asked, words):
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.benchmark_allreduce(**asked)
    assert words in str(caught.value)
