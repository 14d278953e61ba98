"""Loops over sequences: translation with teacher forcing, masked means, clipped recurrent networks."""

from __future__ import annotations

from gallery import program
from gallery.slips import DATA, LOOPS, average, clipped, distributed, looped, rate, scope

BATCH, WORDS, LENGTH = 16, 12, 6


def sentences(count=128):
    """Sentences of 2 to 5 words, padded with 0, and their translations, which begin with 1: `(count, LENGTH)` each.

    A word's translation is the word itself, and the sentence is turned around.
    """
    import numpy as np

    rng = np.random.default_rng(41)
    source, target = np.zeros((count, LENGTH), "int64"), np.zeros((count, LENGTH), "int64")
    target[:, 0] = 1
    for i, length in enumerate(rng.integers(2, LENGTH, count)):
        source[i, :length] = rng.integers(2, WORDS, length)
        target[i, 1 : length + 1] = source[i, :length][::-1]
    return source, target


def encoder_and_decoder():
    """A GRU each; the decoder looks back at the encoder's states by additive attention."""
    import keras
    import tensorflow as tf

    class Encoder(keras.Model):
        def __init__(self, units=8):
            super().__init__()
            self.embedding = keras.layers.Embedding(WORDS, 6)
            self.gru = keras.layers.GRU(units, return_sequences=True, return_state=True)

        def call(self, words):
            return self.gru(self.embedding(words))

    class Decoder(keras.Model):
        def __init__(self, units=8):
            super().__init__()
            self.embedding = keras.layers.Embedding(WORDS, 6)
            self.attention = keras.layers.AdditiveAttention()
            self.cell = keras.layers.GRUCell(units)
            self.words = keras.layers.Dense(WORDS)

        def call(self, word, state, memory):
            context = self.attention([state[:, None], memory])[:, 0]
            output, (state,) = self.cell(tf.concat([self.embedding(word), context], axis=-1), [state])
            return self.words(output), state

    encoder, decoder = Encoder(), Decoder()
    memory, state = encoder(tf.zeros((1, LENGTH), tf.int64))
    decoder(tf.zeros((1,), tf.int64), state, memory)
    return encoder, decoder


def translation(strategy, slip, masked_mean):
    """Teacher forcing, word by word; `masked_mean` makes a loss of each word's losses, `(examples,)`, and its mask."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        encoder, decoder = encoder_and_decoder()
        optimizer = keras.optimizers.Adam(rate(5e-3, strategy, slip))
        optimizer.build(encoder.trainable_variables + decoder.trainable_variables)

    def train_step(inputs):
        source, target = inputs
        loss = 0.0
        with tf.GradientTape() as tape:
            memory, state = encoder(source)
            for t in range(1, LENGTH):
                predictions, state = decoder(target[:, t - 1], state, memory)
                each = keras.losses.sparse_categorical_crossentropy(target[:, t], predictions, from_logits=True)
                loss += masked_mean(each, tf.cast(target[:, t] != 0, each.dtype))
        variables = encoder.trainable_variables + decoder.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss / LENGTH

    looped(train_step, [encoder, decoder], distributed(sentences(), BATCH, strategy, slip, shuffled=5), strategy)


@program(
    kind="loop",
    source="TensorFlow tutorial text/nmt_with_attention (2019 to 2021), its step given to strategy.run",
    right="local mean",
    reason="loss",
)
def translation_as_published(strategy, slip=None):
    """Wrong: `tf.reduce_mean` over the replica's own examples, padding counted; both means are added up."""
    import tensorflow as tf

    translation(strategy, slip, lambda each, mask: tf.reduce_mean(each * mask))


@program(kind="loop", source="TensorFlow tutorial text/nmt_with_attention, its loss divided rightly", slips=LOOPS)
def translation_divided_by_the_global_batch(strategy, slip=None):
    """Right: padding has no loss, and what is left is divided by the global batch."""
    translation(strategy, slip, lambda each, mask: average(each * mask, BATCH, strategy, slip))


def transformer(strategy, slip, count_of):
    """One block of attention; count_of(mask): by what the sum of the words' losses is divided."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        words = keras.Input((LENGTH - 1,), dtype="int64")
        x = keras.layers.Embedding(WORDS, 8)(words)
        x = x + keras.layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
        x = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.Dense(8)(keras.layers.Dense(16, activation="gelu")(x))
        model = keras.Model(words, keras.layers.Dense(WORDS)(x))
        optimizer = keras.optimizers.Adam(rate(3e-3, strategy, slip), beta_2=0.98)

    def train_step(inputs):
        _, target = inputs
        with tf.GradientTape() as tape:
            predictions = model(target[:, :-1], training=True)
            each = keras.losses.sparse_categorical_crossentropy(target[:, 1:], predictions, from_logits=True)
            mask = tf.cast(target[:, 1:] != 0, each.dtype)
            loss = tf.reduce_sum(each * mask) / count_of(mask)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    looped(train_step, model, distributed(sentences(), BATCH, strategy, slip, shuffled=5), strategy)


@program(
    kind="loop",
    source="TensorFlow tutorial text/transformer, its masked_loss divided by the replicas",
    right="own mean",
    reason="loss",
)
def transformer_masked_mean(strategy, slip=None):
    """Wrong by little: the mean over the replica's own words, divided by N; replicas have unequal numbers of words."""
    import tensorflow as tf

    transformer(strategy, slip, lambda mask: tf.reduce_sum(mask) * strategy.num_replicas_in_sync)


@program(
    kind="loop",
    source="TensorFlow tutorial text/transformer, all replicas' words counted",
    slips=(*DATA, "learning rate"),
)
def transformer_words_counted_together(strategy, slip=None):
    """Right: the replicas first add up their numbers of words, then each divides by the sum."""
    import tensorflow as tf

    def count_of(mask):
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(mask))

    transformer(strategy, slip, count_of)


def characters(strategy, slip, clip, **of_optimizer):
    """Next characters by a GRU; clip(gradients): what the step does with them. The loss is a mean over the words."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        model = keras.Sequential(
            [
                keras.layers.Input((LENGTH - 1,), dtype="int64"),
                keras.layers.Embedding(WORDS, 6),
                keras.layers.GRU(8, return_sequences=True),
                keras.layers.Dense(WORDS),
            ]
        )
        optimizer = keras.optimizers.SGD(rate(0.5, strategy, slip), **of_optimizer)

    def train_step(inputs):
        text, _ = inputs
        with tf.GradientTape() as tape:
            predictions = model(text[:, :-1], training=True)
            each = keras.losses.sparse_categorical_crossentropy(text[:, 1:], predictions, from_logits=True)
            loss = average(tf.reduce_mean(each, axis=1), BATCH, strategy, slip)
        gradients = clip(tape.gradient(loss, model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    looped(train_step, model, distributed(sentences(), BATCH, strategy, slip, shuffled=5), strategy)


@program(
    kind="loop",
    source="TensorFlow tutorial text/text_generation, custom training, the optimizer with global_clipnorm",
    right="clipping",
    reason="update",
)
def characters_clipped_by_the_optimizer(strategy, slip=None):
    """Wrong: Keras 3's optimizers clip before the gradients are added up, so each replica clips its own part."""
    characters(strategy, slip, lambda gradients: gradients, global_clipnorm=0.1)


@program(
    kind="loop",
    source="TensorFlow tutorial text/text_generation, custom training, clipped after an all-reduce",
    slips=(*LOOPS, "clipping"),
)
def characters_clipped_together(strategy, slip=None):
    """Right: gradients are added up before they are clipped, and the optimizer adds up N equal Nths of that."""
    import tensorflow as tf

    def clip(gradients):
        if slip == "clipping":
            return clipped(gradients, 0.1, slip)
        together = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        whole, _ = tf.clip_by_global_norm(together, 0.1)
        return [tf.convert_to_tensor(gradient) / strategy.num_replicas_in_sync for gradient in whole]

    characters(strategy, slip, clip)
