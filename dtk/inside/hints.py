"""What a page asks while a cell is written: names that begin so, and what a name is. No code of the values runs.

A property, a `__getattr__` or a `__dir__` could take an all-reduce, or wait for the main thread. So values are found in
dictionaries of modules, objects and classes alone; what only a call could tell stays unknown.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from dtk.inside.look import is_plain

__all__ = ["complete", "describe"]

Message = dict[str, Any]

_MOST = 2000  # names
_NONE = object()  # for what is unknown; None is a value
_STEP = r"[^\W\d]\w*(?:\[(?:-?\d+|'[^'\n]*'|\"[^\"\n]*\")\])*"
_PATH = re.compile(rf"(?<![\w.)\]'\"])((?:{_STEP}\s*\.\s*)*)([^\W\d]\w*)?$")
_CALL = re.compile(rf"({_STEP}(?:\s*\.\s*{_STEP})*)\s*$")
_TEXTS = re.compile(
    r"'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|#[^\n]*\n", re.DOTALL
)
_WITH_SHAPES = ("numpy", "tensorflow", "keras", "tf_keras")
_OPEN = re.compile(r"([a-zA-Z]*)('''|\"\"\"|'|\"|#)")


def complete(names: dict[str, Any], code: str, at: int, hidden: Mapping[str, Any]) -> Message:
    """{"from": where the word begins, "known": whether what stands before its dot is, "found": [[name, kind], ...]}.

    hidden: what the namespace began with.
    """
    before = code[:at]
    line = before[before.rfind("\n") + 1 :]
    path = None if _in_a_text(before) else _PATH.search(line)
    if path is None:
        return {"from": at, "known": False, "found": []}
    owner, begin = path[1].rstrip(" \t\n."), path[2] or ""
    if owner:
        value = _value(names, owner)
        value = _NONE if isinstance(value, property) else value
        found = {} if value is _NONE else _attributes(value)
    else:
        own = {name: each for name, each in list(names.items()) if hidden.get(name, _NONE) is not each}
        value, found = None, {**_parameters(names, before), **own}
    chosen = [[name, _kind(each)] for name, each in sorted(found.items(), key=_order) if _fits(name, begin)]
    return {"from": at - len(begin), "known": bool(owner) and value is not _NONE, "found": chosen[:_MOST]}


def describe(names: dict[str, Any], code: str, at: int, detail: int = 0) -> Message:
    """{"text": what the name at the cursor is, or the function in whose brackets it stands; "" if unknown}."""
    from IPython.utils.tokenutil import token_at_cursor

    name = token_at_cursor(code, at)
    value = _value(names, name) if name else _NONE
    return {"text": "" if value is _NONE else _described(name, value, detail)}


def _in_a_text(before: str) -> bool:
    """Whether the cursor is in a string or a comment; what stands in the braces of an f-string is code."""
    rest = _TEXTS.sub(" ", before)
    found = _OPEN.search(rest)
    if found is None:
        return False
    body = rest[found.end() :]
    return "f" not in found[1].lower() or body.rfind("{") <= body.rfind("}")


def _fits(name: str, begin: str) -> bool:
    return name.startswith(begin) and (not name.startswith("_") or begin.startswith("_"))


def _order(item: tuple[str, Any]) -> tuple[bool, str]:
    return not item[0].endswith("="), item[0]


def _value(names: dict[str, Any], path: str) -> Any:
    """What "model.layers[0]" stands for; a property, whose value is unknown, for itself; or _NONE."""
    try:
        return _of_node(names, ast.parse(path.strip(), mode="eval").body)
    except (SyntaxError, LookupError, TypeError):
        return _NONE


def _of_node(names: dict[str, Any], node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id, _NONE)
    if isinstance(node, ast.Attribute):
        owner = _of_node(names, node.value)
        if owner is _NONE or isinstance(owner, property):
            return _NONE
        found = _static(owner, node.attr)
        return found if isinstance(found, property) else _usable(found, owner)
    if isinstance(node, ast.Subscript):
        owner = _of_node(names, node.value)
        return owner[ast.literal_eval(node.slice)] if type(owner) in (list, tuple, dict) else _NONE
    return _NONE


def _static(owner: Any, name: str) -> Any:
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, _NONE)
    return inspect.getattr_static(owner, name, _NONE)


def _usable(found: Any, owner: Any) -> Any:
    """The value of an attribute where getting it runs nothing: of a method the bound one."""
    if isinstance(found, FunctionType) and not isinstance(owner, (type, ModuleType)):
        return MethodType(found, owner) if _static(owner, found.__name__) is found else found
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return MethodType(found.__func__, owner if isinstance(owner, type) else type(owner))
    if isinstance(found, MemberDescriptorType):
        return found.__get__(owner) if not isinstance(owner, type) else found
    runs = found is not _NONE and inspect.getattr_static(type(found), "__get__", None) is not None
    plain = isinstance(found, (FunctionType, MethodType, type)) or inspect.isroutine(found)
    return _NONE if runs and not plain else found


def _attributes(value: Any) -> dict[str, Any]:
    """Those of a value, by name: as `dir` says, without asking the value."""
    if isinstance(value, ModuleType):
        return dict(vars(value))
    bases = value.__mro__ if isinstance(value, type) else type(value).__mro__
    found: dict[str, Any] = {}
    for each in reversed(bases):
        found |= vars(each)
    if not isinstance(value, type):
        try:
            found |= object.__getattribute__(value, "__dict__")
        except AttributeError:
            pass  # it has slots alone
    return found


def _parameters(names: dict[str, Any], before: str) -> dict[str, Any]:
    """The keywords, "epochs=", of the call in whose brackets the cursor is."""
    depth = 0
    for k in range(len(before) - 1, -1, -1):
        depth += (before[k] in ")]}") - (before[k] in "([{")
        if depth < 0:
            called = _CALL.search(before[:k]) if before[k] == "(" else None
            taken = _signature(_value(names, called[1])) if called else None
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            return {f"{each.name}=": each for each in taken.parameters.values() if each.kind in kinds} if taken else {}
    return {}


def _signature(value: Any) -> inspect.Signature | None:
    value = _wrapped(value)
    try:
        return inspect.signature(value) if isinstance(value, type) or inspect.isroutine(value) else None
    except (TypeError, ValueError):
        return None


def _kind(value: Any) -> str:
    """In the words that pages have symbols for."""
    if isinstance(value, inspect.Parameter):
        return "param"
    if isinstance(value, ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    if isinstance(value, property):
        return "property"
    return "function" if inspect.isroutine(value) or isinstance(value, (staticmethod, classmethod)) else "instance"


def _wrapped(value: Any) -> Any:
    """The function of a `tf.function`."""
    found = _NONE if isinstance(value, type) else _static(value, "__wrapped__")
    return value if found is _NONE else found


def _described(name: str, value: Any, detail: int) -> str:
    rows = {"Type": _type_of(value)}
    signature = _signature(value)
    if signature is not None:
        rows = {"Signature": f"{name}{signature}", **rows}
    if is_plain(value):
        rows["Value"] = repr(value)[:500]
    if (shape := _shape(value)) is not None:
        rows["Shape"] = shape
    made = value.fget if isinstance(value, property) else _wrapped(value)
    if isinstance(made, (type, ModuleType)) or inspect.isroutine(made):
        rows["File"] = _of_source(inspect.getsourcefile, made)
        rows["Docstring"] = inspect.getdoc(made) or ""
        rows["Source"] = _of_source(inspect.getsource, made) if detail else ""
    elif not {"Value", "Shape"} & {*rows}:
        rows["Class docstring"] = inspect.getdoc(type(value)) or ""
    return "\n".join(_row(title, text.rstrip()) for title, text in rows.items() if text)


def _row(title: str, text: str) -> str:
    head = f"\x1b[31m{title}:\x1b[39m"
    return f"{head}\n{text}" if title in ("Docstring", "Class docstring", "Source") else f"{head} {text}"


def _type_of(value: Any) -> str:
    kind: type = value if isinstance(value, type) else type(value)
    if isinstance(value, (ModuleType, property)) or inspect.isroutine(value):
        return kind.__name__
    return f"{'class ' if kind is value else ''}{kind.__module__}.{kind.__qualname__}".replace("builtins.", "")


def _shape(value: Any) -> str | None:
    """Of arrays, tensors and variables, which know it without a look at their numbers."""
    if isinstance(value, type) or type(value).__module__.partition(".")[0] not in _WITH_SHAPES:
        return None
    try:
        return f"{tuple(value.shape)} {getattr(value.dtype, 'name', value.dtype)}"
    except (AttributeError, TypeError, ValueError):
        return None


def _of_source(ask: Callable[[Any], str | None], value: Any) -> str:
    try:
        return ask(inspect.unwrap(value)) or ""
    except (OSError, TypeError, ValueError):
        return ""  # made by C code, or in a cell whose lines are gone
