"""The tutorial "Multi-worker training with Estimator": its code, with dtk.estimator for tf.estimator.

After tensorflow.org/tutorials/distribute/multi_worker_with_estimator (code Apache-2.0, The TensorFlow Authors), flaws
included: softmax outputs with from_logits=True, a learning rate of 1e-4, training=False, a last batch of 48 (of 32, on
one worker) divided by 64. Its imports stand inside the functions, so that pytest can look at this file without TensorFlow.
"""


MODEL_DIR = "/tmp/multiworker"

BUFFER_SIZE = 10000
BATCH_SIZE = 64


def input_fn(mode, input_context=None):
  import tensorflow_datasets as tfds
  import tensorflow as tf
  import dtk

  datasets, info = tfds.load(name='mnist',
                             with_info=True,
                             as_supervised=True)
  mnist_dataset = (datasets['train'] if mode == dtk.estimator.ModeKeys.TRAIN else
                   datasets['test'])

  def scale(image, label):
    image = tf.cast(image, tf.float32)
    image /= 255
    return image, label

  if input_context:
    mnist_dataset = mnist_dataset.shard(input_context.num_input_pipelines,
                                        input_context.input_pipeline_id)
  return mnist_dataset.map(scale).cache().shuffle(BUFFER_SIZE).batch(BATCH_SIZE)


LEARNING_RATE = 1e-4


def model_fn(features, labels, mode):
  import tensorflow as tf
  import dtk

  model = tf.keras.Sequential([
      tf.keras.layers.Conv2D(32, 3, activation='relu', input_shape=(28, 28, 1)),
      tf.keras.layers.MaxPooling2D(),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(64, activation='relu'),
      tf.keras.layers.Dense(10, activation='softmax')
  ])
  logits = model(features, training=False)

  if mode == dtk.estimator.ModeKeys.PREDICT:
    predictions = {'logits': logits}
    return dtk.estimator.EstimatorSpec(labels=labels, predictions=predictions)

  optimizer = tf.compat.v1.train.GradientDescentOptimizer(
      learning_rate=LEARNING_RATE)
  loss = tf.keras.losses.SparseCategoricalCrossentropy(
      from_logits=True, reduction=tf.keras.losses.Reduction.NONE)(labels, logits)
  loss = tf.reduce_sum(loss) * (1. / BATCH_SIZE)
  if mode == dtk.estimator.ModeKeys.EVAL:
    return dtk.estimator.EstimatorSpec(mode, loss=loss)

  return dtk.estimator.EstimatorSpec(
      mode=mode,
      loss=loss,
      train_op=optimizer.minimize(
          loss, tf.compat.v1.train.get_or_create_global_step()))


def train():
  import tensorflow as tf
  import dtk

  tf.compat.v1.disable_eager_execution()

  strategy = tf.distribute.MultiWorkerMirroredStrategy()

  config = dtk.estimator.RunConfig(train_distribute=strategy)

  classifier = dtk.estimator.Estimator(
      model_fn=model_fn, model_dir=MODEL_DIR, config=config)
  dtk.estimator.train_and_evaluate(
      classifier,
      train_spec=dtk.estimator.TrainSpec(input_fn=input_fn),
      eval_spec=dtk.estimator.EvalSpec(input_fn=input_fn)
  )
