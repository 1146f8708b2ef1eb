"""Export to W&B: a group with a run for each trial."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ... import text
from ...core.trial import Trial, TrialState
from ...errors import UsageError
from ...files.access import atomic_write
from .source import RESULT, ExportedStudy, Written

_SENT = "hptune-sent.json"
"""What was sent, by the id of each run: W&B cannot be asked for it without a network."""


def write(study: ExportedStudy, place: str) -> Written:
    """Write the study as a group of runs; `place` is the folder of W&B's own files.

    WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE count as for any program. Trials that are over have a
    run each; one that has changed since continues its run.

    Raises:
        UsageError: The server cannot be used.
    """
    folder = Path(place or study.default_place("wandb")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _SENT
    sent = json.loads(file.read_text()) if file.exists() else {}
    identity = hashlib.sha256(study.identity.encode()).hexdigest()[:12]
    for trial in study.trials:
        run, digest = f"{identity}-{trial.number}", study.digest(trial)
        if study.state(trial).is_final and sent.get(run) != digest:
            _write_run(study, trial, run, folder)
            sent[run] = digest
            atomic_write(file, json.dumps(sent).encode())
    is_offline = os.environ.get("WANDB_MODE") == "offline"
    command = f"wandb sync {text.path(folder)}/wandb/offline-run-*" if is_offline else ""
    return Written(str(folder), command, study.name)


def _write_run(study: ExportedStudy, trial: Trial, identity: str, folder: Path) -> None:
    import wandb

    try:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "hptune"),
            id=identity,
            resume="allow",
            group=study.name,
            job_type="trial",
            name=f"trial {trial.number}",
            config={**trial.params, "hptune": dict(study.facts)},
            tags=[study.view.state_of(trial), trial.origin],
            notes=trial.reason or None,
            dir=str(folder),
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )
        for step, reported in study.steps(trial):
            run.log(reported.metrics, step=step)
        run.summary.update({f"{RESULT}{k}": v for k, v in study.results(trial).items()})
        run.finish(exit_code=int(study.state(trial) is TrialState.FAILED))
    except wandb.Error as error:
        raise UsageError(f"W&B cannot be used: {text.shorten(str(error), 300)}") from error
