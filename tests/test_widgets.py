"""The lab of loss scaling: what a control changes, what stands there without widgets, on ipywidgets 7.7 and 8."""

from __future__ import annotations

import pytest
from fabricate import said
from matplotlib.colors import to_hex

import dtk
from dtk.view import loss_scaling as widgets
from dtk.view.loss_scaling import DIVISORS, loss_scaling_lab, numbers
from dtk.view.palette import worker_color

GLOBAL, LOCAL, REPLICAS = DIVISORS


@pytest.fixture
def lab(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "widgets")
    return dtk.plot.loss_scaling_lab()


# ---- the numbers


@pytest.mark.parametrize("replicas", range(1, widgets.MOST_REPLICAS + 1))
@pytest.mark.parametrize("examples", range(1, widgets.MOST_EXAMPLES + 1))
def test_only_the_global_batch_gives_one_devices_step(replicas, examples):
    wrong = {GLOBAL: 1, LOCAL: replicas, REPLICAS: examples}
    for divisor, times in wrong.items():
        step = numbers(replicas, examples, divisor)
        assert len(step.shares) == len(step.slopes) == replicas
        assert step.loss == pytest.approx(times * step.alone)
        assert step.slope == pytest.approx(times * step.slope_alone)
        assert step.ratio == pytest.approx(times)


def test_the_gradient_is_the_losses_slope():
    small = 1e-6  # the weight moves a little from 0: example i's loss goes from y² to (y - small)²
    for divisor in DIVISORS:
        step = numbers(3, 4, divisor)
        roots = widgets._LOSSES[:12] ** 0.5
        moved = ((roots - small) ** 2).sum() / step.divisor
        assert (moved - step.loss) / small == pytest.approx(step.slope, rel=1e-4)


# ---- the controls


def test_the_lab_begins_with_the_common_mistake(lab):
    assert [control.value for control in lab.controls.values()] == [2, 2, LOCAL]
    assert "2.5 + 4.5 = 7" in lab.words.value
    assert "2 times too large" in lab.words.value


def test_each_control_changes_the_numbers_and_the_picture(lab):
    pictures = [lab.picture.value]
    for control, value, words in (
        ("divisor", GLOBAL, "1.25 + 2.25 = 3.5</b>, one device: 3.5. The loss and the gradient are one device's"),
        ("examples", 3, "1.5 + 1.67 = 3.17"),
        ("replicas", 4, "0.75 + 0.833 + 0.917 + 0.75 = 3.25"),
        ("divisor", REPLICAS, "the step are 3 times too large"),
    ):
        lab.controls[control].value = value
        assert words in lab.words.value
        assert 'src="data:image/svg+xml;base64,' in lab.picture.value
        assert lab.picture.value not in pictures
        pictures.append(lab.picture.value)


# ---- the static twin


@pytest.mark.parametrize("mode", ["off", "text"])
def test_without_widgets_it_is_a_figure_of_all_divisors(mode, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", mode)
    ax = dtk.plot.loss_scaling_lab(replicas=2, examples=3)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "global batch\n(6)",
        "per-replica batch\n(3)",
        "number of replicas\n(2)",
    ]
    tops = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert tops[1::2] == pytest.approx([1, 1, 2, 2, 3, 3]), "loss and gradient of each divisor, in one device's"
    assert {to_hex(bar.get_facecolor()).upper() for bar in ax.patches} == {worker_color(0), worker_color(1)}
    assert "The divisor that gives one device's loss: global batch" in said(ax)
    assert "loss 1.5 + 1.67 = 3.17" in said(ax)


def test_one_replica_divides_by_its_own_batch(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "off")
    assert "one device's loss: global batch or per" in said(loss_scaling_lab(1, 2))


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"replicas": 5}, {"examples": 9}, {"examples": 1.5}])
def test_numbers_that_the_lab_does_not_have(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value}: the lab has 1 to "):
        loss_scaling_lab(**wrong)


# ---- all labs

LABS = {
    "loss scaling": lambda: dtk.plot.loss_scaling_lab(),
    "what if": lambda: dtk.plot.what_if_lab(),
    "faults": lambda: dtk.plot.fault_lab(dtk.run, lambda: None, workers=2, steps=6),
}
# What Colab's 7.7.1 has, too.
CORE = {"VBox", "HBox", "BoundedIntText", "BoundedFloatText", "RadioButtons", "Button", "HTML"}


@pytest.fixture(scope="module", params=LABS)
def any_lab(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTK_LIVE", "widgets")
        return request.param, LABS[request.param]()


def test_only_core_widgets_of_7_and_8(any_lab):
    waiting = [any_lab[1].box]
    while waiting:
        widget = waiting.pop()
        assert widget.__class__.__module__.startswith("ipywidgets.widgets")
        assert type(widget).__name__ in CORE
        waiting.extend(getattr(widget, "children", ()))


def test_a_page_without_a_kernel_has_what_the_lab_began_with(any_lab, monkeypatch):
    (title, lab), shown = any_lab, []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append((bundle, raw)))
    lab._ipython_display_()
    ((bundle, raw),) = shown
    assert raw
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == lab.box.model_id
    assert bundle["text/plain"] == repr(lab) == f"<lab of dtk: {title}>"
    words = "dtk.faults.kill(worker=1, step=3)" if title == "faults" else lab.picture.value
    assert words in bundle["text/html"]
