"""The kinds of jobs that a study may submit: its shapes, sized for its trials."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .config import Shape
from .errors import ConfigError
from .plan import KindCapacity
from .sizing import MEBIBYTE, Need, WorkerShape


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job, ready to be submitted.

    Attributes:
        shape: Its shape in the slurm.toml.
        worker: The worker on each of a job's nodes.
        job_name: The name of its jobs; no other study's jobs have it.
        script: The job script.
        logs: Where the jobs' output goes, unless the shape says otherwise.
        need: What one of the trials holds that it was sized for.
    """

    shape: Shape
    worker: WorkerShape
    job_name: str
    script: str
    logs: Path
    need: Need = field(default_factory=Need)

    @property
    def log_directory(self) -> Path:
        """Where its output goes."""
        return Path(self.shape.log_directory or self.logs)

    def log_of(self, job_id: str) -> Path:
        """Return the file with the output of a job."""
        return self.log_directory / f"{self.job_name}-{job_id}.log"

    def make_log_directory(self) -> None:
        """Make the folder of its output.

        Raises:
            ConfigError: It cannot be made.
        """
        try:
            self.log_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the jobs' output is to go to {self.log_directory}, which cannot be made: "
                f"{error.strerror}; name another log_directory"
            ) from error

    def trials_of(self, need: Need) -> int:
        """Return how many such trials a job holds at once, each counted once for each node."""
        worker = self.worker
        on_a_node = worker.trials if need == self.need else worker.how_many_fit(need)
        # A trial on several nodes runs on those of one job, which differ and start together.
        return on_a_node * (self.shape.nodes // need.nodes) * need.nodes


def size_suffix(need: Need) -> str:
    """Return the suffix of the names of jobs that are sized for such trials.

    A later master of the study, whose trials may be larger, knows by it what jobs hold.

    >>> size_suffix(Need(cpus=4, gpus=0.5, memory_bytes=8 * 2**30))
    '.4c0.5g8192M'
    >>> size_suffix(Need(gpus=1, nodes=2))
    '.1c1g0M2n'
    >>> size_suffix(Need(gpus=1, takes_cores_of_gpus=True))
    '.1c1g0Mp'
    """
    each = need.processes if need.processes > 1 else ""
    gpus = f"any{each}" if need.gpus is None else f"{need.gpus:g}"
    nodes = f"{need.nodes}n" if need.nodes > 1 else ""
    part = "p" if need.takes_cores_of_gpus else ""
    return f".{need.cpus}c{gpus}g{need.memory_bytes // MEBIBYTE}M{nodes}{part}"


def need_of(job_name: str) -> Need | None:
    """Return the need that such a job's name states; None if it states none.

    >>> need_of("hptune-a-gpu.4c0.5g8192M") == Need(4, 0.5, 8 * 2**30)
    True
    """
    found = re.search(r"\.(\d+)c(?:([\d.]+)|any(\d*))g(\d+)M(?:(\d+)n)?(p?)$", job_name)
    if found is None:
        return None
    cpus, gpus, processes, memory, nodes, part = found.groups()
    return Need(
        int(cpus),
        None if gpus is None else float(gpus),
        int(memory) * MEBIBYTE,
        int(processes or 1),
        int(nodes or 1),
        takes_cores_of_gpus=bool(part),
    )


class JobKinds(Mapping[str, JobKind]):
    """The kinds by their jobs' names; `prepare` adds kinds for trials of other sizes.

    Args:
        usual: The kinds for the study's usual trials; or give them to `begin`.
        sized: Makes the kinds for other trials, with names of their own.
    """

    def __init__(
        self,
        usual: Sequence[JobKind] = (),
        sized: Callable[[Need], Sequence[JobKind]] = lambda _: (),
    ) -> None:
        self._kinds: dict[str, JobKind] = {}
        self._usual = Need()
        self._sized = sized
        self._prepared: dict[Need, str] = {}
        if usual:
            self.begin(usual)

    def begin(self, usual: Sequence[JobKind]) -> None:
        """Take the kinds for the study's usual trials, at least one."""
        self._kinds = {kind.job_name: kind for kind in usual}
        self._usual = usual[0].need
        self._prepared = {self._usual: ""}

    def __getitem__(self, name: str) -> JobKind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def shapes(self) -> tuple[str, ...]:
        """The names of the kinds' shapes, in order."""
        return tuple(dict.fromkeys(kind.shape.name for kind in self._kinds.values()))

    def prepare(self, need: Need) -> str:
        """Add kinds that hold such a trial; returns why there is none, or an empty text.

        A shape that has a kind which holds the trial gets no other.
        """
        if need not in self._prepared:
            self._prepared[need] = self._add(need)
        return self._prepared[need]

    def adopt(self, job_name: str) -> bool:
        """Return whether jobs of this name, which an earlier master left, can be used."""
        if job_name not in self._kinds and (need := need_of(job_name)) is not None:
            self._add(need, job_name)
        return job_name in self._kinds

    def _add(self, need: Need, job_name: str = "") -> str:
        """Add kinds for such a trial to shapes that hold none, and to a job's if usual ones fit."""
        holding = {kind.shape.name for kind in self._kinds.values() if kind.trials_of(need)}
        try:
            more = self._sized(need)
        except ConfigError as error:
            return "" if holding else str(error)
        new = {
            each.job_name: each
            for each in more
            if each.shape.name not in holding
            or (each.job_name == job_name and each.trials_of(self._usual))
        }
        # In one step, because other threads may read it.
        self._kinds = {**self._kinds, **new}
        return ""

    def wanted(self, usual: int, others: Mapping[Need, int]) -> dict[Need, int]:
        """Return how many trials of each size are wanted, the largest first, the usual ones last.

        A trial that needs several nodes counts once for each.

        Args:
            usual: How many trials of the usual size.
            others: How many trials of other sizes.
        """
        sizes = sorted(others, key=lambda n: (n.gpus or 0, n.memory_bytes, n.cpus), reverse=True)
        found = {need: others[need] for need in sizes if need != self._usual}
        found[self._usual] = usual + others.get(self._usual, 0)
        return {need: count * need.nodes for need, count in found.items()}

    def to_plan(
        self, wanted: Iterable[Need], is_open: Callable[[JobKind], bool]
    ) -> list[KindCapacity[Need]]:
        """Return the kinds as `plan` needs them.

        Args:
            wanted: The sizes of the trials.
            is_open: Whether more jobs of a kind may be submitted.
        """
        return [
            KindCapacity(
                name,
                {need: kind.trials_of(need) for need in wanted},
                kind.shape.name,
                kind.shape.max_jobs if is_open(kind) else 0,
            )
            for name, kind in self._kinds.items()
        ]
