"""What the live views show of replicas: the shares of the loss in a stack, a strip for each worker, and words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from live_folder import announce, busy_step, empty, step

from dtk.live import pictures, recent, text
from dtk.live.pictures import SHOWN, Layer, curve, image, in_words, strips
from dtk.live.recent import BINS, Window
from dtk.scaling.parts import PARTS
from dtk.view.palette import PART_COLORS, worker_color
from dtk.watch.reader import Reader


def window(*workers, ended=False):
    """By worker, the shares of its parts, the same in each bin."""
    shares = np.zeros((len(workers), len(PARTS), BINS))
    for worker, parts in enumerate(workers):
        for part, share in parts.items():
            shares[worker, PARTS.index(part)] = share
    return Window(10.0, shares, ended)


def names(count):
    return [f"worker {k}" for k in range(count)]


def texts(picture):
    return ["".join(node.itertext()) for node in ET.fromstring(picture).iter("text")]


def areas(group):
    """The colour of each area of a strip, in the order of drawing, and its top in each bin, in percent."""
    found = {}
    for path in group.iter("path"):
        runs = re.findall(r"V(\d+)h(\d+)", path.get("d"))
        found[path.get("fill")] = [100 - int(top) for top, count in runs for _ in range(int(count))]
    return found


BUSY, LATE = {"compute": 0.5, "all_reduce": 0.2, "waiting": 0.1, "input": 0.1}, {"compute": 0.75, "python": 0.05}


# ---- strips


def test_parts_stand_one_upon_the_other_in_the_colours_of_step_time():
    groups = ET.fromstring(strips(window(BUSY, LATE), names(2))).findall("g")
    first, second = map(areas, groups)
    tops = {"compute": 50, "all_reduce": 70, "waiting": 80, "input": 90}
    assert first == {PART_COLORS[part]: [top] * BINS for part, top in tops.items()}
    assert list(first) == [PART_COLORS[part] for part in reversed(tops)], "each covers the lower end of the one before"
    assert second == {PART_COLORS["python"]: [80] * BINS, PART_COLORS["compute"]: [75] * BINS}
    assert [group.find("rect").get("fill") for group in groups] == [worker_color(0), worker_color(1)]
    assert all(max(top) < 100 for top in first.values()), "what is not known stays empty"


def test_a_part_that_comes_and_goes():
    shares = window({"compute": 0.4})
    shares.shares[0, PARTS.index("waiting"), 10:20] = 0.6
    (group,) = ET.fromstring(strips(shares, ["worker 0"])).findall("g")
    assert areas(group) == {
        PART_COLORS["waiting"]: [40] * 10 + [100] * 10 + [40] * 20,
        PART_COLORS["compute"]: [40] * BINS,
    }


def test_colour_is_not_all_that_tells():
    picture = strips(window(BUSY, LATE), names(2))
    root = ET.fromstring(picture)
    said = "the last 10 s: worker 0 computing 50 %, all-reduce 20 %, waiting 10 %, input 10 %, not known 10 %; "
    assert root.get("aria-label") == said + "worker 1 computing 75 %, Python 5 %, not known 20 %"
    assert [node.text for node in root.iter("title")] == [
        "worker 0: computing 50 %, all-reduce 20 %, waiting 10 %, input 10 %, not known 10 %",
        "worker 1: computing 75 %, Python 5 %, not known 20 %",
    ]
    shown = texts(picture)
    assert shown[:5] == ["the last 10 s of each worker", "worker 0", "worker 1", "10 s ago", "now"]
    assert shown[5:] == [
        "computing 62 %",
        "all-reduce 10 %",
        "waiting 5 %",
        "input 5 %",
        "Python 2 %",
        "not known 15 %",
    ]
    assert list(SHOWN.values()) == [words.split(" ")[0] for words in shown[5:10]]
    alone = image(picture)
    assert f'alt="{said}' in alone
    assert "the last 10 s of each worker" not in alone, "it is in the image"


def test_the_size_depends_on_the_number_of_workers_alone():
    for count in (1, 2, 8, 16, 40):
        pictures = [strips(window(*[parts] * count), names(count)) for parts in (BUSY, LATE, {})]
        assert len({re.search(r'viewBox="[^"]*"', picture)[0] for picture in pictures}) == 1
        height = float(ET.fromstring(pictures[0]).get("height"))
        assert height < 70 + 20 * count, count
        assert height < 280


def test_strips_of_many_workers_have_the_colour_of_the_biggest_part():
    picture = strips(window(*[BUSY] * 39, {"compute": 0.3}), names(40))
    groups = ET.fromstring(picture).findall("g")
    assert areas(groups[0]) == {PART_COLORS["compute"]: [100] * BINS}
    assert areas(groups[39]) == {}, "most is not known"
    assert texts(picture)[:6] == ["the last 10 s of each worker", *(f"worker {k}" for k in (0, 8, 16, 24, 32))]
    assert len(picture) < 50_000


def test_many_workers_in_words():
    late = {**LATE, "waiting": 0.15}
    said = in_words(window(BUSY, BUSY, late, BUSY, BUSY), names(5))
    assert said == (
        "the last 10 s: computing 50 to 75 % (most: worker 2), all-reduce 0 to 20 %, waiting 10 to 15 % (most: "
        "worker 2), input 0 to 10 %, Python 0 to 5 % (most: worker 2), not known 5 to 10 %"
    )
    assert in_words(window(*[BUSY] * 5), names(5)).startswith("the last 10 s: computing 50 %, all-reduce 20 %, ")


def test_after_the_end_nothing_is_now():
    assert texts(strips(window(BUSY, ended=True), ["baseline"]))[:4] == ["the last 10 s", "baseline", "-10 s", "end"]


def test_a_name_is_no_markup():
    assert "&lt;b&gt;" in strips(window(BUSY), ["<b>"])


# ---- the stack of shares


def stacked(*layers):
    total = [(x, sum(each)) for x, each in enumerate(zip(*layers, strict=True), 1)]
    each = [Layer(f"worker {k}", worker_color(k), values) for k, values in enumerate(layers)]
    return curve(total, "loss", layers=each, note="shares by worker")


def test_shares_stand_one_upon_the_other_under_the_loss():
    root = ET.fromstring(stacked([1.0, 0.5, 0.5], [1.0, 1.0, 0.5]))
    *layers, line = root.iter("path")
    assert [layer.get("fill") for layer in layers] == [worker_color(1), worker_color(0)]
    assert layers[0].get("d") == "M8.0 92L8.0 26.0L150.0 42.5L292.0 59.0L292.0 92Z", "the whole loss"
    assert layers[1].get("d") == "M8.0 92L8.0 59.0L150.0 75.5L292.0 75.5L292.0 92Z"
    assert line.get("d") == "M8.0 26.0L150.0 42.5L292.0 59.0"
    assert line.get("stroke") == "currentColor"
    assert root.get("aria-label") == "loss 1 at step 3, shares by worker: worker 0 0.5, worker 1 0.5"
    assert texts(stacked([1.0, 1.0], [1.0, 1.0]))[1:3] == ["0", "1"], "each has its number"


def test_a_loss_that_is_no_number_leaves_a_gap_in_all_layers():
    root = ET.fromstring(stacked([1.0, 1.0, float("nan"), 1.0, 1.0], [1.0] * 5))
    assert [path.get("d").count("M") for path in root.iter("path")] == [2, 2, 2]
    assert "nan" not in "".join(path.get("d") for path in root.iter("path"))


def test_layers_would_lie_about_a_negative_share():
    root = ET.fromstring(stacked([1.0, -0.5], [1.0, 1.0]))
    (line,) = root.iter("path")
    assert line.get("fill") == "none"
    assert root.get("aria-label") == "loss 0.5 at step 2"


def test_numbers_are_legible_and_only_where_there_is_room():
    root = ET.fromstring(stacked([1.0, 1.0], [0.1, 0.1]))
    assert [(node.text, node.get("fill")) for node in root.iter("text") if node.get("fill")] == [("0", "#fff")]
    on = {color: pictures._on(color) for color in map(worker_color, range(8))}
    assert on[worker_color(7)] == on[worker_color(1)] == "#000", "on yellow and orange"


# ---- in the views


@pytest.fixture
def folder(tmp_path):
    folder = empty(tmp_path)
    announce(folder, 100, 1)
    for number in range(1, 121):
        busy_step(folder, number, 0.1 * number, late=0.2)
    return folder


def dashboard_of(folder, monkeypatch, replicas=1, mode="cluster"):
    pytest.importorskip("ipywidgets")
    from dtk.live import dashboard as module

    monkeypatch.setattr(module, "_EVERY", 0.0)
    return module.Dashboard(Reader(folder), replicas, "run", mode)


def test_the_dashboard_shows_shares_and_strips(folder, monkeypatch, capsys):
    view = dashboard_of(folder, monkeypatch)
    view.update(["training", "training"])
    assert re.findall(r'<svg role="img" aria-label="([a-z]+ [a-z0-9.]+)', view.curves.value) == [
        "loss 1",
        "throughput 1",
        "the last",
    ]
    assert "shares by worker: worker 0 0.5, worker 1 0.5" in view.curves.value
    view.close("finished in 12.3 s", finished=True)
    facts, page = view._last_frame("finished in 12.3 s")
    said = facts.splitlines()[-2]
    assert re.match("the last 10 s: worker 0 computing (29|30|31) %, all-reduce (19|20|21) %, waiting (19|20) %", said)
    assert re.search("; worker 1 computing (49|50|51) %, all-reduce (19|20|21) %, input", said)
    assert page.count("<img alt=") == 3
    assert f'alt="{said}' in page


def test_before_anything_is_known_there_is_no_picture(tmp_path, monkeypatch, capsys):
    view = dashboard_of(empty(tmp_path), monkeypatch)
    view.update(["running", "running"])
    assert view.curves.value == ""


@pytest.mark.parametrize(("workers", "replicas", "note"), [(1, 4, "shares by replica"), (3, 1, "shares by worker")])
def test_who_the_layers_are(tmp_path, monkeypatch, capsys, workers, replicas, note):
    folder = empty(tmp_path, workers)
    for number in (1, 2, 3):
        step(folder, number, range(workers))
    for worker in folder.each if replicas > 1 else []:
        rows = (worker.path / "records.jsonl").read_text().splitlines()
        every = [row.replace("[0,", f"[{replica},", 1) for row in rows for replica in range(replicas)]
        (worker.path / "records.jsonl").write_text("\n".join(every) + "\n")
    view = dashboard_of(folder, monkeypatch, replicas, "mirrored" if workers == 1 else "cluster")
    view.update(["training"] * workers)
    assert note in texts(view.curves.value[view.curves.value.index("<svg") :].split("</svg>")[0] + "</svg>")


def test_the_text_says_now_and_then_what_the_workers_did(tmp_path, monkeypatch, capsys):
    now, folder = [100.0], empty(tmp_path)
    for module in (text, recent):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    view = text.TextView(Reader(folder), 1, "run")
    for number in range(1, 450):
        now[0] = 100.0 + number / 10
        if number <= 250:  # from then on nothing comes
            busy_step(folder, number, 0.1 * (number - 1))
        view.update(["training", "training"])
    said = [line for line in capsys.readouterr().out.splitlines() if "the last" in line]
    assert len(said) == 3, "after 40 s most of the last ten is not known"
    parts = "computing [45]. %, all-reduce [12]. %, input (9|10) %, Python (19|20) %"
    assert re.match(f"dtk: the last 10 s: worker 0 {parts}.*; worker 1 {parts}", said[1])
