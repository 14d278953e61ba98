"""What is set in TensorFlow so that workers are quicker: small messages, and datasets that end at once."""

from __future__ import annotations

import os
from typing import Any

from dtk.compat.libraries import replaces, tf
from dtk.errors import DtkError

__all__ = ["MESSAGE_BYTES", "leave_datasets_untuned", "send_small_messages"]

# ---- small messages between workers: 64 KB at a time of what one sends to another, in place of TensorFlow's 4 MB
#
# A worker's part of an all-reduce is copied some eight times on its way through gRPC: from the tensor into strings of
# at most `ConfigProto.experimental.recv_buf_max_chunk` bytes, into a protocol buffer, into another around it, to the
# socket, and on the other side the same way back. Pieces that fit into a core's cache make that cheaper
# (docs/explanation/scaling.md has by how much). What is sent is the same, and so is every sum.
#
# The field has no public way in: `tf.compat.v1.enable_eager_execution(config=...)` does nothing where eager execution
# is on from the beginning (TensorFlow 2.15 to 2.21, tensorflow/python/framework/ops.py). So the context is made,
# which does not start it, and given the ConfigProto that it would have got that way.

MESSAGE_BYTES = 1 << 16


def send_small_messages() -> bool:
    """Before TensorFlow's context starts; False where it has started. `DTK_MESSAGE_BYTES` sets another size."""
    from tensorflow.python.eager import context

    stated = os.environ.get("DTK_MESSAGE_BYTES") or str(MESSAGE_BYTES)
    if not stated.isdecimal():
        raise DtkError(f"DTK_MESSAGE_BYTES={stated}: it takes bytes, or 0 for TensorFlow's default")
    ours = context.context()
    if ours._context_handle is not None or ours._config is not None:
        return False
    ours._config = tf.compat.v1.ConfigProto()
    ours._config.experimental.recv_buf_max_chunk = int(stated)
    # Threads that look for work for a while before they sleep take the core from those that have some.
    ours._config.experimental.disable_thread_spinning = os.environ.get("TF_NUM_INTRAOP_THREADS") == "1"
    return True


# ---- iterators of datasets end at once: tf.data's autotuning is off, unless the dataset's own options ask for it
#
# An iterator that goes waits for the thread that tunes its pipeline, with Python's lock in hand. That thread looks
# again after 10 ms, 20 ms, ... a minute. To end, it is woken (`Model::OptimizeLoop` in
# tensorflow/core/framework/model.cc) by a callback of `CancellationManager::StartCancelWithStatus`, which notes only
# after its callbacks that there is a cancellation: a thread that is quicker sees none and sleeps on. Measured on two
# cores, TensorFlow 2.21: 4 of 24 iterators that had lived for 1.5 s took another 1.04 s to go; a worker whose
# function had trained for 25 s took 57 s more to return, without using the processor.
#
# Without the thread, parameters that are AUTOTUNE have their fixed default, and prefetching its own tuning. Touched
# is `Dataset._apply_debug_options`, which every iterator's dataset goes through (TensorFlow 2.15 to 2.21);
# TensorFlow's own debug mode switches autotuning off there, too. No upstream issue is known.


def leave_datasets_untuned() -> None:
    """For every iterator that is made in this process from now on; TensorFlow may be imported or not."""

    @replaces("tensorflow.python.data.ops.dataset_ops:DatasetV2", "_apply_debug_options")
    def untuned(original: Any, self: Any) -> Any:
        found = original(self)
        if found.options().autotune != tf.data.experimental.AutotuneOptions():
            return found
        options = tf.data.Options()
        options.autotune.enabled = False
        return found.with_options(options)
