"""The question bank: read strictly, and as Moodle reads it; dtk computes its answers; its package is QTI."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import gift
import numpy as np
import pytest
import questions as tool
from lessons import ORDER

from dtk.course.check import all_exercises
from dtk.course.exercise import same
from dtk.model import Cluster, Job, Link, ethernet, predict
from dtk.scaling import shares as scaling

BANK = Path(__file__).parent.parent / "docs" / "teaching" / "questions.gift"
TEXT = BANK.read_text(encoding="utf-8")
QUESTIONS = gift.read(TEXT)
BY_NUMBER = {question.title.partition(" ")[0]: question for question in QUESTIONS}
COMPUTED = [question for question in QUESTIONS if re.match(r"\d\d\.", question.comment)]

CHOICE = "::00.1 A title::[markdown]Which? {\n\t=This#Right.\n\t~That#No.\n\t~Those#No.\n}"
NUMBER = "::00.2 Another::[markdown]How many? {#\n\t=1.5:0.01#Right.\n\t=%0%3:0.01#Twice.\n\t~#Count.\n}"


def bank(*blocks):
    return "\n\n".join(["$CATEGORY: dtk/00_start_here", *blocks]) + "\n"


def test_the_bank_has_sixty_questions_and_three_of_each_lesson():
    assert len(QUESTIONS) >= 60
    assert {question.category for question in QUESTIONS} == set(ORDER)
    for lesson in ORDER:
        mine = [question.title for question in QUESTIONS if question.category == lesson]
        assert len(mine) >= 3, lesson
        assert [title.split(" ")[0] for title in mine] == [f"{lesson[:2]}.{k}" for k in range(1, len(mine) + 1)]
    assert sum(question.numerical for question in QUESTIONS) >= 20
    assert all(len(answer.feedback) > 12 for question in QUESTIONS for answer in question.answers)


def test_the_right_choice_is_not_always_the_same():
    places = [question.answers.index(question.right) for question in QUESTIONS if not question.numerical]
    assert max(map(places.count, {0, 1, 2})) < 0.6 * len(places)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (CHOICE.replace("Which?", "Which = ?"), "no question"),
        (CHOICE.replace("Which?", "Which {one}?"), "no question"),
        (CHOICE.replace("[markdown]", ""), "no question"),
        (CHOICE.replace("::[", ":["), "no question"),
        (CHOICE.replace("No.\n\t~Those", "No: never.\n\t~Those"), "feedback"),
        (CHOICE.replace("#Right.", ""), "feedback"),
        (CHOICE.replace("~Those#No.", "~Those#"), "feedback"),
        (CHOICE.replace("~That", "=That"), "2 of 3 answers are right"),
        (CHOICE.replace("=This", "~This"), "0 of 3 answers are right"),
        (CHOICE.replace("\t~That#No.\n", ""), "1 of 2 answers"),
        (CHOICE.replace("~That", "~This"), "different choices"),
        (NUMBER.replace(":0.01#Right", "#Right"), "tolerance"),
        (NUMBER.replace("1.5:", "1,5:"), "a number with a tolerance"),
        (NUMBER.replace("\t~#Count.\n", ""), "end numbers"),
        (NUMBER.replace("%0%", ""), "2 of 2 answers are right"),
    ],
)
def test_what_is_not_written_as_the_format_asks_is_refused(block, said):
    assert [question.numerical for question in gift.read(bank(CHOICE, NUMBER))] == [False, True]
    with pytest.raises(ValueError, match=said):
        gift.read(bank(block))


def test_a_title_twice_and_a_question_of_no_lesson_are_refused():
    with pytest.raises(ValueError, match="one title"):
        gift.read(bank(CHOICE, CHOICE))
    with pytest.raises(ValueError, match="line 1: no question"):
        gift.read(CHOICE)


def test_escapes_are_undone():
    (question,) = gift.read(
        bank(CHOICE.replace("Which?", r"Is \{a\: 1\} \= b \~ \#c\\d?\nOne line.".replace(r"\n", "\n")))
    )
    assert question.text == r"Is {a: 1} = b ~ #c\d? One line."


def as_moodle(block):
    """(title, text, [(right, text, tolerance, feedback)]) by the steps of Moodle's importer, question/format/gift."""
    hidden = re.sub(r"\\([~=#{}:\\])", lambda found: chr(0xE000 + ord(found[1])), block)

    def shown(text):
        return re.sub(r"[\ue000-\uf000]", lambda found: chr(ord(found[0]) - 0xE000), text).strip()

    _, title, rest = hidden.split("::", 2)
    start, end = rest.index("{"), rest.index("}")
    assert end == len(rest) - 1, "text after the answers makes a gap to fill in"
    inside, answers = rest[start + 1 : end].strip(), []
    if inside.startswith("#"):
        numbers, _, others = inside[1:].partition("~")
        for part in filter(None, map(str.strip, numbers.split("="))):
            value, feedback = part.removeprefix("%0%").split("#", 1)
            number, tolerance = value.split(":")
            answers.append((not part.startswith("%"), number, float(tolerance), shown(feedback)))
        answers.append((False, "", None, shown(others.split("#", 1)[1])))
    else:
        for part in filter(None, map(str.strip, inside.replace("=", "~=").split("~"))):
            text, feedback = part.split("#", 1)
            answers.append((part.startswith("="), shown(text.removeprefix("=")), None, shown(feedback)))
    return shown(title), shown(rest[:start].removeprefix("[markdown]")), answers


def test_moodle_reads_what_is_meant():
    lines = re.sub(r"^//.*\n", "", TEXT, flags=re.MULTILINE)
    blocks = [block for block in re.split(r"\n{2,}", lines.strip()) if not block.startswith("$CATEGORY:")]
    assert len(blocks) == len(QUESTIONS)
    for block, question in zip(blocks, QUESTIONS, strict=True):
        title, text, answers = as_moodle(block)
        assert (title, text.replace("\n", " ")) == (question.title, question.text)
        assert answers == [(each.right, each.text, each.tolerance, each.feedback) for each in question.answers]


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.numerical], ids=lambda each: each.title[:4])
def test_no_number_is_right_and_wrong(question):
    """Moodle takes the first answer in whose range a number is."""
    ranges = [(float(each.text), each.tolerance) for each in question.answers if each.text]
    for at, (one, about) in enumerate(ranges):
        assert about <= max(0.01, 0.02 * abs(one))
        assert all(abs(one - other) > about + near for other, near in ranges[at + 1 :]), question.title


@pytest.mark.parametrize("question", COMPUTED, ids=lambda question: question.title.partition(" ")[0])
def test_the_exercise_computes_what_is_right_and_its_misconceptions_what_is_wrong(question):
    name, case = re.fullmatch(r"([\w.]+)\((.*)\)", question.comment).groups()
    exercise, values = all_exercises(name.split(".")[0])[name], eval(f"({case},)", {"array": np.array})
    right, wrong = (
        exercise.tried(exercise.right, values),
        [exercise.tried(each.answer, values) for each in exercise.wrong],
    )
    for answer in question.answers:
        if question.numerical and answer.text:
            made = [right] if answer.right else [each for each in wrong if np.isscalar(each)]
            assert any(abs(float(answer.text) - each) <= answer.tolerance for each in made), (answer.text, made)
        elif not question.numerical:
            said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", answer.text)]
            assert same(said, [*np.ravel(right)], 1e-2) == answer.right, answer.text


LINK = Link("made up", latency=50e-6, bandwidth=1e9)
OTHERWISE = {
    "00.2": scaling.share([3, 5, 4], global_batch=8),
    "00.3": scaling.weighted_loss([[2 / 2, 5 / 2]], [[3, 1]])[0],
    "01.2": Cluster(LINK).all_reduce(5, 1000).bytes,
    "01.3": 6 * Cluster(LINK).all_reduce(6, 1000).steps,
    "02.2": scaling.share([4, 1], global_batch=8, sample_weight=[0.5, 2]),
    "02.5": scaling.mean_metric([1.25, 2.25]),
    "04.3": scaling.global_loss([[3 / 2, 1 / 2]])[0],
    "05.2": scaling.global_loss([[1.25, 2.25], [1.0, 2.0]]).mean(),
    "09.3": predict(Job(0.8 / 64, 64, 1e8), Cluster(LINK), [4], "strong").seconds[0],
    "12.2": Cluster(Link("1 Gb/s", latency=0.0, bandwidth=ethernet(1).bandwidth)).all_reduce(4, 100e6).seconds,
}


@pytest.mark.parametrize("number", OTHERWISE)
def test_dtk_computes_the_same_number(number):
    answer = BY_NUMBER[number].right
    assert float(answer.text) == pytest.approx(OTHERWISE[number], abs=answer.tolerance + 1e-12)


def test_the_two_nodes_wait_for_their_cable_as_lesson_12_computes():
    seconds = predict(Job(1 / 16, 16, 3e9), Cluster(ethernet(1)), [2]).seconds[0]
    assert BY_NUMBER["12.1"].right.text == f"About {seconds:.0f} s"


# ---- QTI 1.2: what an element may hold, in which order, from its DTD (ims_qtiasiv1p2p1), as far as the bank uses it

HOLDS = {
    "questestinterop": "assessment",
    "assessment": "(section )+",
    "section": "(item )+",
    "item": "itemmetadata presentation resprocessing (itemfeedback )+",
    "itemmetadata": "qtimetadata",
    "qtimetadata": "(qtimetadatafield )+",
    "qtimetadatafield": "fieldlabel fieldentry",
    "presentation": "material (response_lid|response_str)",
    "material": "mattext",
    "response_lid": "render_choice",
    "response_str": "render_fib",
    "render_choice": "(response_label )+",
    "render_fib": "response_label",
    "response_label": "(material)?",
    "resprocessing": "outcomes (respcondition )+",
    "outcomes": "decvar",
    "respcondition": "conditionvar (setvar )?displayfeedback",
    "conditionvar": "varequal|or|other",
    "or": "varequal and",
    "and": "vargte varlte",
    "itemfeedback": "flow_mat",
    "flow_mat": "material",
}
NEEDS = {
    "assessment": {"ident", "title"},
    "section": {"ident"},
    "item": {"ident", "title"},
    "response_lid": {"ident", "rcardinality"},
    "response_str": {"ident", "rcardinality"},
    "response_label": {"ident"},
    "varequal": {"respident"},
    "vargte": {"respident"},
    "varlte": {"respident"},
    "displayfeedback": {"feedbacktype", "linkrefid"},
    "itemfeedback": {"ident"},
}


def kind(element):
    return element.tag.rpartition("}")[2]


def test_the_package_has_the_structure_of_qti(tmp_path):
    files = tool.package(QUESTIONS)
    manifest = ET.fromstring(files.pop("imsmanifest.xml"))
    assert [kind(each) for each in manifest] == ["metadata", "organizations", "resources"]
    assert [each.get("href") for each in manifest.iter(f"{{{tool.CONTENT}}}file")] == list(files)
    assert {name.removesuffix(".xml") for name in files} == set(ORDER)
    items = []
    for content in files.values():
        root = ET.fromstring(content)
        for element in root.iter():
            held = " ".join(map(kind, element))
            allowed = HOLDS.get(kind(element), "")
            assert re.fullmatch(allowed, held) or re.fullmatch(allowed, f"{held} "), f"{kind(element)}: {held}"
            assert set(element.attrib) >= NEEDS.get(kind(element), set()), kind(element)
        items += root.iter(f"{{{tool.QTI}}}item")
    assert [item.get("title") for item in items] == [question.title for question in QUESTIONS]
    assert len({item.get("ident") for item in items}) == len(QUESTIONS)
    for item, question in zip(items, QUESTIONS, strict=True):
        named = {each.get("linkrefid") for each in item.iter(f"{{{tool.QTI}}}displayfeedback")}
        assert named == {each.get("ident") for each in item.iter(f"{{{tool.QTI}}}itemfeedback")}
        (scored,) = [
            each for each in item.iter(f"{{{tool.QTI}}}respcondition") if each.find(f"{{{tool.QTI}}}setvar") is not None
        ]
        right = scored.find(f".//{{{tool.QTI}}}varequal").text
        assert right == (
            question.right.text if question.numerical else f"answer{question.answers.index(question.right)}"
        )


def test_two_builds_are_equal_to_the_byte(tmp_path):
    for name in ("one.zip", "two.zip"):
        assert tool.main([str(BANK), str(tmp_path / name)]) == 0
    made = [(tmp_path / name).read_bytes() for name in ("one.zip", "two.zip")]
    assert made[0] == made[1]
    with zipfile.ZipFile(io.BytesIO(made[0])) as package:
        assert package.testzip() is None
        assert package.namelist()[0] == "imsmanifest.xml"


def test_code_and_signs_are_marked_up():
    (question,) = gift.read(bank(CHOICE.replace("Which?", r"Is `a < b` & c?")))
    shown = ET.fromstring(tool.package([question])["00_start_here.xml"]).find(f".//{{{tool.QTI}}}mattext").text
    assert shown == "Is <code>a &lt; b</code> &amp; c?"
