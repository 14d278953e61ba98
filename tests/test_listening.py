"""Whom a worker's server accepts: on loopback this machine alone, in a network of its own the run's processes alone."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys

import pytest
from reaching import accepted, held, own_addresses

import dtk
from dtk.compat import binding

LOOPBACK = bytes(10) + b"\xff\xff\x7f\x00\x00\x01"  # as a sockaddr of version 6 has it


def six(address=bytes(16), port=4001):
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0) + address + bytes(4)


def four(address=bytes(4), port=4001):
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + address + bytes(8)


@pytest.fixture
def on_loopback(monkeypatch):
    monkeypatch.setattr(binding, "_address", LOOPBACK[12:])


@pytest.mark.parametrize(
    ("given", "becomes"),
    [(six(), six(LOOPBACK)), (four(), four(b"\x7f\x00\x00\x01"))],
    ids=["every address", "every address of version 4"],
)
def test_the_wildcard_becomes_one_address(on_loopback, given, becomes):
    assert binding._narrowed(given) == becomes


@pytest.mark.parametrize(
    "found",
    [["127.0.1.1"], ["10.0.0.1", "10.1.0.1"], OSError("no such name")],
    ids=["its own name for loopback, as on Debian", "two addresses", "a name that others know"],
)
def test_a_name_that_would_hide_it_from_others_is_not_taken(monkeypatch, found):
    def resolved(*_, **__):
        if isinstance(found, OSError):
            raise found
        return [(None, None, None, None, (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert binding._only_address("node1") is None


@pytest.mark.parametrize("how", ["warm", pytest.param("cold", marks=pytest.mark.slow)])
@pytest.mark.trains
def test_other_addresses_of_this_machine_are_refused(how):
    addresses = own_addresses()
    if not addresses:
        pytest.skip("this machine has loopback alone")
    with held(start=how) as listens:
        ports = [port for _, port in listens]
        assert {address for address, _ in listens} == {"::ffff:127.0.0.1"}
        assert len(ports) == 2
        assert accepted(addresses, ports) == []
        assert len(accepted(["127.0.0.1"], ports)) == 2  # so that nothing else is the reason


@pytest.mark.trains
def test_tensorflow_still_listens_everywhere_by_itself(monkeypatch):
    """When this fails, `dtk.compat.binding` can go."""
    addresses = own_addresses()
    if not addresses:
        pytest.skip("this machine has loopback alone")
    monkeypatch.setenv("DTK_LISTEN", "all")
    with held() as listens:
        assert len(accepted(addresses, [port for _, port in listens])) == 2 * len(addresses)


@pytest.mark.trains
def test_an_isolated_run_is_reached_by_nobody(monkeypatch):
    try_it = "from dtk.launch import parent; parent.isolate()"
    if subprocess.run([sys.executable, "-c", try_it], capture_output=True).returncode:
        pytest.skip("this system has no network namespaces for us")
    monkeypatch.setenv("DTK_ISOLATE", "1")
    with held() as listens:
        assert accepted(["127.0.0.1", *own_addresses()], [port for _, port in listens]) == []


def fetches():
    import urllib.request

    urllib.request.urlopen("http://192.0.2.1/")  # an address for documentation: nobody is there


@pytest.mark.trains
def test_a_function_that_wants_a_network_there_hears_why_it_has_none(monkeypatch):
    monkeypatch.setenv("DTK_ISOLATE", "1")
    with pytest.raises(dtk.WorkerFailed, match="this run is isolated: it has no network"):
        dtk.run(fetches, workers=1)


def test_a_system_that_refuses(tmp_path):
    """As where an administrator has turned namespaces off; the limit is set in a user namespace of its own."""
    program = "import dtk, os; dtk.run(os.getpid, workers=1, start='cold')"
    command = f'echo 0 > /proc/sys/user/max_net_namespaces && exec {sys.executable} -c "{program}"'
    env = {"DTK_SCRATCH": str(tmp_path), "DTK_ISOLATE": "1"}
    done = subprocess.run(["unshare", "-Ur", "sh", "-c", command], capture_output=True, text=True, env=env)
    if "unshare failed" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("no user namespaces here")
    assert "DTK_ISOLATE: a network of its own is refused here" in done.stderr.splitlines()[-1]
