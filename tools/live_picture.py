"""docs/live.gif: the live view of a run of two workers, frame by frame as it was: `python tools/live_picture.py`.

Needs Chromium and Playwright, as `make test-browser` does. The frames are the HTML that the dashboard showed.
"""

from __future__ import annotations

import io
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "live.gif"
WIDTH, HEIGHT, SCALE = 620, 200, 1.5
COLORS, LONGEST, LAST = 48, 1500, 3000  # of the picture; milliseconds of a frame at most, and of the last one
PAGE = """<body style="margin:12px;font:14px/1.4 system-ui,'DejaVu Sans',sans-serif;background:#fff">{}</body>"""


def train(strategy: Any, global_batch: int = 128) -> None:
    """MNIST with a small convolution, for some seconds."""
    import keras
    import tensorflow as tf

    import dtk

    (images, _), _ = dtk.datasets.load("mnist", source="embedded")
    images = images.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
    batches = images.cache().shuffle(2000, seed=1).repeat().batch(global_batch)
    layers = keras.layers
    with strategy.scope():
        shape = [layers.Input((28, 28, 1)), layers.Conv2D(24, 5, activation="relu"), layers.MaxPooling2D()]
        model = keras.Sequential([*shape, layers.Conv2D(48, 3, activation="relu"), layers.Flatten(), layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.02), loss=loss)
    model.fit(batches, steps_per_epoch=94, callbacks=[dtk.Recorder()], verbose=0)


def watched() -> list[tuple[float, str]]:
    """When each frame of a real run was shown (s), and its HTML."""
    os.environ["DTK_LIVE"] = "widgets"
    import dtk
    from dtk.live import dashboard

    frames: list[tuple[float, str]] = []
    draw = dashboard.Dashboard._draw

    def kept(view: Any, *args: Any) -> None:
        draw(view, *args)
        frames.append((time.monotonic(), view.page.value))

    dashboard.Dashboard._draw = kept  # type: ignore[method-assign]
    dtk.run(train, workers=2)
    return frames


def main() -> None:
    from PIL import Image

    sys.path.insert(0, str(ROOT / "tests"))
    import chromium  # type: ignore[import-not-found]

    frames = [next(alike) for _words, alike in itertools.groupby(watched(), key=lambda frame: frame[1])]
    with chromium.started() as browser:
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        pictures = []
        for _at, words in frames:
            tab.set_content(PAGE.format(words))
            pictures.append(Image.open(io.BytesIO(tab.screenshot())).convert("RGB"))
    palette = pictures[-1].quantize(COLORS)
    ends = [round(1000 * (after - at)) for (at, _), (after, _) in itertools.pairwise(frames)]
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    stays = [*(min(each, LONGEST) for each in ends), LAST]
    first.save(FILE, save_all=True, append_images=rest, duration=stays, loop=0, optimize=True)
    print(f"{FILE}: {len(frames)} frames, {FILE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
