"""The command line: `dtk run`, `show`, `report`, `demo`, `lessons`, `lab`, `class`, `doctor` and others."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dtk
from dtk.errors import DtkError, RunInterrupted, RunTimeout, WorkerFailed

if TYPE_CHECKING:
    from dtk.runs import Run

INTERRUPTED, TIMED_OUT = 130, 124  # exit codes, as a shell and timeout(1) have them


def parser() -> argparse.ArgumentParser:
    """The commands and their options; docs/reference is made from it, too. `call` is what a command does."""
    found = argparse.ArgumentParser(prog="dtk", description="Synchronous data-parallel training, taught and shown.")
    found.add_argument("--version", action="version", version=f"dtk {dtk.__version__}")
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, call: Callable[[argparse.Namespace, list[str]], int | None], **how: Any) -> Any:
        made = commands.add_parser(name, **how)
        made.set_defaults(call=call)
        return made

    usage = "dtk run (train.py | -m package.module) [options] [-- the program's own arguments]"
    _add_run(add("run", _run, usage=usage, help="run a program on localhost workers"))
    show = add("show", _show, help="a run's table, from its directory")
    report = add("report", _report, help="a run as one HTML file, from its directory")
    report.add_argument("--baseline", type=Path, metavar="DIR", help="the run on one device to compare with")
    report.add_argument("--out", type=Path, default=Path("report.html"), help="the file (default: report.html)")
    for each in (show, report):
        each.add_argument("dir", type=Path, help="a run's directory, which each run prints at its end")
    show.add_argument("--json", action="store_true", help="as one JSON object")
    demo = add("demo", _demo, help="train on a localhost cluster, prove it against one device, draw it")
    demo.add_argument("--out", type=Path, default=Path("out"), help="where the figures go (default: out)")
    demo.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    usage = "dtk lab [options] [DIR] [-- JupyterLab's own options]"
    lessons = add("lessons", _lessons, help="copy the lessons, which came with dtk, into a folder")
    lab = add("lab", _lessons, usage=usage, help="open the lessons in JupyterLab; copy them where there are none")
    for each in (lessons, lab):
        each.add_argument("dir", nargs="?", type=Path, default=Path("dtk-lessons"), help="(default: dtk-lessons)")
        each.add_argument("--language", metavar="zh", help="such as zh, in a folder zh (default: what DTK_LANG says)")
    lessons.add_argument("--overwrite", action="store_true", help="also the files that you have changed")
    _add_class(add("class", _class_build, help="for teachers: editions of the lessons"))
    add("doctor", _doctor, help="what works on this machine, what does not, and what to do about it")
    words = "on another machine: what `dtk.run(..., on=...)` starts workers through"
    agent = add("agent", _agent, description=words)  # without `help`, it is not listed, as the next
    agent.add_argument("--storage", default="", metavar="DIR", help="a directory that all machines share, for runs")
    words = "one worker of what `dtk.export` wrote, by TF_CONFIG, Slurm or Kubernetes"
    worker = add("worker", _worker, description=words)
    worker.add_argument("dir", type=Path, help="the directory that `dtk.export` wrote")
    worker.add_argument("--out", type=Path, metavar="DIR", help="where the run's directory goes (default: DIR/runs)")
    return found


def _add_class(of: argparse.ArgumentParser) -> None:
    of.add_argument("step", choices=("build",), help="write an edition of the lessons into a new folder")
    of.add_argument("out", type=Path, help="the folder, which is made")
    of.add_argument("--edition", required=True, choices=("student", "solution", "nbgrader", "otter"))
    of.add_argument("--variant", default="", metavar="SEED", help="other numbers in checks, a group's own")
    of.add_argument("--hidden", default="", metavar="WORD", help="graders check further cases, drawn from this word")
    of.add_argument("--lesson", action="append", metavar="NAME", help="such as 02 or lab_3 (default: all)")
    of.add_argument("--lessons", type=Path, default=Path("notebooks"), metavar="DIR", help="(default: notebooks)")


def _add_run(of: argparse.ArgumentParser) -> None:
    what = of.add_mutually_exclusive_group(required=True)
    what.add_argument("program", nargs="?", help="a script, run as by `python train.py` in each worker")
    what.add_argument("-m", dest="module", metavar="package.module", help="a module, run as by `python -m`")
    of.add_argument("--workers", type=int, default=2, help="worker processes, each with its TF_CONFIG (default: 2)")
    of.add_argument("--replicas", type=int, default=1, help="replicas in each worker (default: 1)")
    of.add_argument("--gpus-per-worker", type=int, metavar="N", help="GPUs of each worker (default: all see all)")
    of.add_argument("--on", metavar="PLACE", help="workers there, such as ray or slurm (default: here)")
    of.add_argument("--keras", type=int, choices=(2, 3), help="2: tf_keras; 3: Keras 3 (default: what is set)")
    of.add_argument("--evaluator", action="store_true", help="a further process, with the task of an evaluator")
    of.add_argument("--restarts", type=int, default=0, metavar="N", help="of the whole cluster after a failure")
    of.add_argument("--timeout", type=float, metavar="S", help="seconds that the run may take")
    of.add_argument("--stall-timeout", type=float, default=60.0, metavar="S", help="without progress (default: 60)")
    of.add_argument("--seed", type=int, default=0, help="of Python, NumPy, TensorFlow and Keras (default: 0)")
    of.add_argument("--record", action="store_true", help="record each step of every Keras fit")
    of.add_argument("--verify", action="store_true", help="follow it on one device; 1: a step differs; 3, 4: not known")
    of.add_argument("--report", type=Path, metavar="FILE", help="write one HTML file at the end, also of a failure")
    of.add_argument("--json", action="store_true", help="one JSON object on stdout at the end; all else on stderr")
    of.add_argument("--force", action="store_true", help="start where free memory says no")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, or 1 with one sentence on stderr; `dtk run` the culprit's."""
    given = list(sys.argv[1:] if argv is None else argv)
    split = given.index("--") if "--" in given and given[0] in ("run", "lab") else len(given)
    options = parser().parse_args(given[:split])
    try:
        return options.call(options, given[split + 1 :]) or 0
    except (DtkError, OSError) as error:
        print(f"dtk: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dtk: interrupted; the workers are stopped", file=sys.stderr)
        return INTERRUPTED


# ---- what each command does; rest: the arguments after `--`


def _run(options: argparse.Namespace, rest: list[str]) -> int:
    """The exit code is the culprit's, 1 for a stall or a difference, 0 where all is well."""
    os.environ.setdefault("DTK_LIVE", "text")  # in CI as well: its lines are what the program prints
    # A program that reads stdout gets the object alone.
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        found, error = _attempt(options, rest)
        said = {**_described(found), "exit_code": 0}
        print(*_table(found)[1:], sep="\n")  # how it ended, the live lines have said
        single = None
        if error is not None:
            said |= {"exit_code": _code(error), "error": str(error)}
            print(f"dtk: {error}", file=sys.stderr)
        elif options.verify:
            single = _verified(found, options, rest, said)
        if options.report:
            print(f"wrote {found.report(options.report, baseline=single)}")
    if options.json:
        print(json.dumps(said))
    return int(said["exit_code"])


def _attempt(options: argparse.Namespace, argv: list[str]) -> tuple[Run, BaseException | None]:
    """The run, of a failed one what is in its directory, and its error; a refusal raises, for nothing was started."""
    from dtk.runs import opened, run
    from dtk.worker.states import BUDGET

    if options.verify and not options.on:
        os.environ.setdefault("DTK_STATES", str(BUDGET))  # large states, too, at every step: the proof is waited for
    names = ("workers", "replicas", "gpus_per_worker", "evaluator", "restarts", "stall_timeout", "force", "on")
    try:
        return run(**_common(options, argv), **{name: getattr(options, name) for name in names}), None
    except (DtkError, RunInterrupted) as error:
        folder = getattr(error, "folder", None)
        if folder is None:
            raise
        return opened(folder.path), error


def _common(options: argparse.Namespace, argv: list[str]) -> dict[str, Any]:
    """What the run and its baseline are both asked."""
    record = options.record or options.verify
    same = {name: getattr(options, name) for name in ("seed", "keras", "timeout")}
    return {"fn": options.program or options.module, "argv": argv, "record": record, **same}


def _verified(found: Run, options: argparse.Namespace, argv: list[str], said: dict[str, Any]) -> Run | None:
    """Proves the run, and writes the verdict into `said`; returns the baseline, None where that fails."""
    from dtk.proof.proof import VERDICTS
    from dtk.run_report import compared  # with all figures, which a run does without
    from dtk.runs import baseline

    single: Run | None = None
    verdict = "not followed"
    try:
        single = baseline(workers=options.workers, **_common(options, argv))
    except WorkerFailed as error:
        said["error"] = str(error)
        words = f"not verified: the run finished, but the program failed on one device, after it: {error}"
        print(f"dtk: {words}", file=sys.stderr)
        print("dtk: does it go on from a checkpoint? It found the run's: save to tempfile.mkdtemp()", file=sys.stderr)
    else:
        print("dtk: following the run, step by step, in one process; where that differs, in others", flush=True)
        verdict = compared(found, single, say=functools.partial(print, flush=True))
        print(f"the baseline's logs and records: {single.dir}")
        said["baseline"] = str(single.dir)
    said |= {"verdict": verdict, "verified": not VERDICTS[verdict], "exit_code": VERDICTS[verdict]}
    return single


def _code(error: BaseException) -> int:
    """The exit code of the culprit; of one that a signal ended 128 and its number, as a shell has it."""
    if isinstance(error, WorkerFailed):
        code = error.exitcode or 1
        return 128 - code if code < 0 else code
    return INTERRUPTED if isinstance(error, RunInterrupted) else TIMED_OUT if isinstance(error, RunTimeout) else 1


def _show(options: argparse.Namespace, rest: list[str]) -> None:
    from dtk.runs import opened

    run = opened(options.dir)
    print(json.dumps(_described(run)) if options.json else "\n".join(_table(run)))


def _table(run: Run) -> list[str]:
    """What was run, how it ended, a row for each worker, and where the rest is."""
    from dtk.live import heading
    from dtk.scaling import summary

    attempts = run.folder.attempts
    starts = f" after {len(attempts)} starts" if len(attempts) > 1 else ""
    head = heading(run.workers, run.replicas, run.mode, run.folder.job.get("program", ""))
    return [f"{head}: {summary.how_it_ended(run)}{starts}", *summary.lines(run), f"logs and records: {run.dir}"]


def _described(run: Run) -> dict[str, Any]:
    """The same for a program that reads it: JSON's types alone."""
    from dtk.scaling import summary

    attempts = run.folder.attempts
    return {
        "dir": str(run.dir),
        "program": run.folder.job.get("program", ""),
        **{name: getattr(run, name) for name in ("mode", "workers", "replicas")},
        "seconds": attempts[-1].ended if attempts else None,
        "failed": attempts[-1].failed if attempts else None,
        "starts": len(attempts),
        **summary.facts(run),
        "members": summary.rows(run),
    }


def _lessons(options: argparse.Namespace, rest: list[str]) -> None:
    from dtk import language
    from dtk.course import lesson_files

    if options.language in language.languages():
        os.environ[language.ASKED] = options.language  # for what is said here, and in JupyterLab's kernels
    chosen = (options.dir, options.language or language.language())
    if options.command == "lab":
        lesson_files.lab(*chosen, options=rest)
    else:
        folder = lesson_files.bring(*chosen, overwrite=options.overwrite)
        print(f"next: `dtk lab {folder}` opens them in JupyterLab; begin with 00_start_here")


def _class_build(options: argparse.Namespace, rest: list[str]) -> None:
    from dtk.course.lesson_files import brought, build, lessons

    if options.lessons == Path("notebooks") and not options.lessons.is_dir():
        options.lessons = brought()  # without a clone
    found = lessons(options.lessons, options.lesson)
    files = build(options.edition, found, options.lessons, options.out, options.variant, options.hidden)
    print(f"dtk: {options.edition} edition of {len(found)} lessons: {len(files)} files in {options.out}")


def _report(options: argparse.Namespace, rest: list[str]) -> None:
    from dtk.runs import opened

    baseline = opened(options.baseline) if options.baseline else None
    print(f"wrote {opened(options.dir).report(options.out, baseline=baseline)}")


def _doctor(options: argparse.Namespace, rest: list[str]) -> int:
    from dtk.doctor import examine

    bad = 0
    for finding in examine():
        print(finding, flush=True)
        bad += finding.mark == "bad"
    return 1 if bad else 0


def _demo(options: argparse.Namespace, rest: list[str]) -> None:
    from dtk.proof.verify import verify
    from dtk.runs import baseline, run

    options.out.mkdir(parents=True, exist_ok=True)  # now, and not after the training
    cluster = run(train, workers=options.workers)
    single = baseline(train, workers=options.workers)
    verify(cluster, single)
    _draw(cluster, single, options.out)
    print("next: `dtk lab` (in a clone: `make lab`) opens the lessons in JupyterLab; begin with 00_start_here")


GLOBAL_BATCH = 128
STEPS = 94  # 12,032 images of MNIST; the embedded ones go round more than once


def train(strategy: Any, steps: int = STEPS, source: str | None = None) -> dict[str, list[float]]:
    """What `dtk demo` trains: a CNN on MNIST, `steps` steps of one epoch; returns Keras's history."""
    import keras
    import tensorflow as tf
    from keras.layers import Conv2D, Dense, Flatten, Input, MaxPooling2D

    (images, _), _ = dtk.datasets.load("mnist", source=source)
    scaled = images.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
    batches = scaled.cache().shuffle(10_000, seed=1).repeat().batch(GLOBAL_BATCH).prefetch(tf.data.AUTOTUNE)
    with strategy.scope():
        convolution = [Input((28, 28, 1)), Conv2D(32, 3, activation="relu"), MaxPooling2D()]
        model = keras.Sequential([*convolution, Flatten(), Dense(64, activation="relu"), Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(5e-4), loss=loss, metrics=["accuracy"])
    history = model.fit(batches, steps_per_epoch=steps, callbacks=[dtk.Recorder()], verbose=2)
    return dict(history.history)


def _draw(cluster: Run, single: Run, out: Path) -> None:
    """The three figures, each in light and dark."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dtk import plot

    figures = {"loss_scaling": (cluster, single), "throughput": (single, cluster), "timeline": (cluster,)}
    for name, runs in figures.items():
        for theme, style in (("", "default"), ("-dark", "dark_background")):
            path = out / f"{name}{theme}.png"
            with plt.style.context(style):
                figure = getattr(plot, name)(*runs).figure
                figure.savefig(path, dpi=144)
                plt.close(figure)
            print(f"wrote {path}")


def _agent(options: argparse.Namespace, rest: list[str]) -> None:
    from dtk.launch import agent

    agent.main(options.storage)


def _worker(options: argparse.Namespace, rest: list[str]) -> int:
    from dtk.launch import outside

    return outside.main(options.dir, options.out)
