"""Many runs for one answer: `dtk.study`, `dtk.shards`, `dtk.benchmark_allreduce`.

Runs in the kernel. What can't be measured is refused before anything starts; the last part of both files is what the
workers of such runs do, and imports TensorFlow there.
"""
