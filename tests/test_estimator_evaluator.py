"""The evaluator of an Estimator: every checkpoint of the chief, once, without waiting for a timetable."""

import estimating
import pytest

import dtk
from dtk.compat import strategies

pytestmark = pytest.mark.trains


def beside(strategy, **more):
    import tensorflow as tf

    apart = tf.distribute.MirroredStrategy(["CPU:0"])
    estimating.train(strategy=strategy, eval_distribute=apart, save_checkpoints_steps=5, steps=40, **more)


@pytest.fixture(scope="module")
def run():
    kwargs = {"steps": 40, "save_checkpoints_steps": 5}
    return dtk.run(estimating.train, kwargs=kwargs, evaluator=True)


def test_each_checkpoint_is_evaluated_once_and_in_order(run):
    assert list(run.evaluations.step) == [0, 5, 10, 15, 20, 25, 30, 35, 40], "Estimator itself keeps the last five"
    assert run.evaluations.accuracy.iloc[-1] > 0.8 > run.evaluations.accuracy.iloc[0]
    assert not list((run.dir / "evaluator" / "checkpoints").iterdir())


def test_every_workers_result_has_the_last_metrics(run):
    last = run.evaluations.iloc[-1]
    assert [result["metrics"]["accuracy"] for result in run.results] == [last.accuracy] * 2
    assert run.evaluator is None


def test_tf_config_has_the_evaluator_apart_from_the_workers(run):
    assert [sorted(config["cluster"]) for config in run.tf_config] == [["worker"], ["worker"]]


@pytest.mark.slow
def test_eval_distribute_evaluates_alike(run):
    other = dtk.run(beside, evaluator=True)
    assert list(other.evaluations.accuracy) == pytest.approx(list(run.evaluations.accuracy), abs=0.01)


def make_strategy():
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync


def unpatched():
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy as strategies

    def as_tensorflow_has_it(self, resolver, devices=None):
        self._initialize_multi_worker(resolver)

    strategies.CollectiveAllReduceExtended._initialize_strategy = as_tensorflow_has_it
    config = dtk.estimator.RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy())
    config.replace(model_dir=str(dtk.run_dir()))


def test_the_correction_is_still_needed():
    """When this fails, the strategy can be copied in an evaluator; look whether compat.strategies.alone can go."""
    assert strategies.alone
    dtk.run(make_strategy, evaluator=make_strategy)
    with pytest.raises(dtk.WorkerFailed, match="cannot be deep copied in eager mode"):
        dtk.run(make_strategy, evaluator=unpatched)
