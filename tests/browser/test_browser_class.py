"""A student's path in the browser: open the edition, predict, run, solve, and hand in what its README asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_browser_lessons import printed

ROOT = Path(__file__).parent.parent.parent
LESSON = "00_start_here"
OWN_MEAN = "def share(losses, global_batch):\n    return sum(losses) / len(losses)"
RIGHT = "def share(losses, global_batch):\n    return sum(losses) / global_batch"
ANSWERS = {
    "apart = None": "alone = baseline.records.set_index('step').loss\n"
    "apart = abs(run.records.groupby('step').loss.sum() / alone - 1).max()",
    "def whole(": "def whole(means, examples):\n    return sum(m * n for m, n in zip(means, examples)) / sum(examples)",
}


@pytest.mark.timeout(900)
def test_a_student_solves_a_lesson_and_hands_it_in(server, visit):
    expect = pytest.importorskip("playwright.sync_api").expect
    handout = server.notebooks / "class"
    dtk("class", "build", "--edition", "student", str(handout), "--variant", "group-a", "--lesson", "00")
    page = visit(server, f"class/{LESSON}", again=True)
    page.shot("class-open")
    page.run_all()
    page.wait_all_ran(300)
    question = page.cell("Each of two workers adds up the losses").locator(".jp-OutputArea").first
    question.get_by_role("radio", name="one device's loss", exact=True).press("Space")
    question.get_by_role("button", name="Keep my answer").press("Enter")
    expect(question).to_contain_text("you said one device's loss")
    page.shot("class-predicted", question)
    check = page.cell('dtk.check("00.share", share)')
    expect(check).to_contain_text("is not solved yet")
    page.shot("class-unsolved", check)
    answered(page, "def share(", OWN_MEAN, check)
    expect(check).to_contain_text("hint:")
    page.shot("class-hint", check)
    answered(page, "def share(", RIGHT, check)
    expect(check).to_contain_text("check 00.share: PASS")
    for stub, answer in ANSWERS.items():
        name = "00.apart" if "apart" in answer else "00.whole"
        after = page.cell(f'dtk.check("{name}"')
        answered(page, stub, answer, after)
        expect(after).to_contain_text(f"check {name}: PASS")
    page.run("dtk.report()")
    page.wait_idle(60)
    page.shot("class-report", page.cell("dtk.report()"))
    assert printed(page.save()).count(": PASS") >= 3
    for name in (f"{LESSON}.ipynb", "answers.jsonl"):  # what the edition's README asks for
        assert name in (handout / "README.md").read_text().replace(f"{LESSON})", f"{LESSON}.ipynb")
        assert (handout / name).is_file()
    kept = [json.loads(line) for line in (handout / "answers.jsonl").read_text().splitlines()]
    assert [each["name"] for each in kept if each["kind"] == "predicted"] == ["00.shares"]


def answered(page, stub: str, answer: str, check) -> None:
    """A student writes an answer where a stub was, and runs it and its check."""
    page.cell(stub).locator(".cm-content").fill(answer)
    page.run(answer.splitlines()[0])
    page.run_cell(check)
    page.wait_idle(120)


def dtk(*arguments: str) -> str:
    command = [sys.executable, "-m", "dtk", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
