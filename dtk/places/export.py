"""`dtk.export`: a directory from which a function runs without a notebook, a kernel, and this machine."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError, one_of
from dtk.language import N_, _
from dtk.launch import launch, request
from dtk.launch.agent import MODULES
from dtk.launch.launch import RunJob
from dtk.launch.outside import PORT, PROGRAM
from dtk.places import engine
from dtk.worker import ship


def export(
    fn: Callable[..., Any],
    kind: str,
    path: str | Path,
    workers: int = 2,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int | None = 0,
    keras: int | None = None,
    record: bool = False,
    image: str | None = None,
) -> Path:
    """Writes a directory that runs `fn` on a cluster of several machines, without a notebook and without a kernel.

    It has the function as a readable program, `train.py`, or as a pickle if its source does not make the same function;
    what starts it; and a README. Each worker is `python -m dtk worker`, which reads TF_CONFIG, or what Slurm or
    Kubernetes says, and leaves records and logs that `dtk show` and `dtk report` read.

    Args:
        fn: as for `dtk.run`.
        kind: "script" (a shell script that starts the workers on this machine, and what each needs on others), "slurm"
            (a batch script), "kubernetes" (an Indexed Job with a headless Service, and a Dockerfile).
        path: the directory; it is made, or has to be empty.
        workers: a worker a machine.
        args, kwargs, seed, keras, record: as for `dtk.run`.
        image: of the containers, for "kubernetes", such as "registry.example/me/train:1".

    Returns:
        The directory.

    Raises:
        ClusterConfigError: the request can't be carried out; nothing was written.
        NotShippable: `fn` or an argument can't travel to another process.
    """
    folder = _checked(kind, path, image)
    request.check_sizes(workers, here=False)
    payload = request.pack(fn, args, kwargs)
    found, call = written(fn), _call(fn, args, kwargs)
    if call is None:
        found.reason = found.reason or _("an argument has no text that reads back as the same value")
    if PROGRAM in engine.modules(engine.imports(found.text(), PROGRAM)):
        words = N_("it imports a module of yours that has the program's name, {name}")
        found.reason = found.reason or _(words, name=PROGRAM)
    text = None if found.reason else _program(found, fn, str(call))
    fields = request.of_each_job(fn, seed, keras, "cold", None, record, force=True)  # the image has a Keras of its own
    if text is not None:
        fields["program"] = PROGRAM
    job = RunJob(states=record, payload=payload, workers=workers, share=workers, **fields)
    _write(folder, job, text)
    said = _start(kind, folder, job, image)
    what = _("`{program}`, a program that can be read and changed", program=PROGRAM)
    if found.reason:
        words = N_("`function.pkl`, because {reason}; it needs the same minor version of Python")
        what = _(words, reason=found.reason)
    (folder / "README.md").write_text(_(README, name=fn.__name__, what=what, said=said))
    return folder


def _checked(kind: Any, path: str | Path, image: str | None) -> Path:
    one_of("kind", kind, KINDS)
    if (kind == "kubernetes") != bool(image):
        words = N_("image={image!r}: it is for kind='kubernetes', which needs one, such as 'registry.example/train:1'")
        raise ClusterConfigError(_(words, image=image))
    folder = Path(path).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        words = N_("{folder} is there already; give a directory that is empty or not there yet")
        raise ClusterConfigError(_(words, folder=folder))
    return folder


def _call(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> str | None:
    """The call as source; None where an argument can't be written."""
    if not all(map(_reads_back, [*args, *(kwargs or {}).values()])):
        return None
    texts, named = tuple(map(repr, args)), {name: repr(value) for name, value in (kwargs or {}).items()}
    if ship.takes_strategy(fn):
        texts, named = ship.fill_strategy(fn, texts, named, "strategy")
    written = [*texts, *(f"{name}={text}" for name, text in named.items())]
    return f"{fn.__name__}({', '.join(written)})"


def _program(found: Written, fn: Any, call: str) -> str:
    """`train.py`, which ends with what plain Python runs of it; under `dtk worker`, which seeds, as well."""
    ends = ["import dtk", "", "dtk.correct_keras()  # Keras 3's fit fails over several workers without"]
    if ship.takes_strategy(fn):
        ends += ["import tensorflow as tf", "", "strategy = tf.distribute.MultiWorkerMirroredStrategy()"]
    head = f'"""`{fn.__name__}`, for each worker of a cluster; written by dtk.export."""'
    main = 'if __name__ == "__main__":\n' + "".join(f"    {line}".rstrip() + "\n" for line in [*ends, f"print({call})"])
    return "\n\n\n".join([head, found.text(), main])


def _write(folder: Path, job: RunJob, text: str | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    launch.write_job(folder, job)
    if text is not None:
        (folder / PROGRAM).write_text(text)
        (folder / "function.pkl").unlink()
    home = folder / MODULES if text is None else folder  # a program finds what lies beside it
    names = engine.named(job.payload) if text is None else engine.imports(text, PROGRAM)
    for name, content in engine.modules(names).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def _start(kind: str, folder: Path, job: RunJob, image: str | None) -> str:
    """Writes what starts it, files of `templates/` with each @name@ replaced; returns what the README says of it."""
    versions = environment.versions("tensorflow", "dtk")
    known = {"name": job_name(folder.name), "workers": job.workers, "image": image, "port": PORT, **versions}
    known["python"] = ".".join(str(versions["Python"]).split(".")[:2])
    files, words = KINDS[kind]
    for file in files:
        text = (Path(__file__).parent / "templates" / file).read_text()
        for name, value in known.items():
            text = text.replace(f"@{name}@", str(value))
        (folder / file).write_text(text)
        if file.endswith(".sh"):
            (folder / file).chmod(0o755)
    return _(words, entry="python -m dtk worker .", **known)


SCRIPT_WORDS = N_("""`./start.sh` starts {workers} workers on this machine.

On several machines, copy the directory to each and start a worker there, with the addresses of all and its own number:

    cluster='{{"worker": ["10.0.0.1:23456", "10.0.0.2:23456"]}}'
    export TF_CONFIG="{{\\"cluster\\": $cluster, \\"task\\": {{\\"type\\": \\"worker\\", \\"index\\": 0}}}}"
    {entry}
""")

SLURM_WORDS = N_("""From this directory, which all nodes must see, with a Python on PATH that has what is listed below:

    sbatch job.sbatch

{workers} nodes, a worker on each; `sbatch --nodes=8 job.sbatch` for 8.
""")

KUBERNETES_WORDS = N_("""    docker build -t {image} . && docker push {image}
    kubectl apply -f job.yaml
    kubectl logs -f -l job-name={name} --prefix --max-log-requests {workers}

{workers} pods of an Indexed Job, which a headless Service gives names: `{name}-0.{name}` and so on. Each pod has a
directory /job/runs of its own, which goes with it: for records that stay, and for checkpoints that a restart finds,
mount a volume there (`ReadWriteMany`).
""")

# What starts a kind, of `templates/`, and what the README says of it.
KINDS = {
    "script": (["start.sh"], SCRIPT_WORDS),
    "slurm": (["job.sbatch"], SLURM_WORDS),
    "kubernetes": (["job.yaml", "Dockerfile"], KUBERNETES_WORDS),
}

README = N_("""# {name}

Written by `dtk.export`. The function is {what}.

{said}
Each worker writes into `runs/`; `dtk show runs/run*` prints a table, `dtk report runs/run*` a page.

What every machine needs: the same versions of Python, TensorFlow and dtk; the data, at the same place;
ports above 1023 open between all of them, both ways.
""")


def job_name(name: str) -> str:
    """A name that Kubernetes takes for a Job and for a Service.

    >>> job_name("My_train v2")
    'my-train-v2'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "dtk"


# ---- a function as a program that a person can read and change: its source, what it calls, and what it captures


@dataclass
class Written:
    """The parts of a program. imports: lines; values: assignments; functions: sources, each after those it needs.

    reason: why there is no such program; "" where there is one.
    """

    imports: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    def text(self) -> str:
        """Imports, values and functions as one text."""
        values = "\n".join(f"{name} = {value}" for name, value in self.values.items())
        head = "\n\n".join(part for part in ("\n".join(sorted(self.imports)), values) if part)
        return "\n\n\n".join(part for part in [head, *(source.rstrip() for source in self.functions.values())] if part)


def written(fn: Any) -> Written:
    """The program of a function from a cell or a file; with a reason where its source alone is not the function."""
    found = Written()
    if not inspect.isfunction(fn) or fn.__name__ == "<lambda>":
        name = getattr(fn, "__name__", type(fn).__name__)
        found.reason = _("{name} is no function that a def makes", name=name)
        return found
    for each in reversed(list(ship.own_functions(fn, set()))):  # those that a function calls come before it
        found.reason = _take_in(each, found)
        if found.reason:
            break
    return found


def _take_in(fn: Any, found: Written) -> str:
    """Puts one function and what it captures into `found`; returns the reason why that can't be, or ""."""
    name = fn.__name__
    try:
        source = textwrap.dedent(inspect.getsource(fn))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # the last: a lambda in the middle of a line
        return _("the source of {name} is not at hand", name=name)
    if inspect.isfunction(fn) and not _is_the_same(fn, source):
        return _("{name} is made in a way that its source alone does not repeat", name=name)
    if found.functions.setdefault(name, source) != source:
        return _("two functions are called {name}", name=name)
    # What default values, decorators and annotations name is not the function's code, but its source needs it. Names in
    # its body may be its own, such as `_`, which IPython has as well.
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            statement.body = []
    for captured, value in [*ship.captured(fn), *_named(fn, tree)]:
        if captured == ship.DEFAULT_VALUE:
            continue  # the source has it
        line = _of_value(captured, value)
        if line is None:
            return _("{owner} captures {name}, a {kind}", owner=name, name=captured, kind=type(value).__name__)
        if line.startswith(("import ", "from ")):
            found.imports.add(line)
        elif line and found.values.setdefault(captured, line) != line:
            return _("{name} has two values", name=captured)
    return ""


def _named(fn: Any, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """The names in a piece of source that are there where the function was made."""
    known = getattr(fn, "__globals__", {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id, known[node.id]


def _is_the_same(fn: types.FunctionType, source: str) -> bool:
    """Whether a source compiles to this function: not where a decorator or a factory has made it."""
    # Python 3.11 and later compile a method call in another way where the file imports the name, so that it counts.
    known = [(name, value) for name, value in _named(fn, ast.parse(source)) if not ship.is_own(value)]
    imported = [name for name, value in known if isinstance(value, types.ModuleType) or callable(value)]
    for head in ("".join(f"import {name}\n" for name in dict.fromkeys(imported)), ""):
        for each in compile(head + source, "source", "exec").co_consts:
            if isinstance(each, types.CodeType) and each.co_name == fn.__name__ and _alike(each, fn.__code__):
                return True
    return False


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    if other.co_freevars:  # captured by cells: other instructions for these values, which become the program's own
        return one.co_argcount == other.co_argcount and one.co_varnames == other.co_varnames
    return list(_code(one)) == list(_code(other))


def _code(of: types.CodeType) -> Iterator[str]:
    """What code does, as text: not its comments, its line numbers, and where it stands."""
    yield f"{of.co_code.hex()} {of.co_names} {of.co_varnames}"
    for constant in of.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:  # a set of strings has another order in each process
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _of_value(name: str, value: Any) -> str | None:
    """The line that makes a captured value: an import, or what follows `name = `; "" for a function of the program."""
    if isinstance(value, types.ModuleType):
        home = value.__name__
        return f"import {home}" if name in (home, home.partition(".")[0]) else f"import {home} as {name}"
    if type(value).__module__ == "builtins" and _reads_back(value):
        return repr(value)
    if inspect.isroutine(value) or inspect.isclass(value):
        if ship.is_own(value):
            return "" if value.__name__ == name else None
        home, own = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
        if home and "." not in own:
            return f"from {home} import {own}" if own == name else f"from {home} import {own} as {name}"
    return None


def _reads_back(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
