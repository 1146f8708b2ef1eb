"""The examples of parallel trials: in two processes they learn what they learn in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from real_runs import Hptune, rows, trials

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch_ddp", "jax_parallel"])
def test_two_processes_learn_what_one_does(hptune: Hptune, name: str) -> None:
    found = []
    for processes in (1, 2):
        study = hptune.directory / f"of-{processes}"
        ended = hptune(
            "run", EXAMPLES / f"{name}.py", "--trials", 1, "--study", study, "--workers", 1,
            "--processes-per-trial", processes, "--seed", 1, seconds=280,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        (trial,) = trials(study)
        assert (trial["state"], trial["step"]) == ("COMPLETE", 10)
        losses = rows(study, "SELECT value FROM reports WHERE metric = 'val_loss' ORDER BY step")
        found.append([row["value"] for row in losses])
    one, two = found
    assert len(one) == 10
    assert two == pytest.approx(one, rel=1e-3)
    assert one[-1] < one[0]
    hptune.assert_nothing_left()
