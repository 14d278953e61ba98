"""Text: recurrent networks, attention, translation."""

from __future__ import annotations

from typing import Any

from gallery import program
from gallery.made_up import slices, tokens
from gallery.slips import FITS, fitted, rate, scope

WORDS = ("the", "a", "film", "plot", "bad", "dull", "poor", "flat", "good", "great", "fine", "sharp", "of", "and")


@program(kind="recurrent", source="keras-io examples/nlp/bidirectional_lstm_imdb.py", slips=FITS)
def bidirectional_lstm(strategy: Any, slip: str | None = None) -> None:
    """The mask of padding stops each sequence at its own end; the loss has no mask, as one number remains a text."""
    import keras
    import numpy as np
    from keras import layers

    x, y = tokens(256)
    x[np.arange(12)[None, :] >= np.random.default_rng(1).integers(4, 13, 256)[:, None]] = 0
    with scope(strategy, slip):
        inputs = keras.Input((None,), dtype="int32")
        z = layers.Embedding(40, 8, mask_zero=True)(inputs)
        z = layers.Bidirectional(layers.LSTM(6, return_sequences=True))(z)
        z = layers.Bidirectional(layers.LSTM(6))(z)
        model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(z))
        optimizer = keras.optimizers.Adam(rate(0.01, strategy, slip))
        model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    fitted(model, slices(x, y[:, None]), 32, strategy, slip)


@program(kind="translation", source="keras-io examples/nlp/lstm_seq2seq.py", slips=FITS)
def lstm_seq2seq(strategy: Any, slip: str | None = None) -> None:
    """Two inputs; the decoder starts from the encoder's states. Padding is a sign like others: there is no mask."""
    import keras
    import numpy as np
    from keras import layers

    x, _ = tokens(128, length=8, vocabulary=15)
    y = np.concatenate([np.zeros((128, 1), int), (x[:, ::-1] + 3) % 15], axis=1)  # begins with the start's sign
    one_hot = np.eye(15, dtype="float32")
    with scope(strategy, slip):
        encoder_inputs = keras.Input((None, 15))
        _, h, c = layers.LSTM(24, return_state=True)(encoder_inputs)
        decoder_inputs = keras.Input((None, 15))
        outputs, _, _ = layers.LSTM(24, return_sequences=True, return_state=True)(decoder_inputs, initial_state=[h, c])
        outputs = layers.Dense(15, activation="softmax")(outputs)
        model = keras.Model([encoder_inputs, decoder_inputs], outputs)
        optimizer = keras.optimizers.RMSprop(rate(0.003, strategy, slip))
        model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    pairs = slices((one_hot[x], one_hot[y[:, :-1]]), one_hot[y[:, 1:]])
    fitted(model, pairs, 16, strategy, slip)


def _transformer(strategy: Any, slip: str | None, lengths: tuple[int, int], **objects: Any) -> None:
    """Spanish made of English; each sentence and its translation are padded with 0 to eight words.

    Positions are a dense weight: with an Embedding and Adam see `fit_images.vision_transformer`.
    """
    import keras
    import numpy as np
    from keras import layers, ops

    class PositionalEmbedding(layers.Layer):
        def __init__(self, length: int, vocabulary: int, width: int) -> None:
            super().__init__()
            self.words = layers.Embedding(vocabulary, width)
            self.positions = self.add_weight((length, width), "uniform", name="positions")

        def call(self, ids: Any) -> Any:
            return self.words(ids) + self.positions[: ops.shape(ids)[-1]]

        def compute_mask(self, ids: Any, mask: Any = None) -> Any:
            return ops.not_equal(ids, 0)

    class Block(layers.Layer):
        def __init__(self, width: int, causal: bool) -> None:
            super().__init__()
            self.supports_masking, self.causal = True, causal
            # Without biases: that of the keys has a gradient of 0, of which Adam makes rounding of the size of a step.
            self.attention = layers.MultiHeadAttention(2, width, use_bias=False)
            self.cross = layers.MultiHeadAttention(2, width, use_bias=False)
            self.dense = layers.Dense(width, activation="gelu")
            self.norms = [layers.LayerNormalization() for _ in range(3)]

        def call(self, z: Any, encoded: Any = None, mask: Any = None) -> Any:
            mine, theirs = mask if isinstance(mask, (list, tuple)) else (mask, None)
            padding = None if mine is None else ops.expand_dims(mine, 1)
            z = self.norms[0](z + self.attention(z, z, attention_mask=padding, use_causal_mask=self.causal))
            if encoded is not None:
                seen = None if theirs is None else ops.expand_dims(theirs, 1)
                z = self.norms[1](z + self.cross(z, encoded, attention_mask=seen))
            return self.norms[2](z + self.dense(z))

    rng = np.random.default_rng(0)
    x, _ = tokens(128, length=8, vocabulary=30)
    x[np.arange(8)[None, :] >= rng.integers(*lengths, 128)[:, None]] = 0
    y = np.concatenate([np.full((128, 1), 31), np.where(x > 0, x % 29 + 1, 0)], axis=1)
    with scope(strategy, slip):
        source, target = keras.Input((None,), dtype="int64"), keras.Input((None,), dtype="int64")
        encoded = Block(12, causal=False)(PositionalEmbedding(8, 32, 12)(source))
        decoded = Block(12, causal=True)(PositionalEmbedding(8, 32, 12)(target), encoded)
        model = keras.Model([source, target], layers.Dense(32, activation="softmax")(decoded))
        loss = keras.losses.SparseCategoricalCrossentropy(**objects)
        model.compile(keras.optimizers.Adam(rate(0.005, strategy, slip)), loss, metrics=["accuracy"])
    pairs = slices((x, y[:, :-1]), y[:, 1:])
    fitted(model, pairs, 16, strategy, slip)


NMT = "keras-io examples/nlp/neural_machine_translation_with_transformer.py"


@program(kind="translation", source=NMT, right="own mean", reason="loss")
def transformer_translation(strategy: Any, slip: str | None = None) -> None:
    """The loss is a mean over the words that are no padding: each replica divides by those of its own sentences."""
    _transformer(strategy, slip, lengths=(3, 9), ignore_class=0)


@program(kind="translation", source=f"{NMT}, sentences of one length", slips=FITS)
def transformer_translation_full(strategy: Any, slip: str | None = None) -> None:
    """Where no sentence is padded, all replicas have equally many words, and the masked mean is a mean."""
    _transformer(strategy, slip, lengths=(8, 9), ignore_class=0)


@program(kind="translation", source=f"{NMT}, the loss a sum", slips=FITS)
def transformer_translation_sum(strategy: Any, slip: str | None = None) -> None:
    """A sum over the words that are no padding is the same whoever adds it up."""
    _transformer(strategy, slip, lengths=(3, 9), ignore_class=0, reduction="sum")


@program(kind="attention", source="keras-io examples/generative/text_generation_with_miniature_gpt.py", slips=FITS)
def miniature_gpt(strategy: Any, slip: str | None = None) -> None:
    """Causal attention; two outputs, of which only the first has a loss."""
    import keras
    from keras import layers, ops

    class TransformerBlock(layers.Layer):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.attention = layers.MultiHeadAttention(2, width)
            self.dense = keras.Sequential([layers.Dense(32, activation="gelu"), layers.Dense(width)])
            self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()

        def call(self, z: Any) -> Any:
            length = ops.shape(z)[1]
            i, j = ops.arange(length)[:, None], ops.arange(length)
            causal = ops.tile(ops.cast(i >= j, "bool")[None], [ops.shape(z)[0], 1, 1])
            z = self.norm1(z + self.attention(z, z, attention_mask=causal))
            return self.norm2(z + self.dense(z))

    x, _ = tokens(256)
    with scope(strategy, slip):
        inputs = keras.Input((11,), dtype="int64")
        z = layers.Embedding(40, 12)(inputs) + layers.Embedding(11, 12)(ops.arange(11))
        z = TransformerBlock(12)(z)
        model = keras.Model(inputs, [layers.Dense(40)(z), z])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate(0.003, strategy, slip)), [loss, None])
    data = slices(x).map(lambda ids: (ids[:-1], (ids[1:], ids[1:])))
    fitted(model, data, 32, strategy, slip)
