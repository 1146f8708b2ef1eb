"""What a request of an agent would run and cost, within the limits; nothing is started here."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hptune_jobqueue.commands import ANSWER_SECONDS

from ..clusters.slurm_jobs import order_of
from ..clusters.slurm_master import Masters
from ..config.asked import asked
from ..config.settings import StudySettings
from ..core.budget import Device, hours_of, read_budget
from ..errors import UsageError
from ..files.access import read_whole
from ..storage.directory import StudyDirectory
from ..storage.ledger import LedgerReader
from ..study.view_reading import settings_of
from ..text import duration
from ..user_code.model_file import check_path
from ..user_code.scripts import is_keras_tuner_script
from ..user_code.source_checks import check_syntax
from .limits import Limits, settings_of_texts, texts_of

_SUBMITTED_BUDGET = re.compile(r"--budget[= ]'?(none|[\d.]+ ?[\w-]+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request would run.

    Attributes:
        study: The study's directory.
        arguments: The command of hptune.
        state: A digest of what the request rests on: files, and what the study has recorded.
        cost: What it may use, in words; empty if it already runs or exists, and nothing is left
            to start.
    """

    study: Path
    arguments: tuple[str, ...]
    state: str
    cost: str

    def token(self, key: bytes) -> str:
        """Return what starts the request, made with a key that the agent does not have."""
        text = json.dumps([str(self.study), self.arguments, self.state])
        return hmac.new(key, text.encode(), "sha256").hexdigest()[:32]


class Planner:
    """Plans a request within limits, beside what the other studies of the folder may still use.

    Each request has a planner of its own, which asks Slurm once.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._masters = Masters(ANSWER_SECONDS)

    def new(self, model_file: str, given: Mapping[str, Any]) -> Plan:
        """Return the plan of a new study. The same request has the same directory.

        Raises:
            UsageError: It is not allowed, or wrong.
        """
        model = self._limits.model(model_file)
        source = check_path(model)
        if is_keras_tuner_script(check_syntax(model)):
            raise UsageError(f"{model.name} is a script of its own; an agent runs model files only")
        texts = texts_of(given)
        if Device.GPU not in self._limits.device_hours:
            texts.setdefault("gpus-per-trial", ("0",))
        settings = StudySettings(source=source, **settings_of_texts(texts))
        state = _digest_of_files(settings)
        digest = hashlib.sha256(json.dumps([str(model), state, texts]).encode()).hexdigest()
        stem = re.sub(r"[^A-Za-z0-9_-]", "-", model.stem)[:40]
        study = self._limits.study(f"{stem}-{digest[:12]}")
        directory = StudyDirectory(study)
        cost = ""
        if not (directory.has_ledger or self._is_active(directory)):
            cost = self._checked_cost(settings, study)
        where = ["--detach"] if settings.slurm else []
        arguments = ("run", f"--study={study}", "--quiet", *where, *_arguments(texts))
        return Plan(study, (*arguments, "--", str(model)), state, cost)

    def again(self, name: str, given: Mapping[str, Any], *, retry_failed: bool) -> Plan:
        """Return the plan of continuing a study.

        Raises:
            UsageError: It is not allowed, or wrong.
        """
        study, texts = self._limits.study(name), texts_of(given)
        directory = StudyDirectory(study)
        reader = LedgerReader(directory)
        settings = settings_of(directory, reader.facts()).changed(settings_of_texts(texts))
        cost = "" if self._is_active(directory) else self._checked_cost(settings, study)
        more = ["--detach"] * bool(settings.slurm) + ["--retry-failed"] * retry_failed
        # Each run records that it was opened, so a token starts one run.
        state = f"{_digest_of_files(settings)} {len(reader.run_state().run_seconds)}"
        arguments = ("resume", "--quiet", *more, *_arguments(texts), "--", str(study))
        return Plan(study, arguments, state, cost)

    def _checked_cost(self, settings: StudySettings, study: Path) -> str:
        """Return what a study may use, in words.

        Raises:
            UsageError: There is no room for it, or it is wrong.
        """
        hours = dict.fromkeys(self._limits.device_hours, 0.0)
        active = []
        for path in self._limits.studies.glob("*/"):
            directory = StudyDirectory(path)
            if path == study or path.is_symlink():
                continue
            is_active = self._is_active(directory)
            active += [path.name] * is_active
            for device in hours:
                hours[device] += _committed(directory, device, is_active=is_active)
        self._limits.check(settings, hours)
        if len(active) >= self._limits.running:
            raise UsageError(
                f"{', '.join(sorted(active))} runs; allowed at once are {self._limits.running}. "
                "Wait for its end"
            )
        asked(settings)
        return self._cost(settings, study)

    def _is_active(self, directory: StudyDirectory) -> bool:
        """Return whether a study has a master, or a job that is to be its master."""
        return directory.owner() is not None or self._masters.may_have_job(directory)

    def _cost(self, settings: StudySettings, study: Path) -> str:
        free = shutil.disk_usage(self._limits.studies).free / 1e9
        first = f", the first {settings.first} of them before all others" if settings.first else ""
        jobs = ""
        if settings.slurm:
            shapes = order_of(Path(settings.slurm), study, settings.max_jobs).config.shapes
            walltimes = " or ".join(dict.fromkeys(each.walltime for each in shapes))
            jobs = f"{settings.max_jobs} Slurm jobs at once of {walltimes} each"
            jobs = f"{jobs}, and one for the master; "
        return (
            f"at most {settings.trials} trials{first}; {settings.device_budget}; "
            f"{duration(settings.timeout_seconds or 0.0)}; {jobs}disk for the best model and "
            f"{settings.keep_checkpoints} checkpoints ({free:.1f} GB are free)"
        )


def _committed(directory: StudyDirectory, device: Device, *, is_active: bool) -> float:
    """Return the device hours that a study has used or, while it is active, may use."""
    used, budgets = 0.0, []
    if directory.has_ledger:
        reader = LedgerReader(directory)
        # What ran when a master was killed ends at the ledger's last event, as it does on resume.
        now = time.time() if is_active else reader.run_state().last_event_at
        used = hours_of(reader.attempts(), device, now=now)
        budgets = [settings_of(directory, reader.facts()).device_budget]
    if not is_active:
        return used
    script = directory.path / "jobs" / "master.sbatch"
    if script.exists():  # its master may not have begun
        found = _SUBMITTED_BUDGET.findall(read_whole(script).decode(errors="replace"))
        budgets += [None if text == "none" else read_budget(text) for text in found]
    if not budgets or None in budgets:
        return math.inf
    return max(used, *(each.hours for each in budgets if each and each.device is device), 0.0)


def _arguments(texts: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [f"--{name}={text}" for name, values in texts.items() for text in values]


def _digest_of_files(settings: StudySettings) -> str:
    files = [settings.source.path, *([settings.slurm] if settings.slurm else [])]
    contents = [hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in files]
    return hashlib.sha256("".join(contents).encode()).hexdigest()
