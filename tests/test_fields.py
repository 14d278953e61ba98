"""No behaviour by wording: a failure has fields, its sentence is made from them, and no code reads the sentence."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest

from dtk import errors
from dtk.proof.mistakes import MISTAKES, Diagnosis, either, found
from dtk.worker.ring import RingBroken

DTK = Path(errors.__file__).parent
CUTS = {"partition", "rpartition", "split", "splitlines", "startswith", "endswith", "removeprefix", "removesuffix"}
CUTS |= {"search", "match", "fullmatch", "findall", "sub", "index", "find"}
# Where another library's exceptions are recognised by their text, with its versions beside it.
OTHERS = {"compat/causes.py", "compat/keras/keras3.py", "datasets.py", "places/ray.py"}


def sentence(node: ast.AST) -> bool:
    """Whether an expression is the text of an error, a diagnosis or a state: str(error), x.sentence, x.words()."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "words"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        words = ast.unparse(node.args[0])
        return any(name in words for name in ("error", "fail", "diagnosis", "caught"))
    return isinstance(node, ast.Attribute) and node.attr == "sentence"


def readers(code: str) -> list[int]:
    """Lines that cut a sentence, or look for words in it."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CUTS:
            read = [node.func.value, *node.args]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            read = node.comparators
        else:
            continue
        lines += [node.lineno] if any(map(sentence, read)) else []
    return lines


def test_no_code_reads_a_sentence():
    found = {
        name: lines
        for path in sorted(DTK.rglob("*.py"))
        if (name := path.relative_to(DTK).as_posix()) not in OTHERS
        and (lines := readers(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        'str(case.failed).partition(";")[0]',
        'told.sentence.partition("; ")',
        '"nothing recorded" not in str(case.failed)',
        're.sub(r" for [0-9]+ s$", "", state.words())',
        'state.words().startswith("step")',
    ],
)
def test_the_test_finds_what_reads_a_sentence(code):
    assert readers(f"\n{code}") == [2]


def test_a_message_is_its_parts():
    error = errors.VerificationError("they differ", 3, "loss", remedy="look", numbers={"run": 2.0})
    assert (str(error), error.what, error.remedy) == ("they differ; look", "they differ", "look")
    assert error.numbers == {"run": 2.0}
    assert str(errors.ClusterConfigError("workers=0")) == "workers=0"
    named = error.of_loss("g")
    assert (str(named), named.loss, named.step, named.numbers) == ("g: they differ; look", "g", 3, {"run": 2.0})


@pytest.mark.parametrize(
    "error",
    [
        errors.ClusterConfigError("workers=0", remedy="take 1"),
        errors.DatasetUnavailable("no mnist", remedy="download it"),
        errors.VerificationError("they differ", 3, "loss", remedy="look", numbers={"run": 2.0}),
        errors.WorkerFailed("worker 1 raised", worker=1, exitcode=1, traceback="text", reason="lost"),
        errors.WorkerStalled("nothing", None, "stacks", "uneven", [(0, 1)], numbers={"seconds": 5.0}),
        errors.RunTimeout("too long", numbers={"timeout": 3.0}),
        RingBroken("worker 1 has left the ring", by_a_peer=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_with_their_fields(error):
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_a_diagnosis_is_its_parts():
    named = found("learning rate", "they differ", "a test", also=("clipping",))
    assert named.sentence == f"they differ; {MISTAKES['learning rate'].remedy} (the same is seen with: clipping)"
    assert (named.what, named.remedy, named.also) == ("they differ", MISTAKES["learning rate"].remedy, ("clipping",))
    suspects = either("they differ", ["order", "other data"], "a test")
    assert (suspects.sentence, suspects.also) == (suspects.what, ("order", "other data"))
    assert str(Diagnosis("none", "they agree")) == "they agree"
