"""What the report says, in its words, tables and data."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from typing import Any

from fake_study import GOALS, attempt, trial
from hptune.core.attempt import Cause, Outcome, ReportedValue
from hptune.core.goals import Goals
from hptune.core.messages import Finish, FinishReason
from hptune.core.pruner import is_exempt
from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FloatParameter,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, TrialState
from hptune.reporting.html.methods import methods_text
from hptune.reporting.html.page_data import TrialRows
from hptune.reporting.html.report import head_lines, make_report, page_file, page_of
from hptune.reporting.html.run_figures import timeline
from hptune.reporting.html.search_figures import importance, undecided
from hptune.reporting.html.trials import Shown, StudyTrials
from hptune.reporting.results.costs import EVERY_USE
from hptune.reporting.results.importance import Importance
from hptune.reporting.results.summary import state_text
from hptune.reporting.results.view import StudyView
from hptune.storage.lease import LockOwner
from report_study import (
    SETUP,
    SPACE,
    page_text,
    panels_of,
    panels_of_page,
    study,
    trials_of,
    view,
)


def data_of(page: str) -> Any:
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def test_other_declarations_of_a_name_and_large_steps() -> None:
    """Also with trials of values that the space shows under another condition."""
    under = {head: (Condition("head", (head,)),) for head in "ab"}
    space = SearchSpace(
        (
            ChoiceParameter("head", ("a", "b")),
            FloatParameter("rate", 0.0, 1.0, conditions=under["a"]),
            ChoiceParameter("rate", ("low", "high"), conditions=under["b"]),
            FloatParameter("x", 0.0, 1.0),
        )
    )
    trials = [
        trial(
            n,
            value=n / 60,
            params={"head": "ab"[n % 2], "rate": "low" if n % 2 else n / 60, "x": n / 60},
        )
        for n in range(60)
    ]
    reports = [ReportedValue(59, 0, step, "val_accuracy", 0.5, 1.0) for step in (1, 2**40)]
    page = page_of(make_report(StudyTrials(view(trials, []), space, reports), SETUP, now=2000.0))
    (space_of_rate,) = (each for each in data_of(page)["space"] if each["name"] == "rate")
    assert (space_of_rate["low"], space_of_rate["values"]) == (0.0, None)
    assert data_of(page)["trials"][59]["c"]["val_accuracy"][0] == [1, 2**40]


def test_long_curves_are_thinned_at_the_same_steps() -> None:
    lengths = (1000, 999, 3)
    reports = [
        ReportedValue(number, 0, step, "val_accuracy", 0.5, 1.0)
        for number, length in enumerate(lengths)
        for step in range(1, length + 1)
    ]
    found = StudyTrials(view([], []), SPACE, reports).curves.values()
    one, other, short = (each["val_accuracy"][0] for each in found)
    assert (len(one), one[-1], other[-1], short) == (201, 1000, 999, [1, 3])
    assert one[:-1] == other[:-1]


def test_figures_have_the_order_of_the_importance() -> None:
    trials = StudyTrials(study(90)[0], SPACE, [])
    panel = importance(trials)
    assert panel is not None
    (figure,) = panel.figures
    for shown in Shown:
        names = [row[0] for row in figure.given["sets"][str(shown)]]  # type: ignore[index]
        assert trials.order[str(shown)] == names
    assert panel.tables[0].columns[1::2] == ("importance of all", "importance of complete trials")


def test_early_stopping_is_shown_with_the_rank_correlation_at_its_rungs() -> None:
    of, reports = study(400)
    ends = {t.number: t.value for t in of.trials if t.state is TrialState.COMPLETE and t.value}
    rungs = {n: {1: (-value,), 3: (value,)} for n, value in ends.items()}
    known = replace(of, trials=[replace(t, rungs=rungs.get(t.number, {})) for t in of.trials])
    panel = panels_of(known, reports)["stopping"]
    count = sum(map(is_exempt, ends))
    assert [tuple(row) for row in panel.tables[1].rows] == [
        ("1", f"{count}", "-1.000", "-1.00 to -0.94"),
        ("3", f"{count}", "1.000", "0.94 to 1.00"),
    ]
    assert list(panel.tables[0].columns) == ["epoch", "reached", "continued", "stopped"]
    assert panel.figures[1].kind == "agreement"
    pairs: Any = panel.figures[1].given["pairs"]
    assert {(at, end) for _, at, end in pairs} == {(-ends[n], ends[n]) for n, *_ in pairs}
    assert len(pairs) == count
    rungs |= {pairs[0][0]: {1: (-math.inf,), 3: (1.0,)}, pairs[1][0]: {1: (1e308,), 3: (1.0,)}}
    huge = replace(of, trials=[replace(t, rungs=rungs.get(t.number, {})) for t in of.trials])
    (_, agreement) = panels_of(huge, reports)["stopping"].figures
    assert agreement.given["pairs"] == pairs[2:], "the page could not draw the others"
    without = panels_of(of, reports)["stopping"]
    assert (len(without.tables), len(without.figures)) == (1, 1)
    page = page_text(known, reports)
    warning = "; use --min-epochs 3 (1.00) or --pruner none"
    assert page.count(warning) == 1, "it is a remark at the top"


def test_all_sections_count_the_trials_alike() -> None:
    of, reports = study(12)
    waits = replace(trial(13, TrialState.WAITING), attempts=0)
    waiting = replace(of, trials=[*of.trials, waits])
    report = make_report(StudyTrials(waiting, SPACE, reports), SETUP, now=2000.0)
    assert "<strong>8 complete</strong><span>4 pruned, 1 failed, 27 to come<" in report.headline
    assert "<strong>13/40</strong>" in report.headline


def test_the_command_that_continues_a_study_asks_for_more_trials_if_all_are_done() -> None:
    of, reports = study(12)
    for trials, more in ((40, ""), (of.ended, f" --trials {2 * of.ended}")):
        asked = replace(of, budget_trials=trials)
        report = make_report(StudyTrials(asked, SPACE, reports), SETUP, now=2000.0)
        assert report.resume_command == f"hptune resume studies/digits{more}"


def test_the_command_that_continues_a_study_after_failures_is_that_of_its_status() -> None:
    of, reports = study(12)
    stopped = replace(of, last_finish=Finish(FinishReason.SAME_FAILURE, "broken"))
    report = make_report(StudyTrials(stopped, SPACE, reports), SETUP, now=2000.0)
    assert report.resume_command == "hptune resume studies/digits --retry-failed"
    assert state_text(stopped, 2000.0).endswith(f"continue with: {report.resume_command}")


def test_what_a_reader_asks_first_is_written_out() -> None:
    of, reports = study(90)
    panels = panels_of(of, reports)
    said = make_report(StudyTrials(of, SPACE, reports), SETUP, now=2000.0).headline
    better = r'<a href="#history">Values</a><span>The last better value came with trial \d+'
    later = r"[\dm]+s before the end; \d+ later trials? ended without one\."
    assert re.search(f"{better}, {later}", said)
    assert '<a href="#importance">Importance</a><span>The most important is learning_rate' in said
    assert '<a href="#costs">Costs</a><span>Of ' in said
    uses = {row[0]: row[1:] for row in panels["costs"].tables[0].rows}
    assert [*uses] == ["used well", "pruned", "failed", "in all"]
    number, core_time, *_ = uses["used well"]
    (bar,) = panels["costs"].figures
    (colours,) = re.findall(r"const USES = \{(.*)\};", page_file("figures.js"))
    assert all(f"{use}:" in colours.replace('"', "") for use in EVERY_USE)
    assert [part["name"] for part in bar.given["parts"]] == [*uses][:-1]  # type: ignore[attr-defined]
    assert int(number) > 20, "of 90 trials, some were stopped and one failed"
    assert core_time not in ("", "0s")


def test_the_next_best_trials_show_no_value_that_their_code_never_asked_for() -> None:
    params = {"layers": 1, "units": 64}
    best = replace(trial(0, value=0.9, params=params), unused=("units",))
    others = [
        replace(trial(1, value=0.8, params={**params, "units": 32}), unused=("units",)),
        trial(2, value=0.7, params=params),
    ]
    of = StudyView("studies/one", "tpe", GOALS, 3, [best, *others], [])
    (table,) = [each for each in panels_of(of, [])["best"].tables if each.name == "next"]
    assert [row[2] for row in table.rows] == ["the same", "units=64"]


def test_attempts_that_were_retried_are_told_with_their_causes() -> None:
    of, reports = study(12)
    lost = attempt(3, ended_at=1001.0, outcome=Outcome.LOST, cause=Cause.WORKER_LOST)
    again = replace(of, attempts=[*of.attempts, lost])
    report = make_report(StudyTrials(again, SPACE, reports), SETUP, now=2000.0)
    assert "retried: 1 attempt (1 worker lost)" in report.headline
    ends = [each["end"] for each in report.rows[3]["a"]]
    assert sorted(ends) == ["finished", "lost, retried"]
    uses = {row[0]: row[1] for row in panels_of(again, reports)["costs"].tables[0].rows}
    assert uses["lost and repeated"] == "1"


def test_the_importance_is_computed_once_where_all_trials_are_complete() -> None:
    trials = trials_of(*(n / 30 for n in range(30)))
    for ranked in (trials.importances, trials.estimated):
        assert ranked[Shown.ALL] is ranked[Shown.COMPLETE]


def test_where_the_order_of_the_importance_is_not_certain_it_says_so() -> None:
    sure, unsure = (Importance("rate", 0.8, low, 1.0) for low in (0.7, 0.1))
    others = [Importance("units", 0.15, 0.05, 0.5), Importance("act", 0.05, 0.0, 0.05)]
    assert undecided([sure, *others]) == ""
    assert "the intervals of rate and units overlap" in undecided([unsure, *others])


def test_the_headline_of_a_study_that_runs_estimates_the_rest() -> None:
    of, reports = study(12)
    running = replace(
        of, master=LockOwner("node", 1, 0.0), run_seconds=(60.0,), last_event_at=1060.0
    )
    report = make_report(StudyTrials(running, SPACE, reports), SETUP, now=1063.0)
    assert re.search(r">1m03s elapsed, about 1m[0-3]\ds left<", report.headline)
    paused = replace(running, paused_by="ada")
    report = make_report(StudyTrials(paused, SPACE, reports), SETUP, now=1063.0)
    assert "about" not in report.headline


def test_the_page_says_as_status_does_why_no_trial_starts() -> None:
    runs = replace(view([], []), master=LockOwner("node", 1, 0.0))
    for of in (
        replace(runs, workers=0),
        replace(runs, is_beginning=True),
        replace(runs, is_measuring=True),
        replace(runs, paused_by="ada"),
    ):
        said = head_lines(of, 0.0)[2]
        assert said.startswith("running; ")
        assert state_text(of, 0.0).endswith(said.removeprefix("running"))
    assert head_lines(runs, 0.0)[2] == "running"


def test_the_page_of_a_study_that_programs_train_says_so() -> None:
    assert (
        head_lines(replace(view([], []), is_open=True), 0.0)[2]
        == "open: programs ask for its trials (hptune.open_study, hptune ask), and have 0 trials"
    )


def test_what_a_dead_master_left_is_interrupted_when_it_was_last_seen() -> None:
    two = Goals((Goal("val_accuracy", Direction.MAX), Goal("size", Direction.MIN)))
    left = [
        trial(0, TrialState.RUNNING),
        replace(trial(1, value=0.5), extra_values=(7.0,)),
        trial(2, TrialState.PRUNED, value=0.25),
    ]
    ran = [attempt(0), attempt(1, ended_at=1010.0, outcome=Outcome.FINISHED)]
    of = StudyTrials(view(left, ran, two), SPACE, [])
    found = [(each["s"], each["v"]) for each in TrialRows().of(of).values()]
    assert found == [
        ("interrupted", {}),
        ("complete", {"val_accuracy": 0.5, "size": 7.0}),
        ("pruned", {"val_accuracy": 0.25}),
    ]
    panel = timeline(of, now=1e6)
    assert panel is not None
    assert panel.tables[0].rows[0][3] == "10s", "the worker was last seen then"
    assert make_report(of, SETUP, now=1e6).facts["now"] == 1010.0


def test_several_objectives_have_a_front_and_no_single_winner() -> None:
    """The tile counts the front; what the figure of the front leaves out is told."""
    goals = [Goal("loss", Direction.MIN), Goal("size", Direction.MIN), Goal("ms", Direction.MIN)]
    for count, left_out in ((2, ""), (3, " ms is not drawn, so trials on the front may look")):
        extra = ((4.0, 2.0), (3.0, 3.0), (5.0, 5.0))
        found = [
            replace(trial(n, value=0.1 * (n + 1)), extra_values=values[: count - 1])
            for n, values in enumerate(extra)
        ]
        of = view(found, [], Goals(tuple(goals[:count])))
        tile = make_report(StudyTrials(of, SPACE, []), SETUP, now=2000.0).headline
        assert '"label">Pareto front</span><strong>2 trials</strong>' in tile
        assert 'best loss 0.1000: <a href="#trial-0">trial 0</a>' in tile
        assert "<h2>Best trial in loss</h2>" in page_text(of, [])
        methods = methods_text(of, {"hptune": "1", "seed": "7"}, now=2000.0)
        assert "Of 2 trials on the Pareto front, the best in loss was loss 0.1000, " in methods
        panels = panels_of(of, [])
        assert panels["front"].words.rpartition("in all objectives.")[2].startswith(left_out)
        assert (" not drawn" in panels["front"].words) is (count == 3)
        assert panels["history"].words.endswith("so far in this metric alone.")


def test_a_thousand_trials_are_no_burden() -> None:
    of, reports = study(1000)
    page = page_text(of, reports)
    assert len(page) < 1.5e6
    assert page.count('<section id="') == 14


def test_of_many_paused_trials_the_last_are_shown() -> None:
    found, reports = study(12)
    paused = [trial(number, TrialState.PAUSED, 0.5, step=1) for number in range(100, 160)]
    master = LockOwner("node", 1, 0.0)
    of = replace(found, master=master, trials=[*paused[::-1], *found.trials])
    panel = panels_of(of, reports)["running"]
    assert panel.words == "60 paused (the last 50 are shown)."
    assert [row[0] for row in panel.tables[0].rows] == [str(each) for each in range(110, 160)]


def test_few_trials_give_no_importance() -> None:
    few = panels_of(*study(12))
    assert few["importance"].words.startswith("No importance yet: at least 20 trials")
    assert few["importance"].figures == ()
    of, reports = study(27)  # 18 are complete
    panel = panels_of(of, reports)["importance"]
    assert "Fewer than 20 trials are complete, so stopped ones count, too." in panel.words
    assert panel.tables[0].columns == ("hyperparameter", "importance", "80 % interval")
    assert "of their declaration, because importance needs 20 trials" in few["slices"].words
    assert "most important" not in " ".join(each.words for each in few.values())
    many = panels_of(*study(39))
    assert "the most important first" in many["slices"].words


def test_repeats_do_not_count_among_the_trials_that_importance_needs() -> None:
    of = trials_of(*(number / 20 for number in range(20)))
    repeats = [replace(each, origin="confirm of 0") for each in of.view.trials[15:]]
    few = replace(of, view=replace(of.view, trials=[*of.view.trials[:15], *repeats]))
    assert panels_of_page(few)["importance"].words.endswith("are needed, and there are 15.")


def test_values_that_do_not_differ_have_no_importance() -> None:
    panels = panels_of_page(trials_of(*[0.5] * 30))
    assert panels["importance"].words == "No importance: the trials do not differ in their values."
    assert panels["importance"].figures == ()
    assert "in the order of their declaration" in panels["slices"].words


def test_values_whose_distance_overflows_are_not_drawn() -> None:
    of = trials_of(sys.float_info.max, -sys.float_info.max, math.nan, 0.25)
    shown = [each["v"]["val_accuracy"] for each in TrialRows().of(of).values()]
    assert shown == [None, None, None, 0.25]
