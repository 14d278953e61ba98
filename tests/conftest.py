"""What several test files share."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import lanes
import live_folder
import matplotlib
import pytest
import staying
import verifying

import dtk
from dtk.watch.reader import Reader

sys.path.insert(0, str(Path(__file__).parent))  # `import fabricate`: helpers that are no tests
sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))  # `import lint_notebooks`

sys.modules.setdefault("rfc3987_syntax", None)  # whose grammars jsonschema loads for nbformat, 2 s a process
matplotlib.use("Agg")
TENSORFLOW = ("keras", "tensorflow", "tensorflow_datasets", "tensorflow_estimator", "tf_keras")


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leaves out what is slow or trains, and blocks TensorFlow")


def pytest_configure(config):
    # Among the runs of nobody else: tests look for the newest run, and for what is left of it.
    place = tempfile.TemporaryDirectory(prefix="dtk-tests-", ignore_cleanup_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = place.name
    config.add_cleanup(place.cleanup)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--fast"):
        block_tensorflow(Path(place.name, "without-tensorflow"))
        config.option.ignore_glob += [f"{Path(__file__).parent}/*/*"]  # need a browser, a site, a cluster or a grader


def block_tensorflow(folder):
    """No import of TensorFlow or Keras succeeds, here or in a process that a test starts.

    So a test that trains and is not marked so fails.
    """
    block = f"import sys\nsys.modules.update(dict.fromkeys({TENSORFLOW}))\n"  # None there makes an import raise
    exec(block)
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(block)  # Python runs it at the start of each process
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def pytest_collection_modifyitems(config, items):
    """Leaves out what does not hold with the versions that are installed, and what takes too long for this call."""
    for item in items:
        reason = lanes.reason_to_skip(item.path.name, item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"lane {lanes.LANE}: {reason}"))
        named = any(item.path.name in argument for argument in config.args)
        if item.get_closest_marker("slow") and not named and not os.environ.get("DTK_THOROUGH"):
            item.add_marker(pytest.mark.skip(reason="make test-thorough runs it"))
    if config.getoption("--fast"):
        left_out = [item for item in items if item.get_closest_marker("slow") or item.get_closest_marker("trains")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def figures_closed():
    """pyplot keeps each figure until it is closed, and warns of the twenty-first."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def folder(tmp_path):
    """Of a run of two workers who have said nothing yet."""
    return live_folder.empty(tmp_path)


@pytest.fixture
def dashboard(folder, monkeypatch):
    """Of the run in `folder`, drawn anew at each look."""
    from dtk.live import dashboard as module

    monkeypatch.setattr(module, "_EVERY", 0.0)
    return module.Dashboard(Reader(folder), 1, "cluster of 2 workers")


@pytest.fixture
def now(monkeypatch):
    """What the clock of this process says, in a list."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def make(tmp_path):
    return verifying.maker(tmp_path)


@pytest.fixture(params=["warm", "cold"])
def start(request):
    if request.param == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    return request.param


@pytest.fixture(scope="module")
def open_cluster():
    """Workers that stay, for the tests of a file."""
    with staying.opened() as cluster:
        yield cluster


@pytest.fixture
def cluster(open_cluster):
    """The same, which must be usable after each test."""
    yield open_cluster
    staying.usable(open_cluster)
