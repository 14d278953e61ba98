"""What a worker's error means, in one stable sentence: no port, path or address that changes from run to run."""

from __future__ import annotations

import re
import signal

from dtk import errors
from dtk.errors import in_words
from dtk.language import N_, _

# Workers that meet in different collectives, and so with different shapes: the shapes at the two ends.
_MISMATCH = re.compile(
    r"Shape mismatch in the collective instance.*?expected shape (\[[^\]]*\]).*?expected shape (\[[^\]]*\])"
)

# The same, with another kind of collective or of values at the two ends, as numbers of TensorFlow's CollectiveType and
# DataType.
_OTHER_KIND = re.compile(
    r"Collective instance \d+ expected type (\d+) and data_type (\d+) but got type (\d+) and data_type (\d+)"
)
_KINDS = {"0": "reduction", "1": "broadcast", "2": "gather", "3": "permute", "4": "all-to-all", "5": "reduce-scatter"}
_TYPES = {"1": "float32", "2": "float64", "3": "int32", "9": "int64", "10": "bool", "14": "bfloat16", "19": "float16"}

# What to do about it, to be translated where it is shown.
SAME_ORDER = N_(
    "all workers must make the same collectives in the same order, of the same shapes, and the same number of steps "
    "(evaluate and predict, too)"
)
_ONE_SHAPE = N_("make gradients that come as rows (embeddings, categorical columns) dense before they are applied")

# dtk's own sentence, which AutoGraph and TensorFlow's executor (2.15 to 2.21) raise again as an error of their own:
# of ours only this text is left in it.
_OURS = re.compile(r"ClusterConfigError: (.*)")

# SIGKILL leaves no word behind, hence the hint; of crashes faulthandler writes the Python lines.
_CRASH = N_("the last Python lines before it are in its log")
_HINTS = {
    "SIGKILL": N_("the kernel's log or the memory limit may say why"),
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"), _CRASH),
}
_LONGEST = 280
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # Keras 3 prints what went wrong in bold
_FRAME = re.compile(r'File ".*", line \d+')
_CALLING = re.compile(r"(?:\w+: )?Exception encountered when calling (.*)\.$")
_OF_NODES = ("File ", "Detected at node", "<stack traces unavailable>", "2 root error(s) found")


def in_one_sentence(kind: str, message: str) -> str:
    """ "raised ValueError: bad label", with dtk's sentence in place of TensorFlow's where it knows a better one.

    >>> in_one_sentence("ValueError", "bad label")
    'raised ValueError: bad label'
    """
    if kind == "SystemExit":
        return _("called sys.exit({code}) before it had finished", code=message)
    ours = _OURS.search(f"{kind}: {message}")
    kind, said = ("ClusterConfigError", _anonymous(ours[1])) if ours else (kind, _meant(kind, message))
    return _("raised {kind}: {said}", kind=kind, said=said) if said else _("raised {kind}", kind=kind)


def _meant(kind: str, message: str) -> str:
    """What an error's message means, or else its first telling lines."""
    if met := mismatch(message):
        return met
    flat = " ".join(message.split())
    for pattern, sentence in KNOWN.items():
        if match := re.search(pattern, flat):
            return _(sentence).format(*match.groups(), **match.groupdict(), install=errors.command("tensorboard"))
    return _stable(kind, message)


def mismatch(message: str, session: bool = False) -> str:
    """What TensorFlow means that found different shapes or types at the ends of one collective; "" for others."""
    flat = " ".join(message.split())
    if found := _MISMATCH.search(flat):
        ends = sorted(found.groups(), key=lambda shape: (len(shape), shape))  # which end says it is chance
    elif found := _OTHER_KIND.search(flat):
        kind, value, other_kind, other_value = found.groups()
        names, known = ((kind, other_kind), _KINDS) if kind != other_kind else ((value, other_value), _TYPES)
        ends = sorted(known.get(each, each) for each in names)
    else:
        return ""
    what = N_("the workers met in different collectives: {one} and {two}")
    if session:  # of TensorFlow 1, in whose graph a collective keeps the shape that it has at first
        what = N_("a collective of the Estimator's graph met two shapes, {one} and {two}, and can have one alone")
    return in_words(_(what, one=ends[0], two=ends[1]), _(_ONE_SHAPE if session else SAME_ORDER))


def exit_in_words(code: int | None, why: str = "", needed: bool = False) -> str:
    """How a process ended that said nothing: a signal by name (negative codes), or an exit of its own.

    why: what is known of a signal's reason, in place of a hint. needed: its function had returned, which needs no hint,
    and the others still needed it.

    >>> exit_in_words(-9)
    "was killed by SIGKILL; the kernel's log or the memory limit may say why"
    """
    if code is None:
        return _("ended before it had finished")
    how = _("ended itself with exit code {code} (os._exit?)", code=code)
    if code < 0:
        name = signal.Signals(-code).name
        how, why = _("was killed by {signal}", signal=name), why or _("" if needed else _HINTS.get(name, ""))
    if needed:
        how = _("{how} after its function had returned, while others still needed it", how=how)
    return in_words(how, why)


def _stable(kind: str, message: str) -> str:
    """A message's first telling lines without what changes from run to run: ports, addresses, directories."""
    lines = _paragraph(_ESCAPES.sub("", message))
    if lines[:1] == ["Graph execution error:"]:  # then the place where each node was made, and then what went wrong
        lines = [line for line in lines[1:] if not line.startswith(_OF_NODES)] or lines
    line, *rest = lines or [""]
    while rest and line.endswith(":"):  # what it announces is on the next line
        line = f"{line} {rest.pop(0)}"
    line = _anonymous(line).removeprefix(f"{kind}: ")  # AutoGraph says the kind again
    if len(line) <= _LONGEST:
        return line
    # As many whole sentences as fit; the beginning of one where that is too long.
    ends = [match.end() for match in re.finditer(r"[.!?](?= )", line) if 60 <= match.end() <= _LONGEST]
    return line[: ends[-1]] if ends else line[: _LONGEST - 3] + "..."


def _paragraph(message: str) -> list[str]:
    """The lines that tell, of a message that AutoGraph or Keras has put words around."""
    lines = [line.strip() for line in message.splitlines()]
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    if frames and any(line.endswith("in user code:") for line in lines[: frames[0]]):
        rest = lines[frames[-1] :]  # the last place and its source, an empty line, and the message
        lines = rest[rest.index("") :] if "" in rest else rest
    filled = [line for line in lines if line]
    if "Exception encountered:" in filled[:-1]:  # while Keras 3 built the model
        first, *rest = filled[filled.index("Exception encountered:") + 1 :]
        filled = [first.removeprefix("'"), *rest]
    if filled and filled[0].endswith("Error encountered:") and len(filled) > 1:
        filled = filled[1:]
    if len(filled) > 1 and (calling := _CALLING.match(filled[0])):
        filled = [f"{calling[1]}: {filled[1]}", *filled[2:]]
    return filled


def _anonymous(line: str) -> str:
    line = re.sub(r"\{\{[^}]*\}\}\s*", "", line)  # names of graph nodes and devices
    line = re.sub(r"(localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0):\d+", r"\1:PORT", line)
    line = re.sub(r"0x[0-9a-fA-F]{6,}", "0x...", line)
    return re.sub(r"(?<![\w./])/(?!/)(?:[\w.+-]+/){2,}", ".../", line)


# ---- workers that failed because they lost each other: none raised, each reports that a peer is gone

# What is said where a peer has gone, for where TensorFlow's own mark of it is lost (`dtk.compat.causes.by_a_peer`), as
# in sessions of tf.compat.v1.
_LOST_WORDS = (
    r"Socket closed",
    r"Connection re(?:set|fused)",
    r"Collective ops is aborted",
    r"coordination service",
    r"heartbeat",
    r"failed to connect to all addresses",
    r"GRPC_STATUS",
    r"/job:worker/replica:0/task:\d+ ",
    r"Restart your program to reset",
    r"preempted",
)
_LOST = re.compile("|".join(_LOST_WORDS), re.IGNORECASE)
_LOST_BY = ("UnavailableError", "InternalError", "AbortedError", "CancelledError", "DeadlineExceededError")
PORT_TAKEN = "Could not start gRPC server"  # where another program took a worker's port
# TensorFlow 2.20 to 2.22's candidate, and 2.15.
_NO_HEARTBEAT = re.compile(
    r"unhealthy \(stopped sending heartbeats\):\s*/job:worker/replica:\d+/task:(?P<task>\d+)"
    r"|Task /job:worker/replica:\d+/task:(?P<task_15>\d+) heartbeat timeout"
)


def lost_a_peer(kind: str, message: str) -> bool:
    """Whether an error is TensorFlow's reaction to a peer that has gone."""
    return kind in _LOST_BY and bool(_LOST.search(message))


def may_have_lost_a_peer(kind: str) -> bool:
    """Whether TensorFlow raises errors of this kind where a connection is gone: what else they come of is rare."""
    return kind in _LOST_BY and kind != "InternalError"


def without_heartbeat(message: str) -> int | None:
    """The worker whose heartbeats the service of worker 0 missed, as TensorFlow's message has it; None for others."""
    found = _NO_HEARTBEAT.search(message)
    return int(found["task"] or found["task_15"]) if found else None


# ---- lines of a log that every start brings: TensorFlow's and Keras's notes, not about the training

# How TensorFlow's C++ side (absl logging) begins its notes and warnings, and the lines that follow some of them; what
# Keras 3.15 says of every tf.data.Dataset that `fit` gets, because its own default is shuffle=True.
_CHATTER = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] |[IW]\d{4} \d\d:\d\d:\d+\.\d+ |WARNING: All log messages before absl"
    r"|To enable the following instructions: |/job:\w+/replica:\d+/task:\d+$"
    r"|(?:E\d{4}|\d{4}-\d\d-\d\d \S+ E) .*(?:Unable to register cu|failed call to cuInit)"
    r"|.*: UserWarning: `shuffle=True` was passed, but will be ignored since the data `x` was provided as a tf\.data"
    r"|  self\.data_adapter = data_adapters\.get_data_adapter\($"
    r"|=== Source Location Trace: ===$|external/[\w./]+\.cc:\d+$"
)


def is_chatter(line: str) -> bool:
    """Whether a line is a note or a warning that every start brings.

    Of its errors only those count that a machine without a GPU always brings.

    >>> is_chatter("I0000 00:00:1794212.123 41 cpu_feature_guard.cc:227] This TensorFlow binary is optimized")
    True
    >>> is_chatter("E0000 00:00:1794212.123 41 grpc_server_lib.cc:500] Could not start gRPC server")
    False
    >>> is_chatter("2026-11-21 23:35:49.874993: E external/xla/cuda_platform.cc:51] failed call to cuInit: UNKNOWN")
    True
    """
    return _CHATTER.match(line) is not None


_KERAS = r"(?:tensorflow\.)?keras(?:\.(?!api\._v)\w+)*"  # a module; in TensorFlow 2.15 they are keras.api._v2's
_MISSING = N_(
    "this Keras has no {module}.{name}; for a program of Keras 2: dtk run --keras 2, or dtk.run(..., keras=2)"
)
_OF_KERAS_2 = (
    rf"module '(?P<module>{_KERAS})' has no attribute '(?P<name>\w+)'",
    rf"cannot import name '(?P<name>\w+)' from '(?P<module>{_KERAS})'",
    rf"(?:No module named '(?={_KERAS}\.)|`(?=keras\.optimizers\.legacy))(?P<module>[\w.]+)\.(?P<name>\w+)",
)

# TensorFlow's words, as patterns -> the learner's. What a pattern captures fills the sentence; {install}: a command.
KNOWN = {
    # TensorFlow's number of files is how many that worker has met: worker 0 of 3 says 1 of 2.
    r"Could not apply FILE based sharding: the dataset only has \d+ file.*?required (\d+) shards": N_(
        "the dataset reads fewer than {0} files, which autoshard policy FILE can't divide among {0} workers; set "
        "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA "
        "(dtk.datasets.load does)"
    ),
    r"Found an unshardable source dataset": N_(
        "the dataset is not made from files, and autoshard policy FILE divides nothing else; set "
        "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA"
    ),
    r"Collective ops must be configured at program startup": N_(
        "the strategy was made after TensorFlow had run its first operation; make it in a function's first line, or a "
        "script's after its imports, or take a parameter `strategy`"
    ),
    r'If "cluster" is set in TF_CONFIG, it must have one "chief" node': N_(
        "this RunConfig has no strategy, and so waits for a task of type chief; make "
        "tf.distribute.MultiWorkerMirroredStrategy() and pass it: RunConfig(train_distribute=strategy)"
    ),
    r"Only `STANDALONE_CLIENT` mode is supported when you call `estimator\.(train|evaluate)`": N_(
        "in a cluster estimator.{0} does not run by itself; call dtk.estimator.train_and_evaluate(estimator, "
        "train_spec, eval_spec), which gives every task its part"
    ),
    r"TensorBoard is not installed, missing implementation for": N_(
        "TensorFlow writes no summaries without TensorBoard, which is not installed here; {install}"
    ),
    r"module 'tensorflow' has no attribute 'estimator'": N_(
        "TensorFlow has no tf.estimator since 2.16; write dtk.estimator in its place"
    ),
    r"DistributedVariable\.handle is not available outside the replica context": N_(
        "a variable of the strategy was used where no replica runs; call the step by strategy.run(step, args=(batch,))"
    ),
    r"`colocate_vars_with` must only be passed a variable created in |Mixing different tf\.distribute\.Strategy": N_(
        "the model or its optimizer was made outside of the strategy's scope; make both inside "
        "`with strategy.scope():`, or keep the scope: scope = strategy.scope(); scope.__enter__()"
    ),
    r'Need to be inside "with strategy\.scope\(\)"': N_(
        "what was called needs the strategy; call a training step by strategy.run(step, args=(batch,)), and make "
        "models and optimizers inside strategy.scope()"
    ),
    r"PerReplica:\{|'PerReplica'|using a PerReplica object": N_(
        "a value with one part for each replica (PerReplica) was used as one tensor; call the step by "
        "strategy.run(step, args=(batch,)), or take strategy.experimental_local_results(value)"
    ),
    r"`merge_call` called while defining a new graph": N_(
        "an all-reduce (such as that of optimizer.apply_gradients) is inside a condition, a loop or a tf.function "
        "of its own in the step, which TensorFlow can't merge over replicas; take it out of there (Keras 3's "
        "optimizers with gradient_accumulation_steps or ema_overwrite_frequency put it there)"
    ),
    r"(unsupported operand type\(s\) for \S+ (?:'NoneType' and '\w+'|'\w+' and 'NoneType')"
    r"|Expected int32, but got None|Failed to convert elements of [\[(]None.*? to Tensor)": N_(
        "{0}; if it is a batch's x.shape[0]: under a strategy that is None while the graph is made; use tf.shape(x)[0]"
    ),
    r"You must feed a value for placeholder tensor 'cond/(?:then|else)/_\d+/cond/Placeholder": N_(
        "variables are made in the first call of a tf.function with an all-reduce, which fails in TensorFlow where "
        "a worker has several replicas; make them before, in strategy.scope(): an Input for the model (or "
        "model.build(shape)), and optimizer.build(model.trainable_variables)"
    ),
    r"There must be at least one ps\.": N_(
        "ParameterServerStrategy needs parameter servers, and dtk starts workers: use MultiWorkerMirroredStrategy()"
    ),
    r"Collectives are not yet implemented for CPU devices when compiling with XLA": N_(
        "XLA can't compile an all-reduce on CPUs; leave jit_compile=True out"
    ),
    r"xla/known_issues#tfvariable_on_a_different_device": N_(
        "XLA can't compile a step with variables on several devices; leave jit_compile=True out"
    ),
    r"Model (\w+) does not have a `call\(\)` method implemented": N_(
        "Keras 3 has to call {0}, under a strategy before the first step, and it has no call(); write one (its forward "
        "pass), or self.built = True in __init__ if its models have Inputs and compile has no loss or metrics"
    ),
    r"Argument\(s\) not recognized: \{'lr':": N_("the optimizer has no argument lr; Keras calls it learning_rate"),
    r"(filepath provided must end in `\.\w+`|Invalid filepath extension for saving|must end in `\.weights\.h5`)": N_(
        "written for Keras 2 ({0}): run it by dtk run --keras 2, or dtk.run(..., keras=2)"
    ),
    r"'(\w+)' object has no attribute 'reset_states'": N_(
        "{0} has no reset_states: Keras 3 calls it reset_state; or run it by dtk run --keras 2"
    ),
    r"'(\w+)' object has no attribute 'lr'": N_(
        "{0} has no lr: Keras 3 calls it learning_rate; or run it by dtk run --keras 2"
    ),
    r"property 'model' of '(\w+)' object has no setter": N_(
        "{0} sets its own model, as in Keras 2; rename that attribute, or run it by dtk run --keras 2"
    ),
    r"A KerasTensor cannot be used as input to a TensorFlow function": N_(
        "a TensorFlow function got a symbolic input of Keras: call it inside of a layer (keras.layers.Lambda), or use "
        "keras.ops; a program of Keras 2 runs by dtk run --keras 2"
    ),
    r"Cannot convert '(\d+)' to a shape": N_(
        "Keras 3 takes a tuple as a shape, ({0},) in place of {0}; or run it by dtk run --keras 2"
    ),
    **dict.fromkeys(_OF_KERAS_2, _MISSING),
    r"module 'tensorflow[\w.]*' has no attribute '(contrib|logging|app|Session|placeholder)'": N_(
        "written for TensorFlow 1 (tf.{0}); https://www.tensorflow.org/guide/migrate says how it becomes 2"
    ),
    r"object has no attribute '(experimental_run_v2)'": N_("strategy.{0} is called strategy.run since TensorFlow 2.2"),
    r"^'?((?:SLURM|PMI|PMIX|OMPI|SM|AIP)_\w+)'?(?: not found in environment.*)?$": N_(
        "{0} is not set: the program asks Slurm, MPI or another launcher which worker it is; dtk run tells it in "
        "TF_CONFIG, which tf.distribute.MultiWorkerMirroredStrategy() reads where it has no cluster_resolver=; the "
        "worker's number is json.loads(os.environ['TF_CONFIG'])['task']['index']"
    ),
}
