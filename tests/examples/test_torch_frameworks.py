"""The examples with frameworks on top of PyTorch: pruned, interrupted and continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from real_runs import Hptune, rows, trials, wait_for
from torch_examples import ACCELERATE_OF_TWO, FSDP, LIGHTNING, LORA, Example

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 800.0
"""The model of LoRA computes for seconds in each epoch, and more where cores are shared."""
CASES = (LORA, LIGHTNING, ACCELERATE_OF_TWO, FSDP)


@pytest.mark.parametrize("example", CASES, ids=str)
def test_trials_report_stop_at_rungs_and_keep_their_checkpoint(
    example: Example, hptune: Hptune
) -> None:
    ended = hptune(
        "run", *example.arguments(), "--cpus-per-trial", 2, "--study", "study",
        "--search", "random", "--seed", 1, "--pruner", "asha", "--epochs", 6, "--trials", 5,
        "--workers", 1, seconds=SECONDS,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    study = hptune.study()
    states = [trial["state"] for trial in trials(study)]
    assert set(states) == {"COMPLETE", "PRUNED"}, ended.err
    for trial, state in enumerate(states):
        steps = steps_of(study, example, trial, 0)
        assert steps == list(range(1, len(steps) + 1))
        assert (len(steps) == 6) == (state == "COMPLETE")
    assert example.written_by(study) == set(example.names)


@pytest.mark.parametrize("example", CASES, ids=str)
def test_an_interrupted_trial_continues_from_its_own_checkpoint(
    example: Example, hptune: Hptune
) -> None:
    epochs = 10 if example is LORA else 40  # the others end within seconds
    run = hptune.start(
        "run", *example.arguments(), "--cpus-per-trial", 2, "--study", "study",
        "--seed", 1, "--epochs", epochs, "--trials", 1, "--workers", 1,
    )  # fmt: skip
    study = hptune.study()
    wait_for(lambda: len(steps_of(study, example, 0, 0)) > 2, "reports of the first attempt")
    run.kill()
    before = steps_of(study, example, 0, 0)
    ended = hptune("resume", study, seconds=SECONDS)
    assert ended.code == 0, ended.err
    after = steps_of(study, example, 0, 1)
    # The epoch after the last checkpoint may be trained again.
    assert 1 < after[0] <= before[-1] + 1
    assert after == list(range(after[0], epochs + 1))


def steps_of(study: Path, example: Example, trial: int, attempt: int) -> list[int]:
    """Return the epochs that an attempt has reported; none while there is no study."""
    if not (study / "study.db").exists():
        return []
    wanted = (
        f"SELECT step FROM reports WHERE metric = '{example.metric}' AND trial = {trial} "
        f"AND attempt = {attempt} ORDER BY time"
    )
    return [row["step"] for row in rows(study, wanted)]
