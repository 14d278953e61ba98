"""Files of datasets: the digits that come with dtk, and whether those in tensorflow-datasets' cache are whole.

One process at a time loads one of them, of all that know its lock.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dtk import environment
from dtk.errors import DatasetUnavailable
from dtk.language import _

__all__ = ["DIGITS", "alone", "check", "damaged", "digits", "original_digits", "tfds"]

DIGITS = Path(__file__).parent / "data" / "digits.npz"  # its source and licence: data/README.md
RECORD_FRAME = 16  # bytes around each record of a TFRecord file: length, its CRC, the data's CRC


def tfds() -> Any:
    """The module tensorflow_datasets; DatasetUnavailable where it can't be used, which its own import only logs.

    So it is with the versions of Colab's own list: its tensorflow-metadata 1.21.0 asks for a newer protobuf.
    """
    module = importlib.import_module("tensorflow_datasets")
    if hasattr(module, "builder_from_directory"):
        return module
    try:
        importlib.import_module("tensorflow_datasets.public_api")
        why = _("it lacks {name}", name="builder_from_directory")
    except Exception as error:  # whatever its import, or that of what it needs, comes to
        why = f"{type(error).__name__}: {error}"
    words = _("tensorflow-datasets can't be used here: {why}", why=why)
    raise DatasetUnavailable(words, remedy=_("source='embedded' does without it"))


def damaged(place: Path, what: str) -> DatasetUnavailable:
    """what: is wrong with the dataset in that directory, in words."""
    words = _("the cached data in {place} is damaged: {what}", place=place, what=what)
    return DatasetUnavailable(words, remedy=_("delete that directory and load again"))


def check(builder: Any) -> None:
    """Every file there, as long as the description says and readable to its end; once for each state of the files."""
    place = Path(builder.data_dir)
    files = []
    for split in builder.info.splits.values():
        want = int(split.num_bytes) + RECORD_FRAME * split.num_examples
        paths = [Path(path) for path in split.filepaths]
        for path in paths:
            if not path.exists():
                raise damaged(place, _("{file} is missing", file=path.name))
        have = sum(path.stat().st_size for path in paths)
        if have != want:
            words = _("split {name} has {have} bytes instead of {want}", name=split.name, have=have, want=want)
            raise damaged(place, words)
        files += paths
    state = json.dumps([[str(path), path.stat().st_mtime_ns, path.stat().st_size] for path in files])
    stamp = environment.scratch() / f"checked-{builder.name}.json"
    if not stamp.exists() or stamp.read_text() != state:
        _read_through(place, files)
        stamp.write_text(state)


def _read_through(place: Path, files: list[Path]) -> None:
    """TensorFlow checks each record's CRC as it reads; 0.2 s for MNIST."""
    import tensorflow as tf

    try:
        for _batch in tf.data.TFRecordDataset([str(path) for path in files]).batch(1000):
            pass
    except tf.errors.DataLossError:
        raise damaged(place, _("a record's checksum is wrong")) from None


def digits() -> tuple[np.ndarray, np.ndarray]:
    """UCI's handwritten digits: images uint8 (1797, 28, 28, 1), labels int64 (1797,), in an order mixed once for all.

    Each 8×8 image of values 0 to 16 is enlarged to 28×28 by bilinear interpolation and scaled to 0..255. They are those
    of scikit-learn's `load_digits`.
    """
    small, labels = original_digits()
    centres = (np.arange(28) + 0.5) * 8 / 28 - 0.5
    weights = np.clip(1 - np.abs(centres[:, None] - np.arange(8)[None, :]), 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    large = np.einsum("ai,nij,bj->nab", weights, small, weights)
    images = np.round(large * (255 / 16)).astype(np.uint8)[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


def original_digits() -> tuple[np.ndarray, np.ndarray]:
    """As they were published: images float64 (1797, 8, 8) of whole numbers from 0 to 16, labels int64 (1797,)."""
    with np.load(DIGITS) as file:
        return file["images"].astype(np.float64), file["labels"].astype(np.int64)


LOCK_SECONDS = 900.0  # a download of some 30 MB by someone else takes no longer


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time; the lock goes with its process, however that ends, so a file left behind is harmless."""
    try:
        import fcntl

        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except (ImportError, OSError):
        yield  # no such locks on this system, or a cache that can't be written: then nothing can collide either
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
