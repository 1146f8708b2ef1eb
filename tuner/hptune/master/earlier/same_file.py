"""The last study of a model file, from which a new one could learn."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ... import text
from ...core.trial import TrialState
from ...errors import HptuneError
from ...storage.directory import StudyDirectory
from ...storage.ledger import LedgerReader


def notes_on_last_study(studies: Sequence[StudyDirectory], model_file: str) -> list[str]:
    """Return a line on the first study with results of this model file; empty if there is none.

    Args:
        studies: Directories that may hold earlier studies, the last one first.
        model_file: The file's path, as studies store it.
    """
    for earlier in studies:
        # One that cannot be read, such as of another format, is passed over.
        with contextlib.suppress(HptuneError, OSError):
            facts, trials = LedgerReader(earlier).snapshot(lambda now: (now.facts(), now.trials()))
            if facts["settings"]["source"]["path"] != model_file:
                continue
            complete = sum(trial.state is TrialState.COMPLETE for trial in trials)
            if complete:
                results = f"{text.plural(complete, 'complete trial')} of this model file"
                return [f"{earlier} has {results}; --warm-start {earlier} would learn from them"]
    return []
