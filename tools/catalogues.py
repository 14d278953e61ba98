"""The other languages' catalogues: `python tools/catalogues.py` finds what is marked and renews `dtk/locale/`.

A sentence is marked by `_`, `ngettext` or `N_` in dtk/ (dtk/language.py says how); what the lessons' `dtk.ask` asks and
what their figures say is found in their code cells, which are the same in every language. New sentences are added to
each dtk.po without a translation, and those that nobody marks any more are removed. Then fill in what is empty, and run
it again: it writes dtk.mo, which Python reads.

With `--check` it changes nothing and prints what a language lacks, or nothing. A new language: `--add fr`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gettext
import io
import json
import re
import string
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from dtk.language import DOMAIN, LOCALE  # noqa: E402

SENTENCES = {"_": 1, "N_": 1, "ngettext": 2}  # of a mark's arguments
WRITES = ("headline", "draw", "set_xticks", "set_yticks", "set_xlabel")
LABELS = ("label", "labels", "xlabel", "ylabel", "title")
DRAWS, LABELED = {"dtk.plot.headline", "draw"}, {"dtk.plot.throughput", "dtk.plot.overlap"}
SAID = ("words", "caption", "title")  # names of texts that a figure says
HEADER = "# Sentences of dtk. Written by tools/catalogues.py; the translations are by hand."


@functools.cache
def marked() -> Catalog:
    """Every sentence that is to be translated, with the files that have it."""
    found = Catalog(charset="utf-8")
    places: dict[str | tuple[str, ...], set[str]] = {}
    for file in sorted((ROOT / "dtk").rglob("*.py")):
        for message in in_code(file.read_text(encoding="utf-8")):
            places.setdefault(message, set()).add(file.relative_to(ROOT).as_posix())
    for lesson in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for message in (*asked(lesson), *pictured(lesson)):
            places.setdefault(message, set()).add(f"notebooks/{lesson.name}")
    for message, files in sorted(places.items(), key=lambda each: (sorted(each[1])[0], str(each[0]))):
        found.add(message, locations=[(file, None) for file in sorted(files)])
    return found


def in_code(source: str) -> Iterator[str | tuple[str, ...]]:
    """The sentences that a file of dtk marks, and the hints of its exercises.

    Babel's own extraction takes other texts in a mark's call as well.
    """
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id in SENTENCES:
            given = call.args[: SENTENCES[call.func.id]]
            said = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if len(said) == len(given) and all(said):
                yield said[0] if len(said) == 1 else tuple(said)
        elif call.func.id == "Exercise":
            named = {each.arg: each.value for each in call.keywords}
            hints = [named.get("hint"), *getattr(named.get("wrong"), "values", ())]
            yield from (each.value for each in hints if isinstance(each, ast.Constant) and each.value)


def asked(lesson: Path) -> Iterator[str]:
    """The question, the unit and the choices of each `dtk.ask` in a lesson's cells, where choices may have a name."""
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "dtk.ask(" not in source:
            continue
        tree = ast.parse(source)
        named = {ast.unparse(each.targets[0]): each.value for each in ast.walk(tree) if isinstance(each, ast.Assign)}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "dtk.ask":
                given = [*call.args[1:], *(each.value for each in call.keywords)]
                names = [each.id for value in given for each in ast.walk(value) if isinstance(each, ast.Name)]
                for value in (*given, *(named[name] for name in names if name in named)):
                    yield from _words(value)


def pictured(lesson: Path) -> Iterator[str]:
    """What a lesson's own figures say: headline, labels, ticks and the names of lines, also of other cells."""
    named: dict[str, ast.expr] = {}
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or re.search(r"^\s*[%!]", source, re.M):
            continue
        nodes = list(ast.walk(ast.parse(source)))
        named |= {ast.unparse(each.targets[0]): each.value for each in nodes if isinstance(each, ast.Assign)}
        calls = [each for each in nodes if isinstance(each, ast.Call)]
        called = {ast.unparse(each.func) for each in calls}
        if not {*DRAWS, *LABELED} & called:
            continue
        for call in calls:
            given = call.args if ast.unparse(call.func).split(".")[-1] in WRITES else []
            for value in (*given, *(each.value for each in call.keywords if each.arg in LABELS)):
                joined = [each for each in ast.walk(value) if isinstance(each, ast.JoinedStr)]
                parts = {part for each in joined for part in ast.walk(each)}
                for each in ast.walk(value):
                    if each not in parts:
                        yield from _words(each)
        for name in dict.fromkeys(each.id for each in nodes if isinstance(each, ast.Name) and DRAWS & called):
            if (name in SAID and name in named) or isinstance(named.get(name), ast.Dict | ast.List):
                yield from _words(named[name])


def _words(value: ast.expr) -> Iterator[str]:
    """A text, the texts in a list, or those that are a dict's keys, without those that are numbers alone."""
    items = value.keys if isinstance(value, ast.Dict) else value.elts if isinstance(value, ast.List) else [value]
    for item in items:
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and re.search("[a-z]", item.value):
            yield item.value


def read(language: str) -> Catalog:
    file = LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.po"
    with file.open("rb") as opened:
        return read_po(opened, locale=language)


def renewed(catalogue: Catalog) -> Catalog:
    """The catalogue with the marked sentences alone, each with the translation that it has."""
    catalogue.update(marked(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    catalogue.header_comment = HEADER
    return catalogue


def _first(message: Message) -> str:
    return message.id[0] if isinstance(message.id, tuple) else message.id


def as_po(catalogue: Catalog) -> bytes:
    file = io.BytesIO()
    write_po(file, catalogue, width=116, omit_header=False, include_lineno=False)
    lines = file.getvalue().decode().splitlines(keepends=True)
    dated = (
        '"POT-Creation-Date',
        '"PO-Revision-Date',
        '"Last-Translator',
        '"Report-Msgid',
        '"Generated-By',
        '"Project-Id',
        '"Language-Team',
    )
    return "".join(line for line in lines if not line.startswith(dated)).encode()


def as_mo(catalogue: Catalog) -> bytes:
    file = io.BytesIO()
    write_mo(file, catalogue)
    return file.getvalue()


def spoken(compiled: bytes) -> dict[Any, str]:
    """What Python reads in a dtk.mo, without its head, which names the version of the library that wrote it."""
    found = dict(gettext.GNUTranslations(io.BytesIO(compiled))._catalog)
    found.pop("", None)
    return found


def lacks(language: str) -> Iterator[str]:
    """What is wrong with a language's catalogue, in sentences."""
    folder = LOCALE / language / "LC_MESSAGES"
    new = renewed(read(language))
    compiled = folder / f"{DOMAIN}.mo"
    same = compiled.exists() and spoken(compiled.read_bytes()) == spoken(as_mo(new))
    if not same or as_po(new) != (folder / f"{DOMAIN}.po").read_bytes():
        yield f"{language}: dtk.po is not what is marked now; run make translations"
    for message in new:
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        names = fields(message.id[-1] if isinstance(message.id, tuple) else message.id)
        if message.id and (message.fuzzy or not all(texts)):  # fuzzy: one that has become a plural
            yield f"{language}: not translated: {_first(message)!r} ({message.locations[0][0]})"
        elif message.id and any(fields(text) != names for text in texts):
            yield f"{language}: other values than in English: {_first(message)!r}"


def fields(text: str) -> set[str]:
    """The names in braces; of a text that is no format, such as one with a dict in it, what stands in its braces."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError:
        return set()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where `--check` found something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--add", metavar="LANGUAGE")
    options = parser.parse_args(argv)
    known = sorted(file.parent.parent.name for file in LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))
    if options.check:
        wrong = [sentence for language in known for sentence in lacks(language)]
        print(*wrong, sep="\n", end="\n" if wrong else "")
        return int(bool(wrong))
    for language in sorted({*known, *filter(None, [options.add])}):
        folder = LOCALE / language / "LC_MESSAGES"
        folder.mkdir(parents=True, exist_ok=True)
        catalogue = renewed(read(language) if language in known else Catalog(language, charset="utf-8", fuzzy=False))
        (folder / f"{DOMAIN}.po").write_bytes(as_po(catalogue))
        (folder / f"{DOMAIN}.mo").write_bytes(as_mo(catalogue))
        empty = [
            each
            for each in catalogue
            if each.id and not all(each.string if isinstance(each.string, tuple) else [each.string])
        ]
        print(f"{language}: {len(catalogue)} sentences, {len(empty)} without a translation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
