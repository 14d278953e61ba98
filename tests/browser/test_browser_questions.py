"""Questions, checks and reports of lessons, by mouse and by keyboard."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(600)

OPTIONS = """step = dtk.ask("99.step", "Compared with one device, at the same learning rate, the step is",
    {"the same: a mean is a mean": 1, "half as large": 0.5, "twice as large": 2})
step"""
NUMBER = 'dtk.ask("99.speed", "How many times as fast are two workers?", between=(0.5, 4), unit="times")'
CHECK = 'dtk.check("00.share", lambda losses, global_batch: sum(losses) / len(losses))'


def output(page, source):
    page.type(source)
    cell = page.run(source.splitlines()[0])
    page.wait_idle(60)
    return cell.locator(".jp-OutputArea").first


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 700])
def test_a_question_is_answered_kept_and_compared(server, visit, expect, width, dark, own_answers):
    page = visit(server, "00_start_here", width=width, dark=dark)
    page.run("import dtk")
    look = f"{'dark' if dark else 'light'}-{width}"
    question = output(page, OPTIONS)
    page.shot(f"ask-{look}", question)
    for choice in ("twice as large", "half as large"):
        question.get_by_role("radio", name=choice).press("Space")
        expect(question).to_contain_text(f"you said {choice}")
    page.shot(f"ask-kept-{look}", question)
    number = output(page, NUMBER)
    field = number.get_by_role("textbox")
    expect(field).to_have_value("")
    for text, said in {"9": "a number from 0.5 to 4 times", "2": "you said 2 times"}.items():
        field.fill(text)
        field.press("Tab")
        expect(number).to_contain_text(said)
    page.shot(f"ask-number-{look}", number)
    expect(output(page, "step.came_out(1.98)")).to_contain_text("this run: twice as large (not what you expected)")
    wrong = output(page, CHECK)
    expect(wrong).to_contain_text("CheckFailed: 00.share")
    expect(wrong).not_to_contain_text("Traceback")
    page.shot(f"check-{look}", wrong)
    kept = [json.loads(line) for line in own_answers.read_text().splitlines()]
    assert [(entry["kind"], entry["name"]) for entry in kept] == [
        ("predicted", "99.step"),
        ("predicted", "99.step"),
        ("predicted", "99.speed"),
        ("came out", "99.step"),
        ("checked", "00.share"),
    ]
