"""What a worker's error means, in one stable sentence: no port, path or address that changes from run to run."""

from __future__ import annotations

import re
import signal

__all__ = ["exit_in_words", "in_one_sentence", "mismatch"]

_USE_DATA = "set options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA"

# TensorFlow's words -> the learner's. What a pattern captures fills the sentence.
_KNOWN = [
    (
        re.compile(r"Could not apply FILE based sharding: the dataset only has (1) file.*?required (2) shards"),
        f"the dataset reads {{0}} file, which autoshard policy FILE can't divide among {{1}} workers; {_USE_DATA} "
        "(dtk.datasets.load does)",
    ),
    (
        # With more shards TensorFlow's number is how many files that worker has met: worker 0 of 3 says 1 of 2.
        re.compile(r"Could not apply FILE based sharding: the dataset only has \d+ file.*?required (\d+) shards"),
        f"the dataset reads fewer than {{0}} files, which autoshard policy FILE can't divide among {{0}} workers; "
        f"{_USE_DATA} (dtk.datasets.load does)",
    ),
    (
        re.compile(r"Found an unshardable source dataset"),
        f"the dataset is not made from files, and autoshard policy FILE divides nothing else; {_USE_DATA}",
    ),
    (
        re.compile(r"Collective ops must be configured at program startup"),
        "the strategy was made after TensorFlow had run its first operation; make it in the function's first line, "
        "or take a parameter `strategy`",
    ),
    (
        re.compile(r'If "cluster" is set in TF_CONFIG, it must have one "chief" node'),
        "this RunConfig has no strategy, and so waits for a task of type chief; make "
        "tf.distribute.MultiWorkerMirroredStrategy() and pass it: RunConfig(train_distribute=strategy)",
    ),
    (
        re.compile(r"Only `STANDALONE_CLIENT` mode is supported when you call `estimator\.(train|evaluate)`"),
        "in a cluster estimator.{0} does not run by itself; call dtk.estimator.train_and_evaluate(estimator, "
        "train_spec, eval_spec), which gives every task its part",
    ),
    (
        re.compile(r"MessageToString\(\) got an unexpected keyword argument 'float_format'"),
        "TensorFlow up to 2.20 can't write a graph with protobuf 7; pip install 'protobuf<7'",
    ),
    (
        re.compile(r"module 'tensorflow' has no attribute 'estimator'"),
        "TensorFlow has no tf.estimator since 2.16; write dtk.estimator in its place",
    ),
    (
        re.compile(r"'(\w+)' object has no attribute 'reset_states'"),
        "{0} has no reset_states: Keras 3 calls it reset_state",
    ),
    (
        re.compile(r"'(\w+)' object has no attribute 'lr'"),
        "{0} has no lr: Keras 3 calls it learning_rate",
    ),
]

# Workers that meet in different collectives, and so with different shapes: the shapes at the two ends.
_MISMATCH = re.compile(
    r"Shape mismatch in the collective instance.*?expected shape (\[[^\]]*\]).*?expected shape (\[[^\]]*\])"
)

# What dtk says in a worker; AutoGraph and TensorFlow's executor raise it again as an error of their own.
_OURS = re.compile(r"ClusterConfigError: (.*)")

# SIGKILL leaves no word behind, hence the hint; the others speak for themselves in the log.
_HINTS = {
    "SIGKILL": "; the kernel's log or the memory limit may say why",
    "SIGSEGV": "; the last Python lines before it are in its log",
    "SIGABRT": "; the reason is in its log",
}


def in_one_sentence(kind: str, message: str) -> str:
    """ "raised ValueError: bad label", with dtk's sentence in place of TensorFlow's where it knows a better one.

    >>> in_one_sentence("ValueError", "bad label")
    'raised ValueError: bad label'
    """
    if kind == "SystemExit":
        return f"called sys.exit({message}) before its function returned"
    ours = _OURS.search(f"{kind}: {message}")
    if ours:
        return f"raised ClusterConfigError: {_anonymous(ours[1])}"
    flat = " ".join(message.split())
    if mismatch(flat):
        return f"raised {kind}: {mismatch(flat)}"
    for pattern, sentence in _KNOWN:
        match = pattern.search(flat)
        if match:
            return f"raised {kind}: {sentence.format(*match.groups())}"
    said = _stable(message).removeprefix(f"{kind}: ")  # AutoGraph says the kind again
    return f"raised {kind}: {said}" if said else f"raised {kind}"


def mismatch(message: str) -> str:
    """What TensorFlow means that found different shapes at the two ends of one collective; "" for other messages."""
    found = _MISMATCH.search(" ".join(message.split()))
    if not found:
        return ""
    one, other = sorted(found.groups(), key=lambda shape: (len(shape), shape))  # which end says it is chance
    return (
        f"the workers met in different collectives, with the shapes {one} and {other}; all must make the same ones in "
        "the same order, of the same shapes, and equally many steps"
    )


def exit_in_words(code: int | None) -> str:
    """How a process ended that said nothing: a signal by name (negative codes), or an exit of its own.

    >>> exit_in_words(-9)
    "was killed by SIGKILL; the kernel's log or the memory limit may say why"
    """
    if code is None:
        return "ended before its function returned"
    if code < 0:
        name = signal.Signals(-code).name
        verb = "was killed by" if name in ("SIGKILL", "SIGTERM", "SIGINT") else "crashed with"
        return f"{verb} {name}{_HINTS.get(name, '')}"
    return f"ended itself with exit code {code} before its function returned (os._exit?)"


def _stable(message: str) -> str:
    """A message's first telling line without what changes from run to run: ports, addresses, directories."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if lines[:1] == ["Graph execution error:"]:  # then the place where each node was made, and then what went wrong
        lines = [line for line in lines[1:] if not line.startswith(("File ", "Detected at node"))] or lines
    # AutoGraph puts "in user code:" and a traceback before what went wrong.
    line = (lines[-1] if lines[0].endswith("in user code:") else lines[0]) if lines else ""
    line = _anonymous(line)
    return line if len(line) <= 200 else line[:197] + "..."


def _anonymous(line: str) -> str:
    line = re.sub(r"\{\{[^}]*\}\}\s*", "", line)  # names of graph nodes and devices
    line = re.sub(r"(localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0):\d+", r"\1:PORT", line)
    line = re.sub(r"0x[0-9a-fA-F]{6,}", "0x...", line)
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/){2,}", ".../", line)
