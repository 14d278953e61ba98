"""From a function in a cell to bytes that another process can run, sources included."""

from __future__ import annotations

import functools
import inspect
import io
import linecache
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle

from dtk.errors import NotShippable, library_of
from dtk.language import N_, _


def pack(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The call as bytes, by value for what lives in `__main__` (cells), by reference for importable modules.

    Raises NotShippable, naming what can't be pickled and where it is captured.
    """
    try:
        return bytes(cloudpickle.dumps((fn, args, kwargs)))
    except Exception as error:  # pickling runs code of whatever object it meets: any exception may come out
        raise NotShippable(_explain(fn, args, kwargs, error)) from None


def takes_strategy(fn: Any) -> bool:
    """Whether the function has a parameter `strategy`, which dtk fills."""
    try:
        return "strategy" in inspect.signature(fn).parameters
    except ValueError:
        return False  # a builtin that tells nothing of its parameters, such as int


def fill_strategy(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], strategy: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the strategy in its place, so that `args` are those that follow a first `strategy`.

    >>> fill_strategy(lambda strategy, steps: None, (3,), {}, "S")
    (('S', 3), {})
    """
    parameters = inspect.signature(fn).parameters
    place = list(parameters).index("strategy")
    positional = parameters["strategy"].kind is not inspect.Parameter.KEYWORD_ONLY
    if positional and len(args) > place:
        return (*args[:place], strategy, *args[place:]), kwargs
    return args, {**kwargs, "strategy": strategy}


_HOMES = {
    "datasets": ("dtk.datasets",),
    "estimator": ("dtk.estimator", "tensorflow_estimator"),
    "ring": ("dtk.worker.ring",),
}


def uses(fn: Any, part: str) -> bool:
    """Whether the function, or one of the learner's that it calls, uses `dtk.<part>`: by name, or from its module."""
    for each in own_functions(fn, set()):
        used = set(names(each.__code__)) if inspect.isfunction(each) else set()
        if f"dtk.{part}" in used:  # from dtk.estimator import ..., inside the function
            return True
        for name, value in [("dtk", None), *captured(each)]:
            home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
            if home.startswith(_HOMES[part]):
                return True
            if (home == "dtk" or name == "dtk") and {name, part} <= used:  # dtk.estimator.RunConfig(...)
                return True
    return False


def own_functions(fn: Any, seen: set[int]) -> Iterator[Any]:
    """The function, and those of the learner's functions and classes that it captures, and so on."""
    seen.add(id(fn))
    yield fn
    if not inspect.isroutine(fn) and not inspect.isclass(fn):
        fn = type(fn)  # an object with __call__
    members = list(vars(fn).items()) if inspect.isclass(fn) else []
    for _name, value in [*members, *captured(fn)]:
        if id(value) not in seen and (inspect.isroutine(value) or inspect.isclass(value)) and is_own(value):
            yield from own_functions(value, seen)


def is_own(value: Any) -> bool:
    """Whether a function was written in a cell, a script or a module beside them, and not installed."""
    home = getattr(value, "__module__", None) or ""
    return home == "__main__" or bool(file_of(home))


def file_of(module: str) -> str:
    """The file of an imported module that was not installed; "" for any other."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "" if library_of(file) else file


def cell_sources() -> dict[str, str]:
    """Sources that exist only in this process: notebook cells, by the file name their code objects carry.

    Without them AutoGraph can't convert a function in the worker, and tracebacks have no lines.
    """
    held = list(linecache.cache.items())
    return {name: "".join(entry[2]) for name, entry in held if len(entry) == 4 and not os.path.exists(name)}


def unpack_sources(sources: dict[str, str]) -> None:
    """Puts sources into this process's linecache, where `inspect` and `traceback` look for them."""
    for name, text in sources.items():
        # mtime None: `linecache.checkcache` leaves such entries alone, though no such file exists.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _explain(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> str:
    given = [(f"args[{i}]", value) for i, value in enumerate(args)]
    given += [(f"kwargs[{name!r}]", value) for name, value in kwargs.items()]
    for name, value in given:
        if not _travels(value):
            words = N_("`{name}` ({kind}) can't travel to a worker; make it inside the function")
            return _(words, name=name, kind=_kind(value))
    found = _culprit(fn, set())
    if found:
        owner, name, value = found
        words = N_("`{name}` ({kind}) is captured by `{owner}`; create it inside")
        name = _(DEFAULT_VALUE) if name == DEFAULT_VALUE else name
        return _(words, name=name, kind=_kind(value), owner=owner)
    label = getattr(fn, "__name__", type(fn).__name__)
    said = f"{type(error).__name__}: {error}"
    return _("`{name}` can't travel to a worker: {error}", name=label, error=said)


def _culprit(fn: Any, seen: set[int]) -> tuple[str, str, Any] | None:
    """(capturing function, name, value) of the first captured value that can't be pickled, depth first."""
    for name, value in captured(fn):
        if id(value) in seen or isinstance(value, types.ModuleType):
            continue
        seen.add(id(value))
        if _travels(value):
            continue
        inner = _culprit(value, seen) if inspect.isroutine(value) or inspect.isclass(value) else None
        return inner or (getattr(fn, "__name__", _("the function")), name, value)
    return None


DEFAULT_VALUE = N_("a default value")  # what is captured so has no name


def captured(fn: Any) -> Iterator[tuple[str, Any]]:
    fn = getattr(fn, "__wrapped__", fn)
    if inspect.ismethod(fn):
        yield "self", fn.__self__
        fn = fn.__func__
    if inspect.isclass(fn):
        for member in vars(fn).values():
            if inspect.isfunction(member):
                yield from captured(member)
    elif inspect.isfunction(fn):
        yield from _variables(fn)
    elif isinstance(fn, functools.partial):
        yield fn.func.__name__, fn.func
        yield from [(f"args[{i}]", value) for i, value in enumerate(fn.args)]
        yield from fn.keywords.items()
    else:
        yield from getattr(fn, "__dict__", {}).items()  # an object with __call__


def _variables(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            pass  # a name that its function has not assigned yet
    for name in names(fn.__code__):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]
    for default in [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]:
        yield DEFAULT_VALUE, default


def names(code: types.CodeType) -> Iterator[str]:
    """Every name that the code uses, with those of its nested functions; some more than once."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):  # a nested function or comprehension
            yield from names(constant)


def _travels(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _kind(value: Any) -> str:
    return type(value).__name__.lstrip("_")


# ---- the way back


class _ResultPickler(cloudpickle.Pickler):
    """Reading a result must not start TensorFlow in the kernel: tensors and variables travel as NumPy arrays, and what
    Keras's `fit` returns as a namespace with its `history`, `epoch` and `params`."""

    def reducer_override(self, obj: Any) -> Any:
        tf, kind = sys.modules.get("tensorflow"), type(obj)
        if tf is not None and isinstance(obj, (tf.Tensor, tf.Variable)) and hasattr(obj, "numpy"):
            return obj.numpy().__reduce__()
        if kind.__name__ == "History" and kind.__module__.partition(".")[0] in ("keras", "tf_keras"):
            held = {name: getattr(obj, name, None) for name in ("history", "epoch", "params")}
            return types.SimpleNamespace, (), held
        return super().reducer_override(obj)


def pack_result(result: Any) -> bytes:
    """What a function returned; TypeError for what can't be pickled."""
    buffer = io.BytesIO()
    try:
        _ResultPickler(buffer).dump(result)
    except Exception as error:
        kind = type(result).__name__
        words = N_("the function returned a {kind} that can't be pickled ({error}); return numbers, arrays or strings")
        raise TypeError(_(words, kind=kind, error=error)) from None
    return buffer.getvalue()
