"""Questions and checks of lessons: what is asked, compared, kept and reported."""

from __future__ import annotations

import gettext

import pytest

import dtk
from dtk import language
from dtk.course.exercise import CheckFailed


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("DTK_ANSWERS", str(tmp_path / "answers.jsonl"))
    return tmp_path / "answers.jsonl"


def test_a_prediction_is_kept_and_compared(own_file, capsys):
    speed = dtk.ask("99.speed", "How many times as fast?", between=(0.5, 4), unit="times", answer=3)
    speed.keep(2)
    speed.came_out(1.16)
    assert capsys.readouterr().out == "99.speed: you said 2 times; this run: 1.16 times (off by a factor of 1.7)\n"
    assert dtk.ask("99.speed", "How many times as fast?", between=(0.5, 4), answer=1.2).given == 2, "it is settled"
    row = dtk.answers().loc["99.speed"]
    assert (row.predicted, row.came_out, row.checked, row.tries) == ("2 times", "1.16 times", "", 0)
    assert (dtk.answers(forget="99").empty, speed.given) == (True, None)


def test_options_that_stand_for_numbers(own_file, capsys):
    options = {"half as long": 0.5, "the same": 1, "twice as long": 2}
    step = dtk.ask("99.step", "The step is", options, answer=2)
    assert repr(step).splitlines()[2:4] == ["  2. the same", "  3. twice as long"]
    step.came_out(1.99)
    step.came_out(1.01)
    assert capsys.readouterr().out.splitlines() == [
        "99.step: you said the same; this run: twice as long (not what you expected)",
        "99.step: you said the same; this run: the same (right)",
    ]


DUTCH = {"times": "keer", "one": "een", "two": "twee", "Which?": "Welke?", "hint: {hint}": "tip: {hint}"}


class Dutch(gettext.NullTranslations):
    def gettext(self, message):
        return DUTCH.get(message, message)


@pytest.fixture
def speak(monkeypatch):
    monkeypatch.setattr(language, "_catalogue", lambda name: Dutch() if name == "zh" else gettext.NullTranslations())
    return lambda name: monkeypatch.setenv("DTK_LANG", name)


def test_what_was_answered_in_one_language_is_shown_in_another(own_file, capsys, speak):
    speak("zh")
    speed = dtk.ask("99.speed", "How many times as fast?", between=(0.5, 4), unit="times", answer=2)
    share = dtk.ask("99.share", "Which?", ["one", "two"], answer=2)
    share.came_out(1)
    assert "you said twee; this run: een" in capsys.readouterr().out
    assert repr(share).splitlines()[0] == "Predict (99.share): Welke?"
    assert dtk.answers().predicted.tolist() == ["twee", "2 keer"]
    assert "twee" not in own_file.read_text()
    speak("en")
    assert dtk.answers().predicted.tolist() == ["two", "2 times"]
    assert repr(speed).endswith("you said 2 times")


def test_without_an_answer_the_cell_says_what_came_out(own_file, capsys):
    dtk.ask("99.share", "Which?", ["one", "two"]).came_out(2)
    assert capsys.readouterr().out == "99.share: no prediction; this run: two\n"
    assert dtk.ask("99.share", "Which?", ["one", "two"], answer=1).given == 1


@pytest.mark.parametrize(
    ("name", "options", "more", "words"),
    [
        ("99.x", None, {}, "takes options="),
        ("99.x", ["one"], {}, "takes options="),
        ("99.x", ["one", "two"], {"between": (0, 1)}, "takes options="),
        ("x", ["one", "two"], {}, "a question has a name"),
        ("99.x", ["one", "two"], {"answer": 3}, "from 1 to 2"),
        ("99.x", ["one", "two"], {"answer": 1.5}, "a whole one for an option"),
        ("99.x", None, {"between": (0, 1), "answer": "half"}, "a number from 0 to 1"),
        ("99.x", None, {"between": (0, 1), "answer": float("nan")}, "a number from 0 to 1"),
    ],
)
def test_a_question_that_can_not_be_asked(own_file, name, options, more, words):
    with pytest.raises(dtk.DtkError, match=words):
        dtk.ask(name, "?", options, **more)


def test_checks_are_kept_with_the_hint_and_the_tries(own_file, capsys):
    wrong, right = (lambda losses, batch: sum(losses), lambda losses, batch: sum(losses) / batch)
    with pytest.raises(CheckFailed, match="hint: a sum grows"):
        dtk.check("00.share", wrong)
    dtk.check("00.share", right)
    dtk.check("00.share", right)
    assert capsys.readouterr().out == "check 00.share: PASS (6 cases)\n" * 2
    row = dtk.answers().loc["00.share"]
    assert (row.checked, row.tries) == ("PASS", 2)


def test_nothing_is_kept_where_nothing_is_shown(monkeypatch, tmp_path):
    monkeypatch.delenv("DTK_ANSWERS", raising=False)
    monkeypatch.setenv("DTK_LIVE", "off")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert dtk.ask("99.share", "Which?", ["one", "two"], answer=1).given is None
    assert list(tmp_path.iterdir()) == []


def test_the_report_has_predictions_checks_and_figures(own_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dtk.ask("00.speed", "How <many>?", between=(0.5, 4), unit="times", answer=2).came_out(1.16)
    dtk.check("00.share", lambda losses, batch: sum(losses) / batch)
    (ax,) = dtk.plot.axes(None)
    dtk.plot.headline(ax, "One message", "what to see")
    dtk.report()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("report of lesson 00: predictions: 1, checks passed: 1 of 4, figures: ")
    assert last.endswith("; written to lesson-00-report.html")
    page = (tmp_path / "lesson-00-report.html").read_text()
    for part in (
        "2 times",
        "1.16 times",
        "\N{CHECK MARK} 00.share",
        "PASS",
        "00.whole",
        "not tried",
        'alt="One message. what to see"',
    ):
        assert part in page


def test_labs_have_names_of_their_own(own_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dtk.check("lab3.owner", lambda worker, workers: (worker + 1) % workers)
    dtk.report()
    passed, last = capsys.readouterr().out.splitlines()
    assert passed == "check lab3.owner: PASS (7 cases)"
    assert last.startswith("report of lab 3: predictions: 0, checks passed: 1 of ")
    assert "<h1>dtk: lab 3</h1>" in (tmp_path / "lab-3-report.html").read_text()
    with pytest.raises(dtk.DtkError, match=r"name='lab3.x': it takes one of lab3.norm, lab3.owner, "):
        dtk.check("lab3.x", 1)


def test_a_report_of_nothing_is_an_error_for_a_lesson_and_else_a_line(own_file, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dtk.DtkError, match="lesson 42: nothing was answered or checked yet"):
        dtk.report("42")
    monkeypatch.setattr("dtk.course.kept._lesson", "")
    dtk.report()
    assert "nothing was answered or checked yet" in capsys.readouterr().out
    assert list(tmp_path.glob("*.html")) == []
