"""What a silent worker's Python stack tells: stacks after those that faulthandler wrote, shortened by hand."""

from __future__ import annotations

import pytest

from dtk.watch.signs import Activity, activity, own_part

TF = "/venv/lib/python3.11/site-packages/tensorflow/python"
KERAS = "/venv/lib/python3.11/site-packages/keras/src/backend/tensorflow/trainer.py"
STDLIB = "/usr/lib/python3.11"


def dump(*frames, head="Current thread"):
    lines = [f'  File "{file}", line {line} in {function}' for file, line, function in frames]
    return "\n".join([f"{head} 0x00007ffbc1e66b80 (most recent call first):", *lines, ""])


RUNTIME = (f"{TF}/eager/execute.py", 53, "quick_execute")
OWN = ("/home/me/lesson.py", 17, "train")
MADE = ("__init__", "???", "__init__")  # Python 3.12 and later, below a class's __init__
IN_A_FUNCTION = dump(RUNTIME, (f"{TF}/eager/polymorphic_function/polymorphic_function.py", 833, "__call__"), OWN)
BY_HAND = dump(
    (f"{TF}/ops/gen_collective_ops.py", 1267, "collective_reduce_v2"),
    (f"{TF}/distribute/cross_device_utils.py", 373, "all_reduce"),
    head="Thread",
)
WAITS_FOR_A_THREAD = dump((f"{STDLIB}/threading.py", 327, "wait"), (KERAS, 506, "evaluate"), OWN)
CONNECTING = dump(
    (f"{TF}/eager/context.py", 745, "ensure_initialized"),
    (f"{TF}/distribute/collective_all_reduce_strategy.py", 187, "__init__"),
    OWN,
)
SAVING = dump(RUNTIME, (f"{TF}/checkpoint/functional_saver.py", 40, "save"), OWN)
READING = dump(
    (f"{TF}/ops/gen_dataset_ops.py", 9, "iterator_get_next"), (f"{TF}/data/ops/iterator_ops.py", 5, "f"), OWN
)
GENERATOR = dump((f"{STDLIB}/threading.py", 1, "wait"), ("/home/me/data.py", 4, "rows"), head="Thread") + IN_A_FUNCTION
CALLED_BACK = (
    dump(
        ("/v/site-packages/dtk/worker/injecting.py", 1, "f"), (f"{TF}/ops/script_ops.py", 5, "__call__"), head="Thread"
    )
    + IN_A_FUNCTION
)
KERAS_2 = Activity("operation", "evaluate", "line 17 in train")
FIT = dump(RUNTIME, (KERAS, 377, "fit"), OWN)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", Activity()),
        (IN_A_FUNCTION, Activity("operation", "", "line 17 in train")),
        (BY_HAND + "\n" + WAITS_FOR_A_THREAD, Activity("collective", "evaluate", "line 17 in train")),
        (WAITS_FOR_A_THREAD, Activity("", "evaluate", "line 17 in train")),
        (CONNECTING, Activity("connecting", "", "line 17 in train")),
        (FIT, Activity("operation", "fit", "line 17 in train")),
        (dump(RUNTIME, ("/v/site-packages/keras/src/engine/training.py", 9, "evaluate"), OWN), KERAS_2),
        (dump(RUNTIME, ("/v/site-packages/tf_keras/src/engine/training.py", 9, "evaluate"), OWN), KERAS_2),
        (SAVING, Activity("", "", "line 17 in train")),
        (READING, Activity("", "", "line 17 in train")),
        (GENERATOR, Activity("", "", "line 17 in train")),
        (CALLED_BACK, Activity("", "", "line 17 in train")),
        (dump((f"{STDLIB}/socket.py", 3, "recv"), OWN), Activity("", "", "line 17 in train")),
        (dump(OWN), Activity("", "", "line 17 in train")),
        (dump((f"{STDLIB}/x.py", 3, "f")), Activity()),
    ],
)
def test_what_a_stack_tells(text, told):
    assert activity(text) == told


@pytest.mark.trains
def test_the_frames_that_started_the_worker_are_left_out():
    from dtk.worker import worker

    below = (f"{STDLIB}/multiprocessing/process.py", 108, "run")
    text = dump(MADE, OWN, (worker.__file__, 125, "_work"), MADE, below)
    assert activity(text) == Activity("", "", "line 17 in train")
    shown = own_part(dump(OWN, head="Thread") + "\n" + text)
    assert shown.count("in train") == 2
    assert "???" not in shown
    assert "_work" not in shown
    assert "process.py" not in shown


def test_threads_that_take_no_part_are_left_out():
    pool = dump(
        (f"{STDLIB}/threading.py", 327, "wait"), (f"{STDLIB}/multiprocessing/pool.py", 114, "worker"), head="Thread"
    )
    shown = own_part("\n".join([pool, BY_HAND, pool, WAITS_FOR_A_THREAD]))
    assert "pool.py" not in shown
    assert "all_reduce" in shown, "the thread that waits for the peers"
    assert "line 17 in train" in shown
    assert own_part(dump((f"{STDLIB}/x.py", 3, "f"))).count("x.py") == 1, "the main thread stays, whatever it does"
