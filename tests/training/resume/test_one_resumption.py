"""A resumption on its own: which checkpoint it continues from, and which models it keeps."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hptune.core.attempt import AttemptId
from hptune.core.goals import Goals
from hptune.core.messages import Start
from hptune.core.resources import Placement
from hptune.core.trial import Direction, Goal
from hptune.training.context import TrialContext
from hptune.training.parallel.ranks import Ranks
from hptune.training.resume import callback_state, checkpoint
from hptune.training.resume.checkpoint import Checkpoints
from hptune.training.resume.resumption import Resumption
from rank_threads import together


def new_trial(directory: Path, attempt: int) -> TrialContext:
    return TrialContext(
        Start(AttemptId(0, attempt), {}, Placement("worker", (0,)), 5),
        directory=directory,
        goals=Goals((Goal("val_loss", Direction.MIN),)),
        epochs=5,
        send=lambda _: None,
    )


def test_without_a_checkpoint_on_each_node_all_ranks_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint, "_APPEARS_SECONDS", 0.0)

    def is_resumed(ranks: Ranks) -> bool:
        trial = new_trial(tmp_path / str(ranks.rank), attempt=1)
        trial.ranks = ranks
        recorder: Any = SimpleNamespace(step=0)
        checkpoints = Checkpoints(trial.directory, is_read_only=ranks.rank > 0)
        return Resumption(trial, recorder, checkpoints).is_resumed

    Checkpoints(tmp_path / "0").write(3, "state")
    assert together(2, is_resumed) == [False, False]
    assert "The trial begins again, as rank 1 has no checkpoint of epoch 3: " in caplog.text
    caplog.clear()
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    assert together(2, is_resumed) == [True, True]
    assert not caplog.text


class Model:
    """One of several, as of a cross-validation, each with weights of its own."""

    def __init__(self) -> None:
        self.variables = [object()]


def test_of_several_models_the_last_alone_is_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_state, "with_state", list)  # which would import Keras
    recorder: Any = SimpleNamespace(step=0)
    resumption = Resumption(new_trial(tmp_path, attempt=0), recorder, Checkpoints(tmp_path))
    models = [Model() for _ in range(4)]
    for each in models:
        resumption.fit_begins(each, [], {"epochs": 1, "steps": 1, "verbose": 0})
    seen = [weakref.ref(each) for each in models]
    del models, each
    assert [each() is not None for each in seen] == [False, False, False, True]


def test_a_loop_that_ends_a_training_which_never_began_is_let(tmp_path: Path) -> None:
    recorder: Any = SimpleNamespace(step=0)
    resumption = Resumption(new_trial(tmp_path, attempt=0), recorder, Checkpoints(tmp_path))
    resumption.fit_ends(Model())
    assert not resumption.has_begun
