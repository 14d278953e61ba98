"""The question bank as a package of QTI 1.2: `python tools/questions.py docs/teaching/questions.gift OUT.zip`.

It has an assessment for each lesson, as Canvas, Blackboard and Ilias import it. A wrong number's own feedback stays
behind, and the one for all wrong numbers is there: Canvas takes each range of numbers for a right answer. Two builds
are equal to the byte.
"""

from __future__ import annotations

import argparse
import html
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from gift import Question, read

__all__ = ["main", "package"]

QTI, CONTENT = "http://www.imsglobal.org/xsd/ims_qtiasiv1p2", "http://www.imsglobal.org/xsd/imscp_v1p1"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip notes a time for each file


def _add(parent: ET.Element, path: str, text: str | None = None, **attributes: str) -> ET.Element:
    """The last of the elements of `path`, made one inside the other; text and attributes are its own."""
    for name in path.split("/"):
        parent = ET.SubElement(parent, name)
    parent.attrib.update(attributes)
    parent.text = text
    return parent


def _material(parent: ET.Element, path: str, text: str) -> None:
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    _add(parent, f"{path}/mattext", shown, texttype="text/html")


def _item(section: ET.Element, question: Question, name: str) -> None:
    item = _add(section, "item", ident=name, title=question.title)
    fields = _add(item, "itemmetadata/qtimetadata")
    kind = "numerical_question" if question.numerical else "multiple_choice_question"
    for label, entry in (("question_type", kind), ("points_possible", "1")):
        field = _add(fields, "qtimetadatafield")
        _add(field, "fieldlabel", label)
        _add(field, "fieldentry", entry)
    shown = _add(item, "presentation")
    _material(shown, "material", question.text)
    scores = _add(item, "resprocessing")
    _add(scores, "outcomes/decvar", maxvalue="100", minvalue="0", varname="SCORE", vartype="Decimal")
    (_numbers if question.numerical else _choices)(question, shown, scores)
    for at, answer in enumerate(question.answers):
        if not question.numerical or answer.right or not answer.text:
            _material(_add(item, "itemfeedback", ident=f"answer{at}_fb"), "flow_mat/material", answer.feedback)


def _said(scores: ET.Element, at: int, right: bool) -> ET.Element:
    """A condition's element, after which its answer's feedback and, where it is right, the score are given."""
    condition = _add(scores, "respcondition", **{"continue": "No" if right else "Yes"})
    asked = _add(condition, "conditionvar")
    if right:
        _add(condition, "setvar", "100", action="Set", varname="SCORE")
    _add(condition, "displayfeedback", feedbacktype="Response", linkrefid=f"answer{at}_fb")
    return asked


def _choices(question: Question, shown: ET.Element, scores: ET.Element) -> None:
    choices = _add(_add(shown, "response_lid", ident="response1", rcardinality="Single"), "render_choice")
    for at, answer in enumerate(question.answers):
        _material(_add(choices, "response_label", ident=f"answer{at}"), "material", answer.text)
        _add(_said(scores, at, answer.right), "varequal", f"answer{at}", respident="response1")


def _numbers(question: Question, shown: ET.Element, scores: ET.Element) -> None:
    asked = _add(shown, "response_str", ident="response1", rcardinality="Single")
    _add(_add(asked, "render_fib", fibtype="Decimal"), "response_label", ident="answer1")
    right, value = question.answers.index(question.right), float(question.right.text)
    tolerance = question.right.tolerance or 0.0
    either = _add(_said(scores, right, True), "or")
    _add(either, "varequal", question.right.text, respident="response1")
    both = _add(either, "and")
    _add(both, "vargte", f"{value - tolerance:.9g}", respident="response1")
    _add(both, "varlte", f"{value + tolerance:.9g}", respident="response1")
    _add(_said(scores, len(question.answers) - 1, False), "other")


def package(questions: Sequence[Question]) -> dict[str, bytes]:
    """The files of the package by name: a manifest, and an assessment for each lesson."""
    manifest = ET.Element("manifest", {"identifier": "dtk", "xmlns": CONTENT})
    about = _add(manifest, "metadata")
    _add(about, "schema", "IMS Content")
    _add(about, "schemaversion", "1.1.3")
    _add(manifest, "organizations")
    resources, files = _add(manifest, "resources"), {}
    for category in dict.fromkeys(question.category for question in questions):
        root = ET.Element("questestinterop", {"xmlns": QTI})
        section = _add(
            _add(root, "assessment", ident=f"dtk_{category}", title=f"dtk {category}"), "section", ident="root_section"
        )
        for question in questions:
            if question.category == category:
                _item(section, question, f"dtk_{question.title.partition(' ')[0].replace('.', '_')}")
        files[f"{category}.xml"] = ET.tostring(root, "utf-8", xml_declaration=True)
        resource = _add(resources, "resource", identifier=f"dtk_{category}", type="imsqti_xmlv1p2")
        _add(resource, "file", href=f"{category}.xml")
    return {"imsmanifest.xml": ET.tostring(manifest, "utf-8", xml_declaration=True), **files}


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the package."""
    parser = argparse.ArgumentParser(description="Makes a QTI 1.2 package of the question bank.")
    parser.add_argument("bank", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(argv)
    files = package(read(options.bank.read_text(encoding="utf-8")))
    with zipfile.ZipFile(options.out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), content, zipfile.ZIP_DEFLATED)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
