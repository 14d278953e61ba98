"""Figures and labs in Chinese: each letter is there, nothing is left in English, and nothing is cut off."""

# ruff: noqa: RUF001 – full-width punctuation is what this is about
from __future__ import annotations

import itertools
import re

import matplotlib.pyplot as plt
import pytest
from drawing import DRAWN, texts
from fabricate import fabricate
from matplotlib import font_manager
from matplotlib.font_manager import get_font

import dtk
from dtk import language
from dtk.view import canvas

# Names of functions, arguments and programs, units, and formats of numbers; what is left of a text must be Chinese.
ENGLISH = re.compile(
    r"^(run|reduce)$|dtk(\.\w+)*|strategy\.(run|reduce)|study\.points\.failed|TensorFlow|Python|PerReplica|TF_CONFIG|PASS|SGD|NaN|CPU"
    r"|verify|rtol|float32|fit|callbacks|evaluate|input_context|(?<=策略 )[A-Z]+|tanh|relu|SIG[A-Z]+|stall_timeout"
    r"|Unavailable\w+|Deadline\w+|tf\.debugging\.\w+|kill|stall|slow|exception|nan|drop_network|train|10{-?\d+}"
    r"|dense/bias|kB|MB|GB(/s)?|Gb/s|Ethernet|NVLink|µs|\bms\b|\bs\b|mathdefault|\bline\b|\bin train\b"
)


@pytest.fixture(autouse=True)
def chinese(monkeypatch):
    monkeypatch.setenv("DTK_LANG", "zh")
    monkeypatch.setenv("DTK_LIVE", "widgets")


def test_every_figure_and_lab_is_drawn():
    public = set(dtk.plot.__all__) - {"axes", "headline"}  # which a learner draws with
    assert {name.split(",")[0] for name in DRAWN} == public, "tests/drawing.py: DRAWN draws each public figure and lab"


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_is_left_in_english_or_cut_off(tmp_path, name, caplog):
    drawn = DRAWN[name](tmp_path)
    for text in texts(drawn):  # a letter that no font has is a warning, which is an error
        assert not re.findall(r"[A-Za-z]{2,}", ENGLISH.sub("", text)), text
    assert not caplog.records, "such as a font's weight that matplotlib looked for in vain"
    if not name.endswith("_lab"):
        figure = drawn.figure
        box, inches = figure.get_tightbbox(figure.canvas.get_renderer()), 0.01
        assert (box.x0 > -inches, box.y0 > -inches) == (True, True), box
        assert (box.x1 < figure.get_figwidth() + inches, box.y1 < figure.get_figheight() + inches) == (True, True), box


def test_a_learners_own_font_stays_in_front_and_their_settings_as_they_are(tmp_path):
    before = dict(plt.rcParams)
    with plt.rc_context({"font.family": ["DejaVu Serif"]}):
        own = dtk.plot.loss_scaling(_run(tmp_path / "a"), ax=plt.figure().subplots())
        new = dtk.plot.loss_scaling(_run(tmp_path / "b"))
        new.figure.canvas.draw()
    for ax in (own, new):
        assert ax._left_title.get_fontfamily() == ["DejaVu Serif", "Noto Sans CJK SC"]
    assert dict(plt.rcParams) == before


def test_english_needs_no_other_font(tmp_path, monkeypatch):
    monkeypatch.setenv("DTK_LANG", "en")
    ax = dtk.plot.loss_scaling(_run(tmp_path))
    ax.figure.canvas.draw()
    assert ax._left_title.get_fontfamily() == plt.rcParams["font.family"]


def _run(path):
    return fabricate(path, steps=3)


def test_every_letter_of_the_catalogue_has_its_glyph():
    """What messages, hints and labels say may stand in a learner's own figure, too."""
    families = font_manager.FontProperties(family=["DejaVu Sans", canvas._registered("zh")])
    files = font_manager.fontManager._find_fonts_by_props(families)
    there = {*map(chr, itertools.chain(*(get_font(file).get_charmap() for file in files))), "\n"}
    assert not {*"".join(language._catalogue("zh")._catalog.values())} - there


@pytest.mark.parametrize("width", range(8, 60, 3))
def test_lines_break_by_width(width):
    text = "工作器 0 等待工作器 1：第 13 步（在 evaluate 之后），已 3.2 秒；“all-reduce”由此中断。" * 3
    lines = canvas.wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", ""), "nothing is lost"
    for line in lines:
        assert language.columns(line) <= max(width, len("“all-reduce”")), line
        assert line[0] not in "，。；：、！？）”", "punctuation stays with what it closes"
        assert line[-1] not in "（“", "and with what it opens"
        assert not line[0].isdigit(), "a number stays with the word before it"
        assert not line[-1].isdigit(), "and after it"
        assert set(re.findall("[a-z-]+", line)) <= {"evaluate", "all-reduce"}, "a word stays whole"


def test_a_lessons_own_figure_speaks_the_lessons_language():
    (ax,) = dtk.plot.axes(None)
    ax.plot([0, 1], label="activations")
    ax.set(xlabel="epoch", ylabel="a learner's own word")
    ax.set_yticks([0, 1], ["replica 0", "replica 1"])
    ax.legend()
    dtk.plot.headline(ax, "Policy {policy}.", "Two workers on the same two cores.", policy="AUTO")
    ax.figure.canvas.draw()
    said = set(texts(ax))
    assert {"激活值", "周期", "a learner's own word", "副本 0", "副本 1", "两个工作器，用同样的两个 CPU 核。"} <= said
    assert ax.get_title(loc="left") == "自动分片策略 AUTO。"
