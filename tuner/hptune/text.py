"""Values, times and lists as text for people. Exports keep every digit and do not use it."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from .core import spelling
from .core.attempt import Attempt
from .core.resources import Placement
from .core.trial import Params, ParamValue, Trial, TrialState

plural = spelling.plural

NOTHING = "\N{EN DASH}"
"""Shown for a value that is not known (yet)."""

FAILURE_CHARACTERS = 160
"""Limit of the reason of a failure: two lines of a terminal."""

CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Characters that change what a terminal or an editor shows, or that no file can hold; the inside
of a pattern's brackets."""

_ONE_CONTROL = re.compile(rf"[{CONTROL}]")
_CONTROL = re.compile(rf"(\x1b\[[0-9;]*m)|[{CONTROL}]")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"(?<![A-Za-z\d])[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_TEMPORARY = re.compile(r"(?<=/)tmp[a-z0-9_]{8}\b")


def is_utf8(stream: TextIO) -> bool:
    """Return whether all characters can be written to a stream."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def clean(text: str) -> str:
    r"""Return the text in one line without control codes, so that no value upsets a terminal.

    >>> clean("out\n  of\x1b memory")
    'out of memory'
    """
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Return the text with blanks for control codes."""
    if text.isprintable():  # as nearly all are; a report of 10,000 trials has a million of them
        return text
    return "".join(c if c.isprintable() else " " for c in text)


def without_controls(text: str) -> str:
    r"""Return a text, of one line or several, with `?` for each control character.

    >>> without_controls("one\n\x1b[31mtwo")
    'one\n?[31mtwo'
    """
    return _ONE_CONTROL.sub("?", text)


def harmless(text: str) -> str:
    r"""Return output of a program as a terminal may show it: with lines, tabs and colours.

    Other control sequences would change the terminal's title, its clipboard or what it shows.

    >>> harmless("\x1b[31mred\x1b[0m\tnext\r\n\x1b]0;title\x07")
    '\x1b[31mred\x1b[0m\tnext\r\n?]0;title?'
    """
    return _CONTROL.sub(lambda found: found[1] or "?", text)


def path(of: str | os.PathLike[str]) -> str:
    """Return a path for people, quoted for a shell: from the working directory if it is below.

    A path that begins with a hyphen, which a command takes for an option, begins with `./`.

    >>> path(Path.cwd() / "studies/my model-1"), path("/etc/hosts"), path(Path.cwd() / "-x")
    ("'studies/my model-1'", '/etc/hosts', './-x')
    """
    try:
        below = Path(of).relative_to(Path.cwd())
    except (ValueError, OSError):  # OSError: the working directory was removed
        return shlex.quote(os.fspath(of))
    return shlex.quote(f"./{below}" if str(below).startswith("-") else str(below))


def shorten(text: str, limit: int) -> str:
    """Return `clean(text)`, cut to at most `limit` characters.

    >>> shorten("a long reason", 7)
    'a long…'
    """
    line = clean(text)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def sentence(words: str) -> str:
    """Return words with a full stop at the end, unless they end a sentence already.

    >>> sentence("no room"), sentence("did you mean Int?")
    ('no room.', 'did you mean Int?')
    """
    return words if words.endswith((".", "?", "!", "…")) else f"{words}."


def without_middle(text: str, limit: int) -> str:
    """Return `clean(text)`, cut in its middle to at most `limit` characters.

    Long names differ at their beginnings or at their ends.

    >>> without_middle("encoder.layer.1.attention.dropout_rate", 20)
    'encoder.l…opout_rate'
    """
    line = clean(text)
    head = (limit - 1) // 2
    return line if len(line) <= limit else f"{line[:head]}…{line[head + 1 - limit :]}"


def without_numbers(text: str) -> str:
    """Return the text of a failure with its numbers replaced, to find failures of one kind.

    Addresses and the names of Python's temporary directories are replaced as well; digits within
    a word, such as those of float32, are not.

    >>> without_numbers("bad value 0.123") == without_numbers("bad value -4e-06")
    True
    >>> without_numbers("<Layer at 0x7f10> of float32: (17, 3)")
    '<Layer at #> of float32: (#, #)'
    >>> without_numbers("no file /tmp/tmpx2_k81ab/data-3.npy")
    'no file /tmp/#/data-#.npy'
    """
    shown = _ADDRESS.sub("#", clean(text))
    return _NUMBER.sub("#", _TEMPORARY.sub("#", shown))


def number(value: float) -> str:
    """Return a number with 4 significant digits and no trailing zeros; integers are kept whole.

    >>> number(0.00123456), number(0.5), number(123456.7), number(100_000)
    ('0.001235', '0.5', '123457', '100000')
    """
    if isinstance(value, int):
        return str(value)
    if 1e4 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.4g}"


def measured(value: float | None) -> str:
    """Return a metric's value with exactly 4 significant digits, so that columns line up.

    A whole number from 100 on, such as a number of parameters, is written as one.

    >>> measured(0.9), measured(12345.6), measured(float("nan")), measured(None) == NOTHING
    ('0.9000', '12346', 'nan', True)
    >>> measured(454.0), measured(454.5), measured(2.0)
    ('454', '454.5', '2.000')
    """
    if value is None:
        return NOTHING
    is_whole = 100.0 <= abs(value) < 1e7 and value == int(value)
    if not math.isfinite(value) or is_whole or 1e4 <= abs(value) < 1e7:
        return number(float(value))
    return f"{value:#.4g}".removesuffix(".")


def duration(seconds: float | None) -> str:
    """Return a length of time in its two largest units.

    >>> [duration(s) for s in (0, 0.4, 42, 190, 7500, 90_000)]
    ['0s', '<1s', '42s', '3m10s', '2h05m', '1d01h']
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    whole = int(seconds)
    if whole <= 0:
        return "<1s" if seconds > 0 else "0s"
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def moment(at: float) -> str:
    """Return a point in time as this machine's local time; a dash for one that has no date."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return NOTHING


def param(value: ParamValue) -> str:
    """Return a hyperparameter's value.

    >>> param(True), param(0.00012345), param(None), param("relu")
    ('True', '0.0001234', 'None', 'relu')
    """
    if isinstance(value, float):
        return number(value)
    return clean(str(value))


def distinct(words: Sequence[str]) -> list[str]:
    """Return the texts, each of which that came before with its count.

    >>> distinct(["lr", "units", "lr"])
    ['lr', 'units', 'lr (2)']
    """
    taken = set(words)
    found: list[str] = []
    for word in words:
        shown, count = word, 1
        while shown in found or (count > 1 and shown in taken):
            count += 1
            shown = f"{word} ({count})"
        found.append(shown)
    return found


def shown_params(trial: Trial) -> Params:
    """Return a trial's configuration, with a dash for each value that its code never asked for."""
    return {name: NOTHING if name in trial.unused else v for name, v in trial.params.items()}


def params(of: Params) -> dict[str, str]:
    """Return the values of a configuration as texts, by name."""
    return {name: param(value) for name, value in of.items()}


def exact_params(of: Params) -> dict[str, str]:
    """Return the same with every digit, so that the texts reproduce the trial.

    >>> exact_params({"lr": 0.0001234567, "units": 64, "activation": "relu"})
    {'lr': '0.0001234567', 'units': '64', 'activation': 'relu'}
    """
    return {name: clean(str(value)) for name, value in of.items()}


def assignments(params: Params) -> list[str]:
    """Return each hyperparameter as `name=value`, in the order of the configuration."""
    return [f"{clean(name)}={param(value)}" for name, value in params.items()]


def exact_assignments(params: Params) -> list[str]:
    """Return the same with every digit."""
    return [f"{clean(name)}={value}" for name, value in exact_params(params).items()]


def amount(value: float) -> str:
    """Return an amount with three digits at least, such as milliseconds or core hours.

    >>> amount(0.0065432), amount(12.0), amount(123456.7), amount(0.0000764)
    ('0.00654', '12', '123,457', '<0.001')
    """
    if 0.0 < value < 0.001:
        return "<0.001"
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def energy(kwh: float) -> str:
    """Return an energy in a unit that fits.

    >>> energy(0.00025), energy(1.234)
    ('0.25 Wh', '1.23 kWh')
    """
    return f"{amount(kwh)} kWh" if kwh >= 0.1 else f"{amount(kwh * 1000.0)} Wh"


def held(hours: float, device: str) -> str:
    """Return for how long devices were held, in a unit that fits.

    >>> held(0.0002, "core"), held(0.5, "GPU"), held(123456.7, "core")
    ('0.72 core seconds', '30 GPU minutes', '123,457 core hours')
    """
    for unit, seconds in (("hours", 3600.0), ("minutes", 60.0)):
        if hours * 3600.0 >= 2.0 * seconds:
            return f"{amount(hours * 3600.0 / seconds)} {device} {unit}"
    return f"{amount(hours * 3600.0)} {device} seconds"


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have none.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def some(names: Sequence[str], most: int) -> str:
    """Return names, joined by commas; of many, the first ones and how many more there are.

    >>> some(["a", "b"], 2), some(["a", "b", "c"], 1)
    ('a, b', 'a and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def trials(named: Sequence[object]) -> str:
    """Return some trials, of which at most six are named.

    >>> trials([7]), trials(range(9))
    ('trial 7', 'trials 0, 1, 2, 3, 4, 5, …')
    """
    more = ["…"] if len(named) > 6 else []
    return f"trial{'s' * (len(named) > 1)} {', '.join([*map(str, named[:6]), *more])}"


def counts(
    by_state: Mapping[TrialState, int], *, of: int | None = None, interrupted_trials: int = 0
) -> str:
    """Return how many trials are in which state; states without any are left out.

    >>> counts({TrialState.RUNNING: 2, TrialState.COMPLETE: 11}, of=50)
    '11 complete, 2 running, 37 to come'
    >>> counts({TrialState.WAITING: 3, TrialState.PRUNED: 1}, interrupted_trials=2)
    '1 pruned, 2 interrupted, 1 to come'

    Args:
        by_state: The numbers of trials so far.
        of: The number of trials in the end; None if unknown.
        interrupted_trials: How many of the waiting trials have begun already.
    """
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)
    numbers = {state.lower(): by_state.get(state, 0) for state in states}
    numbers["running"] = by_state.get(TrialState.RUNNING, 0)
    numbers["paused"] = by_state.get(TrialState.PAUSED, 0)
    numbers["interrupted"] = interrupted_trials
    numbers["to come"] = by_state.get(TrialState.WAITING, 0) - interrupted_trials
    if (total := sum(by_state.values())) and of is not None:
        numbers["to come"] += of - total
    shown = [f"{number} {word}" for word, number in numbers.items() if number > 0]
    return ", ".join(shown) or "no trials yet"


def progress(ended: int, budget_trials: int | None) -> str:
    """Return how many trials ended, of how many.

    >>> progress(3, 50), progress(3, None)
    ('3/50 trials', '3 trials')
    """
    return plural(ended, "trial") if budget_trials is None else f"{ended}/{budget_trials} trials"


def step_word(epochs: int | None) -> str:
    """Return what a step is called: an epoch if trials count epochs."""
    return "step" if epochs is None else "epoch"


def value_step(trial: Trial, epochs: int | None) -> str:
    """Return which of its steps a trial's value is from; empty if no step is known.

    That of a complete trial is mostly its best one, which need not be its last. The study's
    `epochs` count for a trial that began with an unknown number.

    >>> from dataclasses import replace
    >>> trial = Trial(0, {}, "random", TrialState.COMPLETE, value=0.5, step=6)
    >>> value_step(trial, 9), value_step(trial, None), value_step(replace(trial, epochs=7), 9)
    ('from epoch 6/9', 'from step 6', 'from epoch 6/7')
    """
    if trial.step is None:
        return ""
    of = epochs if trial.epochs is None else trial.epochs
    return f"from {step_word(of)} {steps_of(trial.step, trial.params, of)}"


def steps_of(step: int, params: Params, epochs: int | None) -> str:
    """Return the progress of a trial: its step, and of how many.

    Args:
        step: The last step that it reported.
        params: Its configuration; a hyperparameter `epochs` is its own number of epochs.
        epochs: The study's number of epochs; None if unknown.

    >>> steps_of(3, {}, 10), steps_of(3, {"epochs": 50}, 10), steps_of(3, {}, None)
    ('3/10', '3/50', '3')
    """
    of = params.get("epochs", epochs)
    return f"{step}/{of}" if isinstance(of, int) and of >= step else str(step)


def attempt_where(attempt: Attempt) -> str:
    """Return what an attempt holds: its machines, its GPUs or cores, and how many ranks it has.

    >>> from hptune.core.attempt import AttemptId
    >>> ranks = Placement("w", cpus=(0,), peers=(Placement("v", cpus=(0,)),))
    >>> attempt_where(Attempt(AttemptId(0, 0), ranks, "n1.org", 0.0, peer_nodes=("n2.org",)))
    'n1+n2 2 cores, 2 ranks'
    """
    ranks = attempt.placement.ranks
    if len(ranks) == 1:
        return where(attempt.node, attempt.placement)
    cpus = tuple(core for rank in ranks for core in rank.cpus)
    gpus = tuple(gpu for rank in ranks for gpu in rank.gpus)
    if len(attempt.nodes) == 1:
        words = where(attempt.node, Placement("", cpus, gpus))
    else:
        devices = plural(len(gpus), "GPU") if gpus else plural(len(cpus), "core")
        words = f"{'+'.join(map(_machine, attempt.nodes))} {devices}"
    return f"{words}, {len(ranks)} ranks"


def where(node: str, placement: Placement) -> str:
    """Return what one process holds: the machine, then its GPUs, or its cores if it has none.

    >>> where("gpu01.cluster.org", Placement("w", cpus=(0, 1), gpus=("0", "1")))
    'gpu01 GPU 0,1'
    >>> where("10.0.0.7", Placement("w", cpus=(0, 1)))
    '10.0.0.7 2 cores'
    >>> where("n1", Placement("w", cpus=(0,), cpu_share=1 / 7))
    'n1 0.14 core'
    >>> where("n1", Placement("w", cpus=(0,), gpus=("0",), gpu_share=0.5))
    'n1 0.5 GPU 0'
    """
    machine = _machine(node)
    if not placement.gpus:
        if placement.cpu_share < 1:
            return f"{machine} {placement.cpu_share:.2g} core"
        return f"{machine} {plural(len(placement.cpus), 'core')}"
    part = f"{placement.gpu_share:.2g} " if placement.gpu_share < 1 else ""
    if all(gpu.isdigit() for gpu in placement.gpus):
        return f"{machine} {part}GPU {','.join(placement.gpus)}"
    if part:
        return f"{machine} {part}GPU"
    return f"{machine} {plural(len(placement.gpus), 'GPU')}"


def _machine(node: str) -> str:
    address = node.replace(".", "").isdigit() or ":" in node
    return clean(node if address else node.partition(".")[0])


def again(trial: Trial) -> str:
    """Return which trial's configuration a trial trains again, in words; else ""."""
    if trial.confirms is None:
        return ""
    return f"confirms trial {trial.confirms}"


def failure(trial: Trial) -> str:
    """Return why a trial failed, in one line of at most `FAILURE_CHARACTERS`."""
    return shorten(trial.reason, FAILURE_CHARACTERS) or "no reason was given"
