"""dtk's sentences in another language: what is marked, what a catalogue lacks, and which language is spoken."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

import catalogues
import pytest

import dtk
from dtk.course.exercise import Exercise, all_exercises
from dtk.language import N_, _, language, ngettext, three

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "dtk").rglob("*.py"))
MARKS = {"_", "N_", "ngettext"}


@functools.cache
def nodes(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def test_nothing_is_missing_in_a_catalogue(capsys: pytest.CaptureFixture[str]):
    code = catalogues.main(["--check"])
    assert capsys.readouterr().out == "", "fill in dtk/locale/*/LC_MESSAGES/dtk.po, then run `make translations`"
    assert code == 0


@pytest.mark.parametrize(
    ("asked", "spoken"), [("zh", "zh"), ("zh_CN.UTF-8", "zh"), ("zh-Hans", "zh"), ("en", "en"), ("en_GB", "en")]
)
def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, asked: str, spoken: str):
    monkeypatch.setenv("DTK_LANG", asked)
    assert language() == spoken


def test_a_lesson_speaks_the_language_of_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("DTK_LANG", raising=False)
    (tmp_path / "zh").mkdir()
    monkeypatch.chdir(tmp_path)
    assert language() == "en"
    monkeypatch.chdir(tmp_path / "zh")
    assert language() == "zh"
    monkeypatch.setenv("DTK_LANG", "en")
    assert language() == "en"


def test_a_language_that_dtk_does_not_speak_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DTK_LANG", "tlh")
    with pytest.warns(UserWarning, match="DTK_LANG=tlh: dtk speaks en, zh"):
        assert language() == "en"


def test_a_sentence_gets_its_values(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DTK_LANG", "en")
    assert _("{a:.2f} and {{b}}", a=1.5) == "1.50 and {b}"
    assert _("no value: {a}") == "no value: {a}"
    assert _("") == ""
    assert N_("as it is") == "as it is"
    assert ngettext("{n} step of {all}", "{n} steps of {all}", 2, all=5) == "2 steps of 5"


def _goes_elsewhere() -> None:
    import os

    os.chdir("/")
    dtk.datasets.load("mnist", source="nowhere")


@pytest.mark.trains
@pytest.mark.parametrize("start", ["warm", "cold"])
def test_a_worker_speaks_the_language_of_whoever_started_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: str
):
    """Where the function goes says nothing of the learner; the parent of the workers may have been started before."""
    monkeypatch.delenv("DTK_LANG", raising=False)
    with pytest.raises(dtk.WorkerFailed, match="names are"):
        dtk.run(_goes_elsewhere, workers=1, start=start)
    (tmp_path / "zh").mkdir()
    monkeypatch.chdir(tmp_path / "zh")
    with pytest.raises(dtk.WorkerFailed, match="可用的名称"):
        dtk.run(_goes_elsewhere, workers=1, start=start)


def marks(found: Iterable[ast.AST]) -> list[ast.Call]:
    calls = [each for each in found if isinstance(each, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in MARKS]


def test_what_is_marked_can_be_found():
    """A sentence that is put together where it is marked, such as an f-string, is in no catalogue."""
    for file in FILES:
        for call in marks(nodes(file)):
            assert isinstance(call.func, ast.Name)
            sentences = call.args[: 2 if call.func.id == "ngettext" else 1]
            assert not any(isinstance(each, ast.JoinedStr | ast.BinOp) for each in sentences), (file, ast.unparse(call))
            if call.func.id != "_":  # `_` may get what N_ marked
                assert all(isinstance(each, ast.Constant) for each in sentences), (file, ast.unparse(call))


def test_no_function_has_another_use_for_the_mark():
    """`_, rest = pair` in a function that says `_("...")` would call what was in the pair."""
    for file in FILES:
        for function in (each for each in nodes(file) if isinstance(each, ast.FunctionDef | ast.Lambda)):
            inside = list(ast.walk(function))
            names = [each for each in inside if isinstance(each, ast.Name) and each.id == "_"]
            arguments = [each.arg for each in inside if isinstance(each, ast.arg)]
            if any(isinstance(name.ctx, ast.Store) for name in names) or "_" in arguments:
                called = [ast.unparse(call.func) for call in marks(inside)]
                assert "_" not in called, (file, function.lineno)


def test_each_hint_of_an_exercise_can_be_found():
    found = {message.id for message in catalogues.marked()}
    exercises = [each for each in all_exercises().values() if isinstance(each, Exercise)]
    assert {hint for each in exercises for hint in (each.hint, *each.wrong.values())} <= found


# ---- measured numbers for readers


@pytest.mark.parametrize("value", [0.000123, 0.5, 1, 12.3, 999, 999.6, 1000, 123456, 999_999, 1e6, 7.7e8, 1e12])
def test_three_digits_and_no_power_of_ten(value):
    said = three(value)
    assert "e+" not in said
    assert "e-" not in said
    number, _, size = said.partition(" ")
    read = float(number.replace(",", "")) * {"": 1, "million": 1e6, "billion": 1e9}[size]
    assert read == pytest.approx(value, rel=5e-3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (40_000, "40,000"),
        (1e6, "100 万"),
        (2_780_000, "278 万"),
        (99_960_000, "1 亿"),
        (1.2e9, "12 亿"),
        (1e12, "10,000 亿"),
    ],
)
def test_chinese_counts_large_numbers_in_units_of_its_own(monkeypatch, value, said):
    monkeypatch.setenv("DTK_LANG", "zh")
    assert three(value) == said
