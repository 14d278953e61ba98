"""The main job without a browser: a Keras `fit` on two workers, proved against one device, drawn as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtk.errors import DtkError
from dtk.language import _
from dtk.proof.verify import verify
from dtk.runs import Run, baseline, run

__all__ = ["demo", "train"]

GLOBAL_BATCH = 128
STEPS = 94  # 12,032 images of MNIST; the digits go round more than once


def train(strategy: Any, steps: int = STEPS, source: str | None = None) -> dict[str, list[float]]:
    """The main job: a CNN on MNIST, `steps` steps of one epoch; returns Keras's history."""
    import keras
    import tensorflow as tf

    import dtk

    (images, _), _ = dtk.datasets.load("mnist", source=source)
    scaled = images.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
    batches = scaled.cache().shuffle(10_000, seed=1).repeat().batch(GLOBAL_BATCH).prefetch(tf.data.AUTOTUNE)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((28, 28, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(5e-4), loss=loss, metrics=["accuracy"])
    history = model.fit(batches, steps_per_epoch=steps, callbacks=[dtk.Recorder()], verbose=2)
    return dict(history.history)


def demo(out: Path, workers: int = 2) -> list[Path]:
    """Runs, verifies, draws; returns the figures' paths. Raises VerificationError where the runs differ."""
    try:
        out.mkdir(parents=True, exist_ok=True)  # now, and not after the training
    except OSError as error:
        words = _("the figures can't be written into {folder}: {why}", folder=out, why=error.strerror)
        raise DtkError(words, remedy=_("name another folder")) from None
    cluster = run(train, workers=workers)
    single = baseline(train, workers=workers)
    verify(cluster, single)
    return draw(cluster, single, out)


def draw(cluster: Run, single: Run, out: Path) -> list[Path]:
    """The three figures, each in light and dark."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dtk import plot

    figures: dict[str, Callable[[], Any]] = {
        "loss_scaling": lambda: plot.loss_scaling(cluster, single),
        "throughput": lambda: plot.throughput(single, cluster),
        "timeline": lambda: plot.timeline(cluster),
    }
    written = []
    for name, draw_one in figures.items():
        for theme, style in (("", "default"), ("-dark", "dark_background")):
            with plt.style.context(style):
                figure: Any = draw_one().figure
                path = out / f"{name}{theme}.png"
                figure.savefig(path, dpi=144)
                plt.close(figure)
            written.append(path)
    return written
