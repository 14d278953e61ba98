"""Studies and benchmarks that can't be: each is refused in one sentence, before anything starts."""

from __future__ import annotations

import pytest
from studying import steps

import dtk
from dtk.studies import study as studies


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    monkeypatch.setattr(studies.environment, "cores", lambda: 2)


@pytest.mark.trains
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": [], "global_batch": 8}, "workers=[]: a study of nothing"),
        ({"workers": [1]}, "neither global_batch nor per_replica_batch is given"),
        ({"per_replica_batch": []}, "per_replica_batch=[]: it takes a whole number of at least 1"),
        ({"global_batch": 9, "workers": [2, 4], "scaling": "weak"}, "can't be divided equally among workers=2"),
        ({"global_batch": 10}, "global_batch=10 can't be divided equally among workers=4; take 12, or leave"),
        ({"global_batch": 0}, "global_batch=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "repeats": 0}, "repeats=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "workers": [0]}, "workers=0: it takes a whole number of at least 1"),
        ({"global_batch": 8, "workers": [99]}, "workers=99: this machine has 2 cores"),
        ({"global_batch": 8, "scaling": "both ways"}, "scaling='both ways': it takes one of strong, weak, both"),
        ({"fn": lambda size: None, "global_batch": 8}, "can't be called so: missing a required argument"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(asked, words, monkeypatch):
    monkeypatch.setattr(studies, "carry_out", lambda *job: pytest.fail("a run was started"))
    with pytest.raises(dtk.ClusterConfigError) as caught:
        dtk.study(**{"fn": steps, **asked})
    assert words in str(caught.value)


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
