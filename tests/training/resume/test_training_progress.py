"""The table of a training's states, and trials that are interrupted anywhere and continue by it."""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune.training.resume.progress import TABLE, Do, Event, Progress, State, Step
from simulated_training import Action, Code, Fails, Interruption, Loop, trial

S, E = State, Event

# Each line is an event, the state after it, and what is to do.
EPOCH = """
    EPOCH_BEGINS IN_EPOCH
    REPORTED IN_EPOCH
    EPOCH_ENDS IN_FIT KEEP"""
LAST = """
    EPOCH_BEGINS IN_EPOCH
    REPORTED IN_EPOCH
    LAST_EPOCH_ENDS TRAINED KEEP_LAST"""
END = """
    FIT_ENDS BETWEEN_FITS KEEP_RESULTS"""
FIT = f"""
    FIT_BEGINS IN_FIT {EPOCH} {LAST} {END}"""
SKIP = """
    PAST_FIT_BEGINS SKIPPING SKIP
    EVALUATED SKIPPING
    FIT_ENDS SKIPPED KEEP_RESULTS"""
LOOP = """
    LOOP_BEGINS OWN_LOOP SAY REMOVE"""
UNKEPT_FIT = """
    FIT_BEGINS UNKEPT REMOVE
    EPOCH_BEGINS UNKEPT
    REPORTED UNKEPT
    EVALUATED UNKEPT
    EPOCH_ENDS UNKEPT
    EPOCH_BEGINS UNKEPT
    LAST_EPOCH_ENDS UNKEPT_TRAINED
    EVALUATED UNKEPT_TRAINED
    FIT_ENDS UNKEPT_TRAINED"""
FRESH = (
    f"""EVALUATED NOT_STARTED
    RETURNED NOT_STARTED STOP {FIT} {FIT}
    RETURNED DONE""",
    f"""FIT_BEGINS IN_FIT
    EVALUATED IN_FIT
    RETURNED IN_FIT STOP {END}
    RETURNED DONE""",
    """FIT_BEGINS IN_FIT
    EPOCH_BEGINS IN_EPOCH
    EVALUATED IN_EPOCH
    RETURNED IN_EPOCH STOP""",
    f"""FIT_BEGINS IN_FIT {LAST}
    EVALUATED TRAINED
    RETURNED DONE""",
    f"""{FIT}
    EVALUATED EVALUATED
    EVALUATED EVALUATED
    RETURNED DONE""",
    f"""{LOOP}
    EPOCH_BEGINS OWN_LOOP
    EVALUATED OWN_LOOP
    REPORTED OWN_LOOP STOP
    EPOCH_ENDS OWN_LOOP
    EPOCH_BEGINS OWN_LOOP
    FIT_ENDS OWN_LOOP
    LOOP_BEGINS OWN_LOOP
    RETURNED OWN_LOOP STOP {UNKEPT_FIT} {UNKEPT_FIT}
    RETURNED DONE""",
    f"""{LOOP} {UNKEPT_FIT}
    LOOP_BEGINS OWN_LOOP {UNKEPT_FIT}
    EPOCH_BEGINS OWN_LOOP""",
    f"""{LOOP}
    OTHER_FIT_BEGINS UNKEPT REMOVE
    OTHER_FIT_BEGINS UNKEPT REMOVE
    FIT_ENDS UNKEPT
    LOOP_BEGINS OWN_LOOP
    FIT_BEGINS UNKEPT REMOVE
    FIT_BEGINS UNKEPT REMOVE
    RETURNED UNKEPT STOP""",
    f"""{LOOP} {UNKEPT_FIT}
    OTHER_FIT_BEGINS UNKEPT REMOVE""",
    f"""{LOOP} {UNKEPT_FIT}
    REPORTED OWN_LOOP""",
)
OF_FIRST_FIT = (
    f"""EVALUATED FOUND
    RETURNED FOUND STOP
    KEPT_FIT_BEGINS RESTORING RESTORE
    RESTORED RESTORED
    EVALUATED RESTORED {EPOCH} {LAST} {END} {FIT}
    RETURNED DONE""",
    f"""KEPT_FIT_BEGINS RESTORING RESTORE
    RESTORED_LAST RESTORED_LAST {END}
    RETURNED DONE""",
    """KEPT_FIT_BEGINS RESTORING RESTORE
    RESTORED_LAST RESTORED_LAST
    EVALUATED RESTORED_LAST
    RETURNED DONE""",
    f"""KEPT_FIT_BEGINS RESTORING RESTORE
    UNFIT IN_FIT REMOVE {EPOCH} {LAST}""",
)
OF_THIRD_FIT = (
    f"""{SKIP} {SKIP}
    KEPT_FIT_BEGINS RESTORING_LATER RESTORE
    RESTORED RESTORED {LAST} {END}""",
    f"""{SKIP} {SKIP}
    KEPT_FIT_BEGINS RESTORING_LATER RESTORE
    RESTORED_LAST RESTORED_LAST {END}""",
    f"""{SKIP} {SKIP}
    KEPT_FIT_BEGINS RESTORING_LATER RESTORE
    UNFIT ABANDONED REMOVE RELEASE""",
    f"""{SKIP}
    EVALUATED SKIPPED_EVALUATED
    EVALUATED SKIPPED_EVALUATED""",
)
TRACES = [
    *((trace, False) for trace in FRESH),
    *((trace, True) for trace in (*OF_FIRST_FIT, *OF_THIRD_FIT)),
]


def follow(trace: str, *, is_found: bool) -> list[tuple[State, Event]]:
    """Check a trace, and return the rows of the table that it goes through."""
    progress, rows = Progress(is_found=is_found), []
    for line in filter(str.strip, trace.split("\n")):
        name, state, *instructions = line.split()
        before = progress.state
        rows.append((before, E[name]))
        step = progress.on(E[name])
        expected = S[state], tuple(Do[each] for each in instructions)
        assert (step.state, step.instructions) == expected, f"{before}: {line}"
    return rows


@pytest.mark.parametrize(("trace", "is_found"), TRACES)
def test_a_trace(trace: str, is_found: bool) -> None:
    assert follow(trace, is_found=is_found)


BEFORE, AFTER = (S.NOT_STARTED, S.FOUND), (S.BETWEEN_FITS, S.EVALUATED)
SKIPPED = (S.SKIPPED, S.SKIPPED_EVALUATED)
WITHIN = (S.RESTORED, S.RESTORED_LAST, S.IN_FIT, S.IN_EPOCH, S.TRAINED)
KEPT_FITS = (E.PAST_FIT_BEGINS, E.KEPT_FIT_BEGINS)
EPOCHS = (E.EPOCH_BEGINS, E.OTHER_EPOCH_BEGINS)
OF_OWN = "a training loop of your own calls the callbacks"
AGAIN: list[tuple[str, tuple[State, ...], tuple[Event, ...]]] = [
    (OF_OWN, (*BEFORE, *WITHIN, *AFTER, *SKIPPED), (E.LOOP_BEGINS,)),
    (OF_OWN, (*BEFORE, *AFTER, *SKIPPED), (*EPOCHS, E.REPORTED)),
    ("it trains several models", (*WITHIN, *AFTER, *SKIPPED), (E.OTHER_FIT_BEGINS,)),
    ("a fit of it has failed", WITHIN, (E.FIT_BEGINS,)),
    ("it evaluates its model between two calls of fit", (S.EVALUATED,), (E.FIT_BEGINS,)),
    ("it evaluates its model between two calls of fit", (S.SKIPPED_EVALUATED,), KEPT_FITS),
    (
        "its training loop does not begin at the epoch of the checkpoint",
        (S.RESTORED, S.RESTORED_LAST),
        (E.OTHER_EPOCH_BEGINS,),
    ),
    (
        "it has not called fit as often as the attempt that wrote the checkpoint",
        SKIPPED,
        (E.RETURNED,),
    ),
]
OF_SKIPPED_EPOCHS = {*SKIPPED, S.SKIPPING, S.RESTORING_LATER, S.RESTORED, S.RESTORED_LAST}


def at(state: State) -> Progress:
    progress = Progress(is_found=True)
    progress.state = state
    return progress


def check_begins_again(state: State, event: Event, step: Step) -> None:
    if state in OF_SKIPPED_EPOCHS:
        assert step.state is S.ABANDONED
        assert step.instructions == (Do.SAY, Do.REMOVE, Do.RELEASE)
    else:
        calls = (E.LOOP_BEGINS, *EPOCHS, E.REPORTED)
        is_loop = step.reason == OF_OWN and event in calls
        assert step.state is (S.OWN_LOOP if is_loop else S.UNKEPT)
        assert step.instructions == (Do.SAY, Do.REMOVE)


@pytest.mark.parametrize(("reason", "states", "events"), AGAIN)
def test_a_trial_begins_again_and_says_why(
    reason: str, states: tuple[State, ...], events: tuple[Event, ...]
) -> None:
    for state in states:
        for event in events:
            assert TABLE[state, event].reason == reason
            check_begins_again(state, event, TABLE[state, event])


def test_what_has_no_row_begins_again_and_says_what_happened() -> None:
    missing = [(state, event) for state in S for event in E if (state, event) not in TABLE]
    assert (S.NOT_STARTED, E.FIT_ENDS) in missing
    for state, event in missing:
        step = at(state).on(event)
        check_begins_again(state, event, step)
        assert step.reason == f"{event.value} {state.value}"


@pytest.mark.parametrize("state", [each for each in S if each not in (S.ABANDONED, S.DONE)])
def test_the_study_may_stop_a_training_anywhere(state: State) -> None:
    assert at(state).on(E.STOP_ASKED) == Step(state, (Do.WRITE, Do.STOP))
    assert at(state).on(E.PRUNE_ASKED) == Step(state, (Do.STOP,))


@pytest.mark.parametrize("event", E)
def test_code_that_catches_the_end_of_an_abandoned_attempt_is_ended_again(event: Event) -> None:
    assert at(S.ABANDONED).on(event) == Step(S.ABANDONED, (Do.RELEASE,))


def test_the_tests_above_have_every_row() -> None:
    seen = {row for trace, is_found in TRACES for row in follow(trace, is_found=is_found)}
    seen |= {(state, event) for _, states, events in AGAIN for state in states for event in events}
    seen |= {(state, event) for state in S for event in (E.STOP_ASKED, E.PRUNE_ASKED)}
    rows = {row for row in TABLE if row[0] is not S.ABANDONED}
    # A fit that an earlier attempt has completed, or an epoch out of order, where it does not count
    same = {E.PAST_FIT_BEGINS, E.KEPT_FIT_BEGINS, E.OTHER_EPOCH_BEGINS}
    unkept = {(s, e) for s, e in rows if s in (S.OWN_LOOP, S.UNKEPT, S.UNKEPT_TRAINED)}
    assert rows - seen == {(s, e) for s, e in unkept if e in same}
    for state, event in rows - seen:
        other = E.EPOCH_BEGINS if event is E.OTHER_EPOCH_BEGINS else E.FIT_BEGINS
        assert TABLE[state, event] == TABLE[state, other]


# --- trials -------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.builds(
        Action,
        st.just("fit"),
        epochs=st.sampled_from([None, 1, 2, 3]),
        stops_after=st.sampled_from([None, None, 1, 2]),
        fails=st.sampled_from([None, None, None, *Fails]),
    ),
    st.builds(Action, st.just("loop"), epochs=st.integers(1, 3), loop=st.sampled_from(Loop)),
    st.builds(Action, st.sampled_from(["evaluate", "train on a batch", "build"])),
)
CODES = st.builds(Code, st.lists(ACTIONS, min_size=1, max_size=5), returns_more=st.booleans())
INTERRUPTIONS = st.lists(st.builds(Interruption, st.integers(0, 40), st.booleans()), max_size=4)


def wrong(code: Code, interruptions: list[Interruption], every: int) -> str:
    """Return what is wrong with the result of an interrupted trial; empty if nothing is."""
    expected, undisturbed = trial(code)
    result, study = trial(code, interruptions, every=every)
    if result != expected or study.contradictions or study.reports != undisturbed.reports:
        return f"{result} for {expected}"
    return "it began again without a word" if study.is_silent else ""


@given(CODES, INTERRUPTIONS, st.integers(1, 3))
def test_an_interrupted_trial_has_the_same_result(
    code: Code, interruptions: list[Interruption], every: int
) -> None:
    assert wrong(code, interruptions, every) == ""


def some_trial(draw: random.Random) -> tuple[Code, list[Interruption], int]:
    """Return a trial that is interrupted at least once."""
    what = ["fit", "fit", "fit", "loop", "evaluate", "train on a batch", "build"]
    actions = [
        Action(
            draw.choice(what),
            epochs=draw.choice([1, 2, 3]),
            fails=draw.choice([None] * 9 + list(Fails)),
            loop=draw.choice(list(Loop)),
        )
        for _ in range(draw.randint(1, 4))
    ]
    kills = [Interruption(draw.randint(0, 40), draw.random() < 0.8) for _ in range(2)]
    return Code(actions, returns_more=draw.random() < 0.5), kills, draw.randint(1, 2)


# An attempt that should have kept no checkpoint is followed by one that should not continue from
# it. Only without both rows is the result wrong.
WRONG_ROWS: dict[str, dict[tuple[State, Event], Step]] = {
    "evaluates": {
        (S.EVALUATED, E.FIT_BEGINS): Step(S.IN_FIT),
        (S.SKIPPED_EVALUATED, E.KEPT_FIT_BEGINS): Step(S.RESTORING_LATER, (Do.RESTORE,)),
    },
    "several models": {
        (S.BETWEEN_FITS, E.OTHER_FIT_BEGINS): Step(S.IN_FIT),
        (S.SKIPPED, E.OTHER_FIT_BEGINS): Step(S.RESTORING_LATER, (Do.RESTORE,)),
    },
    "fails": {(S.IN_EPOCH, E.FIT_BEGINS): Step(S.IN_FIT)},
    "from its first epoch": {(S.RESTORED, E.OTHER_EPOCH_BEGINS): Step(S.IN_EPOCH)},
    "own reports": {
        (S.BETWEEN_FITS, E.REPORTED): Step(S.BETWEEN_FITS),
        (S.SKIPPED, E.REPORTED): Step(S.SKIPPED),
    },
    "not restored": {(S.FOUND, E.KEPT_FIT_BEGINS): Step(S.IN_FIT)},
    "a later fit is not restored": {(S.SKIPPED, E.KEPT_FIT_BEGINS): Step(S.IN_FIT)},
    "no results of a skipped fit": {(S.SKIPPING, E.FIT_ENDS): Step(S.SKIPPED)},
    "no results of a fit": {(S.TRAINED, E.FIT_ENDS): Step(S.BETWEEN_FITS)},
    "silent": {(S.BETWEEN_FITS, E.LOOP_BEGINS): Step(S.OWN_LOOP, (Do.REMOVE,))},
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_with_a_wrong_row_an_interrupted_trial_has_another_result(case: str) -> None:
    """The test above can fail."""
    draw = random.Random(1)
    with mock.patch.dict(TABLE, WRONG_ROWS[case]):
        assert any(wrong(*some_trial(draw)) for _ in range(10_000))
