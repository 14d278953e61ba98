"""Downloads into tensorflow-datasets' cache: whom they talk to, one at a time, and one answer for a whole cluster."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

import dtk
from dtk import datasets, environment
from dtk.environment import Here
from dtk.records import RunFolder


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty cache, and no proxy, whatever this machine is set to."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path / "scratch"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("urllib.request.getproxies", urllib.request.getproxies_environment)
    monkeypatch.setattr("urllib.request.proxy_bypass", urllib.request.proxy_bypass_environment)


@pytest.fixture
def fetched(empty, monkeypatch):
    """A stand-in for tensorflow-datasets' download: `fetched.append(error)` makes it fail; it gets the environment."""
    from tensorflow_datasets import public_api as tfds

    outcomes, seen = [], []

    class Builder:
        def download_and_prepare(self, download_config):
            assert not download_config.try_download_gcs
            seen.append(dict(os.environ))
            if outcomes:
                raise outcomes.pop()
            place = datasets._cache() / "mnist" / "3.0.1"
            place.mkdir(parents=True)
            for name in ("dataset_info.json", "features.json"):
                (place / name).touch()

    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: Builder())
    monkeypatch.setattr(datasets, "_answers", lambda url: True)
    return outcomes, seen


@pytest.mark.trains
def test_a_download_gets_the_proxies_back_and_only_for_itself(fetched, monkeypatch):
    outcomes, seen = fetched
    monkeypatch.setenv("DTK_PROXIES", json.dumps({"https_proxy": "http://p:1", "http_proxy": "http://p:2"}))
    monkeypatch.setenv("http_proxy", "before")
    outcomes.append(OSError("refused\nmore"))
    assert datasets._prepare("mnist") == "OSError: refused"
    assert (seen[0]["https_proxy"], seen[0]["http_proxy"]) == ("http://p:1", "http://p:2")
    assert "https_proxy" not in os.environ
    assert os.environ["http_proxy"] == "before"
    assert datasets._prepare("mnist") == "", "a download that failed does not stand in the way of the next"
    assert datasets._prepare("mnist") == ""
    assert len(seen) == 2, "what is there is not downloaded again"


@pytest.mark.trains
@pytest.mark.parametrize(("name", "builder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_the_addresses_are_those_of_tensorflow_datasets(name, builder):
    from tensorflow_datasets.image_classification import mnist as theirs

    assert datasets.URLS[name] == getattr(theirs, builder).URL


@pytest.fixture
def server():
    """The address of an HTTP server that answers 501."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield "http://{}:{}".format(*served.server_address)
        served.shutdown()
        thread.join()


def test_what_answers_does_so_by_a_proxy_too(empty, server, monkeypatch):
    assert datasets._answers(server)
    assert not datasets._answers("http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", server)
    assert datasets._answers("http://nowhere.invalid")


def test_a_host_that_says_nothing_is_not_waited_for(empty, monkeypatch):
    monkeypatch.setattr(datasets, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert not datasets._answers("http://{}:{}".format(*silent.getsockname()))
        assert time.monotonic() - began < 10


@pytest.mark.trains
def test_a_cluster_agrees_on_its_data(fetched, monkeypatch, tmp_path):
    outcomes, seen = fetched
    outcomes.append(OSError("refused"))
    try:
        for worker in (1, 0):  # the first has no luck, for the second the network is back
            environment.enter(Here(RunFolder(tmp_path, 2), worker, 2, 1, "cluster", 0.0))
            assert dtk.datasets.load("mnist")[1].splits["test"].num_examples == 1000
    finally:
        environment.enter(None)
    assert len(seen) == 1


PREPARE = """
import os, sys, time
from dtk import datasets

def download(name):
    place = datasets._cache() / name / "3.0.1"
    with open(datasets._cache() / "downloads.txt", "a") as file:
        file.write("one\\n")
    time.sleep(0.5)  # long enough for the others to arrive
    place.mkdir(parents=True)
    for file in ("dataset_info.json", "features.json"):
        (place / file).touch()
    return ""

datasets._download = download
assert datasets._prepare("mnist") == ""
"""


def test_of_processes_that_come_together_one_downloads(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))
    command = [sys.executable, "-c", PREPARE]
    together = [subprocess.Popen(command, cwd=Path(dtk.__file__).parents[1]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in together] == [0, 0, 0]
    assert (tmp_path / "cache" / "downloads.txt").read_text() == "one\n"


def test_a_lock_that_is_never_given_back_is_named(tmp_path, monkeypatch):
    lock = tmp_path / ".dtk-mnist.lock"
    monkeypatch.setattr(datasets, "LOCK_SECONDS", 0.0)
    with datasets.alone(lock):
        time.sleep(0.001)  # past the deadline on any clock
        with pytest.raises(dtk.DatasetUnavailable, match="another process has held .*mnist.lock for 0 s; end it"):
            datasets.alone(lock).__enter__()
    with datasets.alone(lock):
        pass  # a lock file that was left behind does not matter
