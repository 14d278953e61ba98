"""Where workers write: the chief where the learner said, the others where it can't collide.

Every worker must go through a save, because reading a variable can be a collective: so the path is changed, never the
call left out. Workers other than the chief save under their own `elsewhere/`, callbacks included, and load what they
have saved there; docs/explanation/compat.md has what is touched. Keras 2's BackupAndRestore, ModelCheckpoint and
TensorBoard (tf_keras, and `keras` beside TensorFlow 2.15) take care of this themselves (`workertemp_N`). Where a
function saves by `tf.train.Checkpoint` itself, the place is its own choice: workers that collide there get an error.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wrapt

from dtk.compat.libraries import changed, keras_major, replaces, tf
from dtk.environment import Here, here
from dtk.errors import ClusterConfigError
from dtk.records import WorkerFolder

# The attribute of each callback that says where it writes.
_PATHS = {"CSVLogger": "filename", "ModelCheckpoint": "filepath", "TensorBoard": "log_dir"}
_loading = threading.local()  # chief_only: whether loads read the chief's file whatever this worker has saved


def when_imported() -> None:
    """Redirects in this process where it is one of several workers; TensorFlow and Keras may be imported or not."""
    place = here()
    if place is None or place.mode != "cluster" or place.workers < 2 or place.role == "evaluator":
        return
    for package in ("keras", "tf_keras"):
        wrapt.register_post_import_hook(lambda keras: _redirect(keras, place), package)
    # `save` and the manager keep a file named `checkpoint` in the directory; `write` writes its own files only.
    _watch("Checkpoint", "save", place, lambda _, prefix: os.path.dirname(os.path.abspath(prefix)))
    _watch("Checkpoint", "write", place, lambda _, prefix: os.path.abspath(prefix))
    _watch("CheckpointManager", "save", place, lambda manager, *_: os.path.abspath(manager.directory))
    if place.worker > 0:
        # A worker deletes what it has saved, as the workers of many programs do that are not the chief.
        gfile = "tensorflow:io.gfile"
        for owner, name in ((os, "remove"), (shutil, "rmtree"), (gfile, "remove"), (gfile, "rmtree")):
            _wrap_path(owner, name, 0, lambda path: path if os.path.exists(path) else _own_copy(path))


def _redirect(keras: Any, place: Here) -> None:
    third = keras_major(keras) >= 3
    if third:
        _share_backups(keras)
    if place.worker > 0:
        for owner in (keras.Model, *_spaces(keras.__name__)):
            for name in ("save", "save_model", "save_weights", "export", "load_model", "load_weights"):
                if hasattr(owner, name):
                    change = _own_copy if name.startswith("load") else _prepared
                    _wrap_path(owner, name, 0 if name == "load_model" else 1, change)
        for kind in _PATHS if third else ("CSVLogger",):  # Keras 2 takes care of the others itself
            _redirect_attribute(getattr(keras.callbacks, kind), _PATHS[kind])


def elsewhere(path: str | os.PathLike[str]) -> str:
    """The path in this worker's own corner that stands for `path`; what lies there already stays as it is.

    Relative to the working directory or to the run's directory where `path` is inside one of them.
    """
    place = here()
    assert place is not None, "only a worker has a corner of its own"
    root = place.folder.path.absolute() / "elsewhere"
    whole = Path(os.path.abspath(os.fspath(path)))
    if whole.is_relative_to(root):
        return str(path)
    bases = (Path.cwd(), place.run.path.absolute(), Path(whole.anchor))
    return str(root / whole.relative_to(next(base for base in bases if whole.is_relative_to(base))))


def _prepared(path: Any) -> Any:
    """`elsewhere(path)`, with the directory that it lies in; what is no path, such as an open file, stays itself."""
    if not isinstance(path, (str, os.PathLike)):
        return path
    target = elsewhere(path)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    return target


def _own_copy(path: Any) -> Any:
    """This worker's own copy of what was saved as `path`, or `path` where there is none."""
    if getattr(_loading, "chief_only", False) or not isinstance(path, (str, os.PathLike)):
        return path
    mine = elsewhere(path)
    # TensorFlow's checkpoint format, which tf_keras writes, has no file of the name itself but NAME.index.
    return mine if os.path.exists(mine) or os.path.exists(f"{mine}.index") else path


def _wrap_path(owner: Any, name: str, position: int, change: Callable[[Any], Any]) -> None:
    """Replaces `owner.name` by a function that changes its argument `filepath` or `path`, the `position`th."""

    @replaces(owner, name)
    def wrapped(original: Any, *args: Any, **kwargs: Any) -> Any:
        placed = [change(value) if at == position else value for at, value in enumerate(args)]
        named = {key: change(value) if key in ("filepath", "path") else value for key, value in kwargs.items()}
        return original(*placed, **named)


def _spaces(package: str) -> list[Any]:
    """The modules that hold Keras's functions for saving and loading: public ones, `tf.keras`'s, and the home.

    A function that traveled to the worker by name comes from its home, `saving_api`; so do later imports.
    """
    homes = [f"{package}.src.saving.saving_api"]
    public = [f"{base}.{name}" for base in (package, f"{package}._tf_keras.keras") for name in ("saving", "models")]
    return [sys.modules[name] for name in homes + public if name in sys.modules]


def _redirect_attribute(kind: Any, attribute: str) -> None:
    @replaces(kind, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        setattr(self, attribute, _prepared(getattr(self, attribute)))


def _share_backups(keras: Any) -> None:
    """Every worker reads the chief's backup, then the others write and delete elsewhere.

    They wait for each other after reading and after deleting. Otherwise a chief with nothing left to train deletes the
    backup before a peer has read it, and a second `fit` may read the backup of the first.
    """
    kind = keras.callbacks.BackupAndRestore

    @replaces(kind, "on_train_begin")
    def on_train_begin(original: Any, self: Any, logs: Any = None) -> None:
        own = {name: value for name, value in vars(self).items() if name.endswith(("backup_dir", "_path"))}
        chiefs = vars(self).setdefault("_dtk_chief_paths", own)
        vars(self).update(chiefs)
        with changed(_loading, chief_only=True):
            original(self, logs)
        _wait_for_all(self.model)
        if here().worker > 0:  # type: ignore[union-attr]  # applied in workers only
            vars(self).update({name: elsewhere(path) for name, path in chiefs.items()})

    @replaces(kind, "on_train_end")
    def on_train_end(original: Any, self: Any, logs: Any = None) -> None:
        original(self, logs)
        _wait_for_all(self.model)


def hide(run: Path, own: Path) -> None:
    """From now on checkpoints that were written since a run began, and before its follower did, are not found."""
    began, now = ((folder / "job.json").stat().st_mtime for folder in (run, own))

    @replaces("tensorflow.python.checkpoint.checkpoint_management", "get_checkpoint_state")
    def state(original: Any, checkpoint_dir: Any, latest_filename: Any = None) -> Any:
        file = Path(checkpoint_dir, latest_filename or "checkpoint")
        hidden = file.exists() and began < file.stat().st_mtime < now
        return None if hidden else original(checkpoint_dir, latest_filename)


def _wait_for_all(model: Any) -> None:
    """Returns when every worker has come here: a sum over all replicas needs each one's part."""
    strategy = model.distribute_strategy
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        strategy.reduce("SUM", tf.constant(1.0), axis=None)


# ---- a Recorder in each `fit` of a program that was written without dtk
#
# Keras has no public place for callbacks of all models (Keras 2.15 to 3.15, tf_keras 2.16 to 2.21), so the method
# itself is replaced, in workers of `dtk.run(..., record=True)` only: nothing of it has to go.


def in_each_fit(kind: type) -> None:
    """Each `fit` gets a callback `kind()`, after its own, unless one of these is a `kind`."""
    for model in ("keras:Model", "tf_keras:Model"):

        @replaces(model, "fit")
        def fit(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(original).bind(self, *args, **kwargs)
            held = tf.nest.flatten(given.arguments.get("callbacks") or [])  # None, one callback, or a list of them
            given.arguments["callbacks"] = held if any(isinstance(each, kind) for each in held) else [*held, kind()]
            return original(*given.args, **given.kwargs)


# ---- two workers that save `tf.train.Checkpoint`s to one place: an error at the first save instead of at one in twelve
#
# They would now and then find each other's half-written files. So each save is written down in its worker's folder, and
# a worker compares its own with those of the workers before it. That the later worker looks, and waits a moment for the
# earlier one's save, makes the error the same each time. Touched are public methods.

WAIT_SECONDS = 10.0  # for the save of a worker that comes to it at about the same time, or never
_silent: set[int] = set()  # workers that did not save when this one did, and are not waited for again


def _watch(kind: str, name: str, place: Here, where: Callable[..., str]) -> None:
    @replaces(f"tensorflow:train.{kind}", name)
    def wrapped(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        given = [kwargs["file_prefix"]] if "file_prefix" in kwargs else args[:1]
        _claim(where(self, *given), place)
        return original(self, *args, **kwargs)


def _claim(where: str, place: Here) -> None:
    """Writes down that this worker saves to `where`; ClusterConfigError where a worker before it saves there too."""
    with (place.folder.path / "saves.txt").open("a", encoding="utf-8") as file:
        file.write(where + "\n")
    count, earlier = len(_saves(place.folder)), place.run.each[: place.worker]

    def came(peer: WorkerFolder) -> bool:
        saves = _saves(peer)
        return where in saves or len(saves) >= count

    place.meet(lambda peer: peer not in earlier or peer.worker in _silent or came(peer), WAIT_SECONDS)
    _silent.update(peer.worker for peer in earlier if not came(peer))
    for other in earlier:
        if where in _saves(other):
            raise ClusterConfigError(
                f"workers {other.worker} and {place.worker} both save checkpoints to {_called(where, place)}, where "
                "their files collide; let the chief save there and the others to places of their own "
                "(tempfile.mkdtemp())"
            )


def _saves(worker: WorkerFolder) -> list[str]:
    file = worker.path / "saves.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _called(where: str, place: Here) -> str:
    """The place as the learner knows it, without directories of this machine."""
    bases = [base for base in (Path.cwd(), place.run.path.absolute()) if Path(where).is_relative_to(base)]
    return str(Path(where).relative_to(bases[0])) if bases else os.path.basename(where)
