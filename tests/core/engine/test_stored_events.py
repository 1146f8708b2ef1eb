"""A stored event log of this ledger format: what its events meant when they were written.

`PYTHONPATH=tests/support .venv/bin/python tests/core/engine/test_stored_events.py` writes the log
of a new format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from engine_driver import EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending, Usage
from hptune.core.engine.engine import Engine
from hptune.core.messages import (
    Ask,
    AttemptWaits,
    Command,
    Continue,
    Discard,
    Event,
    Finish,
    KeepBest,
    NodeExcluded,
    ParametersUsed,
    Start,
    Stop,
    StudyClosed,
    Tell,
    WorkerRefused,
)
from hptune.core.pruner import PrunerSettings
from hptune.core.resources import Amount, Resources
from hptune.core.trial import Trial
from hptune.core.user_requests import UserAction
from hptune.pruners.registry import make_pruner
from hptune.storage.ledger.codec import decode_event, encode_event
from hptune.storage.ledger.database import FORMAT

LOG = Path(__file__).with_name(f"events_of_format_{FORMAT}.json")

HELP = f"""
Events that are stored in ledgers of format {FORMAT} are read otherwise than when they were written,
or there is a new kind of event. A study of this format would silently become another one.

- If a release has written this format (CHANGELOG.md), raise FORMAT in storage/ledger/database.py.
- In both cases write the log again, read the difference, and name it in CHANGELOG.md:
  PYTHONPATH=tests/support .venv/bin/python tests/core/engine/test_stored_events.py
"""


def test_stored_events_mean_what_they_meant() -> None:
    assert LOG.exists(), HELP
    kept = json.loads(LOG.read_text())
    kinds = {event["kind"] for event in kept}
    assert kinds == {kind.__name__ for kind in get_args(Event)}, HELP
    engine = Engine(make_pruner)
    for number, each in enumerate(kept):
        try:
            commands = engine.handle(decode_event(each["kind"], json.dumps(each["payload"])))
        except Exception as error:
            raise AssertionError(f"event {number}, a {each['kind']}: {error}\n{HELP}") from error
        found = meaning(commands, engine.trials)
        assert found == each["then"], f"after event {number}, a {each['kind']}\n{HELP}"


def meaning(commands: Iterable[Command], trials: Iterable[Trial]) -> list[str]:
    """Return what is to be done, and the state of each trial."""
    return [*map(_command, commands), *map(_trial, trials)]


def _command(command: Command) -> str:
    """Return a command with what it is about; what it tells a worker or a sampler may grow."""
    kind = type(command).__name__
    match command:
        case Ask(numbers=numbers):
            return f"{kind} {numbers}"
        case Start(attempt=attempt) | Continue(attempt=attempt):
            return f"{kind} {attempt}"
        case Stop(attempt=attempt, halt=halt):
            return f"{kind} {attempt} ({halt})"
        case Tell(trial=trial):
            return f"{kind} {trial.number}"
        case KeepBest(trials=trials):
            return f"{kind} {[trial.number for trial in trials]}"
        case Discard(trial=number):
            return f"{kind} {number}"
        case Finish(finish_reason=reason):
            return f"{kind} {reason}"
    return kind


def _trial(trial: Trial) -> str:
    parts = [trial.state, dict(trial.params), trial.value, trial.step, dict(trial.rungs)]
    words = [trial.epochs, trial.unused, trial.origin, trial.attempts, trial.reason]
    return f"trial {trial.number}: {', '.join(map(str, [*parts, *words]))}"


def recorded() -> list[tuple[Event, list[str]]]:
    """Return the events of a study in which each kind of event occurs, and what followed."""
    driver = EngineDriver()
    then: list[list[str]] = []
    handle = driver.engine.handle

    def handled(event: Event) -> list[Command]:
        commands = handle(event)
        then.append(meaning(commands, driver.engine.trials))
        return commands

    driver.engine.handle = handled  # type: ignore[method-assign]  # to see each state
    name = AttemptId
    asha = PrunerSettings(name="asha", epochs=9, options={"min_epochs": 1})
    driver.open(
        8,
        pruner=asha,
        measured=tuple(Amount),
        splits=True,
        keep_checkpoints=1,
    )
    driver.split = lambda question: Resources(cpus=1)
    driver.join("a", cores=2)
    driver.join("b", cores=2)
    driver.feed(WorkerRefused(driver.at, "c", "node of c", "another version"))
    driver.suggest()
    driver.feed(AttemptWaits(driver.at, name(0, 0), "waits for core 0"))
    for running in [*driver.running]:
        driver.started(running)
    usage = Usage(peak_memory_bytes=10**9, cpu_seconds=5.0, seconds=10.0, seconds_per_step=1.0)
    for trial, score in enumerate((0.5, 0.4, 0.3)):
        driver.report(name(trial, 0), 1, score=score)
        driver.measure(name(trial, 0), usage)
    driver.report(name(2, 0), 2, score=0.9)
    driver.feed(ParametersUsed(driver.at, name(0, 0), (), {"x": 0, "depth": 2}, ("x",)))
    driver.end(name(1, 0), Ending(Cause.PRUNED))
    driver.end(name(0, 0), returned(0.5))
    if driver.ask is not None:
        driver.suggest()
    *_, last = driver.running
    driver.end(last, Ending(Cause.EXCEPTION, reason="ValueError: bad shape"))
    *_, last = driver.running
    driver.end(last, Ending(Cause.OUT_OF_MEMORY, reason="killed"))
    driver.about_to_leave("b")
    driver.leave("b")
    driver.feed(NodeExcluded(driver.at, "node of b", "jobs fail there"))
    driver.user(UserAction.PAUSE)
    driver.user(UserAction.RESUME)
    driver.user(UserAction.ENQUEUE, added=[{"x": 77}])
    driver.stop()
    for running in [*driver.running]:
        driver.end(running, Ending(Cause.STOPPED))
    driver.feed(StudyClosed(driver.at))
    driver.open(8, pruner=replace(asha, epochs=12), keep_checkpoints=1)
    driver.join("a", cores=2)
    events = [event for event, _ in driver.story]
    return list(zip(events, then, strict=True))


def write() -> None:
    """Write the log of the present format."""
    rows = []
    for event, then in recorded():
        kind, payload = encode_event(event)
        row = {"kind": kind, "payload": json.loads(payload), "then": then}
        rows.append(json.dumps(row, ensure_ascii=False))
    LOG.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    write()
