"""What an exception says of its cause, without what Keras 3 puts around it when it raises it anew.

Keras says the message of the original after words of its own, and leaves the original in `__context__`. It is found by
what Keras leaves behind, not by its words (Keras 3.13 to 3.15; `traceback_utils` and `Operation.compute_output_spec`).
AutoGraph does the same and leaves nothing behind that a learner's own `except` doesn't: `explain` reads its words.
"""

from __future__ import annotations

import os
from typing import Any

from dtk.compat.versions import keras_2_chosen

__all__ = ["by_a_peer", "cause_of", "message_of"]

# What Keras 2 has and Keras 3 has not, and how Keras 3 does it.
_GONE = {
    "minimize": "optimizer.apply_gradients(zip(gradients, variables)) does what minimize did",
    "get_updates": "optimizer.apply_gradients(zip(gradients, variables)) does what get_updates did",
}


def cause_of(error: BaseException) -> BaseException:
    """The innermost exception that `error` was made from by Keras; `error` itself elsewhere."""
    seen = {id(error)}
    while True:
        inner = error.__context__
        if inner is None or id(inner) in seen or error.__cause__ is not None or not _wraps(error, inner):
            return error
        seen.add(id(inner))
        error = inner


def _wraps(error: BaseException, inner: BaseException) -> bool:
    if getattr(error, "_keras_call_info_injected", False) and not getattr(inner, "_keras_call_info_injected", False):
        return True
    trace = inner.__traceback__  # begins where Keras caught it
    code = trace.tb_frame.f_code if trace is not None else None
    return (
        code is not None
        and code.co_name == "compute_output_spec"
        and code.co_filename.endswith(os.path.join("keras", "src", "ops", "operation.py"))
        and type(error) is type(inner)
        and str(inner) in str(error)
    )


# TensorFlow's own mark of an error that comes of another one (StatusGroup::MakeDerived), which its collectives put on
# whatever ends them: 2.15 to 2.22's candidate, tests/texts. It has no public name.
_DERIVED = b"type.googleapis.com/tensorflow.DerivedStatus"


def by_a_peer(error: BaseException) -> bool:
    """Whether an error, or one that it was made from, is marked as the consequence of another worker's failure.

    The mark is TensorFlow's, on all that its collectives raise, or the attribute `by_a_peer` of what `dtk.ring` raises.
    Workers that meet in different collectives all get an error with TensorFlow's.
    """
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and not any(each is other for other in seen):
        payloads = getattr(each, "experimental_payloads", None)  # of tf.errors.OpError
        if getattr(each, "by_a_peer", False) is True or (isinstance(payloads, dict) and _DERIVED in payloads):
            return True
        seen.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return False


def message_of(error: BaseException) -> tuple[str, str]:
    """The name of the cause's class, and its message."""
    cause = cause_of(error)
    hint = _of_another_keras(cause)
    return type(cause).__name__, hint or str(cause)


def _of_another_keras(error: BaseException) -> str:
    """Where Keras 2's code asks an object of Keras 3 for what it has no more; "" elsewhere."""
    if not isinstance(error, AttributeError) or error.name not in _GONE:
        return ""
    kind: Any = type(error.obj)
    if not any(base.__module__.split(".")[0] == "keras" and _is_keras_3(base) for base in kind.__mro__):
        return ""
    remedy = (
        "or import from tensorflow.keras: this run uses Keras 2, and `keras` itself is Keras 3"
        if keras_2_chosen()
        else "or pass keras=2 to dtk.run and dtk.baseline"
    )
    return f"{kind.__name__} has no {error.name}: {_GONE[error.name]}, {remedy}"


def _is_keras_3(base: type) -> bool:
    import sys

    version = getattr(sys.modules.get("keras"), "__version__", "3")
    return not version.startswith("2.")
