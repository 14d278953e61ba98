"""What an exception says of its cause, without what Keras 3 puts around it when it raises it anew.

Keras says the message of the original after words of its own, and leaves the original in `__context__`. It is found by
what Keras leaves behind, not by its words (Keras 3.13 to 3.15; `traceback_utils`). AutoGraph, and Keras where it infers
a shape, do the same and leave nothing behind that a learner's own `except` doesn't: `explain` reads their words.
"""

from __future__ import annotations

import errno
import socket


def message_of(error: BaseException) -> tuple[str, str]:
    """The name of the class, and the message, of the innermost exception that `error` was made from by Keras."""
    while (inner := error.__context__) is not None and error.__cause__ is None and _wraps(error, inner):
        error = inner
    return type(error).__name__, str(error)


def _wraps(error: BaseException, inner: BaseException) -> bool:
    marked = [getattr(each, "_keras_call_info_injected", False) for each in (error, inner)]
    return marked == [True, False]


_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
# TensorFlow's own mark of an error that comes of another one (StatusGroup::MakeDerived), which its collectives put on
# whatever ends them: 2.15 to 2.22's candidate, tests/texts. It has no public name.
_DERIVED = b"type.googleapis.com/tensorflow.DerivedStatus"


def by_a_peer(error: BaseException) -> bool:
    """Whether an error, or one that it was made from, is marked as the consequence of another worker's failure.

    The mark is TensorFlow's, on all that its collectives raise, or the attribute `by_a_peer` of what `dtk.ring` raises.
    Workers that meet in different collectives all get an error with TensorFlow's.
    """
    for each in _chain(error):
        payloads = getattr(each, "experimental_payloads", None)  # of tf.errors.OpError
        if getattr(each, "by_a_peer", False) is True or (isinstance(payloads, dict) and _DERIVED in payloads):
            return True
    return False


def wanted_a_network(error: BaseException) -> bool:
    """Whether an error, or one that it was made from, says that an address or a name can't be reached."""
    return any(
        isinstance(each, socket.gaierror) or getattr(each, "errno", None) in _UNREACHABLE for each in _chain(error)
    )


def _chain(error: BaseException) -> list[BaseException]:
    """An error and those that it was made from."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and not any(each is other for other in seen):
        seen.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return seen
