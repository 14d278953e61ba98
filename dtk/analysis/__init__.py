"""Pure arithmetic on records and weights: no processes, no files, no pictures, no TensorFlow."""
