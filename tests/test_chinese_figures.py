"""Figures and labs in Chinese: each letter is there, nothing is left in English, and nothing is cut off."""

from __future__ import annotations

import itertools
import re

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
from drawing import DRAWN, texts

import dtk
from dtk.view.letters import lend_font

# Names of functions, arguments and programs, units, and formats of numbers; what is left of a text must be Chinese.
ENGLISH = re.compile(
    r"^(run|reduce)$|dtk(\.\w+)*|strategy\.(run|reduce)|study\.points\.failed|TensorFlow|Python|PerReplica|TF_CONFIG|PASS|SGD|NaN"
    r"|verify|rtol|float32|fit|callbacks|evaluate|input_context|(?<=策略 )[A-Z]+|tanh|relu|SIG[A-Z]+|stall_timeout"
    r"|Unavailable\w+|Deadline\w+|tf\.debugging\.\w+|kill|stall|slow|exception|nan|drop_network|train|10{-?\d+}"
    r"|kB|MB|GB(/s)?|Gb/s|Ethernet|NVLink|µs|\bms\b|\bs\b|mathdefault|line\s\d+( in train)?"
)


@pytest.fixture(autouse=True)
def chinese(monkeypatch):
    monkeypatch.setenv("DTK_LANG", "zh")
    monkeypatch.setenv("DTK_LIVE", "widgets")
    yield
    plt.close("all")


def test_every_figure_and_lab_is_drawn():
    public = set(dtk.plot.__all__) - {"axes", "headline"}  # which a learner draws with
    assert {name.split(",")[0] for name in DRAWN} == public


def test_no_face_of_the_font_lacks(caplog):
    figure = plt.figure()
    for number, (weight, style) in enumerate(itertools.product(("normal", "bold"), ("normal", "italic"))):
        figure.text(0.1, 0.1 + 0.2 * number, "副本 0", weight=weight, style=style)
    lend_font(figure)
    figure.canvas.draw()
    assert caplog.text == ""  # matplotlib logs what it finds no font for


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_is_left_in_english(tmp_path, name):
    if name.endswith("_lab"):
        pytest.importorskip("ipywidgets")
    for text in texts(DRAWN[name](tmp_path)):  # a letter that no font has is a warning, which is an error
        assert not re.findall(r"[A-Za-z]{2,}", ENGLISH.sub("", text)), text


@pytest.mark.parametrize("name", [name for name in DRAWN if not name.endswith("_lab")])
def test_nothing_is_cut_off(tmp_path, name):
    figure = DRAWN[name](tmp_path).figure
    figure.canvas.draw()
    box, inches = figure.get_tightbbox(figure.canvas.get_renderer()), 0.01
    assert (box.x0 > -inches, box.y0 > -inches) == (True, True), box
    assert (box.x1 < figure.get_figwidth() + inches, box.y1 < figure.get_figheight() + inches) == (True, True), box
