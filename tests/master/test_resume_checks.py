"""Changes that a resumed study refuses."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from engine_driver import EngineDriver, returned
from hptune.config.settings import StudySettings
from hptune.core.attempt import AttemptId, Cause, Ending
from hptune.errors import ModelFileError, UsageError
from hptune.master.past import Past
from hptune.master.resume_checks import check_changes
from hptune.master.resume_plan import left_on_purpose
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import StudyFacts
from hptune.user_code.source import ObjectiveSource, SourceKind
from in_process import InProcess
from stored_study import stored


def facts_with(settings: StudySettings) -> StudyFacts:
    return cast("StudyFacts", {"settings": settings.to_json()})


def of_file(directory: Path) -> ObjectiveSource:
    """Return the source of a model file, which is made if it does not exist."""
    model = directory / "model.py"
    model.touch()
    return ObjectiveSource(SourceKind.FILE, str(model))


def check(tmp_path: Path, *, before: str | None, now: str | None, used_seconds: float) -> None:
    """Check a study that has run for a while, and whose timeout is changed."""
    new = StudySettings(source=of_file(tmp_path), working_directory=str(tmp_path))
    stored = new.changed({"timeout_seconds": before})
    directory = StudyDirectory(tmp_path / "study")
    driver = EngineDriver()
    driver.open()
    driver.at += used_seconds
    driver.join()
    past = Past(directory, facts_with(stored), stored, driver.engine)
    check_changes(stored.changed({"timeout_seconds": now}), past)


@pytest.mark.parametrize(("before", "now"), [(None, "1h"), ("10m", "1h"), ("2h", "10m")])
def test_a_new_timeout_that_is_used_up_is_refused(
    tmp_path: Path, before: str | None, now: str
) -> None:
    with pytest.raises(UsageError, match="has already run for 1h00m, and --timeout is the total"):
        check(tmp_path, before=before, now=now, used_seconds=3600)


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, None), ("10m", "61m"), ("10m", None), ("10m", "10m"), ("10m", "none")],
)
def test_a_longer_or_unchanged_timeout_is_allowed(
    tmp_path: Path, before: str | None, now: str | None
) -> None:
    check(tmp_path, before=before, now=now, used_seconds=3600)


def test_a_total_that_is_used_up_is_said_with_the_states_of_the_trials(tmp_path: Path) -> None:
    stored = StudySettings(source=of_file(tmp_path), working_directory=str(tmp_path), trials=20)
    driver = EngineDriver()
    driver.go(6, cores=3)
    for number in range(3):
        driver.started(AttemptId(number, 0))
    driver.end(AttemptId(0, 0), returned(1.0))
    past = Past(StudyDirectory(tmp_path / "study"), facts_with(stored), stored, driver.engine)
    words = r"has already 3 trials \(1 complete, 2 interrupted\), and --trials is the total"
    with pytest.raises(UsageError, match=words):
        check_changes(stored.changed({"trials": 2}), past)


@pytest.mark.parametrize(
    ("finish_reason", "runs", "is_on_purpose"),
    [
        ("handed over", True, True),
        ("handed over", False, True),
        ("interrupted", True, True),  # by `hptune stop`, while the job of the next master waited
        ("interrupted", False, False),  # the user may resume it in longer jobs
        ("failed", True, False),
        ("", True, False),
    ],
)
def test_a_master_that_was_stopped_has_left_no_attempt_to_the_next_run_of_its_job(
    tmp_path: Path, finish_reason: str, *, runs: bool, is_on_purpose: bool
) -> None:
    stored = StudySettings(source=of_file(tmp_path), working_directory=str(tmp_path), trials=20)
    driver = EngineDriver()
    driver.go(2)
    if not runs:
        driver.end(AttemptId(0, 0), Ending(Cause.RELEASED))
        driver.leave("w", "the end of its job")
    ended = {"finish_reason": finish_reason, "reason": ""} if finish_reason else None
    facts = cast("StudyFacts", {**facts_with(stored), "ended": ended})
    past = Past(StudyDirectory(tmp_path / "study"), facts, stored, driver.engine)
    assert left_on_purpose(past) is is_on_purpose


def test_a_model_file_that_is_no_longer_python_is_refused(tmp_path: Path) -> None:
    check(tmp_path, before=None, now=None, used_seconds=0)
    (tmp_path / "model.py").write_text("def objective(:")
    with pytest.raises(ModelFileError, match=r"model\.py:1: SyntaxError: invalid syntax"):
        check(tmp_path, before=None, now=None, used_seconds=0)


def confirm(tmp_path: Path, **changes: object) -> None:
    """Check a study whose trial 0 was confirmed with 3 repeats, and whose settings are changed."""
    new = StudySettings(source=of_file(tmp_path), working_directory=str(tmp_path))
    stored = new.changed({"confirm": 1, "confirm_repeats": 3})
    driver = EngineDriver()
    driver.go(1, confirm=1, confirm_repeats=3)
    driver.end(AttemptId(0, 0), returned(1.0))
    past = Past(StudyDirectory(tmp_path / "study"), facts_with(stored), stored, driver.engine)
    assert [trial.confirms for trial in past.trials] == [None, 0, 0, 0]
    check_changes(stored.changed(changes), past)


def test_another_number_of_repeats_is_refused_once_some_were_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="allowed is --confirm-repeats 3"):
        confirm(tmp_path, confirm_repeats=2)
    with pytest.raises(UsageError, match="allowed is --confirm-repeats 3"):
        confirm(tmp_path, confirm=2, confirm_repeats=4)


@pytest.mark.parametrize("changes", [{"confirm": 0}, {"confirm": 2}, {"confirm_repeats": 3}])
def test_confirming_less_or_more_configurations_is_allowed(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    confirm(tmp_path, **changes)


def test_a_new_budget_that_is_spent_is_refused(tmp_path: Path) -> None:
    stored = StudySettings(source=of_file(tmp_path), working_directory=str(tmp_path))
    driver = EngineDriver()
    driver.go(2)
    driver.started(AttemptId(0, 0))
    driver.at += 7200.0
    driver.report(AttemptId(0, 0), 1, score=0.5)
    past = Past(StudyDirectory(tmp_path / "study"), facts_with(stored), stored, driver.engine)
    with pytest.raises(UsageError, match="has already used 2 core hours, and --budget is the"):
        check_changes(stored.changed({"budget": "1.5core-h"}), past)
    check_changes(stored.changed({"budget": "3core-h"}), past)


@pytest.mark.parametrize("place", ["--slurm=/x.toml", "--connect=tls://a:1", "--cluster=pbs"])
def test_two_places_that_are_given_are_refused_as_for_a_new_study(
    cli: InProcess, place: str
) -> None:
    """The executor that a study has gives way to workers elsewhere only if it is not given."""
    source = of_file(cli.directory)
    settings = StudySettings(source=source, working_directory="/", executor="joblib")
    stored(cli.study(), settings=settings.to_json())
    new = cli("run", "model.py", "--executor", "joblib", place)
    again = cli("resume", "study", "--executor", "joblib", place)
    assert (new.code, again.code) == (2, 2)
    assert "and --executor is 'joblib', but workers come from one place" in again.err
    assert new.err == again.err
