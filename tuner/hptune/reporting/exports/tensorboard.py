"""Export to event files of TensorBoard: the HParams table, and the curves as scalars.

TensorFlow is not needed: tensorboardX has the messages and the format of the files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ... import text
from ...core.space.space import FloatParameter, IntParameter, Parameter
from ...core.trial import ParamValue, Trial, TrialState
from ...errors import UsageError
from ...storage.output_files import unwritable
from .source import RESULT, ExportedStudy, Written

_FILE = "events.out.tfevents.0.hptune"
"""TensorBoard finds a file by the part in the middle."""

_MARK = "hptune-study.txt"
"""A file with the identity of the study, by which its export is recognised."""

_PLUGIN = "hparams"
_EXPERIMENT = "_hparams_/experiment"
_SESSION_START = "_hparams_/session_start_info"
_SESSION_END = "_hparams_/session_end_info"
"""Names of the tags in which the HParams plugin looks for its messages."""


def write(study: ExportedStudy, place: str) -> Written:
    """Write the study as a folder of TensorBoard runs, in place of an earlier export of it.

    Each trial is a run, `trial-00007`, with every metric over the steps as scalars. The metrics at
    the step of the trial's value are the scalars `result/<metric>`; the HParams table shows these,
    because it takes the last value of a scalar, and the last is not always the best. Repeats of a
    trial are in its session group, of which the table shows the mean.

    Args:
        study: The study.
        place: Where to write; a new or empty folder, or one with an earlier export of the study.

    Raises:
        UsageError: The folder holds something else, or cannot be written.
        StorageFullError: There is no space for it.
    """
    if "://" in place:
        raise UsageError(f"{place} is a URL; TensorBoard's files are written to a folder")
    folder = Path(place or study.default_place("tensorboard"))
    try:
        _make_empty(folder, study)
        _write(folder / _FILE, [_experiment(study)], time=study.view.created_at)
        for trial in study.trials:
            run = folder / f"trial-{trial.number:05}"
            run.mkdir()
            _write_trial(study, trial, run / _FILE)
    except OSError as error:
        raise unwritable(folder, error) from error
    return Written(str(folder), f"tensorboard --logdir {text.path(folder)}")


def _make_empty(folder: Path, study: ExportedStudy) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / _MARK
    names = {path.name for path in folder.iterdir()}
    if names and not (mark.is_file() and mark.read_text("utf-8").strip() == study.identity):
        raise UsageError(
            f"{text.path(folder)} holds something else than an export of this study; give a new "
            "folder, such as one below it"
        )
    mark.write_text(f"{study.identity}\n", "utf-8")
    for path in folder.glob("trial-*"):
        shutil.rmtree(path)


def _write_trial(study: ExportedStudy, trial: Trial, path: Path) -> None:
    started, ended = study.times(trial)
    events = [_session_start(trial, started)]
    for step, reported in study.steps(trial):
        events.append(_scalars(reported.metrics.items(), step=step, time=reported.time))
    result = [(f"{RESULT}{name}", value) for name, value in study.results(trial).items()]
    if result:
        events.append(_scalars(result, step=trial.step or 0, time=ended))
    events.append(_session_end(study.state(trial), ended))
    _write(path, events, time=started)


def _write(path: Path, events: Sequence[Any], *, time: float) -> None:
    """Write a file of events, which appears whole."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter

    unfinished = path.with_name("unfinished")
    writer = RecordWriter(os.fspath(unfinished))
    for event in (Event(wall_time=time, file_version="brain.Event:2"), *events):
        writer.write(event.SerializeToString())
    writer.close()
    unfinished.replace(path)


def _scalars(values: Iterable[tuple[str, float]], *, step: int, time: float) -> Any:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    found = [Summary.Value(tag=text.clean(name), simple_value=value) for name, value in values]
    return Event(wall_time=time, step=step, summary=Summary(value=found))


def _message(tag: str, *, time: float, **content: Any) -> Any:
    """Return the event with a message to the HParams plugin."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata

    data = HParamsPluginData(version=0, **content).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name=_PLUGIN, content=data)
    value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))
    return Event(wall_time=time, summary=Summary(value=[value]))


def _experiment(study: ExportedStudy) -> Any:
    """Return the message that says which hyperparameters and metrics the table shows."""
    from tensorboardX.proto import api_pb2 as api

    metrics = [goal.metric for goal in study.view.goals.objectives]
    metrics += [name for trial in study.trials for name in trial.metrics]
    declared: dict[str, list[Parameter]] = {}
    for parameter in study.space:
        declared.setdefault(parameter.name, []).append(parameter)
    experiment = api.Experiment(
        name=study.name,
        description="  \n".join(f"{name}: {value}" for name, value in study.facts.items()),
        time_created_secs=study.view.created_at,
        hparam_infos=[_hparam_info(api, each) for each in declared.values()],
        metric_infos=[
            api.MetricInfo(
                name=api.MetricName(tag=text.clean(f"{RESULT}{name}")),
                display_name=text.clean(name),
            )
            for name in dict.fromkeys(metrics)
        ],
    )
    return _message(_EXPERIMENT, time=study.view.created_at, experiment=experiment)


def _hparam_info(api: Any, declarations: Sequence[Parameter]) -> Any:
    """Return what the table knows of a hyperparameter; a domain only if it has one declaration."""
    first, *others = declarations
    info = api.HParamInfo(name=text.clean(first.name), type=_type(api, declarations))
    if others:
        return info
    if isinstance(first, FloatParameter | IntParameter):
        info.domain_interval.min_value = first.low
        info.domain_interval.max_value = first.high
    else:
        info.domain_discrete.extend([_plain(value) for value in first.values])
    return info


def _type(api: Any, declarations: Sequence[Parameter]) -> Any:
    kinds: set[type] = set()
    for declaration in declarations:
        numbers = isinstance(declaration, FloatParameter | IntParameter)
        kinds |= {float} if numbers else {type(_plain(value)) for value in declaration.values or ()}
    names = {bool: "DATA_TYPE_BOOL", float: "DATA_TYPE_FLOAT64", str: "DATA_TYPE_STRING"}
    name = names[kinds.pop()] if len(kinds) == 1 else "DATA_TYPE_UNSET"
    return api.DataType.Value(name)


def _plain(value: ParamValue) -> bool | float | str:
    """Return a value as the table holds it."""
    if isinstance(value, bool | str):
        return value
    return str(value) if value is None else float(value)


def _session_start(trial: Trial, started: float) -> Any:
    from tensorboardX.proto.plugin_hparams_pb2 import SessionStartInfo

    repeated = trial.number if trial.confirms is None else trial.confirms
    info = SessionStartInfo(group_name=f"trial {repeated}", start_time_secs=started)
    for name, value in trial.params.items():
        plain = _plain(value)
        of = info.hparams[text.clean(name)]
        if isinstance(plain, bool):
            of.bool_value = plain
        elif isinstance(plain, str):
            of.string_value = plain
        else:
            of.number_value = plain
    return _message(_SESSION_START, time=started, session_start_info=info)


def _session_end(state: TrialState, ended: float) -> Any:
    from tensorboardX.proto import api_pb2 as api
    from tensorboardX.proto.plugin_hparams_pb2 import SessionEndInfo

    # The plugin has no state for a trial that was stopped early.
    names = {
        TrialState.COMPLETE: "STATUS_SUCCESS",
        TrialState.FAILED: "STATUS_FAILURE",
        TrialState.RUNNING: "STATUS_RUNNING",
    }
    name = names.get(state, "STATUS_UNKNOWN")
    info = SessionEndInfo(status=api.Status.Value(name), end_time_secs=ended)
    return _message(_SESSION_END, time=ended, session_end_info=info)
