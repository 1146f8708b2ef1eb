"""How much trials are given where the user does not say: what others were seen to use.

The first trials are given a core or a GPU each and are watched. Then memory is reckoned for each
by its hyperparameters, with a margin (`core.forecast`), and as many share a device as it carries:
cores by the processor time that trials use, GPUs by their memory, in steps that double, and only
as long as the device does more in all that way.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .forecast import Forecast
from .resources import Amount, Resources
from .trial import AttemptId, Params, Usage
from .worker_places import MOST_ON_A_GPU

WATCHED = 2
"""So many trials are watched before others are placed by what they use."""

_MOST_ON_A_CORE = 8
_FULL = 1.2
"""A core is full when its trials, each alone, would keep it busy for so much of the time.

They do not all wait at the same time: with as much as there is time, a quarter of it stays unused.
"""

_STEPS = 16
"""Sizes are rounded up to this many steps between a power of two and the next."""

_SLACK = 1.1
"""A running trial may come to hold more than was told by this factor (`worker.usage.NEWS`); more
than that is not kept free for one that has trained for a while."""

_STEPS_UP = {Amount.CPUS: 4, Amount.GPUS: 2}
"""So many times more may share a device at the next step; of a core it is known how busy it is."""

_ON_A_GPU = 1.1
"""What a framework holds on a GPU beside what it is kept to (its context) is to fit in too."""

_MOMENT_SECONDS = 1.0
_LATEST = 16
_CAUTION = 1.25
_MOST_CAUTION = 4.0
_TRUST = 0.98
_LOSS = 1.05
"""Fewer share a device where more of them do not do more by this factor."""

_RESIDENTS = "(trials on one device)"


def rounded_up(size: float) -> int:
    """A size in bytes, rounded up so that there are not too many different ones.

    >>> rounded_up(1000.0), rounded_up(1024.0), rounded_up(1025.0)
    (1024, 1024, 1070)
    """
    return math.ceil(2 ** (math.ceil(_STEPS * math.log2(size) - 1e-9) / _STEPS))


@dataclass(slots=True)
class _Watched:
    """A running attempt: how crowded it was when it began and since, and what it had used first."""

    params: Params
    level: int
    residents: list[float]
    first: Usage | None = None
    latest: Usage | None = None
    is_judged: bool = False
    has_gpus: bool = False

    @property
    def crowd(self) -> float:
        return math.fsum(self.residents) / len(self.residents)


def _that_fill_a_core(busy: float) -> int:
    """How many trials fill a core that each keep it busy for so much of the time.

    >>> _that_fill_a_core(0.95), _that_fill_a_core(0.5), _that_fill_a_core(0.01)
    (1, 2, 8)
    """
    return max(1, min(_MOST_ON_A_CORE, int(_FULL / busy))) if busy else 1


def _part(count: int) -> float:
    return 1 if count == 1 else 1 / count


class _Caution:
    """Grows with every trial that runs out of memory, and wears off with those that do not."""

    def __init__(self) -> None:
        self.factor = 1.0

    def ran_out(self) -> None:
        self.factor = min(_MOST_CAUTION, _CAUTION * self.factor)

    def went_well(self) -> None:
        self.factor = max(1.0, _TRUST * self.factor)


class Packing:
    """Says what trials are given, by what was measured of others.

    It follows from what it is told, and from nothing else; questions change nothing.

    Attributes:
        most: So many trials share a device at most, at present: a GPU, once any trial holds one
            (cores are shared by how busy they are then), else a core.
        words: What was decided last, and why; empty while all is as it was asked for.
    """

    def __init__(self) -> None:
        self._said = Resources()
        self._measured = frozenset[Amount]()
        self._memory = Forecast()
        self._gpu_memory = Forecast()
        self._cores = Forecast()
        self._pace = Forecast()
        self._caution = _Caution()
        self._gpu_caution = _Caution()
        self._watched: dict[AttemptId, _Watched] = {}
        self._busy: deque[float] = deque(maxlen=_LATEST)
        self._settled = 0
        self._holds_gpus = False
        self._known_usual: tuple[int, Resources] | None = None
        self._tried = 1
        self.most = 1
        self.words = ""

    def allow(self, said: Resources, measured: Iterable[Amount]) -> None:
        """A master has taken the study up; nothing runs.

        Args:
            said: What the user asked for.
            measured: What of it is decided by measurement instead.
        """
        self._said = said
        self._measured = frozenset(measured)
        self._watched.clear()
        self._known_usual = None

    # --- what is decided --------------------------------------------------------------------

    @property
    def is_counting(self) -> bool:
        """Whether it is known how much memory trials need."""
        return Amount.MEMORY in self._measured and len(self._memory) >= WATCHED

    def sized(self, params: Params, said: Resources, *, most_memory_bytes: int) -> Resources:
        """What a trial is given.

        Args:
            params: Its hyperparameters.
            said: What was asked for; what is decided by measurement is left alone in it.
            most_memory_bytes: What the largest worker has; 0 if nobody knows.
        """
        memory = said.memory_bytes
        if not memory and self.is_counting:
            memory = rounded_up(self._caution.factor * self._memory.upper(params))
            memory = min(memory, most_memory_bytes or memory)
        sized = replace(said, memory_bytes=memory)
        if said.cpus == 1 and Amount.CPUS in self._measured:
            sized = replace(sized, cpus=_part(self._per_core(params)))
        if self._is_gpu_measured(said):
            held = _ON_A_GPU * self._gpu_caution.factor * self._gpu_memory.upper(params)
            sized = replace(sized, gpu_memory_bytes=rounded_up(held))
        return sized

    def usual(self, *, most_memory_bytes: int) -> Resources:
        """What a trial is given that nothing is known of yet."""
        if self._known_usual is None or self._known_usual[0] != most_memory_bytes:
            self._known_usual = most_memory_bytes, self._usual(most_memory_bytes)
        return self._known_usual[1]

    def _usual(self, most_memory_bytes: int) -> Resources:
        said = self._said
        if not said.memory_bytes and self.is_counting:
            memory = rounded_up(self._caution.factor * self._memory.middle)
            said = replace(said, memory_bytes=min(memory, most_memory_bytes or memory))
        if said.cpus == 1 and Amount.CPUS in self._measured and self._busy:
            said = replace(said, cpus=_part(self._usual_per_core))
        if self._is_gpu_measured(said):
            held = _ON_A_GPU * self._gpu_caution.factor * self._gpu_memory.middle
            said = replace(said, gpu_memory_bytes=rounded_up(held))
        return said

    def held(
        self, name: AttemptId, granted_bytes: int, wanted: Resources, *, said: Resources
    ) -> Resources:
        """What a running attempt is reckoned to hold, now that more is known of it.

        Args:
            name: Of the attempt.
            granted_bytes: Host memory that it was given.
            wanted: What it would be given now.
            said: What was asked for.
        """
        watched = self._watched.get(name)
        used = None if watched is None else watched.latest
        if Amount.MEMORY not in self._measured or said.memory_bytes:
            wanted = replace(wanted, memory_bytes=granted_bytes)
        elif used is not None:
            memory = rounded_up(_SLACK * used.peak_memory_bytes)
            if watched is None or not watched.is_judged:  # it may be about to need more
                memory = max(granted_bytes, memory)
            wanted = replace(wanted, memory_bytes=memory)
        if used is not None and wanted.gpu_memory_bytes and self._is_gpu_measured(said):
            own = rounded_up(_SLACK * max(1, used.peak_gpu_memory_bytes or 0))
            wanted = replace(wanted, gpu_memory_bytes=max(wanted.gpu_memory_bytes, own))
        return wanted

    def _is_gpu_measured(self, said: Resources) -> bool:
        is_unsaid = said.gpus is None and not said.gpu_memory_bytes
        return is_unsaid and Amount.GPUS in self._measured and len(self._gpu_memory) >= WATCHED

    @property
    def most_on_a_gpu(self) -> int:
        """So many trials share a GPU at most: none where nobody sees what they hold there."""
        return self.most if self._knows_gpus else 1

    @property
    def _knows_gpus(self) -> bool:
        return len(self._gpu_memory) >= WATCHED

    @property
    def _most_on_a_core(self) -> int:
        # Where trials hold GPUs, it is these that they are kept from crowding.
        return _MOST_ON_A_CORE if self._holds_gpus else self.most

    def _per_core(self, params: Params) -> int:
        busy = self._cores.typical({**params, _RESIDENTS: 1.0})
        return min(self._most_on_a_core, _that_fill_a_core(busy))

    @property
    def _usual_per_core(self) -> int:
        return min(self._most_on_a_core, _that_fill_a_core(statistics.median(self._busy)))

    # --- what is learned --------------------------------------------------------------------

    def placed(self, name: AttemptId, params: Params, residents: float) -> None:
        """An attempt has its place, on a device that carries so many with it."""
        self._watched[name] = _Watched(params, self.most, [residents])

    def measured(
        self,
        name: AttemptId,
        usage: Usage,
        *,
        residents: float,
        has_gpus: bool,
        has_reported: bool,
    ) -> bool:
        """Take note of what a running attempt has used; returns whether decisions change.

        Args:
            name: Of the attempt.
            usage: What it has used.
            residents: How many share its device at present.
            has_gpus: Whether it holds any.
            has_reported: Whether it has reported a step. One that has not counts when it has
                ended well: of one that failed at once, there is nothing to be learned.
        """
        watched = self._watched.get(name)
        if watched is None or not self._measured:
            return False
        most = self.most
        watched.residents.append(residents)
        watched.latest = usage
        watched.has_gpus = has_gpus
        if has_gpus and not self._holds_gpus:
            # How many share a core (of workers without a GPU) says nothing of GPUs.
            self._holds_gpus = True
            self._pace = Forecast()
            self._tried = self.most = 1
            self._settled = 0
        self._known_usual = None
        if not has_reported:
            return False
        changed = self._learn_memory(name, watched, usage)
        if watched.first is None:
            watched.first = usage
        else:
            seconds = usage.seconds - watched.first.seconds
            # Its start tells little of the rest, and nor does a moment.
            if seconds >= min(_MOMENT_SECONDS, 0.25 * watched.first.seconds):
                changed |= self._learn_pace(name, watched, usage, watched.first)
        self._review()
        return changed or self.most != most

    def ended(
        self, name: AttemptId, *, granted_bytes: int, out_of: Amount | None, is_well: bool
    ) -> bool:
        """An attempt is over; returns whether decisions change.

        Args:
            name: Of the attempt.
            granted_bytes: Host memory that it was granted.
            out_of: Of what it ran out: MEMORY of the host, that of the GPUS, or of nothing.
            is_well: Whether it came to its end.
        """
        watched = self._watched.pop(name, None)
        if watched is None or not self._measured:
            return False
        self._known_usual = None
        used, most = watched.latest, self.most
        changed = False
        if out_of is Amount.MEMORY:
            self._caution.ran_out()
            self._tell_caution("", self._caution)
            least = max(granted_bytes, 0 if used is None else used.peak_memory_bytes)
            if least:
                changed = self._memory.learn(name.trial, watched.params, least, is_least=True)
        elif out_of is Amount.GPUS:
            self._gpu_caution.ran_out()
            self._tell_caution("GPU ", self._gpu_caution)
        elif used is not None and (is_well or watched.first is not None):
            self._caution.went_well()
            self._gpu_caution.went_well()
            if watched.first is None:
                changed = self._learn_memory(name, watched, used)
            if not watched.is_judged:
                changed |= self._learn_pace(name, watched, used, None)
                self._review()
        return changed or self.most != most

    def _learn_memory(self, name: AttemptId, watched: _Watched, usage: Usage) -> bool:
        changed = self._memory.learn(name.trial, watched.params, usage.peak_memory_bytes)
        # Nothing at all is what a driver says that does not know an attempt's processes.
        if held := usage.peak_gpu_memory_bytes:
            changed |= self._gpu_memory.learn(name.trial, watched.params, held)
        return changed

    def _learn_pace(
        self, name: AttemptId, watched: _Watched, usage: Usage, since: Usage | None
    ) -> bool:
        used = usage if since is None else usage.since(since)
        if used.seconds <= 0.0:
            return False
        params = {**watched.params, _RESIDENTS: watched.crowd}
        changed = self._cores.learn(name.trial, params, max(0.01, used.busy))
        is_of_level = watched.has_gpus is self._holds_gpus
        if usage.seconds_per_step and is_of_level:
            changed |= self._pace.learn(name.trial, params, usage.seconds_per_step)
        if not watched.is_judged:
            watched.is_judged = True
            self._busy.append(self._cores.typical({**watched.params, _RESIDENTS: 1.0}))
            self._settled += is_of_level and watched.level == self.most
        return changed

    def _review(self) -> None:
        """Let more trials share a device, or fewer."""
        device = Amount.GPUS if self._holds_gpus else Amount.CPUS
        if device not in self._measured or self._settled < WATCHED:
            return
        if device is Amount.GPUS and not self._knows_gpus:
            return
        carries = MOST_ON_A_GPU
        if device is Amount.CPUS:
            carries = _that_fill_a_core(min(self._busy))
        best, before = self._best, self.most
        more = min(_STEPS_UP[device] * before, carries)
        if best < before:
            self.most = best
        elif more > before and (best > before or more > self._tried):
            self.most = min(more, best) if more <= self._tried else more
        if self.most != before:
            self._tried = max(self._tried, self.most)
            self._settled = 0
            self._tell(is_less=self.most < before)

    @property
    def _best(self) -> int:
        """With how few trials a device does about as much as with any number that was tried."""
        done = {
            level: level / (self._pace.typical({_RESIDENTS: float(level)}) or 1.0)
            for level in range(1, self._tried + 1)
        }
        most = max(done.values())
        return next(level for level in done if _LOSS * done[level] >= most)

    # --- in words ---------------------------------------------------------------------------

    def _tell(self, *, is_less: bool) -> None:
        device = "GPU" if self._holds_gpus else "core"
        trials = "1 trial" if self.most == 1 else f"up to {self.most} trials"
        if is_less:
            why = "with more of them there, no more was done in all"
        elif self._holds_gpus:
            why = f"they hold {_gb(self._gpu_memory.middle)} of its memory each"
        else:
            # The idlest ones decide; each is given a part by what it is expected to do itself.
            least, most = (f"{each:.2g}" for each in (min(self._busy), max(self._busy)))
            share = least if least == most else f"{least} to {most}"
            why = f"they keep {share} of one busy"
        words = f"{trials} per {device} now: {why}"
        if self.is_counting:
            words += f"; {_gb(self._memory.middle)} of memory each"
            if names := self._memory.depends_on:
                words += f", by {' and '.join(names)}"
        self.words = words

    def _tell_caution(self, kind: str, caution: _Caution) -> None:
        self.words = (
            f"{caution.factor:.3g} times the {kind}memory is reckoned for trials now: one ran out"
        )


def _gb(size: float) -> str:
    return f"{size / 1e9:.2g} GB"
