"""TensorFlow's custom training loop under dtk: verified after a diff of a few lines, with a sentence for each line."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import lanes
import official_loop
import pytest

import dtk

LESSON = Path(__file__).parent.parent / "notebooks" / "05_custom_loop.ipynb"

# What is said where one of the changes is missing: by the run that fails, or by verify.
RUN_SAYS = {
    "strategy": "raised ClusterConfigError: the model was made under MirroredStrategy, so each of the "
    "2 workers trains alone; make tf.distribute.MultiWorkerMirroredStrategy() in its place, or run one worker with "
    "replicas=2",
    "directory": "worker 1 raised ClusterConfigError: workers 0 and 1 both save checkpoints to training_checkpoints, "
    "where their files collide; let the chief save there and the others to places of their own (tempfile.mkdtemp())",
    "reset": "raised AttributeError: Mean has no reset_states: Keras 3 calls it reset_state; or run it by dtk run "
    "--keras 2",
}
VERIFY_SAYS = {
    # The last batch of an epoch then counts 45 and 44 examples as if they were equally many.
    "divisor": "step 12, the last batch of the epoch, has 89 examples: 45 on replica 0, 44 on replica 1"
}
# What verify prints where it passes all the same, and the verdict.
CALLS = 15 if lanes.LANE == "tf215" else 12  # Keras 2's evaluations count among them
VERIFY_PRINTS = {
    "global batch": "the global batch depends on the number of replicas: 128 examples here, 64 there",
    "record": f"PASS ({CALLS} calls; same settings, same update; no examples and no losses were recorded)",
}
VERDICTS = {"global batch": "replicas", "record": "one device"}


@pytest.fixture
def without(tmp_path, monkeypatch):
    """The loop with one change taken back, in a module that workers find too."""

    def take_back(change):
        name = f"official_without_{change.replace(' ', '_')}"
        (tmp_path / f"{name}.py").write_text(official_loop.without(change), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)  # a relative checkpoint directory would lie in the working directory
        return importlib.import_module(name).train

    return take_back


@pytest.mark.slow
def test_the_loop_is_verified_against_its_baseline(capsys):
    """As the tutorial has it, with relu and a short last batch."""
    run, baseline = dtk.run(official_loop.train, workers=2), dtk.baseline(official_loop.train)
    dtk.verify(run, baseline)
    assert "check every step vs one device: PASS" in capsys.readouterr().out
    assert run.records.groupby("step").examples.sum().tolist() == [128] * 11 + [89]
    assert "Epoch 1, Loss: 1.9" in run.logs[0]
    chief, other = (Path(place) for place in run.results)
    assert (chief / "ckpt-1.index").exists(), "the chief's checkpoint stays"
    assert other.is_relative_to(run.folder.worker(1).path), "the other's goes with the run"


@pytest.mark.slow
@pytest.mark.parametrize("change", VERIFY_PRINTS)
def test_without_this_change_it_passes_and_says_how(change, without, capsys):
    train = without(change)
    assert dtk.verify(dtk.run(train, workers=2), dtk.baseline(train)).verdict == VERDICTS[change]
    assert VERIFY_PRINTS[change] in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("change", RUN_SAYS)
def test_without_this_change_the_run_fails_with_one_sentence(change, without):
    train = without(change)
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(train, workers=2)
    assert RUN_SAYS[change] in str(failure.value)


@pytest.mark.slow
@pytest.mark.parametrize("change", VERIFY_SAYS)
def test_without_this_change_verify_says_why_in_one_sentence(change, without):
    train = without(change)
    run, baseline = dtk.run(train, workers=2), dtk.baseline(train)
    with pytest.raises(dtk.VerificationError) as failure:
        dtk.verify(run, baseline)
    assert VERIFY_SAYS[change] in str(failure.value)


def lesson():
    """The last diff that lesson 05 shows, and the second column of the table of sentences below it."""
    cells = ["".join(cell["source"]) for cell in json.loads(LESSON.read_text(encoding="utf-8"))["cells"]]
    text = [cell for cell in cells if "```diff" in cell][-1]
    diff, rest = text.split("```diff\n")[1].split("```\n", 1)
    rows = [row.strip("| ").split(" | ") for row in rest.splitlines() if row.startswith("|")]
    return diff.splitlines(), [said for _, said in rows[2:]]


def test_the_lesson_shows_this_diff():
    lines, _ = lesson()
    taken, added = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
    for change, (official, ours) in official_loop.DIFF.items():
        # A few of the changes are to a part of a line; of the function's head the lesson shows what matters.
        before = official.splitlines()[-1].strip().replace("64 *", "BATCH_SIZE_PER_REPLICA *") if official else ""
        after = ours.splitlines()[0].strip().partition(", epochs")[0]
        assert any(before in line for line in taken), f"{change}: the lesson does not take away {before!r}"
        assert any(after in line for line in added), f"{change}: the lesson does not add {after!r}"
    assert len(added) == len(official_loop.DIFF)


def test_the_lesson_shows_these_sentences():
    _, shown = lesson()
    assert len(shown) == len(official_loop.DIFF) == len(RUN_SAYS) + len(VERIFY_SAYS) + len(VERIFY_PRINTS)
    for change, said in zip(official_loop.DIFF, shown, strict=True):
        whole = {**RUN_SAYS, **VERIFY_SAYS, **VERIFY_PRINTS}[change]
        for part in said.split("…"):
            assert part.strip() in whole, f"{change}: the lesson quotes {part.strip()!r}"
