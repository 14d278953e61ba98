"""Each step from the state that the run recorded: correct programs, wrong ones, and how findings are judged."""

from __future__ import annotations

import functools
import json
import zlib
from types import SimpleNamespace

import numpy as np
import proof_programs
import pytest
from starting import nightly
from training import batches

import dtk
from dtk.proof.evidence import Parted, aside, parted
from dtk.proof.proof import Part, judged
from dtk.records import RunFolder
from dtk.worker.recorded import Change, Damaged, RecordedStates, compared, differs, rounding_dominates
from dtk.worker.rounding import Levels

RIGHT, WRONG = proof_programs.right(), proof_programs.wrong()
TOLD = {
    "loop worker's labels": "one worker's loss",
    "not summed": "not summed",
    "examples counted, averaged": "set by hand",
    "noise but on worker 1": "other draws",
    "loop applied twice": "steps",
    "optimizer on a copy": "optimizer on a copy",
}
TOLD_AT_NIGHT = {
    "loop decay": "regularisation",
    "sum on all replicas": "unknown",  # of a variable, 1.5 times: all are parallel
    "words by fit, masked, eagerly": "own mean",
    "words, own words, not divided": "own mean",
    "accumulated, clipped": "clipping",
    "fit, own order": "unknown",  # and not "global batch", though a worker's batch is the same however many there are
}
LONG = ["attention adam"], ["loop relu adam"], ["two fits"], ["adafactor"]
FIRST = {"variables": [["dense/kernel", 90], ["key/bias", 3]]}
END = {"end": "done", "recorded": 2, "whole": True, "coarse": 0.0}
VARIABLE = {"number": 0, "name": "w", "identity": ["w", "float32", [2], 0], "dtype": "float32", "shape": [2]}
EACH = {"apart": [1e-6, 1e-6], "size": [1.0, 1.0], "own": [1.0, 1.0], "along": [1.0, 1.0], "level": [1e-5, 1e-5]}


def line(step, ratio=(1e-6, 1e-6), wrong=(), kind="update"):
    facts = {"unit": step, "units": 1, "step": step, "kind": kind, "numbers": [0, 1]}
    return {**facts, **EACH, "ratio": list(ratio), "wrong": list(wrong)}


@pytest.mark.parametrize("ratio", [(1e-6, 1e-6), (1e-6, 2.0)], ids=["alike", "a small variable is rounding alone"])
def test_all_steps_agree(ratio):
    assert judged([FIRST, line(1, ratio), line(2), END]).proved


def test_most_values_rounding_alone_leaves_a_step_open_and_a_coarse_type_may_round_by_more():
    found = judged([FIRST, line(1), line(2, (0.5, 1e-6)), END])
    assert (found.undecided, found.step, found.proved) == (1, None, False)
    found = [judged([FIRST, line(1, (0.02, 0.5)), line(2, (1e-6, 0.5)), {**END, "coarse": c}]) for c in (2.0**-9, 0.0)]
    assert [(each.undecided, each.hidden) for each in found] == [(0, ["key/bias"]), (1, [])]


def test_a_step_now_and_then_may_be_open():
    noise = line(50, ratio=(0.5, 0.5))
    lines = [line(step) for step in range(1, 101) if step != 50]
    end = {**END, "recorded": 100}
    assert judged([FIRST, *lines, noise, end]).proved
    assert not judged([FIRST, *lines, *[noise] * 6, {**end, "recorded": 105}]).proved


@pytest.mark.parametrize(("ratio", "level", "wrong"), [(3e-5, 2e-5, False), (2e-4, 2e-5, True), (2e-4, 3e-4, False)])
def test_a_step_that_did_not_repeat_itself_may_round_by_more_than_the_others(ratio, level, wrong):
    first = {**line(1, (ratio, 1e-6), [0]), "measured": False}
    found = judged([FIRST, first, line(2), {**END, "levels": {"0": level}}])
    assert (found.step, found.proved) == ((1, False) if wrong else (None, True))


@pytest.mark.parametrize("kind", ["update", "between"])
def test_the_first_step_that_differs_and_its_variables(kind):
    found = judged([FIRST, line(1), line(2, (0.02, 1e-6), [0], kind), {**END, "end": "enough"}])
    assert (found.step, [part.name for part in found.parts], found.proved) == (2, ["dense/kernel"], False)


@pytest.mark.parametrize("lines", [[], [line(1), END], [line(1), line(2)], [line(1), line(2), {"end": "unmatched"}]])
def test_a_follower_that_did_not_come_to_the_end_proves_nothing(lines):
    assert not judged([FIRST, *lines] if lines else []).proved


def recorded(folder, worker=0, values=(1.0, 2.0, 3.0), step=1, end=True):
    """A worker that recorded units that each put the next of `values` into its only variable."""
    corner = folder / f"worker-{worker}"
    corner.mkdir(parents=True)
    rows, written = [], b""
    for k, value in enumerate(values, start=1):
        held = {"before": np.full(2, values[0] - 1, np.float32)} if k == 1 else {}
        held["after"] = np.full(2, value, np.float32)
        places = [[when, 0, len(written) + 8 * place, 8] for place, when in enumerate(held)]
        written += b"".join(each.tobytes() for each in held.values())
        said = {when: {"0": [zlib.crc32(held[when].tobytes())]} if when in held else {} for when in ("before", "after")}
        where = {"began": [k - 1, 0], "ended": [k, 0]}
        rows.append({"unit": k, "step": step + k - 1, **where, "here": [0], "digests": said, "values": places})
    place = [len(values), 0]
    if end:
        nothing = {"digests": {"before": {}, "after": {}}, "values": []}
        where = {"unit": 1 + len(values), "step": 0, "began": place, "ended": place, "here": [0]}
        rows += [{**where, "end": True, **nothing}, {"last": {"position": place}}]
    (corner / "states.bin").write_bytes(written)
    write(corner / "units.jsonl", rows)
    write(corner / "variables.jsonl", [{**VARIABLE, "kept": "mirrored"}])
    write(corner / "records.jsonl", [[]])
    return RunFolder(folder, worker + 1)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_states_are_read_in_their_order(tmp_path):
    found = RecordedStates(recorded(tmp_path))
    with found.ahead():
        assert float(found.after(2)[0][0][0]) == 3.0
    assert (found.complete, found.beginning((0, 0))) == (True, 0)
    assert [float(found.before(1)[0][0][0]), float(found.after(2)[0][0][1])] == [1.0, 3.0]
    assert (found.beginning((3, 0)), float(found.at_end()[0][0][0])) == (None, 3.0)


def test_several_units_are_one_where_a_call_makes_their_updates(tmp_path):
    found = RecordedStates(recorded(tmp_path))
    assert [found.ending(found.beginning((0, 0)), (k, 0)) for k in (2, 9)] == [1, None]


@pytest.mark.parametrize("writes", [0, 1])
def test_a_replica_whose_own_value_stays_keeps_it(tmp_path, writes):
    for worker in (0, 1):
        recorded(tmp_path, worker)
        file = tmp_path / f"worker-{worker}" / "units.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for number, line in enumerate(lines[:3]):
            line["digests"] = {"before": {}, "after": {}}
            line["values"] = [] if number == 1 and worker != writes else line["values"]
        write(file, lines)
        write(file.with_name("variables.jsonl"), [{**VARIABLE, "kept": "by replica"}])
    found = RecordedStates(RunFolder(tmp_path, 2))
    states = [[float(value[0]) for value in found.after(unit)[0]] for unit in range(3)]
    assert states == [[1.0, 1.0], [1.0 + (writes == 0), 1.0 + (writes == 1)], [3.0, 3.0]]


def test_states_that_are_not_all_there(tmp_path):
    assert not any(RecordedStates(x).complete for x in (recorded(tmp_path, end=False), RunFolder(tmp_path / "no", 1)))


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-3])])
def test_a_state_that_is_missing_or_cut_is_said_with_its_step(tmp_path, spoil):
    folder = recorded(tmp_path)
    spoil(tmp_path / "worker-0" / "states.bin")
    with pytest.raises(Damaged) as damage:
        RecordedStates(folder).after(2)
    assert damage.value.args in ((1,), (3,))


def test_after_a_restart_the_later_start_counts(tmp_path):
    recorded(tmp_path / "attempt-1", values=(1.0, 2.0, 3.0), end=False)
    found = RecordedStates(recorded(tmp_path, values=(2.5, 4.0), step=3))
    assert [unit.step for unit in found.units] == [1, 2, 3, 4]
    assert found.complete
    assert float(found.before(2)[0][0][0]) == 1.5
    assert float(found.after(3)[0][0][0]) == 4.0


@pytest.mark.parametrize(("held", "other"), [([], True), (["w:0"], False), (["w:0", "w:0"], True)])
def test_where_workers_part(tmp_path, held, other):
    recorded(tmp_path, 0)
    assert parted(recorded(tmp_path, 1)) is None
    recorded(tmp_path / "other", 0)
    run = recorded(tmp_path / "other", 1, values=(1.0, 2.5, 3.0))
    write(run.path / "worker-0" / "variables.jsonl", [{**VARIABLE, "kept": "mirrored", "trainable": bool(held)}])
    made = {"state": "updates", "optimizers": [{"name": "sgd", "variables": held, "made": 1, "recorded": 1}]}
    write(run.path / "worker-0" / "events.jsonl", [{"at": 0.0, "models": 0, **made}])
    assert parted(run) == Parted(1, 2, False, ("w",))
    assert aside(run, ("w",), apart=True) == other


def test_what_one_worker_alone_sets_between_two_steps_is_before_the_second(tmp_path):
    recorded(tmp_path, 0)
    recorded(tmp_path, 1)
    file = tmp_path / "worker-1" / "units.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1]["digests"] = {"before": {"0": [7]}, "after": {"0": [8]}}
    write(file, lines)
    found = parted(RunFolder(tmp_path, 2))
    assert (found.worker, found.step, found.before, found.names) == (1, 2, True, ("w",))


@pytest.mark.parametrize(("moment", "wrong"), [(0.0, []), (1e-3, [0, 1])])
def test_what_adam_makes_of_a_sum_that_cancels_is_rounding_where_its_moments_agree(moment, wrong):
    levels = Levels({})
    levels.belongs = {0: None, 1: 0}
    orders = {"perturbed": lambda: {0: 0.0, 1: 0.0}, "reordered": lambda: {0: 3e-3, 1: 0.0}}
    ratio = {0: 2e-3, 1: moment}
    sizes = {"size": {0: 1.0, 1: 1.0}, "level": {0: 2e-5, 1: 2e-5}, "floor": {}}
    found = {"ratio": ratio, "apart": ratio, **sizes, "wrong": [0]}
    levels.judge(found, SimpleNamespace(**orders, part=lambda _, norm: norm), {0: 0.0, 1: 0.0}, {0: 2, 1: 2})
    assert found["wrong"] == wrong


def ran(program, steps, **options):
    return dtk.run(program.train, kwargs={**program.kwargs, "steps": steps}, **options)


@pytest.mark.trains
@pytest.mark.parametrize("name", ["callback scheduler, data of unknown size", *nightly(*LONG)])
def test_each_step_of_a_right_program_agrees(name):
    run = ran(RIGHT[name], 20)
    assert judged(run.followed(run)[1]).proved


@pytest.mark.trains
@pytest.mark.parametrize(
    ("name", "steps", "replicas"),
    [
        ("cnn bfloat16", 60, 1),
        ("examples counted", 12, 1),
        *nightly(("loop drawn by a call of its own", 12, 1), ("train_step, drawn by operation", 12, 1)),
        *nightly(("two fits, dropout, shuffled", 12, 2), ("loop drawn by generator", 12, 2)),
        *nightly(("accumulated by hand, without a fold", 12, 1), ("loop drawn by operation", 12, 1)),
    ],
)
def test_a_right_program_passes(name, steps, replicas):
    assert dtk.verify(ran(RIGHT[name], steps, replicas=replicas)).verdict == RIGHT[name].expected


@pytest.mark.trains
@pytest.mark.parametrize("name", ["rate 1 % off, adam", "loop gradient"])
def test_a_small_mistake_shows_at_its_first_step(name):
    run = ran(WRONG[name], 30)
    follower, lines = run.followed(run)
    found = judged(lines)
    assert (found.step, bool(found.parts), follower.mode) == (WRONG[name].first(30), True, "single")
    rates = [part.single for part in found.parts if "learning_rate" in part.name]
    assert all(mine == pytest.approx(1.01 * other) for other, mine in rates)
    assert bool(rates) == ("rate" in name)


@pytest.mark.trains
@pytest.mark.parametrize(("name", "mistake"), [*TOLD.items(), *nightly(*TOLD_AT_NIGHT.items())])
def test_what_followers_tell_of_a_mistake(name, mistake):
    assert dtk.diagnose(ran(WRONG[name], 10)).mistake == mistake


def rows(count, width):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(tf.random.stateless_uniform((count, width), (1, 2)))


def share(model, variables, optimizer):
    """A replica's step: its share of the mean of the squares over 8 rows, and its update."""
    import tensorflow as tf

    def step(batch):
        with tf.GradientTape() as tape:
            losses = tf.reduce_sum(tf.cast(model(batch), tf.float32) ** 2, axis=1)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=8)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step


@pytest.mark.trains
@pytest.mark.parametrize("asked", ["0", "1", "2e9"])
def test_who_says_how_many_bytes_states_may_take_gets_all_that_fits(monkeypatch, asked):
    def train(strategy):
        import keras

        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((2000,)), keras.layers.Dense(2500), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(1e-6)
        for batch in strategy.experimental_distribute_dataset(rows(96, 2000).batch(8)):
            strategy.run(functools.partial(share(model, model.trainable_variables, optimizer)), args=(batch,))

    monkeypatch.setenv("DTK_STATES", asked)
    count = len(RecordedStates(dtk.run(train).folder).units)  # of 20 MB
    assert {"0": count == 0, "1": 0 < count < 12, "2e9": count == 12}[asked]


@pytest.mark.trains
def test_a_variable_that_is_gone_by_a_steps_end_is_not_compared():
    def train(strategy):
        import keras
        import tensorflow as tf

        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(0.1)
        left = [tf.Variable(3.0)]

        @tf.function
        def step(batch):
            left.clear()  # while the graph is made
            return strategy.run(share(model, model.trainable_variables, optimizer), args=(batch,))

        for batch in strategy.experimental_distribute_dataset(rows(32, 2).batch(8)):
            dtk.record_step(step(batch), batch=batch, model=model)

    assert dtk.verify(dtk.run(train)).verdict == "one device"


@pytest.mark.trains
def test_an_evaluation_may_be_one_call_here_and_several_there():
    def train(strategy):
        import keras

        class Counted(keras.layers.Layer):
            def build(self, _):
                facts = {"dtype": "int32", "initializer": "zeros", "trainable": False}
                self.calls = self.add_weight(shape=(), aggregation="only_first_replica", **facts)

            def call(self, flow):
                self.calls.assign_add(1)
                return flow

        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((64,)), Counted(), keras.layers.Dense(10)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss, steps_per_execution=2)
        data = batches(32, 8)
        model.fit(data, epochs=2, validation_data=data, callbacks=[dtk.Recorder()], verbose=0)

    assert dtk.verify(dtk.run(train)).verdict == "one device"


@pytest.mark.trains
@pytest.mark.parametrize("given", [True, False])
def test_a_call_that_reads_its_data_itself_is_made_again_with_the_same(given):
    def train(strategy):
        import keras
        import tensorflow as tf

        keras.mixed_precision.set_global_policy("mixed_bfloat16")  # its steps are made again, to see what is rounding
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
            optimizer = keras.optimizers.Adam(0.01)

        iterator = iter(strategy.experimental_distribute_dataset(rows(64, 8).shuffle(64, seed=1).batch(8)))

        @tf.function
        def step(given):
            batch = next(iterator if given is None else given)
            losses = strategy.run(share(model, model.trainable_variables, optimizer), args=(batch,))
            dtk.record_step(losses, batch=batch, model=model)

        for _ in range(8):
            step(iterator if given else None)

    run = dtk.run(train)
    assert dtk.verify(run).verdict == "one device"
    _, lines = run.followed(run)
    assert all(line.get("measured", True) for line in lines)


@pytest.mark.trains
def test_variables_whose_names_differ_by_their_last_number_are_told_apart():
    def train(strategy):
        import tensorflow as tf

        with strategy.scope():
            module = tf.Module()
            module.weights = [tf.Variable([float(k)], name=f"w_{k}") for k in (1, 2)]

        def share(batch):
            with tf.GradientTape() as tape:
                first, second = module.weights
                loss = tf.nn.compute_average_loss(batch * (first - second) ** 2, global_batch_size=8)
            for weight, change in zip(module.weights, tape.gradient(loss, module.weights), strict=True):
                weight.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce("sum", change))
            return loss

        data = tf.data.Dataset.from_tensor_slices(tf.random.stateless_uniform((32,), (1, 2))).batch(8)
        for batch in strategy.experimental_distribute_dataset(data):
            dtk.record_step(strategy.run(share, args=(batch,)), batch=batch, model=module)

    assert dtk.verify(dtk.run(train)).verdict == "one device"


@pytest.mark.trains
def test_variables_are_matched_whenever_the_garbage_collector_comes():
    def train(strategy):
        import gc

        import keras
        import tensorflow as tf

        gc.disable()
        with strategy.scope():
            left = [tf.Variable([1.0, 2.0])]
            left.append(left)
            del left
            if strategy.num_replicas_in_sync > 1:
                gc.collect()
            module = tf.Module()
            module.weight = weight = tf.Variable([3.0, 4.0])
            optimizer = keras.optimizers.SGD(0.1)

        step = share(lambda batch: batch * weight, [weight], optimizer)
        for batch in strategy.experimental_distribute_dataset(rows(32, 2).batch(8)):
            dtk.record_step(strategy.run(step, args=(batch,)), batch=batch, model=module)

    assert dtk.verify(dtk.run(train)).verdict == "one device"


@pytest.mark.trains
def test_a_disk_that_fills_up_leaves_what_can_be_followed():
    program = RIGHT["loop relu adam"]

    def train(strategy):
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))  # larger files fail, as where a disk is full
        program.train(strategy, **program.kwargs, steps=200)

    proof = dtk.verify(dtk.run(train))
    assert proof.verdict == "one device"
    assert 0 < len(proof.followers[1].followed) < proof.steps == 200


@pytest.mark.trains
def test_calls_are_counted_where_no_step_is_recorded():
    wrong = WRONG["loop gradient later"]
    with pytest.raises(dtk.VerificationError) as failed:
        dtk.verify(dtk.run(wrong.train, workers=2, kwargs={**wrong.kwargs, "record": None, "steps": 8, "at": 5}))
    assert (failed.value.reason, failed.value.step) == ("update", 5)


@pytest.mark.trains
def test_data_that_are_drawn_the_same_twice_are_proved_and_others_are_no_mistake():
    turned = RIGHT["fit, turned in the data"].train
    assert dtk.verify(dtk.run(turned, workers=2, kwargs={"steps": 4})).verdict == "one device"
    with pytest.raises(dtk.VerificationError) as failed:
        dtk.verify(dtk.run(turned, workers=2, kwargs={"steps": 4, "threads": 8}))
    assert (failed.value.reason, failed.value.proof.verdict) == ("not reproducible", "not decidable")


@pytest.mark.trains
@pytest.mark.parametrize("right", [True, False])
def test_a_follower_with_another_tensorflow_refutes_nothing(right):
    run = ran(RIGHT["loop relu adam"] if right else WRONG["loop gradient"], 4)
    file = run.folder.path / "versions.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tensorflow": "2.20.0"}))
    if right:
        assert dtk.verify(run).verdict == "one device"
        return
    with pytest.raises(dtk.VerificationError, match=r"other versions \(tensorflow 2\.20\.0 and ") as error:
        dtk.verify(run)
    assert error.value.reason == "not followed"


def test_a_change_too_small_to_be_stored_says_nothing_of_the_step():
    held = np.full(10, 5.0, np.float32)
    mine, its = np.nextafter(held, np.float32(9)), np.nextafter(np.nextafter(held, np.float32(9)), np.float32(9))
    found = compared([Change(0, "float32", held, mine, held, its)])
    assert (found["ratio"][0], differs(found["ratio"][0], found["floor"][0])) == (pytest.approx(0.5), False)
    assert rounding_dominates(found["ratio"], {0: 10}, 0.0)


def test_nothing_is_told_by_a_multiple_of_what_stands_still():
    assert {Part("w", 9, 1.0, 2e-5, longer, 0.0).left(1.0) for longer in (0.0, np.inf)} == {(np.inf, 0.0)}


def test_noise_of_a_weight_is_noise_of_its_optimizers_variables():
    known = Levels({})
    known.belongs = {1: 0, 2: 0, 4: 3}
    levels = {0: 9.0, 1: 8.0, 2: 0.9, 3: 5.0, 4: 2e-5}  # of the second, steps are small, and its momentum is not
    known._alike(levels)
    assert levels == {0: 9.0, 1: 8.0, 2: 1.0, 3: 5.0, 4: 2e-5}


def test_what_is_nothing_in_the_cluster_may_be_rounding_here():
    sizes, apart = {0: 0, 1: 0, 2: 1, 3: 0, 4: 0}, {0: 1e-9, 1: 1e-3, 2: 0.3, 3: 0, 4: 0}
    row = {"size": sizes, "apart": apart, "ratio": {0: np.inf, 1: np.inf, 2: 0.3, 3: 0, 4: 0}, "level": {}, "floor": {}}
    known = Levels({})
    known.belongs = {3: 2, 4: 2}  # of an optimizer that trained 2 before
    known._judge(row, {0: 1e-9, 1: 1e-9})
    assert row["wrong"] == [1, 2]


@pytest.mark.parametrize(("others", "few", "left"), [(0.2, 5, []), (1e-4, 5, [1]), (0.2, 80, [1])])
def test_where_rounding_is_much_of_most_of_an_update_few_values_more_are_rounding(others, few, left):
    line = {"ratio": {0: others, 1: 0.5}, "wrong": [1], "floor": {}}
    Levels({})._doubt(line, {0: 100, 1: few})
    assert line["wrong"] == left


def test_a_loss_may_round_by_as_much_as_the_median_value_of_its_update():
    stored = {**line(2), "level": [3e-3, 3e-3], "floor": [2e-3, 2e-3]}  # of which no loss is
    lines = [{**line(1), "level": [3e-3, 1.0]}, stored, line(3), {**line(4), "level": [2.0, 0.0]}]
    assert judged([FIRST, *lines, END]).rounding(4).tolist() == [3e-3, 0.0, 1e-5, 0.05]
