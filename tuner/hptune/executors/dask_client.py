"""Clients of a Dask scheduler: connected, refused, or cut off; and the calls of a study to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from distributed import Client, Future

from ..core.attempt import AttemptId
from ..core.messages import WorkerRefused
from ..errors import StudyError, faults_of_others
from ..security.certificates import Identity
from ..security.handshake import why_refused
from ..worker.addresses import refusal
from ..worker.dask import versions
from ..worker.dask.announcement import Announcement
from ..worker.dask.calls import (
    PluginGone,
    announcement,
    refuse,
    remove_plugin,
    run_attempt,
    tell_attempt,
)
from ..worker.dask.dask_settings import silence
from ..worker.dask.encryption import security
from ..worker.dask.plugin import StudyPlugin, task_key
from ..worker.orders import AttemptOrder, ProcessOrder, StopOrder
from .dask_state import Ask, Cancel, DaskState, Refuse, Tell

METADATA = "hptune"
"""Key of the directories of the studies in the scheduler's metadata."""

_CONNECT_SECONDS = 10.0

_ASK_SECONDS = 15.0
"""Time for a worker to join when asked, which may import a lot; after that, it is asked again."""

_AGAIN_SECONDS = 5.0
"""Seconds until an order that did not reach its worker is sent again."""

_STEP_SECONDS = 30.0
"""How long a call to all workers may take; one of them may hang."""


def connect(address: str, *, name: str, identity: Identity | None) -> Client:
    """Return a client of the Dask scheduler at an address; the caller closes it.

    Args:
        address: Such as `tls://node1:8786`.
        name: What the scheduler is to call the client.
        identity: The certificate to show; None for a scheduler without encryption.

    Raises:
        StudyError: There is no scheduler, it refuses the certificate, or is of another version.
    """
    silence()
    if why := refusal(address, timeout_seconds=_CONNECT_SECONDS):
        raise _no_scheduler(address, why)
    if why := why_refused(address, identity, timeout_seconds=_CONNECT_SECONDS):
        raise StudyError(f"no connection to the scheduler at {address}: {why}.")
    with warnings.catch_warnings():
        # Dask's warnings on versions; they are checked below.
        warnings.simplefilter("ignore")
        try:
            client = Client(
                address,
                name=name,
                timeout=_CONNECT_SECONDS,
                set_as_default=False,
                security=security(identity),
            )
        except (OSError, TimeoutError, ValueError, ImportError) as error:
            raise _no_scheduler(address, str(error) or type(error).__name__) from error
    try:
        with lost_scheduler():
            scheduler: Any = client.scheduler
            found = dict(client.sync(scheduler.versions)["packages"])
    except StudyError:
        client.close()
        raise
    found["python"] = ".".join(str(found.get("python", "")).split(".")[:2])
    here = versions.installed()
    different = versions.differences(here, found, ("python", "distributed"))
    if different:
        client.close()
        who = f"the scheduler at {address}"
        raise StudyError(
            f"{versions.text(different, here='this machine', there=who)}. Start the scheduler "
            "from the same environment as the study."
        )
    return client


def studies_of(client: Client) -> list[Path]:
    """Return the directories of the studies that run on a client's scheduler.

    A study whose master was killed is among them until the scheduler ends.
    """
    found = client.get_metadata([METADATA], {})
    return sorted({Path(each) for each in found.values() if each})


def _no_scheduler(address: str, why: str) -> StudyError:
    return StudyError(
        f"no Dask scheduler answers at {address} ({why}). Start one with `hptune scheduler`, which "
        "prints its address; a firewall between the machines may be the cause."
    )


def lost_scheduler(then: str = "start the study again") -> AbstractContextManager[None]:
    """Turn whatever Dask's client raises when its scheduler is gone into one error.

    Args:
        then: What the user is to do when there is a scheduler.

    Raises:
        StudyError: The code within raised something else than an error of hptune.
    """
    lost = f"the connection to the Dask scheduler is lost. Make sure that one runs, then {then}."
    # Depending on the moment it is an OSError, RuntimeError, AttributeError …
    return faults_of_others(lambda *_: StudyError(lost))


class StudyCalls:
    """The calls of a study to the workers of a client, which carry out instructions.

    Args:
        client: The client; it stays open.
        plugin: The study's plugin for the workers.
        state: Its methods are the events that follow.
        deliver: Takes each event, and what it is called with; called from Dask's threads.
    """

    def __init__(
        self, client: Any, plugin: StudyPlugin, state: DaskState, deliver: Callable[..., None]
    ) -> None:
        self.client = client
        self._plugin = plugin
        self._state = state
        self._deliver = deliver
        self._connection = client.scheduler_comm
        self._futures: dict[AttemptId, Future[None]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether no event is missing: those sent until a client has reconnected are."""
        return self.client.status == "running" and self.client.scheduler_comm is self._connection

    def carry_out(self, instruction: Ask | Refuse | AttemptOrder | Tell | Cancel) -> None:
        """Begin to carry out an instruction, without waiting for it; a worker may hang."""
        name, later = self._plugin.name, self.client.loop.add_callback
        match instruction:
            case Ask(workers):
                later(self._ask, workers)
            case Refuse(announced):
                later(self._call, announced.event.worker, refuse, name, announced)
            case AttemptOrder():
                self._submit(instruction)
            case Tell(worker, order):
                later(self._tell, worker, order)
            case Cancel(attempts):
                found = [self._futures.pop(attempt, None) for attempt in attempts]
                later(self.client.cancel, [each for each in found if each], force=True)

    def remove_plugin(self) -> None:
        """Remove the plugin from all workers that answer."""
        self.client.run(remove_plugin, self._plugin.name, on_error="ignore")

    def cancel_all(self) -> None:
        """Have Dask forget all attempts."""
        self.client.cancel([*self._futures.values()], force=True)

    async def _ask(self, workers: tuple[str, ...]) -> None:
        """Install the plugin in these workers.

        Dask's own registration would also give it to workers that come after this process was
        killed, and no worker without hptune could start then.
        """
        # A worker that is still starting answers when it has.
        call = self.client.run(announcement, self._plugin, workers=[*workers], on_error="return")
        with contextlib.suppress(OSError, TimeoutError):
            for worker, answer in (await asyncio.wait_for(call, _ASK_SECONDS)).items():
                if isinstance(answer, Announcement):
                    self._deliver(self._state.announced, answer)
                elif answer is not None and not isinstance(answer, OSError):
                    reason = f"hptune does not run there ({answer!r}); is it installed?"
                    refused = WorkerRefused(0.0, worker, worker, reason)
                    self._deliver(self._state.announced, Announcement(refused))
        for worker in workers:
            # One by one: none of them waits for another that hangs.
            again = self._state.asked_long_ago
            self.client.loop.call_later(_ASK_SECONDS, self._deliver, again, worker)

    async def _call(self, worker: str, function: Callable[..., Any], *arguments: object) -> bool:
        """Have a worker call a function, and return whether it has; the worker may hang."""
        with contextlib.suppress(OSError, TimeoutError):
            return worker in await self.client.run(
                function, *arguments, workers=[worker], on_error="ignore"
            )
        return False

    async def _tell(self, worker: str, order: StopOrder | ProcessOrder) -> None:
        if not await self._call(worker, tell_attempt, self._plugin.name, order):
            self.client.loop.call_later(_AGAIN_SECONDS, self._deliver, self._state.tell, order)

    def _submit(self, order: AttemptOrder) -> None:
        future = self.client.submit(
            run_attempt,
            self._plugin.name,
            order,
            key=task_key(self._plugin.name, order.attempt),
            workers=[order.placement.worker],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        self._futures[order.attempt] = future
        future.add_done_callback(lambda done: self._on_done(order.attempt, done))

    def _on_done(self, attempt: AttemptId, future: Future[None]) -> None:
        self._futures.pop(attempt, None)
        if future.status == "error":  # else the plugin reports the end
            error = future.exception()
            if isinstance(error, PluginGone):
                self._deliver(self._state.plugin_missing, attempt)
            else:
                self._deliver(self._state.task_failed, attempt, repr(error))


def tried(step: Callable[..., object], **options: Any) -> None:
    """Call a function that waits for workers, for a limited time, and ignore its errors.

    If it has not returned by then, it continues in its thread.
    """

    def work() -> None:
        with contextlib.suppress(Exception):
            step(**options)

    thread = threading.Thread(target=work, name="hptune-step", daemon=True)
    thread.start()
    thread.join(_STEP_SECONDS)
