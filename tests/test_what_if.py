"""What if there were more workers: what is drawn is what is predicted, and the lab's controls change it."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from fabricate import said
from matplotlib.colors import to_hex

import dtk
from dtk.language import three
from dtk.scaling.job import ETHERNET_10, ETHERNET_100, Cluster, Job
from dtk.scaling.prediction import predict
from dtk.view.what_if import EXAMPLE, LIMIT_COLORS, predictions, what_if


@pytest.fixture(scope="module")
def lab():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTK_LIVE", "widgets")
        return dtk.plot.what_if_lab(workers=64)


# ---- the figure


def test_the_line_is_the_prediction_and_its_colors_are_the_limits():
    job, cluster = replace(EXAMPLE, critical_batch=None), Cluster(ETHERNET_10)
    top, table = what_if(job, cluster, workers=1000), predictions(job, cluster, 1000)
    ideal, *parts, mark = top.lines
    np.testing.assert_allclose(ideal.get_ydata(), table.ideal)
    at, rate = (np.concatenate([getattr(part, f"get_{axis}data")() for part in parts]) for axis in "xy")
    again = predict(job, cluster, map(int, at))
    np.testing.assert_allclose(rate, again.throughput)
    for part in parts:  # the last point is the first of the next color
        first = part.get_xdata()[: max(1, len(part.get_xdata()) - 1)]
        limits = set(predict(job, cluster, map(int, first)).slowed_by)
        assert {to_hex(part.get_color()).upper()} == {LIMIT_COLORS[limit] for limit in limits}
    row = table[table.workers == 1000].iloc[0]
    assert (mark.get_xdata(), mark.get_ydata()) == ([1000], [row.throughput])
    assert said(top).startswith(f"1,000 workers: {three(row.throughput)} examples/s, {100 * row.efficiency:.0f} % of")
    assert f"the limit is {row.limit}" in said(top)


def test_the_headline_for_each_limit():
    plain = Job(per_example=0.001, batch=100, gradient_bytes=0.0)
    assert said(what_if(plain, workers=8)).startswith("8 workers: 8,000 examples/s, 100 % of the ideal")
    large = said(what_if(replace(plain, critical_batch=100), workers=3))
    words = "3 workers: 3,000 examples/s, 100 % of the ideal; batch too large, an example is worth 50 %"
    assert large.startswith(words)
    assert "; the limit is waiting for stragglers" in said(what_if(replace(plain, spread=0.5), workers=64))


def test_a_batch_that_is_too_large_slows_nothing_down():
    """Throughput and what an example is worth are two pictures: the first is the same without a critical batch."""
    top = what_if(EXAMPLE, Cluster(ETHERNET_100), workers=4096)
    plain = what_if(replace(EXAMPLE, critical_batch=None), Cluster(ETHERNET_100), workers=4096)
    rates = [[line.get_xydata().tolist() for line in ax.lines] for ax in (top, plain)]
    assert rates[0] == rates[1]
    colors = [[line.get_color() for line in ax.lines] for ax in (top, plain)]
    assert colors[0] == colors[1]
    assert len(plain.figure.axes) == 2
    worth = top.figure.axes[2]
    (line,) = [line for line in worth.lines if line.get_gid() == "worth"]
    table = predictions(EXAMPLE, Cluster(ETHERNET_100), 4096)
    np.testing.assert_allclose(line.get_ydata(), 100 * table.useful)
    assert "critical batch, 20,000" in [text.get_text() for text in worth.texts]
    row = table[table.workers == 4096].iloc[0]
    assert f"batch too large, an example is worth {100 * row.useful:.0f} %" in said(top)
    assert f"the limit is {row.slowed_by}" in said(top)


# ---- the lab


def shown(lab):
    """What the picture says."""
    return html.unescape(re.search(r'alt="([^"]*)"', lab.picture.value)[1]).replace("\N{NO-BREAK SPACE}", " ")


def test_the_lab_begins_with_what_was_given(lab):
    assert lab.controls["workers"].value == 64
    assert shown(lab) == what_if(EXAMPLE, workers=64).get_label().replace("\N{NO-BREAK SPACE}", " ")
    assert "64 examples a replica, 102 MB of gradients, " in shown(lab)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("workers", 1024, "1,024 workers: "),
        ("batch", 8, "8 examples a replica"),
        ("megabytes", 1000, "1,000 MB of gradients"),
        ("link", "10 Gb/s Ethernet", "10 Gb/s Ethernet"),
        ("algorithm", "tree", ", tree,"),
        ("overlap", 0, "overlap 0 %"),
        ("spread", 30, "stragglers ±30 %"),
    ],
)
def test_each_control_changes_the_picture(lab, monkeypatch, name, value, words):
    monkeypatch.setattr("dtk.view.canvas.image", lambda figure, style: f'alt="{html.escape(figure.get_label())}"')
    assert words not in shown(lab)
    lab.controls[name].value = value
    assert words in shown(lab)


def test_without_widgets_it_is_the_figure(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    assert said(dtk.plot.what_if_lab(workers=16)).startswith("16 workers: ")
    for wrong in (0, 20_000):
        with pytest.raises(dtk.ClusterConfigError, match=f"workers={wrong}: it takes a number from 1 to 10000"):
            dtk.plot.what_if_lab(workers=wrong)
