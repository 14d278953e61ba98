"""The lessons' lint: a made-up lesson that breaks a rule is reported with it. `make lint` reads the real ones."""

from __future__ import annotations

import heads
import lint_notebooks as tool
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

NAME = "01_made_up.ipynb"
RULES = {rule.__name__: rule for rule in tool.RULES}


def code(source, *outputs, tags=(), **metadata):
    return new_code_cell(source, outputs=list(outputs), metadata={**({"tags": list(tags)} if tags else {}), **metadata})


def printed(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def shown(**data):
    return new_output("display_data", data={kind.replace("_", "/", 1): text for kind, text in data.items()})


def picture(words):
    return shown(image_png="AAAA", text_plain=words)


def check(number):
    failed = new_output("error", ename="AssertionError", evalue="2, not 3", traceback=["line 1"])
    return code(f"assert answer_{number} == 3", failed, tags=["raises-exception", "check"])


def lesson(*cells):
    """A lesson that keeps to all rules, with these cells at its end and its code cells counted."""
    proof = code("dtk.verify(run, baseline)", printed("check replicas agree: PASS (40 steps)\n"))
    more = [code(f"number = {k}") for k in range(4)]
    start = [new_markdown_cell("# Made up\n\n**Goal.** None."), proof, *more, check(1), check(2)]
    notebook = new_notebook(cells=[*start, *cells])
    heads.write_heads(notebook, NAME)
    return counted(notebook)


def counted(notebook):
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell["execution_count"] = count
    return notebook


def changed(change):
    """A lesson after `change`, a function of the notebook."""
    notebook = lesson()
    change(notebook)
    return notebook


def without(part):
    """A lesson without the cells in whose code `part` stands."""
    notebook = lesson()
    notebook.cells = [cell for cell in notebook.cells if part not in cell.source]
    return counted(notebook)


def with_badge_of(other):
    return changed(lambda it: it.cells[0].update(source=it.cells[0].source.replace(NAME, other)))


def long(lines, head="def helper(x):"):
    return lesson(code("\n".join([head, *(f"    x = {k}" for k in range(lines - 1))])))


def widget(**more):
    named = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "Run(workers=2, steps=40)"}
    return code("x", new_output("display_data", data={**named, **more}))


SOLVED = "<details>\n<!-- ### BEGIN SOLUTION -->\n`x`\n<!-- ### END SOLUTION -->\n</details>"
IGNORE, REASON = ["nbval-ignore-output"], {"dtk": {"ignored_because": "it prints measured seconds"}}

BROKEN = [
    ("counts", lambda: changed(lambda it: it.cells[-1].update(execution_count=12)), "12], not 1 to 8"),
    ("nothing_skipped", lambda: lesson(code("1 / 0", tags=["nbval-skip"])), "skipped by nbval-skip"),
    ("few_ignored", lambda: lesson(*(code("s()", tags=IGNORE, **REASON) for _ in range(3))), "3 of 11 code cells"),
    ("ignored_for_a_reason", lambda: lesson(code("seconds()", tags=IGNORE)), "does not say why"),
    ("checks_compared", lambda: without("answer_2"), "1 cells tagged `check`"),
    ("something_passes", lambda: without("dtk.verify"), "nothing is proved"),
    ("no_semicolon", lambda: lesson(code("dtk.plot.fan(run);")), "ends in a semicolon"),
    ("no_absolute_path", lambda: lesson(code("x", printed("wrote /tmp/dtk-1/model\n"))), "an output of cell"),
    ("no_stderr", lambda: lesson(code("x", printed("I0000 oneDNN is on", name="stderr"))), "I0000 oneDNN is on"),
    ("badge_is_its_own", lambda: with_badge_of("02_other.ipynb"), f"does not open notebooks/{NAME}"),
    ("setup_first", lambda: without("find_spec"), "not the lessons' set-up cell"),
    ("setup_first", lambda: lesson(code("%pip install keras")), "only the set-up cell may"),
    ("short_cells", lambda: long(13), "has 13 lines; at most 12"),
    ("short_cells", lambda: long(31, "def train(strategy):"), "has 31 lines; at most 30"),
    ("solutions_apart", lambda: lesson(new_markdown_cell(f"{SOLVED}\n\n## Next")), "in a cell of its own"),
    ("solutions_apart", lambda: lesson(code("dtk.report()"), new_markdown_cell(SOLVED)), "after dtk.report()"),
    ("sections_begin_with_words", lambda: lesson(new_markdown_cell("## How\n\n| a | b |")), "'How' begins without"),
    ("one_title", lambda: lesson(new_markdown_cell("# Another")), "2 headings"),
    ("pictures_in_words", lambda: lesson(code("x", picture("<Figure size 700x360 with 1 Axes>"))), "says nothing"),
    ("pictures_in_words", lambda: lesson(new_markdown_cell("![](ring.png)")), "no text alternative"),
    ("widgets_have_a_still", lambda: lesson(widget()), "shows nothing"),
]


@pytest.mark.parametrize(("rule", "broken", "said"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_lesson_that_breaks_a_rule_is_told_so(rule, broken, said):
    (sentence,) = RULES[rule](broken(), NAME)
    assert said in sentence


def test_a_lesson_that_keeps_to_all_rules_is_told_nothing():
    assert tool.lint(lesson(), NAME) == []
