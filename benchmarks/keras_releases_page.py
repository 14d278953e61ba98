"""The page on the releases of Keras and its picture, from the results of `keras_releases.py`."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_causes import CAUSES, WHY
from keras_programs import PROGRAMS

STRATEGIES = {"mirrored": "MirroredStrategy", "workers": "MultiWorkerMirroredStrategy"}
RIGHT, WRONG, ALIKE, RAISES, HANGS, ABSENT, NOT_RUN = "right", "wrong", "alike", "raises", "hangs", "absent", "not run"
SYMBOLS = {RIGHT: "✓", WRONG: "✗", ALIKE: "=", RAISES: "raises", HANGS: "hangs", ABSENT: "none", NOT_RUN: "not run"}
_LONGEST = 76  # characters of an error


class Field(NamedTuple):
    """The result of one program in one release. said: the wrong numbers, or the error."""

    kind: str
    said: str = ""

    def __str__(self) -> str:
        return f"{SYMBOLS[self.kind]} {self.said}" if self.kind in (WRONG, ALIKE) else SYMBOLS[self.kind]


def field(processes: Sequence[Mapping[str, Any]], one: Sequence[Mapping[str, Any]], right: Sequence[float]) -> Field:
    """Judges what the processes of a strategy say, beside the process with one device.

    >>> field([{"found": [[0.7], [0.7]]}], [{"found": [[0.7]]}], [0.7]).kind
    'right'
    >>> field([{"found": [[0.8]]}, {"found": [[0.9]]}], [{"found": [[0.7]]}], [0.7])
    Field(kind='wrong', said='0.8 / 0.9')
    """
    if any("hangs" in each for each in processes):
        return Field(HANGS)
    errors = [each["raised"] for each in processes if "raised" in each]
    if errors:
        return Field(ABSENT if "raised" in one[0] else RAISES, errors[0])
    copies = [copy for each in processes for copy in each["found"]]
    if all(_equal(copy, right) for copy in copies):
        return Field(RIGHT)
    shown = [f"{_first_wrong(copy, right):.4g}" for copy in copies]
    single = one[0].get("found", [[]])[0]
    kind = ALIKE if all(_equal(copy, single) for copy in copies) else WRONG
    return Field(kind, " / ".join(dict.fromkeys(shown)))


def _equal(found: Sequence[float], right: Sequence[float]) -> bool:
    """To the digits that a program states."""
    return len(found) == len(right) and all(
        math.isclose(a, b, rel_tol=2e-4, abs_tol=1e-6) for a, b in zip(found, right, strict=True)
    )


def _first_wrong(found: Sequence[float], right: Sequence[float]) -> float:
    pairs = itertools.zip_longest(found, right, fillvalue=math.nan)
    return next((a for a, b in pairs if not _equal([a], [b])), found[0])


class Group(NamedTuple):
    """Releases next to each other whose fields are equal. fields: by program and strategy."""

    columns: list[Any]
    fields: dict[tuple[str, str], Field]

    @property
    def name(self) -> str:
        minors = [".".join(each.version.split(".")[:2]) for each in self.columns]
        span = minors[0] if len(minors) == 1 else f"{minors[0]} to {minors[-1]}"
        first = self.columns[0]
        return f"{'tf_keras ' if first.package == 'tf_keras' else ''}{span}{' with dtk' if first.dtk else ''}"


def fields_of(result: Mapping[str, Any] | None, package: str) -> dict[tuple[str, str], Field]:
    """All fields of a release, which are not run where there is no result."""
    found = {}
    for name, program in PROGRAMS.items():
        ran = (result or {"programs": {}})["programs"].get(name)
        right = program.right[2 if package == "tf_keras" else 3]
        for setting in STRATEGIES:
            found[name, setting] = field(ran[setting], ran["one"], right) if ran else Field(NOT_RUN)
    return found


def grouped(columns: Iterable[Any], results: Mapping[str, Any]) -> list[Group]:
    groups: list[Group] = []
    for column in columns:
        fields, last = fields_of(results.get(column.name), column.package), groups[-1] if groups else None
        shown = {key: str(each) for key, each in fields.items()}
        alike = last is not None and {key: str(each) for key, each in last.fields.items()} == shown
        if last is not None and alike and last.columns[-1][::3] == column[::3]:
            last.columns.append(column)
        else:
            groups.append(Group([column], fields))
    return groups


def table(groups: Sequence[Group], loop: bool) -> str:
    """A row for each program; a cell has MirroredStrategy's field, then the workers', or one for both."""
    lines = [f"| | right | {' | '.join(group.name for group in groups)} | why |", "|---" * (len(groups) + 3) + "|"]
    for name, program in PROGRAMS.items():
        if program.loop != loop:
            continue
        right = ", ".join(f"{value:g}" for value in program.right[3])
        if program.right[2] != program.right[3]:
            right += f" (Keras 2: {program.right[2][0]:g})"
        cells = []
        for group in groups:
            both = list(dict.fromkeys(str(group.fields[name, setting]) for setting in STRATEGIES))
            cells.append(" · ".join(both))
        why = ", ".join(WHY.get(name, ()))
        lines.append(f"| {program.what} | {right} | {' | '.join(cells)} | {why} |")
    return "\n".join(lines)


def errors(groups: Sequence[Group]) -> str:
    """What the fields that raise say, with the number of fields in all columns of the table, and an example."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for group in groups:
        for (name, setting), each in group.fields.items():
            if each.kind in (RAISES, ABSENT):
                said = re.sub(r"\d+", "N", each.said.replace("`", "").replace("|", "/"))
                said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1].rstrip()}…"
                counts[said] += 1
                example.setdefault(said, f"{group.name}, {PROGRAMS[name].what}, {STRATEGIES[setting]}")
    lines = [f"- `{said}` ({count}; {example[said]})" for said, count in counts.most_common() if count > 4]
    return "\n".join(lines)


def draw(columns: Sequence[Any], results: Mapping[str, Any], path: Path) -> None:
    """A square for each field: releases across, behaviors down, one half for each strategy."""
    import matplotlib

    matplotlib.use("Agg")

    from matplotlib import pyplot
    from matplotlib.patches import Patch, Rectangle

    colors = {RIGHT: "#0072B2", WRONG: "#D55E00", ALIKE: "#F3C9A8", RAISES: "#BBBBBB", HANGS: "#BBBBBB"}
    marks = {RIGHT: "✓", WRONG: "✗", ALIKE: "=", RAISES: "!", HANGS: "…", ABSENT: "", NOT_RUN: "?"}
    figure, axes = pyplot.subplots(1, 2, figsize=(17, 10.5), sharey=True, layout="constrained")
    for axis, (setting, title) in zip(axes, STRATEGIES.items(), strict=True):
        for x, column in enumerate(columns):
            fields = fields_of(results.get(column.name), column.package)
            for y, name in enumerate(PROGRAMS):
                kind = fields[name, setting].kind
                axis.add_patch(Rectangle((x, y), 0.94, 0.94, color=colors.get(kind, "#FFFFFF")))
                ink = "white" if kind in (RIGHT, WRONG) else "black"
                axis.text(x + 0.47, y + 0.47, marks[kind], ha="center", va="center", color=ink, fontsize=9)
        names = [Group([column], {}).name.replace(" with ", " + ") for column in columns]
        same = [k for k, column in enumerate(columns) if names[:k].count(names[k])]
        for k in same:
            names[k] += f", TF {'.'.join(columns[k].tensorflow.split('.')[:2])}"
        axis.set_xticks([k + 0.47 for k in range(len(columns))], names, rotation=90)
        axis.set_yticks([k + 0.47 for k in range(len(PROGRAMS))], [each.what for each in PROGRAMS.values()])
        axis.set(xlim=(0, len(columns)), ylim=(len(PROGRAMS), 0), xlabel="release of Keras", title=title)
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    legend = {
        "✓ right": RIGHT,
        "✗ wrong": WRONG,
        "= wrong on one device too": ALIKE,
        "! raises   … hangs": RAISES,
    }
    handles = [Patch(color=colors[kind], label=words) for words, kind in legend.items()]
    if any(column.name not in results for column in columns):
        handles.append(Patch(color="white", label="? not run"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, facecolor="white")


def write(folder: Path, columns: Sequence[Any], docs: Path, again: Path | None = None) -> None:
    """Writes the page and its picture from the results in the folder. again: one with a second measurement."""
    results, second = (_results(each, columns) for each in (folder, again))
    draw(columns, results, docs / "images" / "keras_releases.png")
    page = docs / "explanation" / "keras_releases.md"
    page.write_text(text(columns, results, second), encoding="utf-8")
    (folder / "table.json").write_text(json.dumps(kinds(columns, results), indent=1) + "\n", encoding="utf-8")


def _results(folder: Path | None, columns: Sequence[Any]) -> dict[str, Any]:
    paths = {column.name: folder / f"{column.name}.json" for column in columns} if folder else {}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def _compared(columns: Sequence[Any], results: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """What a second measurement found."""
    both = [column for column in columns if column.name in results and column.name in second]
    first, other = kinds(both, results), kinds(both, second)
    fields = [(name, each) for name in first for each in first[name] if first[name][each] != other[name][each]]
    differ = [f"{name}: {PROGRAMS[each].what}" for name, each in fields]
    found = f"other fields in {'; '.join(differ)}" if differ else "the same fields"
    return f"{len(both)} columns were measured a second time, in new environments: {found}."


def kinds(columns: Sequence[Any], results: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """The table as data: by column and by program, the field of each strategy. Two measurements have to be equal."""
    return {
        column.name: {
            name: [str(fields_of(results.get(column.name), column.package)[name, setting]) for setting in STRATEGIES]
            for name in PROGRAMS
        }
        for column in columns
    }


def text(columns: Sequence[Any], results: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """The page."""
    groups = grouped([column for column in columns if not _is_control(columns, column)], results)
    groups = [group for group in groups if any(each.kind != NOT_RUN for each in group.fields.values())]
    used = [key for key in CAUSES if any(key in WHY.get(name, ()) for name in PROGRAMS)]
    parts = [
        "# Which Keras computes distributed training correctly",
        "![Each behavior, under each strategy, in each release of Keras](../images/keras_releases.png)",
        _INTRODUCTION,
        "## A loop of one's own",
        table(groups, loop=True),
        "## `fit`, `evaluate` and `predict`",
        table(groups, loop=False),
        "## Why",
        "\n".join(f"- **{key}**: {CAUSES[key]}" for key in used),
        "## What the errors say",
        "Those of more than four fields; digits are shown as N; in brackets: fields, and the first of them.",
        errors(groups),
        "## How it was measured, and what was not",
        " ".join([_method(columns, results), *([_compared(columns, results, second)] if second else [])]),
        _UNTESTED,
    ]
    return "\n\n".join(parts) + "\n"


def _is_control(columns: Sequence[Any], column: Any) -> bool:
    """Whether it is there to tell TensorFlow's part: a release that another column has with a newer TensorFlow."""
    return sum(each.version == column.version and not each.dtk for each in columns[: columns.index(column)]) > 0 and (
        not column.dtk
    )


def _method(columns: Sequence[Any], results: Mapping[str, Any]) -> str:
    pairs: dict[str, list[str]] = {}
    for column in columns:
        if not column.dtk and not _is_control(columns, column) and column.name in results:
            pairs.setdefault(column.tensorflow, []).append(f"{column.package} {column.version}")
    versions = "; ".join(f"TensorFlow {tf} with {', '.join(names)}" for tf, names in pairs.items())
    said = [_METHOD.format(versions=versions.replace(" keras ", " Keras ", 1))]
    for column in columns:
        if _is_control(columns, column) and column.name in results:
            newer = next(each for each in columns if each.version == column.version and not each.dtk)
            mine, other = (kinds([each], results)[each.name] for each in (column, newer))
            differ = [PROGRAMS[name].what for name in mine if mine[name] != other[name]]
            result = f"differs in: {', '.join(differ)}" if differ else "has the same fields"
            said.append(f"Keras {column.version} on TensorFlow {column.tensorflow} {result}.")
    missing = [column.name for column in columns if column.name not in results]
    if missing:
        said.append(f"Not run: {', '.join(missing)}.")
    seconds = [result["run_s"] for result in results.values()]
    if seconds:
        most = max(result["megabytes"] for result in results.values())
        install = sum(result["install_s"] for result in results.values())
        said.append(
            f"On two cores a release took {min(seconds)} to {max(seconds)} s to run; all {len(seconds)} columns took "
            f"{sum(seconds) / 60:.0f} min, and {install / 60:.0f} min to install, {most / 1000:.1f} GB at a time."
        )
    return " ".join(said)


_INTRODUCTION = """\
Each row is a program of 20 to 40 lines that computes one number on two replicas, under MirroredStrategy and under
MultiWorkerMirroredStrategy, from the weights and the global batch that one device has. Where the two strategies
differ, a cell has both, MirroredStrategy first.

✓ right. ✗ wrong, and the number that was found, with `/` between replicas or workers. = wrong, and one device
computes the same. *raises*: an error. *none*: one device raises it too. *hangs*: no end."""

_METHOD = """\
By `benchmarks/keras_releases.py`, which writes this page. Each release ran in an environment of its own, without
any part of dtk, with the newest TensorFlow whose requirement admits it: {versions}. Each program ran in new
processes."""

_UNTESTED = """\
`python benchmarks/keras_releases.py --program clipnorm --setting workers` prints a program, to check a field by
hand.

"With dtk" is `dtk.correct_keras()`, for the releases that dtk supports ([what it corrects](compat.md)).

What is wrong in the newest release, with its patch: [texts for upstream](../upstream/README.md).

Not tested: GPUs and TPUs, other strategies, more than two replicas, two replicas in each of two workers,
`jit_compile`, Estimator, other backends of Keras, other pairs of Keras and TensorFlow, and patches of a minor
release other than the newest. The models have one or two weights: a ✓ says that this number is right, not that all
of a release is."""
