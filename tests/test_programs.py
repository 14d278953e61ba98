"""Programs that know nothing of dtk, run by it: found and compiled first, then trained, recorded, proved, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import dtk
from dtk import cli, environment
from dtk.errors import ClusterConfigError, WorkerFailed
from dtk.launch import request
from dtk.launch.program import Program
from dtk.launch.request import program_environment
from dtk.runs import opened

# As multi_worker_with_keras has it: the global batch from the number of workers in TF_CONFIG, no Recorder anywhere.
TRAIN = """
import argparse, json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

flags = argparse.ArgumentParser()
flags.add_argument("--epochs", type=int, default=1)
flags.add_argument("--policy", default="AUTO")
epochs, policy = vars(flags.parse_args()).values()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
batch = 8 * len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
draw = np.random.default_rng(0)
data = tf.data.Dataset.from_tensor_slices((draw.normal(size=(64, 4)), draw.normal(size=(64, 1)))).batch(batch)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
if __name__ == "__main__":
    model.fit(data.with_options(options), epochs=epochs, verbose=0)
    print("trained on batches of", batch)
"""


# A loop that records nothing, its model built in the first call of its step.
LOOP = """
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
batch = {batch}
draw = np.random.default_rng(0)
x, y = (draw.normal(size=(192, size)).astype("float32") for size in (8, 1))
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "relu"), {layer} tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam()

@tf.function
def train_step(given):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.reduce_sum((model(x, training=True) - y) ** 2, -1)) / {divisor}
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    strategy.run(step, args=given)

for each in strategy.experimental_distribute_dataset(data):
    train_step(each)
"""

LIVE = {**os.environ, "DTK_LIVE": "text"}  # the lessons' tests switch it off in this process


@pytest.fixture
def here(capsys, monkeypatch):
    """Run `dtk run` in this process."""
    monkeypatch.setenv("DTK_LIVE", "text")

    def dtk_run(*options):
        capsys.readouterr()
        code = cli.main(["run", *map(str, options)])
        return code, *capsys.readouterr()

    yield dtk_run
    os.environ.pop("DTK_STATES", None)  # which --verify sets


@pytest.fixture
def forked(monkeypatch):
    """Fork a program's workers, for tests of what it computes: so each need not import TensorFlow."""
    monkeypatch.setattr(request, "fork", lambda start, fn=None: environment.forks())


@pytest.fixture
def script(tmp_path):
    def write(source, name="train.py"):
        (tmp_path / name).write_text(source)
        return tmp_path / name

    return write


# ---- before anything starts


@pytest.mark.parametrize(
    ("given", "argv", "said"),
    [
        ("missing.py", [], "missing.py is neither a file, looked for from"),
        (".", [], "is neither a file, looked for from"),
        ("no_such_package.train", [], "nor a module that can be imported here"),
        ("train.py", "--epochs", "takes a list of strings"),
    ],
)
def test_what_is_no_program_is_refused(given, argv, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterConfigError, match=said):
        dtk.run(given, argv=argv)


def test_a_program_that_can_not_be_compiled_is_refused(script):
    with pytest.raises(ClusterConfigError, match=r"train.py is no Python program as it stands: .*line 2"):
        dtk.run(script("import os\nif True print(1)\n"))
    with pytest.raises(ClusterConfigError, match="no Python program"):
        dtk.run(script("x = 1\0"))


def test_arguments_of_a_function_and_of_a_program_are_not_mixed(script):
    with pytest.raises(ClusterConfigError, match=r"argv=\['--epochs'\] is for a program"):
        dtk.run(print, argv=["--epochs"])
    with pytest.raises(ClusterConfigError, match=r"is a program; it takes argv=\[...\]"):
        dtk.run(script("pass"), kwargs={"epochs": 1})


def test_a_baseline_is_given_the_clusters_numbers_and_no_cluster_for_estimator(script):
    (env,) = program_environment(Program("train", module=True), record=True, baseline_of=3).values()
    assert len(json.loads(env)["cluster"]["worker"]) == 3
    assert program_environment(Program(str(script("tf.estimator")), module=False), record=True, baseline_of=3) == {}
    assert program_environment(print, record=False, baseline_of=3) == {}


def test_marks_are_written_only_where_something_is_recorded(script, monkeypatch):
    program, records = Program("train", module=True), Program(str(script("import dtk")), module=False)
    assert program_environment(program, record=False) == {"DTK_MARKS": "0", "DTK_STATES": "0"}
    assert program_environment(program, record=True) == {}
    assert program_environment(records, record=False) == {}
    monkeypatch.setenv("DTK_MARKS", "1")
    assert program_environment(program, record=False) == {"DTK_MARKS": "1", "DTK_STATES": "0"}


# ---- on workers


@pytest.mark.trains
def test_a_program_is_recorded_proved_and_told_as_it_stands(script, here):
    code, said, _ = here(script(TRAIN), "--verify", "--", "--epochs", "2")
    assert (code, "[worker 0-1] trained on batches of 16" in said) == (0, True)  # once, of both
    assert "8 steps in 2 epochs, global batch 16" in said
    assert "check updates: PASS (8 of 8 updates recorded, 1 model)" in said
    assert "check every step vs one device: PASS" in said


@pytest.mark.slow  # --verify that passes is above
def test_a_mistake_of_a_program_is_named_and_the_code_is_1(script, here, tmp_path):
    page = tmp_path / "page.html"
    code, said, rest = here(script(TRAIN), "--verify", "--json", "--report", page, "--", "--policy", "OFF")
    found = json.loads(said)  # stdout has nothing else
    assert (code, found["exit_code"], found["verified"]) == (1, 1, False)
    assert (found["steps"], found["global_batch"], [each["steps"] for each in found["members"]]) == (4, 16, [4, 4])
    assert "FAIL: " in rest
    assert "diagnosis: " in rest
    assert "sharding" in rest
    assert "Against one device" in page.read_text()
    assert "<figure " in page.read_text()


LAST = LOOP[LOOP.index("for each") :]
EPOCHS = """@tf.function
def epoch(data):
    for each in data: train_step(each)
for _ in range(3): epoch(strategy.experimental_distribute_dataset(data))
"""
ENDS = """several = tf.function(lambda data: [train_step(next(data)) for _ in range(4)])
for each in 2 * [strategy.experimental_distribute_dataset(data)]:
    given = iter(each)
    try: several(given), several(given)
    except tf.errors.OutOfRangeError: pass
"""
BY_HAND = """import json, os
cluster = json.loads(os.environ["TF_CONFIG"])
workers, index = len(cluster["cluster"]["worker"]), cluster["task"]["index"]
part = data.unbatch().shard(workers, index).batch(batch // workers)
for each in strategy.distribute_datasets_from_function(lambda _: part): train_step(each)
"""
NOT_SHARDED = BY_HAND.replace(".shard(workers, index)", "")
SHUFFLED = """def part(context):
    own = data.unbatch().shard(context.num_input_pipelines, context.input_pipeline_id).shuffle(192)
    return own.batch(batch // context.num_input_pipelines)
for each in strategy.distribute_datasets_from_function(part): train_step(each)
"""
FILES = """import tempfile
folder = tempfile.mkdtemp()
for part in range(0, 192, 48): tf.io.write_file(f"{folder}/{part:03}", "\\n".join(map(str, range(part, part + 48))))
def read(files):
    lines = tf.data.Dataset.list_files(folder + files).interleave(tf.data.TextLineDataset).shuffle(192).batch(batch)
    return lines.map(lambda some: tuple(tf.gather(each, tf.strings.to_number(some, tf.int32)) for each in (x, y)))
data = read("/*")
for each in data: pass  # as adapt does
"""
MEASURED = """measure = tf.function(lambda given: strategy.run(lambda x, y: model(x), args=given))
for each in strategy.experimental_distribute_dataset(read("/0*")): measure(each)  # of three files
"""
RESUMES = f"""folder = __file__ + str(strategy.cluster_resolver.task_id)
saved = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), folder, max_to_keep=1)
saved.restore_or_initialize()
{LAST}saved.save()
"""
GROWS = "16 * strategy.num_replicas_in_sync"
DROPS = "tf.keras.layers.Dropout(0.3),"


@pytest.mark.trains
@pytest.mark.parametrize(
    ("batch", "divisor", "layer", "last", "verdict"),
    [
        pytest.param("32", "batch", DROPS, LAST, "replicas", marks=pytest.mark.slow),
        pytest.param("32", "batch", "tf.keras.layers.BatchNormalization(),", LAST, "replicas", marks=pytest.mark.slow),
        pytest.param("32", "batch", DROPS, SHUFFLED, "replicas", marks=pytest.mark.slow),
        pytest.param("32", "batch", DROPS, FILES + LAST + MEASURED + LAST, "replicas", marks=pytest.mark.slow),
        ("32", "batch", "", BY_HAND, "one device"),
        ("32", "batch", "", RESUMES, "one device"),
        ("32", "batch", "", ENDS, "one device"),  # in the middle of a call
        ("32", "batch", "", LAST + "if not strategy.extended._in_multi_worker_mode(): train_step(each)", "failed"),
        pytest.param("32", "(batch // strategy.num_replicas_in_sync)", "", LAST, "failed", marks=pytest.mark.slow),
        pytest.param("32", "batch", "", NOT_SHARDED, "failed", marks=pytest.mark.slow),
        (GROWS, "batch", "", FILES + 2 * SHUFFLED.replace("batch // context.num_input_pipelines", "16"), "replicas"),
        pytest.param(GROWS, "batch", "", LAST, "replicas", marks=pytest.mark.slow),
        (GROWS, "16", "", LAST, "failed"),  # which does not grow with the batch
        (GROWS, "batch", "", EPOCHS, "replicas"),  # one device makes other numbers of updates in a call
        pytest.param(GROWS, "16", "", EPOCHS, "failed", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("forked")
def test_a_loop_that_records_nothing_is_proved_by_its_states(script, here, batch, divisor, layer, last, verdict):
    program = LOOP.format(batch=batch, divisor=divisor, layer=layer).replace(LAST, last)
    assert json.loads(here("--workers=2", "--verify", "--json", script(program))[1])["verdict"] == verdict


TAKE = "gradients = tape.gradient(loss, model.trainable_variables)"
OFF = """.batch(batch)
off = tf.data.Options()
off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = data.with_options(off)"""
HERE = "tf.distribute.get_replica_context()"
AVERAGED = f"[g / {HERE}.num_replicas_in_sync for g in {HERE}.all_reduce('MEAN', gradients)]"
MEAN = "/ tf.cast(tf.shape(x)[0], x.dtype)"
SHARE = f"/ batch\n        {TAKE}"
TERM = "tf.reduce_mean(model(x) ** 2)"
CLIPPED = "gradients = tf.clip_by_global_norm(gradients, 0.1)[0]"
SCALED = f"gradients = [g * {HERE}.num_replicas_in_sync for g in gradients]"


@pytest.mark.trains
@pytest.mark.parametrize(
    ("mistake", "right", "wrong"),
    [
        ("local mean", "/ batch", MEAN),
        ("steps", "optimizer.apply", "for _ in range(strategy.num_replicas_in_sync): optimizer.apply"),
        # Gradients may be averaged by hand: then what they are taken of is no share, and says nothing.
        ("none", SHARE, f"{MEAN}\n        {TAKE}; gradients = {AVERAGED}"),
        pytest.param("gradient scale", TAKE, f"{TAKE}; {SCALED}", marks=pytest.mark.slow),
        pytest.param("clipping", LAST, f"optimizer.global_clipnorm = 0.1\n{EPOCHS}", marks=pytest.mark.slow),
        pytest.param("sharding off", ".batch(batch)", OFF, marks=pytest.mark.slow),
        pytest.param("", SHARE, f"{MEAN}\n        {TAKE}; {CLIPPED}; gradients = {AVERAGED}", marks=pytest.mark.slow),
        pytest.param("regularisation", SHARE, f"/ batch + {TERM}\n        {TAKE}", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("forked")
def test_the_mistake_of_a_loop_that_records_nothing_is_named(script, here, mistake, right, wrong):
    program = LOOP.format(batch="32", divisor="batch", layer="")
    assert right in program
    _code, out, _errors = here("--workers=2", "--verify", "--json", script(program.replace(right, wrong)))
    found = json.loads(out)
    told = dtk.diagnose(opened(found["dir"]), opened(found["baseline"]))
    assert ", ".join(told.also if told.mistake == "unknown" else [told.mistake]) == mistake


@pytest.mark.trains
@pytest.mark.usefixtures("forked")
def test_replicas_that_were_given_the_same_examples_are_said_to_be(script, here):
    grows = LOOP.format(batch=GROWS, divisor="batch", layer="")
    assert "given the same examples" in here("--workers=2", "--verify", script(grows.replace(".batch(batch)", OFF)))[1]


@pytest.mark.trains
@pytest.mark.parametrize(
    ("right", "grows"),
    [
        ('8 * len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])', "8 * strategy.num_replicas_in_sync"),
        # A worker's fit begins a pass over it ahead, as it knows its length.
        (
            "data.with_options(options)",
            "strategy.distribute_datasets_from_function(lambda its: data.unbatch().shard(its.num_input_pipelines, "
            "its.input_pipeline_id).shuffle(64, seed=1).batch(8))",
        ),
    ],
)
@pytest.mark.usefixtures("forked")
def test_a_fit_whose_batch_grows_with_the_replicas_passes(script, here, right, grows):
    assert right in TRAIN
    options = "--workers=2", "--verify", "--json", script(TRAIN.replace(right, grows)), "--", "--epochs", "2"
    _code, out, _errors = here(*options)
    assert json.loads(out)["verdict"] == "replicas"


OWN = "{'cluster': {'worker': ['10.0.0.1:1', '10.0.0.2:1']}, 'task': {'type': 'worker', 'index': 0}}"
TWO_LINES = "import tensorflow as tf\nscope = tf.distribute.MultiWorkerMirroredStrategy().scope()"
FIT = """
with scope:
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(tf.ones((8, 1)), tf.ones((8, 1)))
"""


@pytest.mark.trains
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"os.environ['TF_CONFIG'] = json.dumps({OWN})", "of worker ['10.0.0.1:1', '10.0.0.2:1']; dtk"),
        pytest.param("del os.environ['TF_CONFIG']", "while TF_CONFIG was not set", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("forked")
def test_a_program_with_a_tf_config_of_its_own_is_told_to_leave_it_out(script, here, line, said):
    code, _, error = here("--record", script(f"import json, os\n{line}\n{TWO_LINES}{FIT}"))
    assert (code, said in error, "leave out the line" in error) == (1, True, True)


def test_a_program_that_fails_on_one_device_alone_is_not_taken_for_a_failed_run(script, here, tmp_path):
    task = "json.loads(os.environ['TF_CONFIG'])['task']['index']"
    lines = ["import json, os", f"open('{tmp_path}/ckpt-' + str({task}), 'x')"]  # as one that finds a checkpoint
    code, out, error = here("--workers=2", "--verify", "--json", script("\n".join(lines)))
    found = json.loads(out)
    assert (code, found["verdict"], found["verified"], found["failed"]) == (4, "not followed", False, None)
    assert "the run finished, but the program failed on one device, after it: worker 0 raised FileExistsError" in error


@pytest.mark.slow  # tests/test_failures.py has it of functions
def test_how_a_program_ends_is_how_the_command_ends(script, here):
    alone = "import json, os, sys\nif json.loads(os.environ['TF_CONFIG'])['task']['index']:\n    {}\n"
    code, _, error = here(script(alone.format("sys.exit(3)")))
    assert (code, "worker 1 called sys.exit(3) before it had finished" in error) == (3, True)
    code, said, error = here(script(alone.format("raise ValueError('no such color')")), "--workers", "3")
    assert (code, "logs and records: " in said) == (1, True)
    assert "dtk: worker 1 raised ValueError: no such color" in error
    assert here(script("import sys\nsys.exit(0)"))[0] == 0
    assert here(script("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"))[0] == 128 + signal.SIGSEGV


@pytest.mark.trains
def test_a_traceback_begins_in_the_program(script):
    with pytest.raises(WorkerFailed) as failed:
        dtk.run(script("def outer():\n    return 1 / 0\nouter()\n"), workers=1)
    frames = [line for line in failed.value.traceback.splitlines() if line.startswith("  File")]
    assert ["train.py" in frame for frame in frames] == [True, True]


@pytest.mark.trains
def test_a_module_its_neighbors_and_its_arguments(script, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    script("GREETING = 'hello'", "package/words.py")
    script(
        "import sys\nfrom package.words import GREETING\nprint(GREETING, __name__, sys.argv[1:])", "package/train.py"
    )
    monkeypatch.chdir(tmp_path)
    run = dtk.run("package.train", workers=1, argv=["--epochs", "3"])
    assert "hello __main__ ['--epochs', '3']" in run.logs[0]
    script("import neighbor, sys\nprint(neighbor.X, __name__, sys.argv)")
    script("X = 7", "neighbor.py")
    run = dtk.run("train.py", workers=1)
    assert f"7 __main__ ['{tmp_path / 'train.py'}']" in run.logs[0]


@pytest.mark.trains
def test_an_interrupt_ends_the_command_and_its_workers(script):
    path = script("import time\nprint('here', flush=True)\ntime.sleep(600)")
    command = [sys.executable, "-u", "-m", "dtk", "run", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=LIVE) as process:
        assert any("here" in line for line in process.stdout)  # false where the command ends before it says so
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, "logs and records" in said) == (130, True)
    assert time.monotonic() - began < 30  # 3 s on an idle machine


@pytest.mark.slow
@pytest.mark.parametrize("given", ["list", "none", "one", "tuple"])
def test_a_fit_that_has_a_recorder_is_recorded_once_and_other_callbacks_stay(given):
    def train(strategy, given):
        import keras
        import numpy as np

        seen = keras.callbacks.LambdaCallback(on_train_end=lambda logs: print("own callback ran"))
        kinds = {"none": None, "one": seen, "list": [seen, dtk.Recorder()], "tuple": (seen,)}
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(np.ones((8, 4)), np.ones((8, 1)), 4, 2, 0, callbacks=kinds[given])

    run = dtk.run(train, workers=1, args=(given,), record=True)
    assert (len(run.records), "own callback ran" in run.logs[0]) == (4, given != "none")
    assert given != "one" or not len(dtk.run(train, workers=1, args=("one",)).records)  # nothing asks for a record
    assert os.environ.get("TF_CONFIG") is None
