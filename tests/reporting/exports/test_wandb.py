"""The export to W&B, offline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from exported_study import varied
from hptune.reporting.exports import wandb
from requirements import require

require("wandb")


def test_each_trial_that_is_over_has_one_run_in_the_group_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    study = varied(tmp_path / "one")
    place = tmp_path / "place"
    words = study.export_to("wandb", place)
    assert "wandb sync" in words
    exported = study.exported()
    over = [trial.number for trial in exported.trials if exported.state(trial).is_final]

    def runs() -> list[int]:
        return sorted(int(run.name.rpartition("-")[2]) for run in place.glob("wandb/offline-run-*"))

    assert runs() == over
    study.export_to("wandb", place)
    assert runs() == over, "nothing has changed since"
    one = replace(exported.view, trials=exported.trials[:1])
    wandb.write(replace(exported, identity="another", view=one), str(place))
    assert runs() == [0, *over], "another study has its own runs"
