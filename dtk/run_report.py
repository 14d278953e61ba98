"""One HTML file of a run, of one that failed too: summary, diagnosis, figures, the ends of the logs, versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from dtk import plot
from dtk.errors import VerificationError
from dtk.language import _
from dtk.live import heading
from dtk.proof.diagnose import diagnose
from dtk.proof.proof import Proof, kept
from dtk.proof.verify import prove
from dtk.records.facts import versions_of
from dtk.records.tables import RunLike
from dtk.scaling import summary
from dtk.view.canvas import image, page, text
from dtk.watch.waiting import called

_LINES = 40  # of each log's end


def write(run: Any, path: str | Path, baseline: Any = None) -> Path:
    """Write the page and return its path. run, baseline: `Run`s, of a directory whose run failed too."""
    asked = run.folder.job
    starts = [f"{each.number}: {each.seconds:.1f} s, {each.failed or _('finished')}" for each in run.folder.attempts]
    heads = [_("The end of the log of {name}", name=called(each.name, each.worker)) for each in run.folder.members]
    parts = [
        text(_("Summary"), summary.lines(run)),
        *_comparison(run, baseline),
        *_figures(run, baseline),
        text(_("Starts of the cluster"), starts),
        *(text(head, each.log_end(_LINES)) for head, each in zip(heads, run.folder.members, strict=True)),
        text(_("How it was asked for"), [json.dumps({**asked, "versions": versions_of(run)}, indent=2)]),
    ]
    title = heading(run.workers, run.replicas, run.mode, asked.get("program", ""))
    path = Path(path)
    path.write_text(page(title, summary.how_it_ended(run).rstrip("."), parts), encoding="utf-8")
    return path


def compared(run: RunLike, baseline: RunLike, say: Callable[[str], None]) -> str:
    """Report what verify reports, with the diagnosis where it fails; return the verdict (`proof.VERDICTS`)."""
    try:
        return prove(run, baseline, say=say).verdict
    except VerificationError as error:
        proof = error.proof or Proof("failed", (), 0, str(error))
        say(_outcome(proof))
        found = diagnose(run, baseline)
        if str(found) != str(error):
            say(_("diagnosis: {sentence}", sentence=found))
        for line in found.evidence:
            if str(error) not in line:  # which has just been said
                say(f"  {line}")
        return proof.verdict


def _outcome(proof: Proof) -> str:
    """Why it proved nothing."""
    return f"{'FAIL' if proof.verdict == 'failed' else 'UNKNOWN'}: {proof.failed}"


def _comparison(run: Any, baseline: Any) -> Iterator[str]:
    """What verify has said of the run; where it was not asked, and a baseline is there, it is asked now."""
    proof = kept(run.dir)
    if proof is None and baseline is not None:
        said: list[str] = []
        compared(run, baseline, said.append)
        yield text(_("Against one device"), said)
        proof = kept(run.dir)
    elif proof is not None:
        yield text(_("Against one device"), [*proof.lines, *([_outcome(proof)] if proof.failed else [])])
    if proof is not None and proof.followers:
        yield image(cast("Any", plot.proof(proof)).figure)


def _figures(run: Any, baseline: Any) -> Iterator[str]:
    """Those that this run has something for."""
    axes: list[Any] = []
    if len(run.records):
        axes = [plot.loss_scaling(run, baseline), plot.throughput(run), plot.timeline(run), plot.step_time(run)]
    if (run.folder.path / "states.json").exists():
        axes.append(plot.wait_for(run))
    yield from (image(ax.figure) for ax in axes)
