"""`dtk doctor`: what it says of this machine, and of machines on which something does not work."""

from __future__ import annotations

import re
import shutil

import pytest

from dtk import cli, doctor, environment, limits
from dtk.compat import libraries
from dtk.errors import ClusterConfigError
from dtk.launch import request


def found(look):
    return {finding.name: finding for finding in look()}


@pytest.mark.trains
def test_here_everything_works(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "bad " not in out
    assert re.search(r"^ok    workers     two started and ended \(2 processes\)$", out, re.MULTILINE)
    assert re.search(r"^ok    packages    tensorflow \d", out, re.MULTILINE)
    for line in out.splitlines():
        assert re.match(r"(ok   |note |bad  ) \w|                  ?-> ", line), line


@pytest.mark.trains
def test_too_little_memory_is_bad_and_the_exit_code_says_so(monkeypatch, capsys):
    monkeypatch.setattr(limits, "memory", lambda: limits.Limit(100e6, "MEM_LIMIT"))
    monkeypatch.setattr(request, "is_warm", lambda fork: False)
    monkeypatch.setattr(doctor, "_workers", lambda: iter(()))
    assert cli.main(["doctor"]) == 1
    assert "bad   memory      100 MB free, by MEM_LIMIT; two workers need about 1,100" in capsys.readouterr().out


def test_workers_that_do_not_start(monkeypatch):
    def refused(*args, **keywords):
        raise ClusterConfigError("no process can be started")

    monkeypatch.setattr(doctor, "run", refused)
    assert found(doctor._workers)["workers"].said == "two did not start: no process can be started"


@pytest.mark.parametrize(
    ("version", "mark", "words"),
    [(None, "bad", "is not installed"), ("2.14.0", "note", "was not tested"), ("2.30.0", "note", "2.15 to 2.21 were")],
)
def test_versions_that_nobody_tested(monkeypatch, version, mark, words):
    found_there = {"Python": "3.11.0", **dict.fromkeys(doctor.PACKAGES, "1.0"), "tensorflow": version}
    monkeypatch.setattr(environment, "versions", lambda *packages: dict(found_there))
    finding = found(doctor._versions)["tensorflow"]
    assert finding.mark == mark
    assert words in str(finding)


def test_a_keras_3_whose_results_cannot_be_trusted(monkeypatch):
    found_there = {"Python": "3.11.0", **dict.fromkeys(doctor.PACKAGES, "1.0"), "tensorflow": "2.21.0"}
    monkeypatch.setattr(environment, "versions", lambda *packages: dict(found_there))
    monkeypatch.setattr(libraries, "version", lambda package: "3.7.0")
    finding = found(doctor._versions)["keras"]
    assert finding.mark == "bad"
    assert finding.said.startswith("Keras 3.7.0 is installed, and below 3.12 results under tf.distribute can't be")
    assert finding.remedy.startswith('pip install "keras>=3.12"')


def test_a_full_disk(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10, 9, 1))
    assert "TMPDIR" in found(doctor._disk)["runs"].remedy
