"""Decisions on Slurm jobs: what is submitted, replaced, given up and avoided, and what is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hptune_jobqueue.commands import JobState
from hptune_jobqueue.errors import (
    ClosedForNowError,
    JobsFailError,
    SlurmUnavailableError,
    SubmissionError,
)
from hptune_jobqueue.job_messages import Cancel, Poll, Submit, Tell, Write
from hptune_jobqueue.job_records import UNJOINED_SECONDS, UNSHOWN_SECONDS
from hptune_jobqueue.jobs_state import REFUSED_SECONDS
from hptune_jobqueue.sizing import Need
from job_queue import ended, in_turn, pending_for, ran_and_ended, running
from jobs_driver import POLL_SECONDS, JobsDriver, kind_of, running_jobs, working

BOTH = {"1_0": True, "1_1": True}


# --- jobs that fail ---------------------------------------------------------------------------


def test_a_job_that_slurm_will_never_start_ends_the_study() -> None:
    jobs = JobsDriver()
    jobs.change["a"] = pending_for("PartitionTimeLimit")
    with pytest.raises(SubmissionError, match="never start the job: PartitionTimeLimit"):
        jobs.drive()
    assert len(jobs.there) == 1


def test_another_shape_takes_the_place_of_one_that_slurm_will_never_start() -> None:
    jobs = JobsDriver("a", "b")
    jobs.change.update(a=pending_for("BadConstraints"), b=running)
    jobs.drive()
    assert [job.name for job in jobs.there.values()] == ["a", "b"]
    assert "Slurm would never start the job: BadConstraints" in jobs.lines


def test_a_shape_that_slurm_never_starts_is_tried_three_times_beside_another_one() -> None:
    b = kind_of("b")
    b = replace(b, shape=replace(b.shape, max_jobs=1))
    jobs = JobsDriver("a", b, max_jobs=2)
    jobs.change.update(a=pending_for("BadConstraints"), b=running)
    polls = int(5 * REFUSED_SECONDS / POLL_SECONDS)
    jobs.drive(polls, wanted=2, useful=lambda: running_jobs(jobs))
    assert [job.name for job in jobs.there.values()].count("a") == 3


def test_a_refused_job_ends_the_study_only_if_there_is_no_other_now() -> None:
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = running
    jobs.drive(2, useful=lambda: working(jobs))

    def refuse(_: Submit) -> None:
        raise SubmissionError("Slurm refuses the job: Invalid account")

    jobs.refuse = refuse
    jobs.drive(1, wanted=2, useful=lambda: working(jobs))
    jobs.there["1_0"] = ended("PREEMPTED")(jobs.there["1_0"])
    jobs.drive(1, wanted=2)
    with pytest.raises(SubmissionError, match=r"Invalid account$"):
        jobs.drive(wanted=2)


def test_a_shape_that_is_given_up_keeps_its_jobs_that_work_and_no_others() -> None:
    jobs = JobsDriver(max_jobs=5)
    fails = [ran_and_ended("FAILED")] * 3
    jobs.change["a"] = in_turn(running, *fails, pending_for("Priority"))
    jobs.drive(3, wanted=5, useful=lambda: {"1_0": True})
    assert jobs.alive == {"1_0"}
    assert [line for line in jobs.lines if line.startswith("no more jobs are submitted: 3 jobs")]


def test_jobs_that_one_broken_node_fails_together_do_not_give_the_shape_up() -> None:
    jobs = JobsDriver(max_jobs=4)
    jobs.change["a"] = running
    jobs.drive(1)
    jobs.change["a"] = lambda job: replace(ran_and_ended("FAILED")(job), node="n2")
    jobs.drive(1, wanted=4, useful=lambda: {"1_0": True})
    jobs.change["a"] = running
    jobs.drive(2, wanted=4, useful=lambda: {"1_0": True})
    assert len(jobs.alive) == 4
    assert len([line for line in jobs.lines if "node n2 is excluded" in line]) == 1


@pytest.mark.parametrize("word", ["FAILED", "COMPLETED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"])
def test_jobs_that_ran_for_nothing_are_given_up(word: str) -> None:
    jobs = JobsDriver()
    jobs.change["a"] = ran_and_ended(word)
    with pytest.raises(JobsFailError, match="3 jobs in a row ended before their worker had joined"):
        jobs.drive()
    assert len(jobs.there) == 3


def test_jobs_that_slurm_itself_ended_say_nothing_of_the_next() -> None:
    jobs = JobsDriver()
    jobs.change["a"] = in_turn(*map(ran_and_ended, ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")))
    jobs.drive()
    assert len(jobs.there) > 6


def test_jobs_that_are_always_cancelled_before_they_start_are_given_up() -> None:
    """The jobs that one poll finds gone count as one: somebody cancelled them together."""
    jobs = JobsDriver(max_jobs=4)
    jobs.change["a"] = ended("CANCELLED")
    with pytest.raises(JobsFailError, match="3 jobs in a row ended before they started") as error:
        jobs.drive(wanted=4)
    assert len(jobs.there) == 12
    assert str(error.value).endswith("The last one, 3_3, ended: CANCELLED")


def test_jobs_that_squeue_never_shows_are_cancelled_and_given_up() -> None:
    """As if a site submitted them under another name, or to another cluster."""
    jobs = JobsDriver()
    jobs.change["a"] = lambda job: replace(job, name="renamed")
    with pytest.raises(JobsFailError, match="squeue does not show it"):
        jobs.drive(int(4 * UNSHOWN_SECONDS / POLL_SECONDS))
    assert [job.slurm_state for job in jobs.there.values()] == ["CANCELLED"] * 3
    assert "job 1_0 is cancelled: Slurm has accepted it, but squeue does not show it" in jobs.lines


def test_a_job_that_squeue_shows_late_is_waited_for() -> None:
    """Some sites answer squeue from a copy that is a minute old."""
    jobs = JobsDriver()
    jobs.change["a"] = lambda job: replace(job, name="")
    jobs.drive(9)
    jobs.there["1_0"] = running(replace(jobs.there["1_0"], name="a"))
    jobs.drive(9)
    assert len(jobs.there) == 1


def test_a_job_whose_worker_takes_trials_is_no_other_job_because_squeue_hides_it() -> None:
    """As at a site that renames jobs: the user asked for one, and it works."""
    jobs = JobsDriver()
    jobs.change["a"] = lambda job: replace(job, name="renamed")
    jobs.drive(1)
    jobs.drive(int(2 * UNSHOWN_SECONDS / POLL_SECONDS), useful=lambda: {"1_0": True}, wanted=2)
    assert [job.state for job in jobs.state.present()] == [JobState.RUNNING]
    assert jobs.alive == jobs.there.keys() == {"1_0"}
    assert jobs.lines == []


def test_a_job_that_trials_run_on_is_not_cancelled_because_squeue_shows_it_waiting() -> None:
    jobs = JobsDriver(max_jobs=2)
    jobs.drive(1, wanted=2)
    jobs.there["1_0"] = running(jobs.there["1_0"])
    jobs.drive(3, wanted=1, useful=lambda: {each: each == "1_1" for each in jobs.alive})
    assert jobs.alive == {"1_1"}


def test_a_job_that_squeue_no_longer_shows_is_cancelled_before_it_is_replaced() -> None:
    """It may still wait or run: a second one must not run beside it."""
    jobs = JobsDriver()
    jobs.drive(3)
    jobs.there["1_0"] = replace(jobs.there["1_0"], name="renamed")
    jobs.orders.clear()
    jobs.drive(1)
    decided = [each for each in jobs.orders if not isinstance(each, Tell | Write)]
    assert decided == [Cancel(("1_0",)), Submit("a", 1)]
    assert "job 1_0 is gone" in jobs.lines


def test_jobs_whose_workers_are_refused_are_cancelled_and_given_up() -> None:
    jobs = JobsDriver()
    jobs.change["a"] = running
    with pytest.raises(JobsFailError, match=r"3 jobs in a row .* refused.*: other versions"):
        jobs.drive(refused=lambda: dict.fromkeys(jobs.alive, "other versions"))
    assert len(jobs.there) == 3
    assert "job 1_0 is cancelled, because its worker was refused" in jobs.lines


def test_a_shape_whose_jobs_fail_is_given_up_while_another_one_works() -> None:
    jobs = JobsDriver("a", "b", max_jobs=2)
    jobs.change.update(a=ran_and_ended("FAILED"), b=running)
    jobs.drive(wanted=2, useful=lambda: working(jobs))
    names = [job.name for job in jobs.there.values()]
    assert (names.count("a"), names.count("b")) == (3, 2)
    assert [line for line in jobs.lines if line.startswith("shape a is given up: 3 jobs in a row")]


def test_a_useful_job_clears_its_shape() -> None:
    """Every third job is useful for a while, and is lost."""
    jobs = JobsDriver()
    jobs.change["a"] = in_turn(ran_and_ended("FAILED"), ran_and_ended("FAILED"), running)
    for _ in range(20):
        useful = working(jobs)
        jobs.demand(1, useful)
        jobs.poll()
        for job_id in useful:
            jobs.there[job_id] = ended("FAILED")(jobs.there[job_id])
    assert len(jobs.there) > 6


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("loading\n module load cuda/99 \n\n", "its last line: module load cuda/99"),
        ("\n", "it has written nothing into /logs/a-1_0.log"),
        (None, "its output is missing, as where a node does not see /logs"),
    ],
)
def test_a_job_that_ends_before_its_worker_joined_shows_what_it_wrote(
    written: str | None, said: str
) -> None:
    jobs = JobsDriver()
    jobs.change["a"] = ran_and_ended("FAILED")
    jobs.written.update({} if written is None else {"a-1_0.log": written})
    jobs.drive(2)
    assert f"job 1_0 on n1 ended: FAILED before its worker had joined; {said}" in jobs.lines


def test_a_setup_line_that_failed_in_a_working_job_is_told_once() -> None:
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = running
    for job in ("1_0", "1_1"):
        jobs.written[f"a-{job}.log"] = "hptune: setup failed: ls /x (status 2)\njoined\n"
    jobs.drive(9, wanted=2, useful=lambda: working(jobs))
    told = [line.partition(": ")[2] for line in jobs.lines if "setup" in line]
    assert told == ["hptune: setup failed: ls /x (status 2)"]


@pytest.mark.parametrize("is_useful", [True, False], ids=["worked before", "never worked"])
def test_a_job_that_runs_without_a_worker_is_told_and_then_cancelled(*, is_useful: bool) -> None:
    """As where a prologue hangs, no route leads to the master, or a launcher hides the study."""
    jobs = JobsDriver(kind_of("a", grace_seconds=300), max_jobs=2)
    jobs.change["a"] = lambda job: replace(running(job), node="n1" if job.id == "1_0" else "n2")
    jobs.written["a-1_1.log"] = "waiting for a scheduler: Network is unreachable\n"
    useful = {"1_0": True} if is_useful else {}
    told: list[str] = []
    for _ in range(int(330 / POLL_SECONDS)):
        jobs.demand(2, useful)
        jobs.poll()
        told += [each.text for each in jobs.state.shown_jobs().problems if "1_1" in each.text]
    began, latest = UNJOINED_SECONDS / POLL_SECONDS, 300 / POLL_SECONDS
    assert len(told) == latest - began
    assert re.fullmatch(
        r"no worker has joined from job 1_1, which has run on n2 since \d\d:\d\d; its last line: "
        r"waiting for a scheduler: Network is unreachable\. It is cancelled at \d\d:\d\d "
        r"\(grace_seconds in the slurm\.toml\)",
        told[0],
    )
    assert jobs.lines.count(told[0]) == 1
    cancelled = "job 1_1 on n2 is cancelled: it has run for 300 s without a worker (grace_seconds "
    assert f"{cancelled}is 300)" in jobs.lines
    # Where no other node has worked, the node may not be to blame.
    why = {"n2": "the worker of job 1_1 did not join there"} if is_useful else {}
    assert jobs.state.take_found() == why


def test_a_short_grace_does_not_change_how_long_a_job_has_run() -> None:
    jobs = JobsDriver(kind_of("a", grace_seconds=0))
    jobs.change["a"] = running
    while len(jobs.there) < 2:
        jobs.drive(1)
    (line,) = (each for each in jobs.lines if "is cancelled" in each)
    assert line.endswith("it has run for 120 s without a worker (grace_seconds is 0)")


def test_jobs_without_workers_are_given_up() -> None:
    jobs = JobsDriver(kind_of("a", grace_seconds=200))
    jobs.change["a"] = running
    with pytest.raises(JobsFailError, match="3 jobs in a row were cancelled before their worker"):
        jobs.drive(999)
    assert len(jobs.there) == 3


def test_a_job_that_a_node_is_booted_for_is_waited_for() -> None:
    jobs = JobsDriver(kind_of("a", grace_seconds=200))
    jobs.change["a"] = lambda job: replace(running(job), slurm_state="CONFIGURING")
    jobs.drive(99)
    assert len(jobs.there) == 1


@pytest.mark.parametrize("failed", [{}, {"n1": "Prolog error"}])
@pytest.mark.parametrize(
    "reason",
    ["launch failed requeued held", "launch_failed_requeued_held", "JobHoldMaxRequeue"],
)
def test_jobs_that_are_held_for_no_new_node_are_given_up(
    reason: str, failed: dict[str, str]
) -> None:
    jobs = JobsDriver()
    jobs.failed = failed
    jobs.change["a"] = pending_for(reason)
    with pytest.raises(JobsFailError, match="3 jobs in a row could not be started by Slurm"):
        jobs.drive()
    assert len(jobs.there) == 3 + len(failed)


def test_a_job_whose_cancellation_failed_is_cancelled_again_and_counts_once() -> None:
    """A poll ends where Slurm stops answering; the next one decides again."""
    jobs = JobsDriver()
    jobs.change["a"] = running
    jobs.drive(1)
    jobs.demand(1, {}, {"1_0": "other versions"})
    for _ in range(4):  # nothing of this is carried out
        orders = jobs.state.shown(list(jobs.there.values()), {}, jobs.now)
        assert Cancel(("1_0",)) in orders
    jobs.poll()
    assert jobs.state.failure is None


# --- jobs that are kept -----------------------------------------------------------------------


def test_the_limit_holds_while_jobs_are_requeued() -> None:
    """A requeued job ends, waits with the same id, and runs again."""
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = running
    jobs.drive(2, wanted=9)
    for state in [JobState.ENDING] * 4 + [JobState.PENDING] * 20:
        jobs.there["1_0"] = replace(jobs.there["1_0"], state=state, slurm_state="X")
        jobs.drive(1, wanted=9, useful=lambda: {"1_1": True})
    assert jobs.there.keys() == {"1_0", "1_1"}


@pytest.mark.parametrize("then", ["pending", "running"])
def test_requeued_jobs_that_slurm_delays_count_as_none(then: str) -> None:
    """After a preemption of all jobs, Slurm starts none of them for two minutes."""
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = running

    def requeued(reason: str) -> None:
        for job_id in BOTH:
            job = replace(jobs.there[job_id], state=JobState.PENDING, slurm_state="PENDING")
            jobs.there[job_id] = replace(job, node="", reason=reason)

    jobs.drive(3, wanted=9, useful=lambda: BOTH)
    requeued("BeginTime")
    jobs.drive(1, wanted=9)
    new = {"2_0": True, "2_1": True}
    jobs.drive(9, wanted=9, useful=lambda: new)
    assert jobs.alive == {*BOTH, *new}, "they may still start"
    requeued("Resources")
    if then == "running":
        jobs.there.update({job_id: running(jobs.there[job_id]) for job_id in BOTH})
    jobs.drive(3, wanted=9, useful=lambda: new)
    assert jobs.alive == new.keys()
    assert not jobs.state.drained()


def test_a_partition_that_takes_no_jobs_for_now_is_waited_for() -> None:
    jobs = JobsDriver()
    jobs.change["a"] = running
    opens_at = jobs.now + 3.5 * REFUSED_SECONDS

    def closed(_: Submit) -> None:
        if jobs.now < opens_at:
            raise ClosedForNowError("Slurm refuses the job: Required partition not available")

    jobs.refuse = closed
    jobs.drive(1)
    said = jobs.lines[0]
    assert said.startswith("no job can be submitted to partition p now, so it is tried again every")
    assert [each.text for each in jobs.state.shown_jobs().problems] == [said]
    jobs.drive(60)
    assert jobs.state.shown_jobs().problems == ()
    assert (len(jobs.of(Submit)), len(jobs.there)) == (5, 1)


def test_as_many_jobs_are_submitted_as_slurm_takes() -> None:
    """It takes an array whole or not at all, and here 5 jobs of a user."""
    jobs = JobsDriver(max_jobs=9)
    jobs.change["a"] = running
    tries: list[int] = []
    why = "Slurm refuses the job: QOSMaxSubmitJobPerUserLimit"

    def limited(order: Submit) -> None:
        tries.append(order.count)
        if len(jobs.alive) + order.count > 5:
            raise ClosedForNowError(why)

    jobs.refuse = limited
    jobs.drive(60, wanted=9, useful=lambda: working(jobs))
    assert len(jobs.there) == 5
    assert tries[:9] == [9, 1, 2, 4, 1, 2, 1, 2, 1]
    assert set(tries[9:]) == {1}
    assert [line for line in jobs.lines if why in line] == [
        f"{why}. So fewer jobs are submitted at once",
        f"no job can be submitted to partition p now, so it is tried again every 60 s. {why}",
    ]


def test_the_end_of_a_walltime_is_told_as_such() -> None:
    jobs = JobsDriver()
    jobs.change["a"] = lambda job: replace(running(job), ends_at=jobs.now + 100)
    jobs.drive(5, useful=lambda: working(jobs))
    jobs.there["1_0"] = ended("COMPLETED")(jobs.there["1_0"])
    jobs.drive(1)
    words = "has reached its walltime (01:00:00)"
    assert f"job 1_0 on n1 {words}" in jobs.lines


def test_no_more_jobs_are_to_be_expected_than_there_is_work_for() -> None:
    jobs = JobsDriver(max_jobs=4)
    found = []
    for wanted in (2, 9, 0):
        jobs.demand(wanted)
        found.append(jobs.state.max_workers())
    assert found == [2, 4, 0]


def test_a_job_gives_way_to_one_for_a_trial_that_fits_none() -> None:
    """Trials that fit are never lacking, so no job would ever be idle."""
    large = Need(gpus=2)
    jobs = JobsDriver(
        max_jobs=2,
        sized=lambda need: [replace(kind_of("l", job_name="large", gpus=2), need=need)],
    )
    jobs.change.update({"a": running, "large": running})
    jobs.drive(1, wanted=2)
    for _ in range(3):
        jobs.demand(99, working(jobs), {}, {large: 1})
        jobs.poll()
    (drained,) = jobs.state.drained()
    assert (
        f"job {drained} on n1 takes no more trials, to make room for another job: a trial "
        "waits that fits into none of the present jobs"
    ) in jobs.lines
    for _ in range(4):
        jobs.demand(99, {job: job != drained for job in jobs.alive}, {}, {large: 1})
        jobs.poll()
    # It is gone, and the other one takes trials as before.
    assert {jobs.there[job].name for job in jobs.alive} == {"a", "large"}
    assert drained not in jobs.alive


def test_a_demand_that_changes_no_job_does_not_make_it_ask_slurm() -> None:
    """The end of a trial changes the demand; a day's study has thousands."""
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = running
    jobs.drive(4, wanted=100, useful=lambda: working(jobs))
    for left in range(100, 1, -1):
        assert jobs.demand(left, BOTH) == []
    assert jobs.demand(1, {**BOTH, "1_0": False}) == [Poll()]


def test_a_job_whose_worker_takes_trials_is_shown_running_before_slurm_is_asked_again() -> None:
    jobs = JobsDriver()
    jobs.drive(1)
    assert [job.state for job in jobs.state.present()] == [JobState.PENDING]
    write, poll = jobs.demand(1, {"1_0": True})
    assert isinstance(write, Write)
    assert [job.state for job in write.shown.jobs] == [JobState.RUNNING]
    assert (write.shown.at, poll) == (jobs.now, Poll())


# --- jobs of an earlier master ----------------------------------------------------------------


def test_jobs_beyond_a_lower_limit_are_cancelled() -> None:
    jobs = JobsDriver(max_jobs=2)
    jobs.change["a"] = in_turn(running, running, pending_for("Priority"), pending_for("Priority"))
    jobs.submit("a", 4)
    jobs.drive(1, wanted=9)
    assert jobs.alive == {"1_0", "1_1"}


def test_jobs_of_shapes_that_are_gone_are_cancelled_and_no_others() -> None:
    jobs = JobsDriver("study-a")
    for name in ("study-old", "study-a", "other-old"):
        jobs.submit(name, 1)
    jobs.drive(1)
    assert {jobs.there[job].name for job in jobs.alive} == {"study-a", "other-old"}
    assert jobs.lines[:2] == [
        "cancelled 1 job of an earlier run that no trial can use now",
        "took over 1 job of an earlier run",
    ]


def test_a_silent_slurm_is_a_problem_until_it_answers() -> None:
    jobs = JobsDriver()
    text = f"Slurm does not answer: {SlurmUnavailableError('squeue has not answered')}"
    for _ in range(2):
        jobs.do(jobs.state.silent(text, jobs.now))
    assert jobs.lines == [text]
    assert [each.text for each in jobs.state.shown_jobs().problems] == [text]
    jobs.drive(1)
    assert jobs.state.shown_jobs().problems == ()
