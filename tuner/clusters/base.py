"""Where a run's workers come from if not from this machine: they join a Dask scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..core.messages import Event
from ..core.resources import Resources
from ..core.trial import Attempt
from ..errors import StudyError
from ..worker.addresses import address_of


class Cluster(Protocol):
    """Where a run's workers come from if not from this machine: they join a Dask scheduler.

    `ExistingScheduler` is one that others keep and that workers join of their own accord; another
    one may start them itself. The workforce connects to `address`, and closes it in the end. The
    defaults are those of workers that come and go by themselves.
    """

    @property
    def address(self) -> str:
        """The scheduler's address, such as `tcp://node1:8786`."""

    @property
    def outlives_master(self) -> bool:
        """Whether the workers are still there when the master is gone."""

    @property
    def ends_workers(self) -> bool:
        """Whether the workers end when they are dismissed: nobody else has any use for them."""

    def describe(self) -> str:
        """Where the trials run, in words: "on the workers at tcp://node1:8786"."""

    def start(self, resources: Resources, trials: int) -> None:
        """Begin to find workers for such trials, so many of them at once.

        Raises:
            UsageError: No worker can be had as it was asked for.
        """
        del resources, trials

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> Sequence[str]:
        """See that so many trials can run at once, as far as that is possible; returns at once.

        What the user should know of it comes back in lines.

        Args:
            sizes: How many trials run or could begin now, by what they ask for.
            workers: The addresses of the workers that asked to be let in, and why each was
                refused; empty for those that take trials.

        Raises:
            StudyError: No worker can be had any more.
        """
        del sizes, workers
        return ()

    def drained(self) -> Sequence[str]:
        """The addresses of the workers that are to take no more attempts."""
        return ()

    def heed(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> None:
        """Take note of what happened, and of the attempts that were changed by it."""
        del events, attempts

    def least_workers(self) -> int:
        """How many workers there must be for the first trial, as things stand."""
        return 0

    def dismiss(self) -> None:
        """Let go the workers that it found, before anything that may take long or hang."""

    def abandon(self) -> None:
        """Let them go as far as that takes no time: the master leaves at once."""

    def close(self) -> None:
        """End what it started; may be repeated."""


class ExistingScheduler(Cluster):
    """The workers that joined a scheduler, or will: `hptune worker`, `dask worker` or others.

    Args:
        meeting: The scheduler's address, or the path of the file that it wrote it to.

    Raises:
        StudyError: The file does not tell an address.
    """

    def __init__(self, meeting: str) -> None:
        self._address = address_of(meeting)
        if not self._address:
            raise StudyError(
                f"{meeting} tells no scheduler's address. `hptune scheduler --scheduler-file "
                "FILE` writes one, and removes it in the end."
            )

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return self._address

    @property
    def outlives_master(self) -> bool:
        """They are not ours."""
        return True

    @property
    def ends_workers(self) -> bool:
        """They are not ours."""
        return False

    def describe(self) -> str:
        """Where the trials run, in words."""
        return f"on the workers at {self._address}"

    def dismiss(self) -> None:
        """They are not ours."""

    def abandon(self) -> None:
        """They are not ours."""

    def close(self) -> None:
        """Nothing was started."""
