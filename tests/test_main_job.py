"""The main job: every step of an epoch and every weight of two workers as on one device, at the same global batch."""

from __future__ import annotations

import pytest
from prepared import PREPARED, needs_mnist

import dtk
from dtk import cli

pytestmark = pytest.mark.trains

EPOCHS = {"embedded": 4_000 // cli.GLOBAL_BATCH, "tfds": 60_000 // cli.GLOBAL_BATCH}  # whole batches of an epoch


@pytest.mark.parametrize("source", ["embedded", pytest.param("tfds", marks=[needs_mnist, pytest.mark.slow])])
def test_an_epoch_is_that_of_one_device(source, capsys, monkeypatch):
    if source == "tfds":
        monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    steps = EPOCHS[source]
    run = dtk.run(cli.train, workers=2, kwargs={"steps": steps, "source": source})
    baseline = dtk.baseline(cli.train, kwargs={"steps": steps, "source": source})
    dtk.verify(run, baseline)
    said = capsys.readouterr().out
    assert f"global_batch=128 steps={steps}" in said
    assert "check every step vs one device: PASS" in said
    losses = run.records.groupby("step").loss.sum()
    assert losses.iloc[-1] < 0.95 * losses.iloc[0], "it has begun to learn"
