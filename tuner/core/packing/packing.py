"""How much trials are given where the user does not say: what others were seen to use.

The first trials are given a core or a GPU each and are watched. Then memory is reckoned for each
by its hyperparameters, with a margin (`core.memory_needs`), and as many share a device as it
carries (`core.sharing`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..resources import Amount, Resources
from ..scheduling.worker import MOST_ON_A_GPU
from ..trial import AttemptId, Params, Usage
from .memory_needs import MemoryNeeds, rounded_up
from .occupancy import Interval
from .sharing import MOST_ON_A_CORE, Sharing, that_fill_a_core

ONE_IN = 10
"""Devices are shared for a search that learns until one in so many of its trials runs at once.

So it hears of nine tenths of them before it proposes the last. Measured (benchmarks/README.md):
batches of 8 cost bayesian and tpe 0.46 and 0.16 of the score where they were a third of the
trials, 0.17 both where they were a sixth, and 0.03 and nothing where they were a twelfth.
"""

_SLACK = 1.05
"""A running trial may come to hold more than was told by this factor (`worker.usage.NEWS`); more
than that is not kept free for one that has trained for a while."""

_ON_A_GPU = 1.1
"""What a framework holds on a GPU beside what it is kept to (its context) is to fit in too."""

_MOMENT_SECONDS = 1.0


@dataclass(slots=True)
class _Watched:
    """A running attempt: what it had used first, and how crowded it has been since."""

    params: Params
    sharing: Sharing
    level: int
    first: Usage | None = None
    latest: Usage | None = None
    first_crowd: Interval | None = None
    latest_crowd: Interval | None = None
    is_judged: bool = False


class Packing:
    """Says what trials are given, by what was measured of others.

    It follows from what it is told, and from nothing else; questions change nothing.

    Attributes:
        words: What was decided last, and why; empty while all is as it was asked for.
    """

    def __init__(self) -> None:
        self._said = Resources()
        self._measured = frozenset[Amount]()
        self._search_trials: int | None = None
        self._memory = MemoryNeeds()
        self._gpu_memory = MemoryNeeds(extra=_ON_A_GPU)
        self._cores = Sharing(Amount.CPUS)
        self._gpus = Sharing(Amount.GPUS)
        self._watched: dict[AttemptId, _Watched] = {}
        self._known_usual: tuple[Hashable, Resources] | None = None
        self.words = ""

    def allow(
        self, said: Resources, measured: Iterable[Amount], *, search_trials: int | None = None
    ) -> None:
        """A master has taken the study up; nothing runs.

        Args:
            said: What the user asked for.
            measured: What of it is decided by measurement instead.
            search_trials: The total number of trials of a search that learns; None if it does not
                learn, or goes on without an end.
        """
        self._said = said
        self._measured = frozenset(measured)
        self._search_trials = search_trials
        self._watched.clear()
        self._known_usual = None
        self.heed_search(0)

    def heed_search(self, places: int) -> None:
        """Leave a search that learns enough trials to learn from (`ONE_IN`).

        Args:
            places: How many trials run at once that share no device. They do so in any case.
        """
        limit = sys.maxsize
        if self._search_trials is not None:
            limit = max(1, self._search_trials // (ONE_IN * max(1, places)))
        for sharing in (self._cores, self._gpus):
            if sharing.limit_to(limit):
                self._tell(sharing)

    # --- what is decided --------------------------------------------------------------------

    @property
    def standing(self) -> Hashable:
        """Changes whenever trials are given something else than before."""
        learned = (self._memory, self._gpu_memory, self._cores, self._gpus)
        return tuple(each.standing for each in learned)

    @property
    def is_counting(self) -> bool:
        """Whether it is known how much memory trials need."""
        return Amount.MEMORY in self._measured and self._memory.are_known

    @property
    def most_on_a_core(self) -> int:
        """So many trials without a GPU share a core at most, at present."""
        return self._cores.most

    @property
    def most_on_a_gpu(self) -> int:
        """So many trials share a GPU at most, at present."""
        return self._gpus.most

    def sized(self, params: Params, said: Resources, *, most_memory_bytes: int) -> Resources:
        """What a trial is given.

        Args:
            params: Its hyperparameters.
            said: What was asked for; what is decided by measurement is left alone in it.
            most_memory_bytes: What the largest worker has; 0 if nobody knows.
        """
        return self._sized(
            said,
            most_memory_bytes,
            memory=lambda needs: needs.of(params),
            fill=lambda sharing: sharing.that_fill_a_core(params),
        )

    def usual(self, *, most_memory_bytes: int) -> Resources:
        """What a trial is given that nothing is known of yet."""
        standing = self.standing, most_memory_bytes
        if self._known_usual is None or self._known_usual[0] != standing:
            usual = self._sized(
                self._said,
                most_memory_bytes,
                memory=lambda needs: needs.usual,
                fill=lambda sharing: sharing.that_fill_a_core_usually,
            )
            self._known_usual = standing, usual
        return self._known_usual[1]

    def _sized(
        self,
        said: Resources,
        most_memory_bytes: int,
        *,
        memory: Callable[[MemoryNeeds], int],
        fill: Callable[[Sharing], int],
    ) -> Resources:
        sized = said
        if not said.memory_bytes and self.is_counting:
            needed = memory(self._memory)
            sized = replace(sized, memory_bytes=min(needed, most_memory_bytes or needed))
        if said.cpus == 1 and Amount.CPUS in self._measured:
            sized = replace(sized, cpus=self._part_of_a_core(fill))
        if self._is_gpu_measured(said):
            sized = replace(sized, gpu_memory_bytes=memory(self._gpu_memory))
        return sized

    def _part_of_a_core(self, fill: Callable[[Sharing], int]) -> float:
        # Nobody knows yet where it will run, so it is given what it needs anywhere.
        fills = [fill(each) for each in (self._cores, self._gpus) if each.is_known]
        if not fills:
            return 1
        # Where all trials hold GPUs, it is these that they are kept from crowding.
        at_most = min(MOST_ON_A_CORE, self._cores.limit)
        most = self._cores.most if self._cores.is_used else at_most
        count = min(most, *fills)
        return 1 if count == 1 else 1 / count

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
        return is_unsaid and Amount.GPUS in self._measured and self._gpu_memory.are_known

    # --- what is learned --------------------------------------------------------------------

    def placed(self, name: AttemptId, params: Params, *, has_gpus: bool) -> None:
        """An attempt has its place, on a device (a GPU, if it has any) that carries so many."""
        sharing = self._gpus if has_gpus else self._cores
        sharing.is_used = True
        self._watched[name] = _Watched(params, sharing, sharing.most)

    def measured(
        self,
        name: AttemptId,
        usage: Usage,
        crowds: Mapping[Amount, Interval],
        *,
        has_reported: bool,
    ) -> None:
        """Take note of what a running attempt has used.

        Args:
            name: Of the attempt.
            usage: What it has used.
            crowds: How many share the cores and the GPUs there.
            has_reported: Whether it has reported a step. One that has not counts when it has
                ended well: of one that failed at once, there is nothing to be learned.
        """
        watched = self._watched.get(name)
        if watched is None or not self._measured:
            return
        crowd = crowds[watched.sharing.device]
        watched.latest, watched.latest_crowd = usage, crowd
        if not has_reported:
            return
        self._learn_memory(name, watched, usage)
        if watched.first is None:
            watched.first, watched.first_crowd = usage, crowd
        else:
            seconds = usage.seconds - watched.first.seconds
            # Its start tells little of the rest, and nor does a moment.
            if seconds >= min(_MOMENT_SECONDS, 0.25 * watched.first.seconds):
                self._learn_pace(name, watched, usage.since(watched.first))
        self._review(watched.sharing)

    def ended(
        self, name: AttemptId, *, granted_bytes: int, out_of: Amount | None, is_well: bool
    ) -> None:
        """An attempt is over.

        Args:
            name: Of the attempt.
            granted_bytes: Host memory that it was granted.
            out_of: Of what it ran out: MEMORY of the host, that of the GPUS, or of nothing.
            is_well: Whether it came to its end.
        """
        watched = self._watched.pop(name, None)
        if watched is None or not self._measured:
            return
        used = watched.latest
        if out_of is Amount.MEMORY:
            self._memory.ran_out()
            self._tell_caution("", self._memory)
            least = max(granted_bytes, 0 if used is None else used.peak_memory_bytes)
            if least:
                self._memory.learn(name.trial, watched.params, least, is_least=True)
        elif out_of is Amount.GPUS:
            self._gpu_memory.ran_out()
            self._tell_caution("GPU ", self._gpu_memory)
        elif used is not None and (is_well or watched.first is not None):
            self._memory.went_well()
            self._gpu_memory.went_well()
            if watched.first is None:
                self._learn_memory(name, watched, used)
            if not watched.is_judged:
                self._learn_pace(name, watched, used)
                self._review(watched.sharing)

    def _learn_memory(self, name: AttemptId, watched: _Watched, usage: Usage) -> None:
        self._memory.learn(name.trial, watched.params, usage.peak_memory_bytes)
        # Nothing at all is what a driver says that does not know an attempt's processes.
        if held := usage.peak_gpu_memory_bytes:
            self._gpu_memory.learn(name.trial, watched.params, held)

    def _learn_pace(self, name: AttemptId, watched: _Watched, used: Usage) -> None:
        crowd = watched.latest_crowd
        if used.seconds <= 0.0 or crowd is None:
            return
        watched.sharing.learn(
            name.trial,
            watched.params,
            residents=crowd.since(watched.first_crowd or crowd),
            busy=used.busy,
            seconds_per_step=used.seconds_per_step,
        )
        if not watched.is_judged:
            watched.is_judged = True
            watched.sharing.settled(watched.params, watched.level)

    def _review(self, sharing: Sharing) -> None:
        if sharing.device not in self._measured or not sharing.is_known:
            return
        carries = that_fill_a_core(sharing.lately_busy[0])
        if sharing is self._gpus:
            # None is shared where nobody sees what trials hold there.
            carries = MOST_ON_A_GPU if self._gpu_memory.are_known else 1
        before = sharing.most
        if sharing.review(carries):
            self._tell(sharing, is_less=sharing.most < before)

    # --- in words ---------------------------------------------------------------------------

    def _tell(self, sharing: Sharing, *, is_less: bool = False) -> None:
        device = "GPU" if sharing is self._gpus else "core"
        trials = "1 trial" if sharing.most == 1 else f"up to {sharing.most} trials"
        if is_less:
            why = "with more of them there, no more was done in all"
        elif sharing is self._gpus:
            why = f"they hold {self._gpu_memory} of its memory each"
        else:
            # The idlest ones decide; each is given a part by what it is expected to do itself.
            least, most = (f"{each:.2g}" for each in sharing.lately_busy)
            why = f"they keep {least} of one busy"
            if least != most:
                why = f"the idlest keep {least} of one busy, others up to {most}"
        words = f"{trials} per {device} now: {why}"
        if sharing.is_held_back:
            part = "--gpus-per-trial" if sharing is self._gpus else "--cpus-per-trial"
            words += (
                f"; no more, for this search learns from trials that are over, and has only "
                f"{self._search_trials} ({part} 0.25 packs them all the same)"
            )
        if self.is_counting:
            words += f"; {self._memory} of memory each"
            if names := self._memory.depend_on:
                words += f", by {' and '.join(names)}"
        self.words = words

    def _tell_caution(self, kind: str, memory: MemoryNeeds) -> None:
        self.words = (
            f"trials are given {memory.caution:.3g} times the {kind}memory now: one ran out of it"
        )
