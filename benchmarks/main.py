"""A worker as the official tutorial starts it: `python main.py`, TF_CONFIG in the environment, nothing warm.

Prints `time.monotonic()` at the end of each training step: `main.py STEPS`, by default of the first.
"""

import os
import sys
import warnings

import keras
import tensorflow as tf

warnings.simplefilter("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import workload  # noqa: E402

from dtk.compat import keras3  # noqa: E402

if __name__ == "__main__":
    assert keras.backend.backend() == "tensorflow"
    keras3.apply()  # without it Keras 3's fit raises under this strategy
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(*workload.train(tf.distribute.MultiWorkerMirroredStrategy(), steps, record=False), flush=True)
    os._exit(0)  # the measurement is over; an orderly shutdown of two peers takes seconds
