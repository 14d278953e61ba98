"""What runs on the hostile machines of test_hostile.py."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import dtk


def two():
    print("said")
    return dtk.environment.here().worker, os.path.isdir(tempfile.gettempdir())


def run(fn=two, **options):
    """The results of two workers, started cold where nothing else is asked: no TensorFlow to wait for."""
    return dtk.run(fn, **{"start": "cold", "timeout": 240, **options}).results


def fill_by_printing():
    while dtk.is_chief():
        print("x" * 1000)
    time.sleep(60)


def fill_by_records():
    from dtk.records import Record

    place = dtk.environment.here()
    for step in range(10**7 if dtk.is_chief() else 0):
        place.journal.record([Record(place.worker, place.worker, step, 1, 0.5, 64, place.now(), place.now())])
    time.sleep(60)


def add_up():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    value = strategy.run(lambda: tf.constant(1.0 + int(os.environ["TF_CONFIG"].count('"index": 1'))))
    return float(strategy.reduce("sum", value, axis=None))


def import_all():
    import keras
    import tensorflow_datasets as tfds

    return [bool(keras.__version__), bool(tfds.__version__)]


def take_all_ports():
    """Binds every port that the system gives out; returns the sockets, which have to stay."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    held = []
    for port in range(low, high + 1):
        each = socket.socket()
        each.bind(("", port))
        held.append(each)
    return held


def run_without_temporary_directory():
    tempfile._candidate_tempdir_list = lambda: ["/proc"]
    tempfile.tempdir = None
    os.environ.pop("DTK_SCRATCH", None)
    return run()


def run_without_ports():
    held = take_all_ports()
    try:
        return run()
    finally:
        for each in held:
            each.close()


def limited(files):
    """A run in a kernel that may open so many files."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    return run()


def used_up():
    """A run in a kernel that may open no further file."""
    import resource

    import psutil  # noqa: F401  (what is imported late would miss its descriptors, too)

    import dtk.runs  # noqa: F401

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(open(os.devnull))  # noqa: SIM115
    except OSError:
        pass
    for _ in range(3):
        held.pop().close()
    try:
        return run()
    finally:
        for each in held:
            each.close()


if __name__ == "__main__":
    sys.exit("for use by test_hostile.py")
