"""`dtk lessons`, `dtk lab`, `dtk demo`: what is copied where, what stays, what bad input is told, without a clone."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

import dtk
from dtk import cli, language
from dtk.course import lesson_files
from dtk.errors import DtkError

FIRST = lesson_files.FIRST


@pytest.fixture(autouse=True)
def english(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DTK_LANG", "en")  # `--language` sets it, too: so it is put back


@pytest.fixture
def became(monkeypatch):
    """The commands that this process would have become."""
    found = []
    monkeypatch.setattr(os, "execv", lambda program, command: found.append((program, command)))
    return found


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("spoken", ["en", "zh"])
def test_all_lessons_with_links_that_hold_without_a_clone(tmp_path, spoken):
    folder = lesson_files.bring(tmp_path / "mine", spoken)
    there = {file.name for file in lesson_files.brought(spoken).glob("*.ipynb")}
    assert {FIRST, "13_inside_a_replica.ipynb", "lab_5_time_to_accuracy.ipynb", "appendix_keras.ipynb"} < there
    assert there | {"glossary.md", "AI_GUIDE.md"} <= {*names(folder)}
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert {name for name, text in texts.items() if "](../" in text} == set()
    to_docs = f"]({dtk.errors.REPOSITORY}/blob/v{dtk.__version__}/docs/"
    assert sum(text.count(to_docs) for text in texts.values()) >= 9
    cells = [cell for name in there for cell in json.loads(texts[name])["cells"]]
    assert [cell for cell in cells if cell.get("outputs")] == [] != cells


def test_another_language_has_a_folder_that_has_figures_speak_it(tmp_path, monkeypatch):
    assert cli.main(["lessons", "mine", "--language", "zh"]) == 0
    assert (tmp_path / "mine" / "zh" / FIRST).is_file()
    monkeypatch.delenv("DTK_LANG")
    monkeypatch.chdir(tmp_path / "mine" / "zh")
    assert language.language() == "zh"
    assert lesson_files.bring(tmp_path / "mine" / "zh", "zh") == tmp_path / "mine" / "zh"


def test_what_a_learner_changed_stays_until_asked(tmp_path, capsys):
    folder = tmp_path / "mine"
    lesson_files.copy({"a.md": "1", "b.md": "1"}, folder)
    (folder / "b.md").write_text("my answer")
    (folder / "c.md").write_text("mine, and never dtk's")
    again = {"a.md": "1", "b.md": "1", "c.md": "1"}
    lesson_files.copy(again, folder)
    assert [(folder / name).read_text() for name in again] == ["1", "my answer", "mine, and never dtk's"]
    said = "\nb.md, c.md differ from dtk's, so they stay as they are: --overwrite replaces them\n"
    assert capsys.readouterr().out.endswith(said)
    lesson_files.copy(again, folder, overwrite=True)
    assert [(folder / name).read_text() for name in again] == ["1", "1", "1"]


def test_the_command_says_what_it_did(capsys):
    assert cli.main(["lessons"]) == 0
    files = sum(path.is_file() for path in Path("dtk-lessons").rglob("*"))
    said = f"{files} files of lessons are in dtk-lessons\nnext: `dtk lab dtk-lessons` opens them"
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["a file"], "dtk: the lessons can't be written into a file: File exists; name another folder"),
        (["a file/x"], "dtk: the lessons can't be written into a file/x: Not a directory; name another folder"),
        (["in the way"], "dtk: the lessons can't be written into in the way: Is a directory; name another folder"),
        (["--language", "fr"], "dtk: language='fr': it takes one of en, zh"),
        (["--language", "../zh"], "dtk: language='../zh': it takes one of en, zh"),
        ([str(lesson_files.brought())], "has the lessons that belong to dtk itself; name another folder"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path, capsys, options, sentence):
    (tmp_path / "a file").touch()
    (tmp_path / "in the way" / FIRST).mkdir(parents=True)
    assert cli.main(["lessons", *options]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


def test_an_installation_without_lessons_says_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(lesson_files, "__file__", str(tmp_path / "dtk" / "course" / "lesson_files.py"))
    with pytest.raises(DtkError, match=r"without its lessons; they are at https://\S+/tree/main$"):
        lesson_files.brought()


def test_a_class_is_built_from_them_without_a_clone(tmp_path, capsys):
    assert cli.main(["class", "build", "handout", "--edition", "student", "--lesson", "00"]) == 0
    assert capsys.readouterr().out == "dtk: student edition of 1 lessons: 4 files in handout\n"
    assert names(tmp_path / "handout") == [FIRST, "AI_GUIDE.md", "README.md", "glossary.md"]
    (tmp_path / "notebooks").mkdir()  # the user's own, and not to be passed over
    assert cli.main(["class", "build", "other", "--edition", "student"]) == 1
    assert capsys.readouterr().err == "dtk: there are no lessons in notebooks; name their folder: --lessons notebooks\n"


needs_jupyterlab = pytest.mark.skipif(
    importlib.util.find_spec("jupyterlab") is None, reason="no JupyterLab in this lane"
)


@needs_jupyterlab
def test_lab_copies_where_there_are_none_and_never_again(tmp_path, became):
    for options in ([], ["--", "--no-browser", "--port=8899"]):
        cli.main(["lab", "mine", *options])
        (tmp_path / "mine" / "lab_2_broken_functions.ipynb").unlink(missing_ok=True)  # the learner's own decision
    assert "lab_2_broken_functions.ipynb" not in names(tmp_path / "mine")
    (program, first), (_program, second) = became
    assert program == first[0] == sys.executable
    assert first[1:3] == ["-m", "jupyterlab"]
    assert first[3:] == [f"--notebook-dir={tmp_path / 'mine'}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    assert second == [*first, "--no-browser", "--port=8899"]


def test_lab_without_jupyterlab_copies_and_installs_nothing(tmp_path, monkeypatch, capsys, became):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["lab"]) == 1
    said = 'dtk: dtk lab needs jupyterlab, not installed here; pip install "dtk-toolkit[lab]"\n'
    assert capsys.readouterr() == ("", said)
    assert (became, list(tmp_path.iterdir())) == ([], [])


def test_a_demo_that_can_not_be_kept_is_not_run(tmp_path, capsys):
    (tmp_path / "a file").touch()
    assert cli.main(["demo", "--out", "a file"]) == 1
    said = "dtk: [Errno 17] File exists: 'a file'\n"
    assert capsys.readouterr() == ("", said)
