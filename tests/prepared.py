"""Real MNIST, prepared by tensorflow-datasets: in TFDS_DATA_DIR, or in a folder `shared` beside the project's."""

import os
from pathlib import Path

import pytest

PREPARED = Path(os.environ.get("TFDS_DATA_DIR") or Path(__file__).parents[2] / "shared/data/tensorflow_datasets")
needs_mnist = pytest.mark.skipif(not (PREPARED / "mnist").exists(), reason="no prepared MNIST here")
