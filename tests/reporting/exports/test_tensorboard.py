"""The export to TensorBoard, read by TensorBoard's own reader and HParams plugin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from exported_study import varied
from hptune.errors import UsageError


class Reader:
    """What TensorBoard finds in a folder."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
        from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
        from tensorboard.context import RequestContext
        from tensorboard.plugins.base_plugin import TBContext
        from tensorboard.plugins.hparams.backend_context import Context

        self.runs = EventMultiplexer()
        self.runs.AddRunsFromDirectory(str(folder))
        self.runs.Reload()
        provider = MultiplexerDataProvider(self.runs, str(folder))
        self.of = (RequestContext(), Context(TBContext(data_provider=provider)), "")

    def scalars(self, run: str, tag: str) -> dict[int, float]:
        from tensorboard.util.tensor_util import make_ndarray

        events = self.runs.Tensors(run, tag)
        assert len({event.step for event in events}) == len(events)
        return {each.step: float(make_ndarray(each.tensor_proto)) for each in events}

    def experiment(self) -> Any:
        from tensorboard.plugins.hparams.api_pb2 import GetExperimentRequest
        from tensorboard.plugins.hparams.get_experiment import Handler

        return Handler(*self.of, GetExperimentRequest()).run()

    def groups(self) -> dict[str, Any]:
        from tensorboard.plugins.hparams.api_pb2 import ListSessionGroupsRequest
        from tensorboard.plugins.hparams.list_session_groups import Handler

        request = ListSessionGroupsRequest(slice_size=100, allowed_statuses=[0, 1, 2, 3])
        for info in self.experiment().metric_infos:
            request.col_params.add().metric.CopyFrom(info.name)
        return {each.name: each for each in Handler(*self.of, request).run().session_groups}


@pytest.fixture(autouse=True)
def _without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    # TensorBoard imports it if it is there, which takes seconds and is not needed.
    monkeypatch.setitem(sys.modules, "tensorflow", None)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_the_table_of_hyperparameters_and_the_curves(tmp_path: Path) -> None:
    study = varied(tmp_path / "one")
    said = study.export_to("tensorboard", tmp_path / "logs")
    assert "tensorboard --logdir" in said
    found = Reader(tmp_path / "logs")
    experiment = found.experiment()
    assert experiment.name == "one"
    infos = {info.name: info for info in experiment.hparam_infos}
    assert set(infos) == {"lr", "units", "act", "dropout", "rate", "depth", "width"}
    assert infos["lr"].domain_interval.max_value == 0.1
    assert list(infos["act"].domain_discrete) == ["relu", "tanh"]
    assert not infos["width"].HasField("domain_interval")  # it has two
    shown = [info.display_name for info in experiment.metric_infos]
    assert shown == ["accuracy", "params", "loss"]

    groups = found.groups()
    assert len(groups) == 8  # trial 7 trains the configuration of trial 0 again
    values = {each.name.tag: each.value for each in groups["trial 0"].metric_values}
    assert values["result/accuracy"] == pytest.approx(0.89)  # the mean of both
    assert len(groups["trial 0"].sessions) == 2
    params = groups["trial 1"].hparams
    assert params["act"].string_value == "tanh"
    assert params["dropout"].bool_value is True
    assert params["width"].number_value == 70
    assert "rate" not in groups["trial 0"].hparams
    status = {name: [each.status for each in group.sessions] for name, group in groups.items()}
    assert status["trial 0"] == [1, 1]  # success
    assert (status["trial 2"], status["trial 4"]) == ([0], [2])  # unknown, failure

    curve = found.scalars("trial-00000", "accuracy")
    assert curve == pytest.approx({1: 0.5, 2: 0.9, 3: 0.7})
    assert found.scalars("trial-00000", "result/accuracy") == pytest.approx({2: 0.9})
    assert found.scalars("trial-00001", "result/params") == {3: 1500.0}


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_an_export_replaces_the_last_one_and_nothing_else(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    varied(tmp_path / "one").export_to("tensorboard", logs)
    files = sorted(logs.rglob("*"))
    varied(tmp_path / "again", last_value=0.7).export_to("tensorboard", logs)
    assert sorted(logs.rglob("*")) == files
    result = Reader(logs).scalars("trial-00008", "result/accuracy")
    assert result == pytest.approx({2: 0.7})

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    for place, words in ((tmp_path / "other", "holds something else"), ("gs://x", "is a URL")):
        with pytest.raises(UsageError, match=words):
            varied(tmp_path / str(len(words))).export_to("tensorboard", place)
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["mine.txt"]
