"""The proof as a picture: each point is a step's difference, the line is what `verify` allows there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fabricate import fabricate, losses

import dtk
from dtk.proof.evidence import RTOL, check_loss
from dtk.view import proof as module
from dtk.view.canvas import NO_RECORDS
from dtk.view.proof import differences

STEPS = 30


@pytest.fixture
def alone(tmp_path):
    return fabricate(tmp_path / "alone", workers=1, mode="single", steps=STEPS)


def cluster(path, apart, steps=STEPS):
    """Two workers whose losses are `apart`, (steps,), above those of the baseline."""
    shares = (losses(steps) + apart)[:, None] / 2
    return fabricate(path, steps=steps, shares=np.repeat(shares, 2, axis=1))


def drawn(ax, gid):
    return [line for line in ax.lines if line.get_gid() == gid]


def test_points_are_differences_and_the_line_is_what_verify_allows(tmp_path, alone):
    apart = 1e-7 * (1 + np.arange(STEPS))
    ax = dtk.plot.difference(cluster(tmp_path / "run", apart), alone)
    (points,), (line,) = drawn(ax, "points"), drawn(ax, "tolerance")
    np.testing.assert_allclose(points.get_ydata(), apart, rtol=1e-6)
    np.testing.assert_allclose(line.get_ydata(), RTOL * losses(STEPS), rtol=0.02)
    assert ax.get_yscale() == "symlog"
    low, high = ax.get_ylim()
    assert low < apart.min()
    assert high > line.get_ydata().max()


@pytest.mark.parametrize("step", [3, 30])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_the_line_is_where_verify_begins_to_raise(tmp_path, alone, step, factor):
    from dtk.proof.evidence import collect

    allowed = differences(alone, alone).allowed
    apart = np.where(np.arange(STEPS) == step - 1, factor * allowed[step], 0.0)
    run = cluster(tmp_path / "run", apart)
    words = dtk.plot.difference(run, alone).get_label()
    evidence = collect(run, "cluster"), collect(alone, "baseline")
    found = list(check_loss(*evidence, np.full(len(evidence[0].examples), RTOL)))
    if factor < 1:
        assert not found
        assert "The largest difference is 99 % of the bound" in words
    else:
        assert [str(error).partition(": ")[0] for error in found] == [f"step {step}"]
        assert f"Step {step} is the first above the bound; the largest difference is 1.01 times" in words


def test_two_pairs_in_one_picture(tmp_path, alone):
    table = differences(alone, alone)
    tanh = cluster(tmp_path / "tanh", table.allowed.to_numpy() / 200)
    relu = cluster(tmp_path / "relu", table.allowed.to_numpy() / 8)
    ax = dtk.plot.difference(tanh, alone, relu, alone, labels=["tanh", "relu"])
    assert [line.get_label() for line in drawn(ax, "points")] == ["tanh", "relu"]
    assert len({line.get_color() for line in drawn(ax, "points")}) == 2
    assert [line.get_color() for line in drawn(ax, "tolerance")] == [line.get_color() for line in drawn(ax, "points")]
    assert ax.get_label().startswith("The largest difference is tanh 1/200 of the bound; relu 1/8 of the bound.")
    over = cluster(tmp_path / "over", 40 * table.allowed.to_numpy())
    words = dtk.plot.difference(tanh, alone, over, alone).get_label()
    assert "run 1 1/200 of the bound; run 2 40 times the bound" in words


def test_a_loss_that_is_not_finite_has_no_point(tmp_path, alone):
    apart = np.where(np.arange(STEPS) >= 6, np.nan, 1e-6)
    ax = dtk.plot.difference(cluster(tmp_path / "run", apart), alone)
    assert "The loss is no finite number from step 7 on" in ax.get_label()
    (points,) = drawn(ax, "points")
    assert np.flatnonzero(np.isnan(points.get_ydata())).tolist() == list(range(6, STEPS))
    nothing = dtk.plot.difference(cluster(tmp_path / "none", np.full(STEPS, np.nan)), alone)
    assert nothing.texts[0].get_text() == module.NO_STEP


def test_without_a_baseline_it_is_the_figure_of_the_proof(tmp_path, alone):
    run = fabricate(tmp_path / "run", steps=STEPS)
    ax = dtk.plot.proof(found := dtk.verify(run, alone))
    assert dtk.plot.difference(run).get_label() == ax.get_label()
    assert set(ax.lines[0].get_ydata()) == {0.0}
    ax.figure.canvas.draw()
    assert "$\\mathdefault{0}$" in [each.get_text() for each in ax.get_yticklabels()], "where the points are"
    assert dtk.plot.proof(replace(found, steps=0)).get_xlim()[1] == STEPS + 0.5, "calls, where no step was recorded"
    part = replace(found, followers={1: replace(found.followers[1], whole=False)})
    assert f"Each update that was followed agrees ({STEPS} of {STEPS})" in dtk.plot.proof(part).get_label()


def test_what_can_not_be_drawn(tmp_path, alone):
    run = fabricate(tmp_path / "run", steps=STEPS)
    with pytest.raises(ValueError, match="2 runs and 1 baselines; give each run, then its baseline"):
        dtk.plot.difference(run, alone, run)
    with pytest.raises(ValueError, match="1 labels for 2 runs"):
        dtk.plot.difference(run, alone, run, alone, labels=["one"])
    with pytest.raises(ValueError, match="not been verified"):
        dtk.plot.difference(run)
    assert dtk.plot.difference(fabricate(tmp_path / "empty", steps=0), alone).texts[0].get_text() == NO_RECORDS
