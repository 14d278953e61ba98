"""Without a notebook's page: scripts, IPython in a terminal, a batch that nobody answers, a file that starts itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.trains]

ROOT = Path(__file__).parent.parent
TRAIN = """
import dtk


def train(strategy, global_batch=128):
    import keras
    import tensorflow as tf

    (images, _), _ = dtk.datasets.load("mnist", source="embedded")
    images = images.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
    batches = images.cache().shuffle(2000, seed=1).repeat().batch(global_batch)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss=loss)
    model.fit(batches, steps_per_epoch=4, callbacks=[dtk.Recorder()], verbose=0)

"""
CALL = "run = dtk.run(train, workers=2)\ndtk.verify(run, dtk.baseline(train))\n"


def ran(*command: str, folder: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DTK_LIVE": "text"}
    return subprocess.run(command, cwd=folder, env=env, input=typed, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("guard", [False, True], ids=["at the top level", "under the guard"])
def test_a_script_proves_itself(tmp_path, guard):
    call = "if __name__ == '__main__':\n    " + CALL.replace("\n", "\n    ").rstrip() if guard else CALL
    (tmp_path / "script.py").write_text(TRAIN + call)
    done = ran(sys.executable, "script.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "check every step vs one device: PASS" in done.stdout


def test_a_file_whose_workers_would_start_workers_is_refused_once(tmp_path):
    """Imported, it is imported by its workers again, each of which would start two more."""
    (tmp_path / "module.py").write_text(TRAIN + CALL)
    done = ran(sys.executable, "-c", "import module", folder=tmp_path)
    assert done.returncode == 1
    assert 'put the call under `if __name__ == "__main__":`' in done.stderr
    assert "[worker 0] [worker 0]" not in done.stdout


def test_in_a_terminal_ipython_figures_and_questions_are_text(tmp_path):
    (tmp_path / "script.py").write_text(TRAIN + CALL)
    typed = "%run script.py\ndtk.plot.timeline(run)\ndtk.ask('99.x', 'How many?', {'one': 1, 'two': 2})\nexit\n"
    done = ran(sys.executable, "-m", "IPython", "--simple-prompt", "--colors=NoColor", folder=tmp_path, typed=typed)
    assert "check every step vs one device: PASS" in done.stdout, done.stdout + done.stderr
    assert "<Figure: " in done.stdout
    assert "2. two" in done.stdout
    assert "Axes" not in done.stdout
