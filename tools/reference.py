"""The reference, docs/reference/: every public name of dtk with its docstring. `make reference` writes it anew.

    python tools/reference.py

A public name that is on no page of PAGES makes it fail; tests/test_reference.py compares the files.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import dtk
from dtk import cli
from dtk.proof.mistakes import MISTAKES

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
COMMON = 4  # so many sections of a page describe an argument in the same words: it is described once, above them
INNER = ("open", "end", "followed")  # which dtk calls: of a place, of a run
WIDTH = 100  # of a signature and of a command's help
PROSE = ("Returns:", "Yields:")  # sections without names to list
SECTIONS = ("Args", "Attributes", "Columns", "Example", "Examples", "Note", "Raises", "Returns", "Source", "Yields")


@dataclass(frozen=True)
class Page:
    """A page: what it is about, the names of its module, and what these return ("module:Class"), which has no public
    name of its own."""

    title: str
    module: str
    names: tuple[str, ...]
    returned: tuple[str, ...] = ()


def _of(title: str, module: str, *returned: str) -> Page:
    """A page for a whole public module, without what `dtk` itself has by the same name."""
    found = import_module(module)
    own = [name for name, each in vars(found).items() if name[0] != "_" and getattr(each, "__module__", "") == module]
    names = [
        name for name in getattr(found, "__all__", sorted(own)) if getattr(dtk, name, None) is not getattr(found, name)
    ]
    return Page(title, module, tuple(names), returned)


_RUNS = ("run", "Options", "baseline", "Run", "warm", "export", "is_chief", "run_dir", "training_ended")
_MEASURING = ("study", "Study", "step_parts", "step_reductions", "shards", "benchmark_allreduce")
_ERRORS = (
    "DtkError",
    "ClusterConfigError",
    "CellFailed",
    "NotShippable",
    "WorkerFailed",
    "WorkerStalled",
    "RunTimeout",
)
_OF_LESSONS = ("dtk.course.ask:Prediction", "dtk.course.exercise:CheckFailed", "dtk.course.exercise:NotSolved")
PAGES = {
    "runs": Page("Runs", "dtk", _RUNS, ("dtk.records:Attempt",)),
    "clusters": Page("A cluster that stays", "dtk", ("cluster", "Cluster")),
    "recording": Page(
        "Recording", "dtk", ("Recorder", "record_step", "EstimatorRecorder", "ring"), ("dtk.worker.ring:Ring",)
    ),
    "checks": Page("Proof and diagnosis", "dtk", ("verify", "diagnose"), ("dtk.proof.case:Diagnosis",)),
    "lessons": Page("Questions and checks of lessons", "dtk", ("ask", "check", "answers", "report"), _OF_LESSONS),
    "measuring": Page("Measuring", "dtk", _MEASURING),
    "without_dtk": Page("In any program", "dtk", ("correct_keras",)),
    "errors": Page("Errors", "dtk", (*_ERRORS, "VerificationError", "DatasetUnavailable", "RunInterrupted")),
    "places": _of("Other machines", "dtk.places"),
    "plot": _of("Figures and labs", "dtk.plot"),
    "model": _of("The model of a cluster", "dtk.model", "dtk.scaling.prediction:Fit"),
    "faults": _of("Faults", "dtk.faults"),
    "datasets": _of("Data", "dtk.datasets"),
    "estimator": _of("Estimator", "dtk.estimator"),
    "environment": _of("Where am I", "dtk.environment"),
}


def pages() -> dict[str, str]:
    """{file name: text} of all pages. Raises ValueError where a public name is on none of them."""
    here = {name for page in PAGES.values() if page.module == "dtk" for name in page.names}
    modules = {page.module.removeprefix("dtk.") for page in PAGES.values() if page.module != "dtk"}
    missing = sorted({*dtk.__all__} - here - modules)
    if missing:
        raise ValueError(f"tools/reference.py: no page has {', '.join(missing)}")
    texts = {f"{key}.md": "\n".join(_page(page)) for key, page in PAGES.items()}
    texts["command_line.md"] = "\n".join(_commands())
    texts["files.md"] = "\n".join(_files())
    texts["mistakes.md"] = "\n".join(_mistakes())
    return {"README.md": "\n".join(_index()), **texts}


def listed(page: Page) -> list[tuple[str, Any]]:
    """(dotted name, object) of a page's names."""
    module = import_module(page.module)
    return [(f"{page.module}.{name}", getattr(module, name)) for name in page.names]


def _index() -> Iterator[str]:
    yield from ("# Reference", "", "Every public name. `make reference` writes these pages from the docstrings.", "")
    for key, page in PAGES.items():
        counts: Counter[str] = Counter()
        names = [f"[`{name}`]({key}.md#{_anchor(name, counts)})" for name, _ in listed(page)]
        yield f"- [{page.title}]({key}.md)" + ("" if key == "environment" else f": {', '.join(names)}")
    yield from ("- [The command line](command_line.md)", "- [What lies in a run's directory](files.md)")
    yield from ("- [The mistakes that `dtk.diagnose` names](mistakes.md)", "")


def _page(page: Page) -> Iterator[str]:
    yield from (f"# {page.title}", "")
    module = import_module(page.module)
    if page.module != "dtk":
        yield from (as_markdown(inspect.getdoc(module) or ""), "")
    if page is PAGES["environment"]:
        for name, thing in listed(page):
            first = re.split(r"[;,.] |\.$| \(", " ".join(_doc(thing).split()))[0]
            yield f"- `{name}{'' if inspect.isclass(thing) else '()'}`: {_escaped(first)}"
        yield ""
        return
    parts = ["\n".join(_section(name, thing)) for name, thing in listed(page)]
    for each in page.returned:
        home, _, name = each.partition(":")
        parts.append("\n".join(_section(name, getattr(import_module(home), name))))
    yield from _said_once(parts)


def _said_once(parts: list[str]) -> Iterator[str]:
    """A page's parts; an argument that four or more of them describe in the same words is described above them."""
    counts = Counter(item for part in parts for item in dict.fromkeys(re.findall(r"^- `.*\.$", part, re.MULTILINE)))
    often = [item for item, count in counts.items() if count >= COMMON]
    if often:
        yield from ("Unless a function says otherwise:", "", *often, "")
    for part in parts:
        kept = "\n".join(line for line in part.split("\n") if line not in often)
        yield re.sub(r"\n{3,}", "\n\n", re.sub(r"\*\*Args\*\*\n\n+(?=\*\*|\Z|#)", "", kept))


def _section(name: str, thing: Any) -> Iterator[str]:
    yield from (f"## `{name}`", "")
    if inspect.isclass(thing):
        yield from _class(name, thing)
    elif inspect.isfunction(thing):
        yield from ("```python", _signature(name, thing), "```", "", as_markdown(inspect.getdoc(thing) or ""), "")
    else:
        yield from ("```python", repr(thing), "```", "")


def _class(name: str, kind: type) -> Iterator[str]:
    # Of the other classes, which dtk makes, the constructor is nobody else's business.
    if name.startswith("dtk.model.") or "Args:" in _doc(kind):
        yield from ("```python", _signature(name, kind), "```", "")
    members = _members(kind)
    if issubclass(kind, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if not base.__name__.startswith("_"))
        yield from (f"Base: {bases or '`DtkError`'}.", "")
    yield from (as_markdown(_doc(kind)), "")
    if issubclass(kind, BaseException) and members:
        yield from (f"Has {', '.join(f'`{member}`' for member in members)}, as a `dtk.Run` has.", "")
        return
    for member, value in members.items():
        inner = value.__func__ if isinstance(value, classmethod) else value
        if inspect.isfunction(inner):
            yield from (f"### `{name}.{member}`", "", "```python", _signature(member, inner), "```", "")
        else:
            yield from (f"### `{name}.{member}`", "")
        yield from (as_markdown(inspect.getdoc(inner) or ""), "")


def _members(kind: type) -> dict[str, Any]:
    """Public methods and properties that say what they are, those of dtk's own base classes first."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("dtk."):
            found.update(vars(base))
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_") and not isinstance(value, (str, int, float, type)) and _doc(value)
        if name not in INNER
    }


def _doc(thing: Any) -> str:
    """A docstring of dtk's own: not the one that a dataclass, or a plain value's type, brings."""
    thing = thing.__func__ if isinstance(thing, classmethod) else thing
    described = inspect.isclass(thing) or inspect.isfunction(thing) or isinstance(thing, ModuleType)
    if not described and not isinstance(thing, property) and type(thing).__name__ != "cached_property":
        return ""
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    return "" if inspect.isclass(thing) and text.startswith(f"{thing.__name__}(") else text


def _signature(name: str, thing: Any) -> str:
    signature = inspect.signature(thing)
    given = list(_plain(signature))
    given = given[1:] if given[:1] in (["self"], ["cls"]) else given
    returned = "" if inspect.isclass(thing) else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(given)}){returned}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in given) + f"){returned}"


def _plain(signature: inspect.Signature) -> Iterator[str]:
    """Each parameter with its default, and `*` where the kinds change; the types are in words below."""
    starred = False
    for each in signature.parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            starred = True
        elif each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        default = "" if each.default is each.empty else f"={_default(each.default)}"
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        yield f"{mark}{each.name}{default}"


def _default(value: Any) -> str:
    if len(repr(value)) > WIDTH:
        return f"{type(value).__name__}(...)"
    return f"{value:.4g}" if isinstance(value, float) and len(repr(value)) > 8 else repr(value)


def _anchor(name: str, counts: Counter[str]) -> str:
    """GitHub's address of a heading: in small letters, without dots, numbered where the page has one like it."""
    plain = name.replace(".", "").lower()
    counts[plain] += 1
    return plain if counts[plain] == 1 else f"{plain}-{counts[plain] - 1}"


def commands(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """{name: its own parser} of the commands of `dtk.cli.parser()`, in order."""
    (found,) = (action for action in of._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def _commands() -> Iterator[str]:
    yield from ("# The command line", "", "In the environment: `.venv/bin/dtk`, or `python -m dtk`.", "")
    # The width of the terminal decides where help's lines break.
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
        parser = cli.parser()
        for title, command in {"": parser, **commands(parser)}.items():
            said = re.sub(r"\n  (-h, --help|--version) .*", "", command.format_help())
            said = re.sub(r"\n\noptions:(?=\s*$)", "", said.replace(" [-h]", "").replace(" [--version]", ""))
            yield from ((f"## `dtk {title}`", "") if title else ())
            yield from ("```", said.rstrip(), "```", "")


def _files() -> Iterator[str]:
    from dtk import records
    from dtk.records import tables

    yield from ("# What lies in a run's directory", "", "`run.dir`. How it is written and read: `dtk/records`.", "")
    yield from ("```", inspect.getdoc(records) or "", "```", "", "## The columns of `run.records`", "")
    yield from (as_markdown(inspect.getdoc(tables.Record) or ""), "", f"In order: {', '.join(tables.COLUMNS)}.", "")


def _mistakes() -> Iterator[str]:
    yield from ("# The mistakes that `dtk.diagnose` names", "", "Symptom → remedy. N is the number of replicas, B the")
    yield from ("global batch, n a short batch. [How each is recognized](../explanation/diagnosis.md).", "")
    yield from (f"- `{key}`: {_escaped(one.symptom)} → {_escaped(one.remedy)}" for key, one in MISTAKES.items())
    yield ""


def as_markdown(text: str) -> str:
    """A docstring as Markdown: its sections (Args and the like) as lists, indented lines and doctests as code."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        head, _, rest = block.partition("\n")
        if head.rstrip(":") in SECTIONS and head.endswith(":"):
            inner = inspect.cleandoc("\n" + rest)
            items = map(_escaped, inner.splitlines()) if head in PROSE else _items(inner)
            lines += [f"**{head[:-1]}**", "", *items, ""]
        elif block.startswith("    - "):
            lines += [*map(_escaped, inspect.cleandoc("\n" + block).splitlines()), ""]
        elif block.startswith(">>>"):
            continue  # a test
        elif all(line.startswith("    ") for line in block.splitlines()):
            lines += ["```python", inspect.cleandoc("\n" + block), "```", ""]
        else:
            lines += [*map(_escaped, block.splitlines()), ""]
    return "\n".join(lines).rstrip()


def _items(text: str) -> list[str]:
    """A section's entries, each a line of a list; what goes on is indented deeper, or begins with no `name:`."""
    found: list[str] = []
    named = [re.match(r"([\w.*, `]+?): (.*)", line) for line in text.splitlines()]
    for line, match in zip(text.splitlines(), named, strict=True):
        if match and not line.startswith(" "):
            found.append(f"- `{match[1].replace('`', '')}`: {_escaped(match[2])}")
        elif found and any(named):
            found.append(f"  {_escaped(line.strip())}")
        else:
            found.append(_escaped(line))
    return found


def _escaped(line: str) -> str:
    """What Markdown would take for emphasis or a tag stays as it is; what stands in backticks is code already."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def main() -> None:
    """Writes all pages, and removes those that are no longer made."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
