"""What can't work gets one sentence before any process starts."""

from __future__ import annotations

import functools
import threading

import pytest

import dtk
from dtk.compat import libraries
from dtk.launch import launch, request


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a process was about to be started")

    monkeypatch.setattr(launch, "launch", refuse)
    monkeypatch.setattr(launch, "new_folder", refuse)


def fine():
    return 1


def takes_two(a, b=2):
    return a + b


def needs(directory, strategy):
    return directory


async def coroutine():
    return 1


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"workers": 0}, "workers=0: it takes a whole number of at least 1"),
        ({"workers": True}, "workers=True: it takes a whole number"),
        ({"workers": "2"}, "workers='2': it takes a whole number"),
        ({"workers": 10_000}, r"workers=10000: this machine has \d+ cores, and dtk starts at most \d+ here"),
        ({"replicas": 0, "workers": 1}, "replicas=0: it takes a whole number of at least 1"),
        ({"seed": -1}, "seed=-1: it takes a whole number from 0"),
        ({"keras": 4}, "keras=4: it takes 2"),
        ({"timeout": 0}, "timeout=0: it takes seconds above 0"),
        ({"stall_timeout": -1}, "stall_timeout=-1: it takes seconds above 0"),
        ({"start": "hot"}, "start='hot': it takes one of auto, warm, cold"),
        ({"kwargs": {"batch": 1}}, "`fine` can't be called so: got an unexpected keyword argument 'batch'"),
        ({"evaluator": 5}, r"evaluator=5: it takes True \(the evaluator runs the workers' function\), a function"),
        ({"evaluator": "fine"}, "evaluator='fine': it takes True"),
        ({"evaluator": True, "workers": 1, "replicas": 2}, "an evaluator stands beside a cluster of workers"),
        (
            {"evaluator": needs},
            "`needs` can't be called so: missing a required argument: 'directory'; an evaluator gets no arguments",
        ),
    ],
)
def test_bad_arguments(keywords, words):
    with pytest.raises(dtk.ClusterConfigError, match=words):
        dtk.run(fine, **keywords)


@pytest.mark.parametrize("found", ["3.0.5", "3.4.1", "3.7.0", "3.11.3"])
def test_a_keras_3_whose_results_cannot_be_trusted(monkeypatch, found):
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    monkeypatch.setattr(libraries, "version", lambda package: found)
    words = rf'^Keras {found} is installed, .*keras#19891.*; pip install "keras>=3\.12", or pass keras=2, or dtk\.run'
    for call in (dtk.run, dtk.baseline):
        with pytest.raises(dtk.ClusterConfigError, match=words):
            call(fine)
    assert request.checked_keras(None, fine, force=True) is None
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert request.checked_keras(None, fine) is None, "workers then have tf_keras"
    with pytest.raises(dtk.ClusterConfigError, match=f"Keras {found} is installed"):
        request.checked_keras(3, fine)


@pytest.mark.parametrize("found", ["2.15.0", "3.12.0", "3.12.0.dev2026", "3.15.1", "4.0.0"])
def test_other_versions_of_keras_are_not_refused(monkeypatch, found):
    monkeypatch.setattr(libraries, "version", lambda package: found)
    assert request.checked_keras(None, fine) is None


def test_no_function():
    with pytest.raises(dtk.ClusterConfigError, match="fn is None, not a function; pass the function itself"):
        dtk.run(None)
    with pytest.raises(dtk.ClusterConfigError, match="`coroutine` is a coroutine or generator"):
        dtk.run(coroutine)


def test_captured_things_are_named():
    lock = threading.Lock()

    def train():
        return lock

    with pytest.raises(dtk.NotShippable, match=r"^`lock` \(lock\) is captured by `train`; create it inside$"):
        dtk.run(train)

    def helper():
        return lock

    def outer():
        return [helper() for _ in range(2)]

    with pytest.raises(dtk.NotShippable, match=r"^`lock` \(lock\) is captured by `helper`; create it inside$"):
        dtk.run(outer)

    with pytest.raises(dtk.NotShippable, match=r"^`args\[0\]` \(lock\) is captured by `the function`"):
        dtk.run(functools.partial(takes_two, lock))


def test_arguments_that_cannot_travel_are_named():
    with pytest.raises(dtk.NotShippable, match=r"^`args\[0\]` \(lock\) can't travel to a worker"):
        dtk.run(takes_two, args=(threading.Lock(),))
    with pytest.raises(dtk.NotShippable, match=r"^`kwargs\['b'\]` \(lock\) can't travel"):
        dtk.run(takes_two, args=(1,), kwargs={"b": threading.Lock()})


def test_a_tf_config_of_the_kernel_is_ignored_with_a_notice(monkeypatch, capsys):
    from dtk.launch.place import say_ignored

    monkeypatch.setenv("TF_CONFIG", "{")
    say_ignored()
    words = "dtk: the TF_CONFIG that is set in this process is ignored; each worker gets one of its own\n"
    assert capsys.readouterr().out == words
    monkeypatch.delenv("TF_CONFIG")
    say_ignored()
    assert capsys.readouterr().out == ""
