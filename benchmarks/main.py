"""A worker as the official tutorial starts it: `python main.py`, TF_CONFIG in the environment, nothing warm.

Prints `time.monotonic()` at the end of the first training step.
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
    print(workload.train(tf.distribute.MultiWorkerMirroredStrategy(), record=False)[0], flush=True)
    os._exit(0)  # the measurement is over; an orderly shutdown of two peers takes seconds
