"""`dtk.export`: a directory from which a function runs without a notebook, a kernel, and this machine."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtk import datasets, environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch import cluster_of, launch, program, request
from dtk.launch.agent import MODULES
from dtk.launch.launch import Job
from dtk.launch.outside import PROGRAM
from dtk.published import page
from dtk.worker import ship

__all__ = ["export", "job_name"]

KINDS = ("script", "slurm", "kubernetes")


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
    plain: bool = False,
) -> Path:
    """Writes a directory that runs `fn` on a cluster of several machines, without a notebook and without a kernel.

    It has the function as a readable program, `train.py`, where its source is at hand and makes the same function, and
    as a pickle where not; what starts it there; and a README. Each worker is `python -m dtk worker`, which reads
    TF_CONFIG, or what Slurm or Kubernetes says, and leaves records and logs that `dtk show` and `dtk report` read.

    Args:
        fn: as for `dtk.run`.
        kind: "script" (a shell script that starts the workers on this machine, and what each needs on others), "slurm"
            (a batch script), "kubernetes" (an Indexed Job with a headless Service, and a Dockerfile).
        path: the directory; it is made, or has to be empty.
        workers: a worker a machine.
        args, kwargs, seed, keras, record: as for `dtk.run`.
        image: of the containers, for "kubernetes", such as "registry.example/me/train:1".
        plain: a `train.py` that needs no dtk: TF_CONFIG and seeds written out, Keras as tf_keras. Not for a function
            that uses dtk.

    Returns:
        The directory.

    Raises:
        ClusterConfigError: the request can't be carried out; nothing was written.
        NotShippable: `fn` or an argument can't travel to another process.
    """
    folder = _checked(kind, path, image)
    request.check_sizes(workers, here=False)
    payload = request.pack(fn, args, kwargs)
    found, call = program.written(fn), _call(fn, args, kwargs)
    if call is None:
        found.reason = found.reason or _("an argument has no text that reads back as the same value")
    if PROGRAM in ship.modules(ship.imports(found.text(), PROGRAM)):
        words = N_("it imports a module of yours that has the program's name, {name}")
        found.reason = found.reason or _(words, name=PROGRAM)
    if plain:
        _check_plain(found, keras)
    text = None if found.reason else _program(found, fn, str(call), seed, plain)
    job = Job(
        states=record,
        payload=payload,
        **request.of_each_job(fn, seed, keras, "cold", None, record, force=True),  # the image has a Keras of its own
        workers=workers,
        replicas=1,
        mode="cluster",
        share=workers,
        stall_timeout=None,
    )
    # No kernel will ask the machines what they have: they need what this one has, and one without it says so.
    job = replace(job, env={**job.env, datasets.SOMEWHERE: " ".join(sorted(datasets.cached()))})
    if text is not None:
        job = replace(job, strategy=False, program=PROGRAM)  # the program makes its own
    _write(folder, job, text)
    start = {"script": _script, "slurm": _slurm, "kubernetes": _kubernetes}[kind]
    said = start(folder, job, image or "", plain)
    (folder / "README.md").write_text(_readme(fn, said, found.reason, plain))
    return folder


def _checked(kind: Any, path: str | Path, image: str | None) -> Path:
    if kind not in KINDS:
        kinds = _(", ").join(map(repr, KINDS))
        raise ClusterConfigError(_("dtk.export(kind={kind!r}): it takes {kinds}", kind=kind, kinds=kinds))
    if (kind == "kubernetes") != bool(image):
        words = N_("dtk.export(kind={kind!r}): give the containers' image=, such as 'registry.example/me/train:1'")
        words = N_("dtk.export(kind={kind!r}): image= is not for it") if image else words
        raise ClusterConfigError(_(words, kind=kind))
    folder = Path(path).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        words = N_("{folder} is there already; give a directory that is empty or not there yet")
        raise ClusterConfigError(_(words, folder=folder))
    return folder


def _check_plain(found: program.Written, keras: int | None) -> None:
    if found.reason:
        raise ClusterConfigError(_("plain=True: no program can be written, as {reason}", reason=found.reason))
    if found.uses_dtk:
        words = N_("plain=True: the function uses dtk; {page} has what to write in its place")
        raise ClusterConfigError(_(words, page=page("guide/without_dtk.md")))
    if keras == 3:
        words = N_("plain=True with keras=3: Keras 3's fit fails over several workers without dtk's corrections")
        raise ClusterConfigError(_(words), remedy=_("leave keras= out, for tf_keras"))


def _call(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> str | None:
    """The call as source; None where an argument can't be written."""
    given = {**{f"*{k}": value for k, value in enumerate(args)}, **(kwargs or {})}
    if not all(program.reads_back(value) for value in given.values()):
        return None
    written = [repr(value) if name.startswith("*") else f"{name}={value!r}" for name, value in given.items()]
    if ship.takes_strategy(fn):
        place = list(inspect.signature(fn).parameters).index("strategy")
        if len(args) > place:
            written.insert(place, "strategy")
        else:
            written.append("strategy=strategy")
    return f"{fn.__name__}({', '.join(written)})"


def _program(found: program.Written, fn: Any, call: str, seed: int | None, plain: bool) -> str:
    """`train.py`, which ends with what plain Python runs of it; under `dtk worker`, which seeds, as well."""
    ends = []
    if plain:
        ends += [
            "config = find(os.environ)",
            "if config is not None:",
            '    os.environ["TF_CONFIG"] = json.dumps(config)',
        ]
        ends += ["import tf_keras", "", f"tf_keras.utils.set_random_seed({seed})"] if seed is not None else []
    else:
        ends += ["import dtk", "", "dtk.correct_keras()  # Keras 3's fit fails over several workers without"]
    if ship.takes_strategy(fn):
        ends += ["import tensorflow as tf", "", "strategy = tf.distribute.MultiWorkerMirroredStrategy()"]
    parts = [f'"""`{fn.__name__}`, for each worker of a cluster; written by dtk.export."""']
    if plain:
        own = inspect.getsource(cluster_of)
        parts += [_PLAIN, own[own.index("PORT = ") :].strip()]
    main = 'if __name__ == "__main__":\n' + "".join(f"    {line}".rstrip() + "\n" for line in [*ends, f"print({call})"])
    return "\n\n\n".join([*parts, found.text(), main])


_PLAIN = """from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf_keras, whose fit runs on several workers as it is"""


def _write(folder: Path, job: Job, text: str | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    launch.write_job(folder, job)
    if text is not None:
        (folder / PROGRAM).write_text(text)
        (folder / "function.pkl").unlink()
    home = folder / MODULES if text is None else folder  # a program finds what lies beside it
    names = ship.named(job.payload) if text is None else ship.imports(text, PROGRAM)
    for name, content in ship.modules(names).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def _entry(plain: bool, where: str) -> str:
    return f"python {where}/{PROGRAM}" if plain else f"python -m dtk worker {where}"


def _filled(template: str, **values: Any) -> str:
    """A file of `templates/`, with each @name@ replaced."""
    text = (Path(__file__).parent / "templates" / template).read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _script(folder: Path, job: Job, image: str, plain: bool) -> str:
    entry = _entry(plain, '"$here"')
    script = folder / "start.sh"
    script.write_text(_filled("start.sh", workers=job.workers, entry=entry))
    script.chmod(0o755)
    return _(SCRIPT_WORDS, workers=job.workers, entry=_entry(plain, "."))


def _slurm(folder: Path, job: Job, image: str, plain: bool) -> str:
    entry = _entry(plain, '"$SLURM_SUBMIT_DIR"')
    (folder / "job.sbatch").write_text(_filled("job.sbatch", workers=job.workers, entry=entry))
    return _(SLURM_WORDS, workers=job.workers)


def _kubernetes(folder: Path, job: Job, image: str, plain: bool) -> str:
    name = job_name(folder.name)
    command = '["python", "/job/train.py"]' if plain else '["python", "-m", "dtk", "worker", "/job"]'
    (folder / "job.yaml").write_text(
        _filled("job.yaml", name=name, workers=job.workers, image=image, command=command, port=cluster_of.PORT)
    )
    versions = environment.versions("tensorflow", "dtk", "tf_keras")
    minor = ".".join(str(versions["Python"]).split(".")[:2])
    install = INSTALL.format(**versions)
    if plain:
        tensorflow = str(versions["tensorflow"])
        tf_keras = versions["tf_keras"] or f"{tensorflow.rpartition('.')[0]}.*"  # of the same minor version
        install = f"RUN pip install --no-cache-dir tensorflow=={tensorflow} tf_keras=={tf_keras}"
    entry = json.dumps(_entry(plain, "/job").split())
    (folder / "Dockerfile").write_text(_filled("Dockerfile", python=minor, install=install, entry=entry))
    return _(KUBERNETES_WORDS, image=image, name=name, workers=job.workers)


def _readme(fn: Any, said: str, reason: str, plain: bool) -> str:
    what = (
        _("`function.pkl`, because {reason}; it needs the same minor version of Python", reason=reason)
        if reason
        else _("`{program}`, a program that can be read and changed", program=PROGRAM)
    )
    also, records = ("tf_keras", "") if plain else ("dtk", _(RECORDS))
    return _(README, name=fn.__name__, what=what, said=said, records=records, also=also)


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

INSTALL = """# dtk {dtk}: put its wheel beside this file (`pip wheel --no-deps`), or install it from where you have it.
COPY *.whl /wheels/
RUN pip install --no-cache-dir tensorflow=={tensorflow} /wheels/*.whl"""

RECORDS = N_("""Each worker writes into `runs/`; `dtk show runs/run*` prints a table, `dtk report runs/run*` a page.

""")

KUBERNETES_WORDS = N_("""    docker build -t {image} . && docker push {image}
    kubectl apply -f job.yaml
    kubectl logs -f -l job-name={name} --prefix --max-log-requests {workers}

{workers} pods of an Indexed Job, which a headless Service gives names: `{name}-0.{name}` and so on. Each pod has a
directory /job/runs of its own, which goes with it: for records that stay, and for checkpoints that a restart finds,
mount a volume there (`ReadWriteMany`).
""")

README = N_("""# {name}

Written by `dtk.export`. The function is {what}.

{said}
{records}What every machine needs: the same versions of Python, TensorFlow and {also}; the data, at the same place;
ports above 1023 open between all of them, both ways.
""")


def job_name(name: str) -> str:
    """A name that Kubernetes takes for a Job and for a Service.

    >>> job_name("My_train v2")
    'my-train-v2'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "dtk"
