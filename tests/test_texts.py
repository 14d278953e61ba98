"""What TensorFlow and Keras really said, in each lane, against what dtk makes of it (tools/error_texts.py caused it).

No text gets the sentence of another, and one whose decisive words are others is passed on as it is.
"""

from __future__ import annotations

import re
import socket

import error_cases
import pytest
from error_cases import CASES, kept

from dtk.compat import causes
from dtk.errors import command
from dtk.records import RunFolder
from dtk.watch import explain
from dtk.watch import watch as watching
from dtk.watch.explain import KNOWN, exit_in_words, in_one_sentence, is_chatter, lost_a_peer, mismatch
from dtk.watch.watch import Watch

KEPT = kept()
TEXTS = [
    pytest.param(name, kind, message, by_a_peer, id=f"{stem}-{name}-{number}")
    for stem, lane in KEPT.items()
    for name, texts in lane["texts"].items()
    for number, (kind, message, by_a_peer) in enumerate(texts)
]
# As public scripts raise them: docs/evidence/public_scripts.md.
LAUNCHER = (
    " is not set: the program asks Slurm, MPI or another launcher which worker it is; dtk run tells it in TF_CONFIG, "
    "which tf.distribute.MultiWorkerMirroredStrategy() reads where it has no cluster_resolver=; the worker's number is "
    "json.loads(os.environ['TF_CONFIG'])['task']['index']"
)
KERAS_2 = "; for a program of Keras 2: dtk run --keras 2, or dtk.run(..., keras=2)"
NO_STEP = "SLURM_PROCID not found in environment. Not running inside a Slurm step?"
NO_SIZE = "; if it is a batch's x.shape[0]: under a strategy that is None while the graph is made; use tf.shape(x)[0]"
HALF = "unsupported operand type(s) for //: 'NoneType' and 'int'"
NONE = "Failed to convert elements of (None, 3) to Tensor"
PUBLIC = [
    (
        "AttributeError",
        "property 'model' of 'Saves' object has no setter",
        "Saves sets its own model, as in Keras 2; rename that attribute, or run it by dtk run --keras 2",
    ),
    (
        "ValueError",
        "Cannot convert '5' to a shape.",
        "Keras 3 takes a tuple as a shape, (5,) in place of 5; or run it by dtk run --keras 2",
    ),
    (
        "ValueError",
        "A KerasTensor cannot be used as input to a TensorFlow function. A KerasTensor is a symbolic placeholder for",
        "a TensorFlow function got a symbolic input of Keras: call it inside of a layer (keras.layers.Lambda), or use "
        "keras.ops; a program of Keras 2 runs by dtk run --keras 2",
    ),
    ("KeyError", "'SLURM_NTASKS'", f"SLURM_NTASKS{LAUNCHER}"),
    ("KeyError", "'PMI_RANK'", f"PMI_RANK{LAUNCHER}"),
    ("RuntimeError", NO_STEP, f"SLURM_PROCID{LAUNCHER}"),
    (
        "ValueError",
        "There must be at least one ps.",
        "ParameterServerStrategy needs parameter servers, and dtk starts workers: use MultiWorkerMirroredStrategy()",
    ),
    (
        "AttributeError",
        "module 'keras.callbacks' has no attribute 'experimental'",
        f"this Keras has no keras.callbacks.experimental{KERAS_2}",
    ),
    (
        "ImportError",
        "cannot import name 'np_utils' from 'keras.utils' (/srv/keras/utils/__init__.py)",
        f"this Keras has no keras.utils.np_utils{KERAS_2}",
    ),
    (
        "ModuleNotFoundError",
        "No module named 'tensorflow.keras.layers.experimental'",
        f"this Keras has no tensorflow.keras.layers.experimental{KERAS_2}",
    ),
    (
        "AttributeError",
        "module 'tensorflow' has no attribute 'logging'",
        "written for TensorFlow 1 (tf.logging); https://www.tensorflow.org/guide/migrate says how it becomes 2",
    ),
    (
        "AttributeError",
        "'CollectiveAllReduceStrategy' object has no attribute 'experimental_run_v2'",
        "strategy.experimental_run_v2 is called strategy.run since TensorFlow 2.2",
    ),
    ("RuntimeError", "Mixing different tf.distribute.Strategy objects: A is not B", CASES["model made outside"].says),
    (
        "InvalidArgumentError",
        "Trying to access resource kernel/replica_1 located in device CPU:1 from device CPU:0\n Cf. "
        "https://www.tensorflow.org/xla/known_issues#tfvariable_on_a_different_device",
        "XLA can't compile a step with variables on several devices; leave jit_compile=True out",
    ),
    ("TypeError", HALF, f"{HALF}{NO_SIZE}"),
    ("TypeError", f"{NONE}. Consider casting elements to a supported type.", f"{NONE}{NO_SIZE}"),
    ("TypeError", "Expected int32, but got None of type 'NoneType'.", f"Expected int32, but got None{NO_SIZE}"),
]
MESSAGES = [message for lane in KEPT.values() for texts in lane["texts"].values() for _, message, _ in texts]
MESSAGES += [message for _, message, _ in PUBLIC]
LINES = [(stem, line) for stem, lane in KEPT.items() for line in lane["log"]]
OTHERWISE = "put in words that nobody knows yet"  # in place of what a pattern finds


def flat(message):
    return " ".join(message.split())


def sentences(message):
    """The sentences of all patterns that match, wherever they are in the table."""
    found = [(re.search(pattern, flat(message)), sentence) for pattern, sentence in KNOWN.items()]
    return [
        sentence.format(*match.groups(), **match.groupdict(), install=command("tensorboard"))
        for match, sentence in found
        if match
    ]


def taken_for(kind, message):
    """What else dtk takes an error for."""
    found = {
        "lost": lost_a_peer(kind, message),
        "different": bool(mismatch(message)),
        "port": explain.PORT_TAKEN in message,
        "heartbeat": bool(explain._NO_HEARTBEAT.search(message)),
    }
    return {what for what, is_so in found.items() if is_so}


EACH = ("name", "kind", "message", "by_a_peer")


@pytest.mark.parametrize(EACH, TEXTS)
def test_each_text_gets_its_own_sentence_and_no_others(name, kind, message, by_a_peer):
    case = CASES[name]
    said = in_one_sentence(kind, message)
    raised = "ClusterConfigError" if name.startswith("dtk's own") else kind
    assert said.startswith(f"raised {raised}: {case.says or case.own}")
    assert not case.says or said == f"raised {raised}: {case.says}"
    assert sentences(message) == ([case.says] if case.says in TABLE else [])
    assert taken_for(kind, message) - {"heartbeat", "lost"} == {*case.is_} - {"lost"}
    assert by_a_peer == ("lost" in case.is_), "TensorFlow's own mark of what comes of another error"
    assert lost_a_peer(kind, message) == by_a_peer or kind == "InvalidArgumentError"


TABLE = {sentence for message in MESSAGES for sentence in sentences(message)}
LOST = [re.compile(each, re.IGNORECASE) for each in explain._LOST_WORDS]
PATTERNS = [
    *KNOWN,
    *LOST,
    *[explain.PORT_TAKEN, explain._MISMATCH, explain._OTHER_KIND, explain._OURS, explain._NO_HEARTBEAT],
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: getattr(pattern, "pattern", pattern))
def test_each_pattern_finds_a_real_text(pattern):
    assert any(re.search(pattern, text) for message in MESSAGES for text in (message, flat(message)))


def reworded(kind, message):
    """The message with other words wherever one of dtk's patterns finds something."""
    message = flat(message)
    for pattern in PATTERNS:
        message = re.sub(pattern, OTHERWISE, message)
    return message


@pytest.mark.parametrize(EACH, [each for each in TEXTS if CASES[each.values[0]].says or each.values[0] == "port taken"])
def test_a_text_in_other_words_is_passed_on_as_it_is(name, kind, message, by_a_peer):
    other = reworded(kind, message)
    assert OTHERWISE in other
    assert (sentences(other), taken_for(kind, other)) == ([], set())
    said = in_one_sentence(kind, other).removeprefix(f"raised {kind}: ").removesuffix("...")
    assert explain._anonymous(other).removeprefix(f"{kind}: ").startswith(said)


LOST_ONE = [each for each in TEXTS if each.values[3]]


def watch_of(tmp_path, *errors):
    """Two workers that failed one after the other; None for one that was killed."""
    tmp_path.mkdir()
    folder = RunFolder(tmp_path, 2)
    watch = Watch(folder, 0.0)
    for number, error in enumerate(errors):
        folder.worker(number).path.mkdir()
        if error is None:
            watch.heard[number].exited = (-9, 2.0 + number)
        else:
            kind, message, by_a_peer = error
            folder.worker(number).save_error(kind, message, "", by_a_peer)
            watch.heard[number].failed = 2.0 + number
    return watch


def culprit(watch):
    return watching.culprit(watch.failures()).member


@pytest.mark.parametrize(EACH, LOST_ONE)
def test_who_failed_first_does_not_hang_on_the_words_of_those_who_lost_it(tmp_path, name, kind, message, by_a_peer):
    other = reworded(kind, message)
    assert culprit(watch_of(tmp_path / "as it is", (kind, message, False), None)) == int(kind in explain._LOST_BY)
    assert culprit(watch_of(tmp_path / "marked", (kind, other, True), None)) == 1
    unmarked = watch_of(tmp_path / "unmarked", (kind, other, False), None)
    assert culprit(unmarked) == int(explain.may_have_lost_a_peer(kind))


class Derived(Exception):
    """As an error of tf.errors that comes of another one."""

    def __init__(self):
        self.experimental_payloads = {b"type.googleapis.com/tensorflow.DerivedStatus": b""}


def test_the_mark_of_another_workers_failure_is_seen_behind_what_the_function_makes_of_it():
    error = ValueError("no more")
    found = [causes.by_a_peer(each) for each in (Derived(), error, BlockingIOError())]
    error.__context__ = Derived()  # raised in an `except`
    found.append(causes.by_a_peer(error))
    error.__suppress_context__ = True  # raise ... from None
    found.append(causes.by_a_peer(error))
    error.__cause__ = Derived()
    assert [*found, causes.by_a_peer(error)] == [True, False, False, True, False, True]


KINDS = sorted({each.values[1] for each in LOST_ONE} & {*explain._LOST_BY} - {"InternalError"})


@pytest.mark.parametrize("kind", KINDS)
def test_where_only_unknown_words_are_known_dtk_says_so(tmp_path, kind):
    watch = watch_of(tmp_path / "run", (kind, "an error of tomorrow", False), (kind, "another one", False))
    assert not any(failure.is_own or failure.is_consequence for failure in watch.failures())
    error = watching.error_of(watch, watching.blame_of(watch, [], 0.0, lambda: None))
    assert error.reason == "unknown"
    assert str(error) == (
        f"worker 0 raised {kind}: an error of tomorrow (these words don't tell whether it failed by itself or lost "
        "another worker)"
    )


def test_a_port_of_the_functions_own_is_none_of_the_clusters():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="Address already in use") as own:
            socket.create_server(taken.getsockname())
        assert explain.PORT_TAKEN not in str(own.value)


def test_every_case_has_a_text_in_a_lane_and_every_text_a_case():
    assert {name for lane in KEPT.values() for name, texts in lane["texts"].items() if texts} == set(CASES)
    assert {lane["lane"] for lane in KEPT.values()} == {"main", "colab", "tf215"}


@pytest.mark.parametrize(("stem", "line"), LINES)
def test_what_a_start_prints_is_recognized(stem, line):
    warned = "argument was produced by a Softmax activation" in line  # Keras's own advice, to be seen
    assert is_chatter(line) or warned or line in error_cases.NOT_CHATTER


# ---- errors of TensorFlow and Keras in a learner's words


ONE_LINE = (
    "Labels have rank 2. Please see https://www.tensorflow.org/tutorials/distribute/custom_training for more details."
)


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        *PUBLIC,
        ("KeyError", "'SMALL'", "'SMALL'"),
        ("ValueError", ONE_LINE, ONE_LINE),
        ("OSError", "no such directory: /srv/data/of/mine/x", "no such directory: .../x"),
    ],
)
def test_the_sentence_has_the_cause(kind, message, said):
    assert in_one_sentence(kind, message) == f"raised {kind}: {said}"


def test_workers_that_meet_with_different_kinds_of_values_are_in_different_collectives_whoever_says_it():
    """Which worker says which of the two is chance, so the sentence must not depend on it."""
    ((_, message, _),) = kept()["tf-2.21"]["texts"]["another type in a collective"]
    other = message.replace("data_type 1 but got type 0 and data_type 9", "data_type 9 but got type 0 and data_type 1")
    assert other != message
    assert mismatch(other) == mismatch(message) != mismatch(message, session=True) != ""


def test_a_long_message_ends_with_a_sentence_where_one_fits():
    whole = "The first sentence is long enough to stand alone, and says what has gone wrong with what. "
    said = in_one_sentence("ValueError", whole + "The second " + "goes on and on " * 30)
    assert said == f"raised ValueError: {whole.strip()}"
    assert in_one_sentence("ValueError", "x" * 400) == f"raised ValueError: {'x' * 277}..."


def test_how_a_process_ended_that_said_nothing():
    assert in_one_sentence("SystemExit", "3") == "called sys.exit(3) before it had finished"
    assert exit_in_words(4) == "ended itself with exit code 4 (os._exit?)"
    assert exit_in_words(None) == "ended before it had finished"
