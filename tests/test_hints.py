"""Labels in the workers' colours; Tab and Shift-Tab in a cell of `%%workers`: without workers."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from dtk.inside import hints
from dtk.interactive.failed import CellFailed
from dtk.interactive.hints import Hints
from dtk.interactive.labels import colored, named
from dtk.view.palette import worker_color


def test_cells_need_no_widgets():
    code = "import sys; sys.modules['ipywidgets'] = None; import dtk; dtk.cluster, dtk.CellFailed; import dtk.magics"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


# ---- labels


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Page(io.StringIO):
    """Stands for the stream of a notebook's kernel."""

    __module__ = "ipykernel.iostream"


@pytest.fixture
def shown(monkeypatch):
    """shown(stream, members, **environment): the label as it is printed there."""

    def label(stream, members, **env):
        for name in ("CI", "DTK_LIVE", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdout", stream)
        return colored(members)

    return label


@pytest.mark.parametrize("stream", [Terminal(), Page()], ids=["terminal", "page"])
def test_a_label_is_on_its_workers_colours(shown, stream):
    red, green, blue = (int(worker_color(1)[k : k + 2], 16) for k in (1, 3, 5))
    assert shown(stream, [1]) == f"\x1b[48;2;{red};{green};{blue};38;2;0;0;0m[worker 1]\x1b[0m"
    both = shown(stream, [0, 1])
    assert [part.partition("m")[2] for part in both.split("\x1b[")] == ["", "[worke", "r 0-1]", ""]
    assert "".join(part.partition("m")[2] for part in shown(stream, range(40)).split("\x1b[")) == named(range(40))


@pytest.mark.parametrize(
    ("stream", "env"),
    [
        (io.StringIO(), {}),
        (Terminal(), {"DTK_LIVE": "text"}),
        (Page(), {"DTK_LIVE": "off"}),
        (Page(), {"CI": "true"}),
        (Terminal(), {"NO_COLOR": "1"}),
    ],
    ids=["file", "text", "off", "CI", "NO_COLOR"],
)
def test_a_label_is_plain_where_colours_do_not_show(shown, stream, env):
    assert shown(stream, [0, 1], **env) == "[worker 0-1]"


def test_tracebacks_have_the_label(shown):
    error = CellFailed("it raised", worker=1, tracebacks={0: "lines", 1: "lines"}, waits={})
    shown(io.StringIO(), [0])
    assert error._render_traceback_() == ["[worker 0-1]", "lines", "", "CellFailed: it raised"]


def test_a_sentence_of_several_parts_is_shown_in_lines_with_the_ways_on(shown):
    said = [([0], "raised ValueError"), ([1, 2], "wait for worker 0")]
    remedy = "run the rest, or cluster.free()"
    error = CellFailed("what", worker=0, tracebacks={}, waits={1: [0], 2: [0]}, said=said, remedy=remedy)
    shown(io.StringIO(), [0])
    assert str(error) == "what; run the rest, or cluster.free()"
    assert error.with_words("replicas differ")._render_traceback_() == [
        "CellFailed:",
        "[worker 0] raised ValueError",
        "[worker 1-2] wait for worker 0",
        "replicas differ",
        "then: %%worker 0, with the lines that it has not run, lets it catch up",
        "or: cluster.free() ends the wait",
    ]


# ---- in a worker


class Base:
    def inherited(self):
        """What it is for."""


class Thing(Base):
    factor = 3

    def __init__(self):
        self.inner = {"a": [Base()]}

    @property
    def total(self):
        """The sum over all workers."""
        raise AssertionError("it would take an all-reduce")

    def __getattr__(self, name):
        raise AssertionError("a call")

    def __dir__(self):
        raise AssertionError("a call")

    def fit(self, x, epochs=1, *, verbose=0):
        """Trains."""


NAMES = {"model": Thing(), "mode": 1, "_hidden": 2, "Thing": Thing, "io": io, "modern": exit, "strategy": object()}


HIDDEN = {"modern": exit, "mode": 2}


def completed(code, at=None):
    said = hints.complete(NAMES, code, len(code) if at is None else at, HIDDEN)
    return [name for name, _ in said["found"]], code[said["from"] : len(code) if at is None else at]


@pytest.mark.parametrize(
    ("code", "names", "word"),
    [
        ("x = mo", ["mode", "model"], "mo"),
        ("x = _h", ["_hidden"], "_h"),
        ("model.f", ["factor", "fit"], "f"),
        ("y = [model . inh", ["inherited"], "inh"),
        ("model.inner['a'][0].in", ["inherited"], "in"),
        ("Thing.f", ["factor", "fit"], "f"),
        ("io.StringI", ["StringIO"], "StringI"),
        ("model.fit(x[1], verb", ["verbose="], "verb"),
        ("model.fit(x, epochs=[mod", ["mode", "model"], "mod"),
        ('print(f"{model.fi', ["fit"], "fi"),
        ("model.total.", [], ""),
        ("model.nothing.", [], ""),
        ("other.", [], ""),
        ("make().f", [], ""),
        ("print('mo", [], ""),
        ("# it's mo", [], ""),
        ("'''\nmo", [], ""),
        ("# don't\nmod", ["mode", "model"], "mod"),
        ("3.", [], ""),
    ],
)
def test_names_of_a_worker(code, names, word):
    assert completed(code) == (names, word)


def test_the_cursor_may_be_in_the_middle_and_no_code_of_a_value_runs():
    assert completed("model.fi + 1", 8) == (["fit"], "fi")
    names, _ = completed("model.")
    assert names == ["factor", "fit", "inherited", "inner", "total"]
    assert ["total", "property"] in hints.complete(NAMES, "model.", 6, HIDDEN)["found"]


def described(code, at, detail=0):
    return hints.describe(NAMES, code, at, detail)["text"]


def test_what_a_name_is():
    said = described("model.fit(3, ", 13)
    assert "Signature:\x1b[39m model.fit(x, epochs=1, *, verbose=0)" in said
    assert "Docstring:\x1b[39m\nTrains." in said
    assert "Source" not in said
    assert "def fit(self, x" in described("model.fit", 9, detail=1)
    assert "What it is for." in described("model.inherited", 15)
    assert "The sum over all workers." in described("model.total", 11)
    assert "Value:\x1b[39m 1" in described("mode", 4)
    assert described("nothing", 7) == ""


# ---- in the kernel

OWN = {"status": "ok", "matches": ["mods", "mode"], "cursor_start": 10, "cursor_end": 13, "metadata": {}}


class Kernel:
    def do_complete(self, code, cursor_pos):
        return {**OWN, "cursor_start": code.index("mod"), "cursor_end": cursor_pos}

    def do_inspect(self, code, cursor_pos, detail_level=0, omit_sections=()):
        return "the kernel's own"


@pytest.fixture
def peers():
    """Of two workers: what they were asked, and how they answer."""
    asked = []

    def peer(number):
        def ask(do, seconds, **more):
            asked.append((number, do))
            said = hints.complete(NAMES, **more, hidden=HIDDEN) if do == "complete" else hints.describe(NAMES, **more)
            return {"id": 1, **said}

        return SimpleNamespace(number=number, ask=ask)

    return SimpleNamespace(each=[peer(0), peer(1)], asked=asked)


@pytest.fixture
def kernel(monkeypatch):
    kernel = Kernel()
    monkeypatch.setattr("dtk.interactive.hints.shell", lambda: SimpleNamespace(kernel=kernel, user_ns={"last": 1}))
    return kernel


def test_a_cell_of_workers_is_completed_by_the_first_one_asked(kernel, peers):
    helper = Hints(lambda: peers.each, threading.RLock())
    said = kernel.do_complete("%%workers\nx = mod", 17)
    assert said["matches"] == ["mode", "model", "mods"]
    assert (said["cursor_start"], said["cursor_end"]) == (14, 17)
    assert [each["type"] for each in said["metadata"]["_jupyter_types_experimental"]] == ["instance", "instance", ""]
    assert kernel.do_complete("\n%%worker 1\nmod.model.f = model.fi", 34)["matches"] == ["fit"]
    assert kernel.do_complete("%%worker {last}\nmod", 19)["matches"] == ["mode", "model", "mods"]
    assert "On worker 0" in kernel.do_inspect("%%workers\nmodel.fit", 15, 0, set())["data"]["text/plain"]
    assert peers.asked == [(0, "complete"), (1, "complete"), (1, "complete"), (0, "describe")]
    helper.end()
    assert vars(kernel) == {}


@pytest.mark.parametrize(
    ("code", "at"),
    [("mod", 3), ("%%workers mod", 13), ("%%workers\nmod", 9), ("%%worker 7\nmod", 14), ("%%time\nmod", 10)],
)
def test_all_else_is_the_kernels(kernel, peers, code, at):
    Hints(lambda: peers.each, threading.RLock())
    assert kernel.do_complete(code, at)["matches"] == OWN["matches"]
    assert kernel.do_inspect(code, at) == "the kernel's own"
    assert peers.asked == []


def test_a_worker_that_is_silent_or_raises_costs_nothing_but_its_names(kernel, peers):
    peers.each[0].ask = lambda *_, **__: None
    peers.each[1].ask = lambda *_, **__: 1 / 0
    Hints(lambda: peers.each, threading.RLock())
    for cell in ("%%workers\nmod", "%%worker 1\nmod"):
        assert kernel.do_complete(cell, len(cell))["matches"] == OWN["matches"]
        assert kernel.do_inspect(cell, len(cell)) == "the kernel's own"


def test_nobody_is_asked_while_a_cell_runs(kernel, peers):
    lock = threading.RLock()
    Hints(lambda: peers.each, lock)
    busy, done = threading.Event(), threading.Event()

    def cell():
        with lock:
            busy.set()
            done.wait(30)

    thread = threading.Thread(target=cell)
    thread.start()
    busy.wait(30)
    assert kernel.do_complete("%%workers\nmod", 13)["matches"] == OWN["matches"]
    done.set()
    thread.join()
    assert peers.asked == []
