"""Classification and segmentation of images."""

from __future__ import annotations

from typing import Any

from training import dealt

import dtk
from gallery import program
from gallery.made_up import images, slices
from gallery.slips import FITS, fitted, rate, scope


def _convnet(strategy: Any, slip: str | None, dropout: float) -> None:
    import keras
    from keras import layers

    x, y = images(256)
    with scope(strategy, slip):
        stack = [
            keras.Input((12, 12, 1)),
            layers.Conv2D(8, 3, activation="tanh"),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 3, activation="tanh"),
            layers.Flatten(),
            *([layers.Dropout(dropout)] if dropout else []),
            layers.Dense(4, activation="softmax"),
        ]
        model = keras.Sequential(stack)
        model.compile(keras.optimizers.Adam(rate(0.003, strategy, slip)), "categorical_crossentropy")
    fitted(model, slices(x, keras.utils.to_categorical(y, 4)), 32, strategy, slip)


@program(kind="classification", source="keras-io examples/vision/mnist_convnet.py, without Dropout", slips=FITS)
def mnist_convnet(strategy: Any, slip: str | None = None) -> None:
    """Every layer and the loss look at one example at a time, and Keras divides its loss by the replicas."""
    _convnet(strategy, slip, dropout=0.0)


@program(kind="classification", source="keras-io examples/vision/mnist_convnet.py")
def mnist_convnet_dropout(strategy: Any, slip: str | None = None) -> None:
    """Each replica drops other units than one device does for the same examples."""
    _convnet(strategy, slip, dropout=0.5)


@program(kind="classification", source="keras-io examples/vision/image_classification_from_scratch.py")
def images_from_scratch(strategy: Any, slip: str | None = None) -> None:
    """RandomFlip and RandomRotation are layers of the model: each replica turns its images its own way."""
    import keras
    from keras import layers

    x, y = images(128, channels=3, classes=2)
    with scope(strategy, slip):
        inputs = keras.Input((12, 12, 3))
        z = layers.RandomFlip("horizontal")(inputs)
        z = layers.RandomRotation(0.1)(z)
        z = layers.Rescaling(2.0, offset=-1.0)(z)
        for filters in (8, 12):
            residual = layers.Conv2D(filters, 1, strides=2, padding="same")(z)
            z = layers.Activation("gelu")(z)
            z = layers.SeparableConv2D(filters, 3, padding="same")(z)
            z = layers.add([layers.MaxPooling2D(3, strides=2, padding="same")(z), residual])
        outputs = layers.Dense(1)(layers.GlobalAveragePooling2D()(z))
        model = keras.Model(inputs, outputs)
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate(3e-3, strategy, slip)), loss)
    fitted(model, slices(x, y.astype("float32")[:, None]), 16, strategy, slip)


def _unet(strategy: Any, slip: str | None, **normalization: Any) -> None:
    import keras
    from keras import layers

    x, _ = images(96, size=16, channels=3)
    masks = (x.mean(axis=-1, keepdims=True) * 3).astype("int64")
    with scope(strategy, slip):
        inputs = keras.Input((16, 16, 3))
        z = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(inputs)
        z = layers.Activation("tanh")(layers.BatchNormalization(**normalization)(z))
        before = z
        for filters in (12,):  # downwards, each with a residual
            z = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False)(layers.Activation("tanh")(z))
            z = layers.BatchNormalization(**normalization)(z)
            z = layers.MaxPooling2D(3, strides=2, padding="same")(z)
            before = layers.Conv2D(filters, 1, strides=2, padding="same")(before)
            before = z = layers.add([z, before])
        for filters in (8, 8):  # and up again
            z = layers.Conv2DTranspose(filters, 3, padding="same", use_bias=False)(layers.Activation("tanh")(z))
            z = layers.BatchNormalization(**normalization)(z)
            z = layers.UpSampling2D(2)(z)
            before = layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(before))
            before = z = layers.add([z, before])
        model = keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(z))
        model.compile(keras.optimizers.Adam(rate(1e-3, strategy, slip)), "sparse_categorical_crossentropy")
    fitted(model, slices(x, masks), 16, strategy, slip)


@program(kind="segmentation", source="keras-io examples/vision/oxford_pets_image_segmentation.py")
def pets_unet(strategy: Any, slip: str | None = None) -> None:
    """BatchNormalization takes mean and variance of its replica's images alone."""
    _unet(strategy, slip)


@program(
    kind="segmentation", source="keras-io examples/vision/oxford_pets_image_segmentation.py, synchronized", slips=FITS
)
def pets_unet_synchronized(strategy: Any, slip: str | None = None) -> None:
    """BatchNormalization(synchronized=True) takes mean and variance over all replicas, as one device does."""
    _unet(strategy, slip, synchronized=True)


def _vision_transformer(strategy: Any, slip: str | None, sparse: bool) -> None:
    import keras
    from keras import layers, ops

    class Patches(layers.Layer):
        def call(self, pictures: Any) -> Any:
            cut = ops.image.extract_patches(pictures, size=4)
            return ops.reshape(cut, (-1, cut.shape[1] * cut.shape[2], cut.shape[3]))

    class PatchEncoder(layers.Layer):
        def __init__(self, patches: int, width: int) -> None:
            super().__init__()
            self.patches, self.projection = patches, layers.Dense(width)
            if sparse:
                self.position = layers.Embedding(patches, width)
            else:
                self.position = self.add_weight((1, patches, width), "uniform", name="position")

        def call(self, cut: Any) -> Any:
            if sparse:
                return self.projection(cut) + self.position(ops.expand_dims(ops.arange(self.patches), 0))
            return self.projection(cut) + self.position

    x, y = images(192, channels=3)
    with scope(strategy, slip):
        inputs = keras.Input((12, 12, 3))
        normalization = layers.Normalization()
        normalization.adapt(x)
        z = PatchEncoder(9, 16)(Patches()(normalization(inputs)))
        for _ in range(2):
            z1 = layers.LayerNormalization(epsilon=1e-6)(z)
            z = layers.Add()([layers.MultiHeadAttention(2, 8)(z1, z1), z])
            z2 = layers.LayerNormalization(epsilon=1e-6)(z)
            z = layers.Add()([layers.Dense(16)(layers.Dense(32, activation="gelu")(z2)), z])
        z = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(z))
        model = keras.Model(inputs, layers.Dense(4)(layers.Dense(32, activation="gelu")(z)))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        accuracy = [keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseTopKCategoricalAccuracy(2)]
        model.compile(keras.optimizers.AdamW(rate(1e-3, strategy, slip), weight_decay=1e-4), loss, metrics=accuracy)
    fitted(model, slices(x, y), 32, strategy, slip)


VIT = "keras-io examples/vision/image_classification_with_vision_transformer.py, without Dropout"


@program(kind="attention", source=VIT, right="sparse gradient", reason="update")
def vision_transformer(strategy: Any, slip: str | None = None) -> None:
    """The positions' Embedding has a sparse gradient: a row a position, which replicas lay side by side unadded.

    Keras 3's Adam squares each row by itself, and g1² + g2² is not (g1 + g2)². With SGD it would pass, and where each
    row is of one example (an Embedding of words) one device squares the same rows.
    """
    _vision_transformer(strategy, slip, sparse=True)


@program(kind="attention", source=f"{VIT}, positions a dense weight", slips=FITS)
def vision_transformer_dense(strategy: Any, slip: str | None = None) -> None:
    """Layers of its own cut and encode patches; attention is within an image, LayerNormalization within a patch."""
    _vision_transformer(strategy, slip, sparse=False)


@program(
    kind="classification",
    source="keras-io examples/vision/mnist_convnet.py, 101 images",
    right="uneven batch",
    reason="uneven batch",
)
def short_batch(strategy: Any, slip: str | None = None) -> None:
    """Nobody drops the remainder: of the last five images one replica has three, and `fit` averages the means."""
    import keras

    x, y = images(101)
    with scope(strategy, slip):
        layers = [keras.Input((12, 12, 1)), keras.layers.Flatten(), keras.layers.Dense(16, activation="tanh")]
        model = keras.Sequential([*layers, keras.layers.Dense(4)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.fit(dealt((x, y), 32), epochs=2, callbacks=[dtk.Recorder()], verbose=0)
