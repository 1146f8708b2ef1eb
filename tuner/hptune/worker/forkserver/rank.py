"""The process of one rank of a parallel attempt: its ports, and how it meets the other ranks."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.attempt import Cause, Ending, Halt
from ...core.meeting import Member, RankReady
from ...training.ports import ReservedPorts
from .. import devices
from ..addresses import interface_name
from ..orders import AttemptOrder, MeetOrder, RankOrder
from . import environment

if TYPE_CHECKING:
    from ...training.parallel.ranks import Ranks

_POLL_SECONDS = 0.1
_ENDS_IN_STEP = (Cause.RETURNED, *(halt.cause for halt in Halt))


class Rank:
    """What makes an attempt's process one rank of several.

    A trace::

        ready()      reserves its ports; what it returns goes to the executor
        told(order)  the executor answers, by a thread
        meet(…)      connects to the other ranks, and sets the environment of the frameworks
        finish(…)    the training is over: waits for rank 0, so that no rank ends before it

    Args:
        order: The rank's order.
        parallel: Its part that the ranks share.

    Raises:
        OSError: No port can be had.
    """

    def __init__(self, order: AttemptOrder, parallel: RankOrder) -> None:
        self._order = order
        self._parallel = parallel
        outside = "" if parallel.is_on_one_node else parallel.host
        self._host = outside or environment.LOOPBACK
        self._ports = ReservedPorts(self._host)
        self._meetings: queue.SimpleQueue[MeetOrder] = queue.SimpleQueue()
        self._ranks: Ranks | None = None

    def ready(self) -> RankReady:
        """Return the message that the process runs, and where the others reach it."""
        number = self._order.attempt.rank
        member = Member(number, self._host, devices.node(), self._ports.ports)
        return RankReady(0.0, self._order.attempt, os.getpid(), member)

    def told(self, order: MeetOrder) -> None:
        """Take the order to meet; may be called from another thread."""
        self._meetings.put(order)

    def meet(self, check: Callable[[], None]) -> Ranks:
        """Wait for the order to meet, and connect to the other ranks.

        The environment variables that frameworks expect are set then.

        Args:
            check: Called while waiting; may raise to give up.

        Raises:
            RankLost: Another rank cannot be reached.
        """
        from ...training.parallel.ranks import Ranks

        while True:
            check()
            try:
                members = self._meetings.get(timeout=_POLL_SECONDS).members
                break
            except queue.Empty:
                continue
        placement = self._order.placement
        self._ranks = Ranks.connect(
            self._order.attempt.rank,
            members,
            self._ports,
            secret=self._parallel.secret,
            cpus=placement.cpus,
            gpus=placement.gpus,
            check=check,
        )
        is_on_one_node = self._parallel.is_on_one_node
        interface = "" if is_on_one_node else interface_name(self._host)
        os.environ |= environment.of_rank(self._ranks, interface, os.environ)
        return self._ranks

    def finish(self, ending: Ending) -> None:
        """Wait for rank 0 to end, if it ends in step with this rank.

        A framework takes a process that ends earlier for a failed one.

        Raises:
            RankLost: Rank 0 is gone.
            RanksOutOfStep: Rank 0 trains on.
        """
        if self._ranks is not None and ending.cause in _ENDS_IN_STEP:
            self._ranks.finish()

    @staticmethod
    def exit_if_failed(ending: Ending) -> None:
        """End the process at once after a failure.

        What frameworks do at exit waits for all ranks, of which one may be gone.
        """
        if ending.cause not in _ENDS_IN_STEP:
            os._exit(0)
