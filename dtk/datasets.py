"""MNIST and Fashion-MNIST by tensorflow-datasets; where those can't be had, a part of MNIST that needs no network."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from dtk import environment
from dtk.errors import DatasetUnavailable, in_words
from dtk.language import N_, _

__all__ = ["digits", "load"]

MNIST = Path(__file__).parent / "data" / "mnist.npz"  # its source and license: data/README.md
# Where tensorflow-datasets 4.9 downloads from (`URL` of its builders in image_classification/mnist.py).
URLS = {
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
}
CONNECT_SECONDS = 4.0
TRAIN_IMAGES = 4_000  # of 5,000

Pair = tuple[Any, Any]


def load(name: str = "mnist", source: str | None = None) -> tuple[Pair, Any]:
    """Images and labels as `tf.data` datasets, in the same order in every process; autoshard policy DATA is set.

    Args:
        name: "mnist" or "fashion_mnist".
        source: "tfds": tensorflow-datasets' own cache, which it fills; "embedded": the images of MNIST that come with
            dtk, 4,000 to train and 1,000 to test; None: the first, or else, with a notice, the second.

    Returns:
        `(train, test), info`: two datasets of (image, label), images uint8 `(28, 28, 1)`, labels int64 from 0 to 9;
        `info` has `name`, `splits["train"].num_examples` and `features["label"].num_classes`.

    Raises:
        DatasetUnavailable: an unknown name, "tfds" without network, a damaged cache (with the remedy), a
            tensorflow-datasets that does not load beside the other packages.
    """
    if name not in URLS or source not in (None, "tfds", "embedded"):
        words = N_("{call}: names are {names}; sources None, 'tfds' and 'embedded'")
        call = f"dtk.datasets.load({name!r}, source={source!r})"
        raise DatasetUnavailable(_(words, call=call, names=", ".join(URLS)))
    if source == "embedded":
        return _embedded()
    why = _agreed(name)
    if not why:
        return _from_tfds(name)
    what, place = _("{name} is not in the cache and can't be downloaded: {why}", name=name, why=why), environment.here()
    if source is None and place is not None and place.host and place.workers > 1:
        remedy = _("the workers are on several machines and must have the same data: source='embedded' always is")
        raise DatasetUnavailable(what, remedy=remedy)
    if source == "tfds":
        raise DatasetUnavailable(what)
    if environment.is_chief():
        environment.say(in_words(what, _("the 5,000 images of MNIST that come with dtk are used")), once=True)
    return _embedded()


# ---- the embedded images -------------------------------------------------------------------------------------


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The embedded part of MNIST: images uint8 (5000, 28, 28, 1), labels int64 (5000,), those for tests last.

    They are the first 4,000 of MNIST's training set and the first 1,000 of its test set, in tensorflow-datasets' order.
    """
    with np.load(MNIST) as file:
        return file["images"][..., None], file["labels"].astype(np.int64)


def _embedded() -> tuple[Pair, Any]:
    import tensorflow as tf

    images, labels = digits()
    parts = {"train": slice(TRAIN_IMAGES), "test": slice(TRAIN_IMAGES, None)}
    train, test = (_shared(tf.data.Dataset.from_tensor_slices((images[part], labels[part]))) for part in parts.values())
    splits = {split: SimpleNamespace(num_examples=len(images[part])) for split, part in parts.items()}
    features = {
        "image": SimpleNamespace(shape=(28, 28, 1), dtype=np.uint8),
        "label": SimpleNamespace(num_classes=10, dtype=np.int64),
    }
    return (train, test), SimpleNamespace(name="mnist", splits=splits, features=features)


def _shared(dataset: Any) -> Any:
    import tensorflow as tf

    options = tf.data.Options()  # each dataset is one file, which the default policy can't share among workers
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


# ---- tensorflow-datasets -------------------------------------------------------------------------------------


def _tfds() -> Any:
    """The functions of tensorflow-datasets; DatasetUnavailable where it can't be used, which its own import only logs.

    So it is with the versions of Colab's own list: its tensorflow-metadata 1.21.0 asks for a newer protobuf.
    """
    try:
        import tensorflow_datasets.public_api as library
    except Exception as error:  # whatever its import, or that of what it needs, comes to
        words = _("tensorflow-datasets can't be used here: {why}", why=f"{type(error).__name__}: {error}")
        raise DatasetUnavailable(words, remedy=_("source='embedded' does without it")) from None
    return library


RECORD_FRAME = 16  # bytes around each record of a TFRecord file: length, its CRC, the data's CRC


def _from_tfds(name: str) -> tuple[Pair, Any]:
    library, place = _tfds(), _version(name) or _cache() / name
    try:
        # From the directory: `tfds.builder` would import the dataset's own code, which takes 0.3 s.
        builder = library.builder_from_directory(place)
    except Exception as error:  # a description that is missing or damaged raises whatever its parser does
        raise _damaged(place, _("{error} while reading its description", error=type(error).__name__)) from None
    for split in builder.info.splits.values():  # as long as they should be: TensorFlow itself checks what it reads
        want = int(split.num_bytes) + RECORD_FRAME * split.num_examples
        have = sum(path.stat().st_size for path in map(Path, split.filepaths) if path.exists())
        if have != want:
            words = _("split {name} has {have} bytes instead of {want}", name=split.name, have=have, want=want)
            raise _damaged(place, words)
    train, test = (
        _shared(builder.as_dataset(split=split, as_supervised=True, shuffle_files=False)) for split in ("train", "test")
    )
    return (train, test), builder.info


def _damaged(place: Path, what: str) -> DatasetUnavailable:
    """what: is wrong with the dataset in that directory, in words."""
    words = _("the cached data in {place} is damaged: {what}", place=place, what=what)
    return DatasetUnavailable(words, remedy=_("delete that directory and load again"))


def _cache() -> Path:
    # The variable is read here, not by tfds at its import: a worker's parent may have imported it long ago.
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def _version(name: str) -> Path | None:
    """The newest prepared version's directory, or None; tfds takes a directory that exists for a finished one."""
    found = [path for path in (_cache() / name).glob("*.*.*") if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return max(found, key=lambda path: [int(part) for part in path.name.split(".")], default=None)


LOCK_SECONDS = 900.0  # a download of some 30 MB by someone else takes no longer


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time; the lock goes with its process, however that ends, so a file left behind is harmless."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError:
        yield  # a cache that can't be written: then nothing can collide either
        return
    deadline = time.monotonic() + LOCK_SECONDS
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    words = f"another process has held {lock} for {LOCK_SECONDS:.0f} s; end it and load again"
                    raise DatasetUnavailable(words) from None
                time.sleep(0.05)  # flock has no time-out of its own
            except OSError:
                break  # a file system without locks
        yield


def _agreed(name: str) -> str:
    """`_prepare`, once for a machine's workers: were one to train on all of MNIST and another on a part, losses would
    make no sense, and no one would notice."""
    place = environment.here()
    if place is None or place.workers == 1:
        return _prepare(name)
    mine = place.run.path / ".dataset" / (place.host or "here")  # machines may share the run's directory, not a cache
    verdict = mine / f"{name}.txt"
    with alone(mine / "lock"):
        if not verdict.exists():
            verdict.write_text(_prepare(name))
        return verdict.read_text()


def _prepare(name: str) -> str:
    """Downloads what is not in the cache; "" where it is there afterwards, otherwise the reason in words."""
    if _version(name) is None:
        if environment.here() is not None and environment.isolated():
            words = N_("this run is isolated and has no network: call {call} in a cell before it")
            return _(words, call=f"dtk.datasets.load({name!r})")
        with alone(_cache() / f".dtk-{name}.lock"):
            if _version(name) is None:  # another process may have prepared it while this one waited
                return _download(name)
    return ""


def _download(name: str) -> str:
    """Into tensorflow-datasets' cache, with its progress bar, in a directory that gets its name when it is whole."""
    from unittest import mock  # with asyncio, which takes a while to import

    # A worker does not have the kernel's proxies, which gRPC would use; a download has them while it lasts.
    with mock.patch.dict(os.environ, json.loads(os.environ.get("DTK_PROXIES", "{}"))):
        if not _answers(URLS[name]):
            return _("no connection to {host}", host=urlsplit(URLS[name]).hostname)
        try:
            library = _tfds()
            # Not from tfds's bucket of prepared data: looking there retries for long where it is blocked.
            config = library.download.DownloadConfig(try_download_gcs=False)
            library.builder(name, data_dir=_cache()).download_and_prepare(download_config=config)
        except DatasetUnavailable as error:
            return error.what
        except Exception as error:  # network, disk, checksums: whatever it is, the reason is passed on
            return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return ""


def _answers(url: str) -> bool:
    """Whether its host answers within CONNECT_SECONDS, by a proxy where one is set; tfds itself tries for 200 s."""
    answered = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD")
        try:
            urllib.request.build_opener().open(request, timeout=CONNECT_SECONDS).close()
        except urllib.error.HTTPError:
            pass  # an answer, too
        except OSError as error:
            # tfds has certificates of its own.
            if not isinstance(getattr(error, "reason", None), ssl.SSLError):
                return
        answered.set()

    # A thread, as looking up the name has no deadline of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return answered.is_set()
