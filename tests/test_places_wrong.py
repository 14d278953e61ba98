"""Places and machines that won't do: one sentence each, before a worker starts."""

from __future__ import annotations

import sys

import psutil
import pytest

import dtk
from dtk.places import engine as checks
from dtk.places.engine import LentMachine


def lent(*versions, **facts):
    whole = {"Python": sys.version.split()[0], "tensorflow": "2.21.0", "keras": "3.15.1", "dtk": dtk.__version__}
    return [
        LentMachine(f"10.0.0.{k}", None, f"n{k}", {"versions": {**whole, **each}, **facts})
        for k, each in enumerate(versions, 1)
    ]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"Python": "3.9.1"}, "^worker 1 on n2: Python 3.9.1 there, .* here; a pickled function fits one minor v"),
        ({"tensorflow": None}, "^worker 1 on n2: tensorflow is not installed there, for the Python that is started"),
        ({"dtk": None}, "^worker 1 on n2: dtk is not installed there"),
        ({"dtk": "0.0.1"}, "^worker 1 on n2: dtk 0.0.1 there, .* on .*; install the same"),
        ({"keras": "3.9.0"}, "^worker 1 on n2: keras 3.9.0 there, 3.15.1 on n1; install the same on every machine"),
    ],
)
def test_a_machine_with_other_versions_is_named(other, words):
    checks.check_versions(lent({}, {}))
    with pytest.raises(dtk.ClusterConfigError, match=words):
        checks.check_versions(lent({}, other))


@pytest.mark.trains
@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("cloud", """on='cloud': it takes "ray", "slurm", or what a class of dtk.places makes"""),
        (dtk.places.Hosts(["192.0.2.1"]), "2 processes on 1 machines; give as many machines, or ask for fewer workers"),
        (dtk.places.Hosts({"n1": "sh -c 'echo ssh: n1: No route to host >&2; exit 255'", "n2": "false"}),
         "worker 0 on n1: dtk's agent did not start: ssh: n1: No route to host$"),
        (dtk.places.Hosts({"n1": "sh -c cat", "n2": "no-such-program"}),
         "no-such-program, which is to start dtk's agent on another machine, can't be run here .no such file"),
        (dtk.places.Hosts({"n1": "env", "n2": "env"}, python="no-such-python"),
         "^worker 0 on n1: dtk's agent did not start: env: .no-such-python.: No such file or directory$"),
    ],
)  # fmt: skip
def test_bad_places(on, words, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.run(print, workers=2, on=on)
    assert not {"sh", "cat"} & {each.name() for each in psutil.Process().children()}, "an agent that was started"


@pytest.mark.trains
def test_without_slurm_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(dtk.ClusterConfigError, match="^on Slurm: there is no sbatch on this machine; run it on a"):
        dtk.run(print, workers=2, on=dtk.places.Slurm(storage=str(tmp_path)))
    few = dtk.places.Slurm(nodes=1, storage=str(tmp_path))
    with pytest.raises(dtk.ClusterConfigError, match="^2 processes on 1 machines; give as many machines"):
        dtk.run(print, workers=2, on=few)
    assert list(tmp_path.iterdir()) == []
