"""Which lines of a worker's log are TensorFlow's start-up notes, and say nothing about the training."""

from __future__ import annotations

import re

__all__ = ["is_chatter"]

# How TensorFlow's C++ side (absl logging) begins its notes and warnings, and one Python-side hint that follows them.
_CHATTER = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] |[IW]\d{4} \d\d:\d\d:\d+\.\d+ |WARNING: All log messages before absl"
    r"|To enable the following instructions: |E\d{4} .*(?:Unable to register cu|failed call to cuInit)"
)


def is_chatter(line: str) -> bool:
    """Whether a line is a note or a warning of TensorFlow's C++ start-up, which says nothing about the training.

    Of its errors only those count that a machine without a GPU always brings.

    >>> is_chatter("I0000 00:00:1794212.123 41 cpu_feature_guard.cc:227] This TensorFlow binary is optimized")
    True
    >>> is_chatter("E0000 00:00:1794212.123 41 grpc_server_lib.cc:500] Could not start gRPC server")
    False
    """
    return _CHATTER.match(line) is not None
