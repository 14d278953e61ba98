"""A run that waits, with TensorFlow's servers listening, while somebody tries to connect to them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading

import psutil
from waiting import wait_for

import dtk
from dtk.environment import scratch


def waits(strategy):
    """Writes down where this worker's process listens; then waits for a file, and takes part in an all-reduce."""
    import json
    import os
    import time

    import psutil
    import tensorflow as tf

    import dtk

    place = dtk.run_dir()
    listens = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    mine = [each.laddr for each in listens if each.pid == os.getpid()]  # psutil 5.9.5 has no Process().net_connections
    part = place / f"listens-{dtk.environment.here().worker}.part"
    part.write_text(json.dumps(mine))
    part.rename(part.with_suffix(".json"))
    while not (place / "go").exists():
        time.sleep(0.05)
    add = tf.function(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    return float(strategy.experimental_local_results(strategy.run(add))[0])


@contextlib.contextmanager
def held(**options):
    """(address, port) where the run's processes listen, while it lasts; it must come to the right sum afterwards."""
    results, runs = [], scratch("runs")
    before = {*runs.iterdir()}

    def written():
        return [path for run in {*runs.iterdir()} - before for path in run.glob("listens-*.json")]

    thread = threading.Thread(target=lambda: results.extend(dtk.run(waits, **options).results))
    thread.start()
    try:
        wait_for(lambda: len(written()) == 2)
        yield [tuple(each) for path in written() for each in json.loads(path.read_text())]
    finally:
        for path in written():
            (path.parent / "go").touch()
        thread.join()
    assert results == [2.0, 2.0]


LISTENS = """
import os, psutil
listens = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
[tuple(each.laddr) for each in listens if each.pid == os.getpid()]
"""


@contextlib.contextmanager
def held_in_cells(**options):
    """The same of a cluster that stays."""
    with dtk.cluster(workers=2, **options) as cluster:
        yield [each for listens in cluster.run(LISTENS) for each in listens]
        assert cluster.run("float(strategy.reduce('sum', 1.0, axis=None))") == [2.0, 2.0]


def own_addresses():
    """Of this machine, without those of its loopback."""
    found = [each for addresses in psutil.net_if_addrs().values() for each in addresses]
    return [each.address for each in found if each.family == 2 and not each.address.startswith("127.")]


def accepted(addresses, ports, prefix=()):
    """The (address, port) at which a connection is accepted. prefix: runs the attempts as somebody, or somewhere."""
    tries = [(address, port) for address in addresses for port in ports]
    return [
        (address, port)
        for address, port in tries
        if subprocess.run(
            [*prefix, "timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"], capture_output=True
        ).returncode
        == 0
    ]
