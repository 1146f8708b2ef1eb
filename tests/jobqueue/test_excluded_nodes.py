"""Nodes that fail Slurm jobs, and which jobs avoid them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hptune_jobqueue.commands import Job, JobState
from hptune_jobqueue.errors import SubmissionError
from hptune_jobqueue.job_messages import Cancel, Exclude, Poll, Submit
from job_queue import in_turn, pending_for, ran_and_ended, running
from jobs_driver import JobsDriver, running_jobs, working


def test_a_node_that_fails_jobs_is_avoided_where_others_work() -> None:
    """A broken node is free again at once, so Slurm would send it one job after the other."""
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = in_turn(
        running, lambda job: replace(ran_and_ended("FAILED")(job), node="n2"), running
    )
    jobs.drive(1)
    jobs.drive(4, wanted=2, useful=lambda: {"1_0": True})
    why = "the worker of job 2_0 did not join there"
    assert f"node n2 is excluded from now on (--exclude=n2): {why}" in jobs.lines
    assert jobs.of(Submit) == [Submit("a", 1), Submit("a", 1), Submit("a", 1, ("n2",))]


def test_a_job_that_a_broken_node_could_not_start_goes_to_another_node() -> None:
    """However many nodes are broken: the study ends only when none is left."""
    bad = ["n1", "n2", "n3", "n4", "n5"]
    jobs = JobsDriver()

    def change(job: Job) -> Job:
        node = next((each for each in bad if each not in jobs.failed), "")
        if not node:
            return replace(running(job), node="n6")
        jobs.failed[node] = "Prolog error"
        return pending_for("launch failed requeued held")(job)

    jobs.change["a"] = change
    jobs.drive(useful=lambda: working(jobs))
    assert jobs.of(Submit)[-1] == Submit("a", 1, tuple(bad))
    assert jobs.state.take_found().keys() == set(bad)
    assert len(jobs.there) == 6
    for node in bad:
        why = "no job can start there (Prolog error)"
        assert f"node {node} is excluded from now on (--exclude={node}): {why}" in jobs.lines
    told = (
        "job 1_0: Slurm could not start it (launch failed requeued held), so others are submitted"
    )
    assert told in jobs.lines


def test_pending_jobs_avoid_a_node_that_is_excluded_after_their_submission() -> None:
    jobs = JobsDriver(max_jobs=2)
    jobs.drive(1, wanted=2)
    assert jobs.do(jobs.state.excluded("n1", "three attempts were lost there"))[-1] == Poll()
    jobs.drive(3, wanted=2)
    assert jobs.of(Exclude) == [Exclude("1_0", ("n1",)), Exclude("1_1", ("n1",))]
    assert jobs.state.take_found() == {}, "the study knows it"


def test_a_job_on_an_excluded_node_is_cancelled_and_replaced() -> None:
    jobs = JobsDriver()
    jobs.change["a"] = running
    jobs.drive(2, useful=lambda: working(jobs))
    jobs.do(jobs.state.excluded("n1", "three attempts were lost there"))
    jobs.change["a"] = lambda job: replace(running(job), node="n2")
    jobs.drive(3, useful=lambda: working(jobs))
    assert jobs.alive == {"2_0"}
    assert [line for line in jobs.lines if line.startswith("job ")] == [], "it was cancelled here"


@pytest.mark.parametrize("says_at_once", [True, False])
def test_excluded_nodes_are_used_again_if_slurm_has_no_other(*, says_at_once: bool) -> None:
    jobs = JobsDriver()
    jobs.change["a"] = running
    jobs.drive(2, useful=lambda: working(jobs))
    jobs.do(jobs.state.excluded("n1", "three attempts were lost there"))

    def refuse(order: Submit) -> None:
        if order.exclude and says_at_once:
            raise SubmissionError("Slurm refuses the job: no node is left")
        jobs.change["a"] = pending_for("BadConstraints") if order.exclude else running

    jobs.refuse = refuse
    jobs.drive(4, useful=lambda: running_jobs(jobs))
    assert jobs.of(Submit)[-1] == Submit("a", 1)
    assert jobs.alive == {f"{len(jobs.there)}_0"}
    told = "Slurm has no other node for the job; the excluded nodes are used again"
    assert jobs.lines.count(told) == 1


def test_pending_jobs_are_told_again_of_an_excluded_node_after_a_silence() -> None:
    jobs = JobsDriver(max_jobs=2)
    jobs.drive(2, wanted=2)
    jobs.state.excluded("n1", "broken")
    orders = jobs.state.shown(list(jobs.there.values()), {}, jobs.now)
    wanted = [each for each in orders if isinstance(each, Exclude)]
    assert len(wanted) == 2
    jobs.do(jobs.state.silent("Slurm does not answer", jobs.now))  # and none was carried out
    jobs.poll()
    jobs.poll()
    assert jobs.of(Exclude) == wanted


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_requeued_job_keeps_its_place_and_avoids_nodes_that_were_excluded_while_it_ran(
    node: str,
) -> None:
    """As after the failure of its node, or a preemption."""
    jobs = JobsDriver()
    jobs.change["a"] = lambda job: replace(running(job), node=node)
    jobs.drive(2, useful=lambda: {"1_0": True})
    requeued = replace(jobs.there["1_0"], state=JobState.PENDING, slurm_state="PENDING", node="")
    jobs.do(jobs.state.excluded("n1", "three attempts were lost there"))
    if node == "n2":
        jobs.drive(2, useful=lambda: {"1_0": True})
    jobs.there["1_0"] = requeued
    jobs.drive(4)
    assert [each.node for each in jobs.state.present()] == [""]
    assert (jobs.of(Exclude), jobs.of(Cancel)) == ([Exclude("1_0", ("n1",))], [])
