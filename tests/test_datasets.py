"""The embedded part of MNIST everywhere; all of it where a prepared copy is beside the project or in TFDS_DATA_DIR."""

from __future__ import annotations

import os
import shutil
import sys
import types

import numpy as np
import pytest
from prepared import PREPARED, needs_mnist

import dtk
from dtk import datasets, environment
from dtk.environment import Here
from dtk.records import RunFolder


@pytest.fixture(autouse=True)
def own_scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path / "scratch"))
    environment._said.clear()


@pytest.fixture
def mnist(monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A writable copy of the prepared MNIST."""
    place = tmp_path / "cache"
    shutil.copytree(PREPARED, place, copy_function=shutil.copyfile)
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755)
    monkeypatch.setenv("TFDS_DATA_DIR", str(place))
    return place / "mnist" / "3.0.1"


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """An empty cache, and no connection whether or not the machine has one."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "empty"))
    monkeypatch.setattr(datasets, "_answers", lambda url: False)


def look(dataset, count=100):
    (batch,) = dataset.batch(count).take(1)
    return [part.numpy() for part in batch]


def check_pair(train, test, info, sizes):
    import tensorflow as tf

    for dataset, split in ((train, "train"), (test, "test")):
        images, labels = look(dataset)
        assert images.shape == (100, 28, 28, 1)
        assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
        assert images.max() > 200
        assert set(np.unique(labels)) == set(range(10))
        policy = dataset.options().experimental_distribute.auto_shard_policy
        assert policy == tf.data.experimental.AutoShardPolicy.DATA
        assert info.splits[split].num_examples == sizes[split]
        assert int(dataset.cardinality()) == sizes[split]
    assert info.features["label"].num_classes == 10
    assert info.features["image"].shape == (28, 28, 1)


@pytest.mark.trains
def test_embedded_images():
    (train, test), info = dtk.datasets.load("mnist", source="embedded")
    check_pair(train, test, info, {"train": 4000, "test": 1000})
    again = dtk.datasets.load("mnist", source="embedded")[0][0]
    assert np.array_equal(look(train)[0], look(again)[0])


@pytest.mark.trains
@needs_mnist
def test_the_embedded_images_are_the_first_of_mnist_to_the_bit(mnist):
    loaded = [dtk.datasets.load("mnist", source=source)[0] for source in ("embedded", "tfds")]
    for part, whole, count in zip(*loaded, (4000, 1000), strict=True):
        assert all(map(np.array_equal, look(part, count), look(whole, count)))


@pytest.mark.trains
@needs_mnist
def test_prepared_mnist(mnist, capsys):
    (train, test), info = dtk.datasets.load("mnist")
    check_pair(train, test, info, {"train": 60000, "test": 10000})
    assert info.name == "mnist"
    assert capsys.readouterr().out == ""


@pytest.mark.trains
def test_offline_a_part_of_mnist_stands_in_and_says_so_once(offline, capsys):
    for _ in range(2):
        _, info = dtk.datasets.load("mnist")
        assert info.splits["train"].num_examples == 4000
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "dtk: mnist is not in the cache and can't be downloaded: no connection to storage.googleapis.com; "
        "the 5,000 images of MNIST that come with dtk are used"
    ]
    assert dtk.datasets.load("fashion_mnist")[1].name == "mnist"


def test_offline_and_tfds_asked_for(offline):
    with pytest.raises(
        dtk.DatasetUnavailable, match="mnist is not in the cache and can't be downloaded: no connection"
    ):
        dtk.datasets.load("mnist", source="tfds")


def test_a_tensorflow_datasets_that_does_not_load_is_no_damaged_data(offline, tmp_path, monkeypatch):
    """As on Colab of August 2026: its import logs an error and leaves an empty module behind."""
    empty = types.ModuleType("tensorflow_datasets")
    empty.__path__ = []
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", empty)
    monkeypatch.delitem(sys.modules, "tensorflow_datasets.public_api", raising=False)
    place = tmp_path / "cache" / "mnist" / "3.0.1"
    place.mkdir(parents=True)
    for file in ("dataset_info.json", "features.json"):
        (place / file).touch()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))
    with pytest.raises(dtk.DatasetUnavailable, match="^tensorflow-datasets can't be used here: ModuleNot") as error:
        dtk.datasets.load("mnist")
    assert "source='embedded'" in error.value.remedy
    shutil.rmtree(place)
    monkeypatch.setattr(datasets, "_answers", lambda url: True)
    assert datasets._prepare("mnist").startswith("tensorflow-datasets can't be used here: ModuleNotFoundError: ")


def test_unknown_names():
    for arguments in ({"name": "cifar"}, {"source": "web"}):
        with pytest.raises(dtk.DatasetUnavailable, match="names are fashion_mnist, mnist; sources None, 'tfds' and"):
            dtk.datasets.load(**arguments)


def cut(place):
    path = place / "mnist-train.tfrecord-00000-of-00001"
    os.truncate(path, path.stat().st_size - 5)


@pytest.mark.trains
@needs_mnist
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda place: (place / "mnist-test.tfrecord-00000-of-00001").unlink(), "split test has 0 bytes instead of "),
        (cut, "split train has 19832037 bytes instead of 19832042"),
        (lambda place: (place / "dataset_info.json").write_text("{"), "while reading its description"),
        (lambda place: (place / "dataset_info.json").unlink(), "while reading its description"),
    ],
)
def test_damaged_caches_are_named_with_the_remedy(copy, damage, words):
    damage(copy)
    with pytest.raises(dtk.DatasetUnavailable, match="delete that directory and load again") as caught:
        dtk.datasets.load("mnist")
    assert words in str(caught.value)
    assert str(copy.parent) in str(caught.value)


def first_labels():
    (train, _), _ = dtk.datasets.load("mnist")
    return look(train)[1].tolist()


@pytest.mark.trains
@needs_mnist
def test_machines_that_share_storage_decide_each_for_itself(offline, monkeypatch, tmp_path):
    for host, cache in (("n1", PREPARED), ("n2", tmp_path / "empty"), ("n3", PREPARED)):
        monkeypatch.setenv("TFDS_DATA_DIR", str(cache))
        environment.enter(Here(RunFolder(tmp_path, 3), 1, 3, 1, "cluster", 0.0, host=host))
        try:
            if host == "n2":
                with pytest.raises(dtk.DatasetUnavailable, match="the workers are on several machines"):
                    dtk.datasets.load("mnist")
            else:
                assert dtk.datasets.load("mnist")[1].name == "mnist"
        finally:
            environment.enter(None)


@pytest.mark.trains
@needs_mnist
def test_two_workers_read_the_same(mnist):
    one, two = dtk.run(first_labels, workers=2).results
    assert one == two
