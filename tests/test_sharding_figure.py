"""The figure of who saw which example, from made-up tables: tiles, outlines, the forgotten, and bars for thousands."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fabricate import said
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from dtk import plot as plots
from dtk.studies.shards import from_lists
from dtk.view.palette import worker_color


def batches(numbers, batch):
    return [numbers[i : i + batch] for i in range(0, len(numbers), batch)]


def dealt(count, batch, workers):
    """What policy DATA does with an ordered dataset."""
    alone = batches(np.arange(count), batch)
    return from_lists([[np.array_split(step, workers)[k] for step in alone] for k in range(workers)], alone, "DATA")


def everywhere(count, batch, workers):
    alone = batches(np.arange(count), batch)
    return from_lists([batches(np.arange(count), batch // workers)] * workers, alone, "OFF")


def drawn(ax):
    """By row, from the left to the right and from the top to the bottom: (step, number) of each tile."""
    rows = {}
    for text in ax.texts:
        if text.get_text().isdigit():
            x, y = text.get_position()
            rows.setdefault(round(y), []).append((round(x), int(text.get_text())))
    return rows


def tiles(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize(("count", "batch", "workers"), [(8, 4, 2), (16, 4, 2), (64, 16, 2), (64, 16, 4), (63, 12, 3)])
def test_every_example_is_a_tile_in_its_row_and_column(count, batch, workers):
    seen = dealt(count, batch, workers)
    ax = plots.sharding(seen)
    for replica, row in drawn(ax).items():
        mine = seen.table[seen.table.replica == replica]
        assert row == list(zip(mine.step, mine.example, strict=True))
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"worker {k}" for k in range(workers)]
    assert {to_hex(tile.get_facecolor()).upper() for tile in tiles(ax)} == {worker_color(k) for k in range(workers)}
    assert f"Each of {count} examples went to one replica" in said(ax)
    assert "Policy DATA." in said(ax)
    assert "they see what one device sees" in said(ax)
    assert list(ax.get_xticks()) == [*range(1, seen.table.step.max() + 1)]


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_what_was_seen_twice_is_outlined_and_what_nobody_saw_has_a_row(style):
    with plt.style.context(style):
        ax = plots.sharding(from_lists([[[0, 1], [4, 5]], [[1, 2], [5, 6]]], [range(4), range(4, 8)]))
        ink = to_hex(ax.xaxis.label.get_color())
    outlined = {
        text.get_text()
        for tile, text in zip(tiles(ax), [text for text in ax.texts if text.get_text().isdigit()], strict=True)
        if tile.get_linestyle() == "-" and tile.get_edgecolor()[3] and to_hex(tile.get_edgecolor()) == ink
    }
    assert outlined == {"1", "5"}
    assert [number for _, number in drawn(ax)[2]] == [3, 7]
    assert ax.get_yticklabels()[2].get_text() == "no worker"
    assert "Of 8 examples, 2 were seen more than once and 2 by no worker" in said(ax)
    assert "Outlined: seen more than once" in said(ax)


def bars(ax):
    """By row of bars, from the top: the first and the last example of each."""
    boxes = [[path.get_extents() for path in row.get_paths()] for row in ax.collections]
    return [[(round(box.x0 + 0.5), round(box.x1 - 0.5)) for box in row] for row in boxes]


def test_thousands_are_drawn_as_bars():
    ax = plots.sharding(dealt(2000, 128, 2))
    first, second = bars(ax)
    assert first[:2] == [(0, 63), (128, 191)]
    assert second[:2] == [(64, 127), (192, 255)]
    assert "A bar is an example" in said(ax)


def test_thousands_seen_by_all_have_a_row_of_their_own():
    ax = plots.sharding(everywhere(2000, 128, 2))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["worker 0", "worker 1", "repeated"]
    assert bars(ax) == [[(0, 1999)]] * 3
    assert "At step 1 they see, together, other examples than one device" in said(ax)
