"""What a study costs the machines that others use too: for the people who run a cluster.

    python benchmarks/footprint.py                                  # on this machine
    python benchmarks/footprint.py --slurm slurm.toml               # on your Slurm
    python benchmarks/footprint.py --private-slurm --trials 100 --seconds 36

A study of trials that only wait and report runs as a user would start it. Printed are: the calls
of Slurm's commands, in all and in the busiest minute; memory and processor time of the master and
of its helper processes on this machine; the ports on which the master listens; the files and
directories in the study, and what is left in the temporary directory; and for which share of the
time of the jobs' cores a trial trained, with the gaps between two trials.
`--private-slurm` starts a Slurm of three nodes on this machine, as the tests do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0
JOBS_SECONDS = 5.0
"""Time between two questions for the jobs' times, which are not counted as calls."""

COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")

MODEL = """
import os
import time

OBJECTIVE = "loss:min"


def objective(hp, trial):
    began = time.time()
    x = hp.Float("x", 0.0, 1.0)
    for step in range(1, {steps} + 1):
        time.sleep({seconds} / {steps})
        trial.report(step, loss=x / step)
    with open({times!r}, "a") as file:
        file.write(f"{{os.environ.get('SLURM_JOB_ID', '-')}} {{began}} {{time.time()}}\\n")
    return {{"loss": x}}
"""

PRIVATE = """partition = "gpu"
walltime = "02:00:00"
interface = "lo"
trials_per_job = 1
"""


@dataclass
class Usage:
    """What the processes of the run used on this machine.

    Attributes:
        memory: Most resident memory of a process, in bytes, by what it is.
        cpu: Processor seconds of each process, by what it is and its id.
        ports: The addresses on which the master listens.
        after_start: Processor seconds in the first minute, with all imports.
    """

    memory: Counter[str] = field(default_factory=Counter)
    cpu: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    ports: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.time)
    after_start: dict[str, float] = field(default_factory=dict)

    def spent(self, what: str) -> float:
        """Return the processor seconds so far."""
        return sum(self.cpu[what].values())

    def look(self, master: psutil.Process) -> None:
        """Measure once."""
        for process in (master, *master.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                if process.name() not in COMMANDS:
                    what = "master" if process.pid == master.pid else "its helpers"
                    self.memory[what] = max(self.memory[what], process.memory_info().rss)
                    times = process.cpu_times()
                    self.cpu[what][process.pid] = times.user + times.system
        if time.time() - self.began > START_SECONDS and not self.after_start:
            self.after_start = {what: self.spent(what) for what in self.cpu}
        with contextlib.suppress(psutil.Error):
            for each in master.net_connections(kind="inet"):
                if each.status == psutil.CONN_LISTEN:
                    self.ports.add(f"{each.laddr.ip}:{each.laddr.port}")


@dataclass
class Jobs:
    """The jobs of the study, as Slurm shows them.

    Attributes:
        squeue: Slurm's command, not the one that is counted; None where there is no Slurm.
        environment: What points it at Slurm.
        times: Of each job that has started: begin, end so far, and cores.
    """

    squeue: str | None
    environment: Mapping[str, str]
    times: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    asked_at: float = 0.0

    def look(self) -> None:
        """Ask for the jobs, unless it is too early."""
        if self.squeue is None or time.time() - self.asked_at < JOBS_SECONDS:
            return
        self.asked_at = now = time.time()
        command = [self.squeue, "--noheader", "--states=all", "-o", "%A|%j|%S|%e|%C"]
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment, "SLURM_TIME_FORMAT": "%s"},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            job, name, start, end, cores = line.strip().split("|")
            if name.startswith("hptune-study-") and start.isdigit() and int(start) <= now:
                # Of a job that runs, Slurm shows the end of its walltime.
                until = min(now, int(end)) if end.isdigit() else now
                self.times[job] = (float(start), until, int(cores))

    def print_use(self, times: Path) -> None:
        """Print the share of the allocated time in which trials trained."""
        if not self.times:
            return
        trials = [
            (job, float(begin), float(end))
            for job, begin, end in map(str.split, times.read_text().splitlines())
        ]
        first, last = min(each[1] for each in trials), max(each[2] for each in trials)
        trained = sum(end - begin for _, begin, end in trials)
        allocated = sum((end - begin) * cores for begin, end, cores in self.times.values())
        between = sum(
            max(0.0, min(end, last) - max(begin, first)) * cores
            for begin, end, cores in self.times.values()
        )
        print(
            f"trials trained              {trained / allocated:.1%} of the "
            f"{allocated / 3600:.2f} allocated core hours, {trained / between:.1%} of those from "
            "the first start of a trial to the last end"
        )
        gaps, starts, free = list[float](), dict[str, float](), defaultdict[str, list[float]](list)
        for job, begin, end in sorted(trials, key=lambda each: each[1]):
            starts.setdefault(job, begin - self.times.get(job, (begin, 0.0, 0))[0])
            if before := [each for each in free[job] if each <= begin]:
                gaps.append(begin - max(before))
                free[job].remove(max(before))
            free[job].append(end)
        for what, found in (
            ("between two trials", gaps),
            ("from a job's start", list(starts.values())),
        ):
            if found:
                print(
                    f"  {what:26}{statistics.median(found):.2f} s in the median, "
                    f"{max(found):.2f} s at most"
                )


def logging_commands(folder: Path) -> Path:
    """Make commands that write a line for each call and then run Slurm's; return the log."""
    log = folder / "calls"
    log.touch()
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in COMMANDS:
        if real := shutil.which(name):
            file = bin_folder / name
            entry = f'"$(date +%s) {name} ${{SLURM_JOB_ID:-0}}"'
            file.write_text(f'#!/bin/sh\necho {entry} >> {log}\nexec {real} "$@"\n')
            file.chmod(0o755)
    return log


def print_calls(log: Path, wall_seconds: float) -> None:
    """Print how often Slurm was asked."""
    calls = [line.split() for line in log.read_text().splitlines()]
    names = Counter(name for _, name, job in calls if job == "0")
    by_jobs = sum(job != "0" for _, _, job in calls)
    times = [int(second) for second, _, job in calls if job == "0"]
    busiest = max((sum(0 <= other - one < 60 for other in times) for one in times), default=0)
    shown = ", ".join(f"{count} {name}" for name, count in names.most_common()) or "none"
    print(f"calls of Slurm's commands   {shown}; by jobs: {by_jobs}")
    minutes = max(1.0, wall_seconds / 60)
    print(f"  a minute                  {len(times) / minutes:.1f}, {busiest} in the busiest")


def print_files(study: Path, trials: int) -> None:
    """Print what lies in the study's directory."""
    found = list(study.rglob("*"))
    files = [path for path in found if path.is_file()]
    folders = [path for path in found if path.is_dir()]
    size = sum(path.stat().st_size for path in files)
    print(f"in the study at its end     {len(files)} files, {len(folders)} directories, "
          f"{size / 1e6:.2f} MB for {trials} trials")  # fmt: skip


@contextlib.contextmanager
def slurm(options: argparse.Namespace, folder: Path) -> Iterator[Mapping[str, str]]:
    """Give the environment of Slurm's commands; starts one if asked to."""
    if not options.private_slurm:
        yield {}
        return
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from private_slurm import SYSTEM_PATHS, PrivateSlurm

    (folder / "slurm.toml").write_text(PRIVATE)
    options.slurm = folder / "slurm.toml"
    os.environ["PATH"] += f":{SYSTEM_PATHS}"
    private = PrivateSlurm()
    private.start()
    try:
        yield private.environment
    finally:
        private.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="of a trial (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a trial (default: 5)")
    parser.add_argument("--slurm", type=Path, metavar="FILE", help="a slurm.toml")
    parser.add_argument("--private-slurm", action="store_true", help="start a Slurm here")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="footprint-") as name,
        slurm(options, Path(name)) as environment,
    ):
        _measure(options, Path(name), environment)


def _measure(options: argparse.Namespace, folder: Path, environment: Mapping[str, str]) -> None:
    times = folder / "times"
    model = MODEL.format(steps=options.steps, seconds=options.seconds, times=str(times))
    (folder / "model.py").write_text(model)
    temporary = folder / "tmp"
    temporary.mkdir()
    log = logging_commands(folder)
    jobs = Jobs(shutil.which("squeue") if options.slurm else None, environment)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    command = [
        *(sys.executable, "-m", "hptune", "run", str(folder / "model.py"), "--search", "random"),
        *("--pruner", "none", "--cpus-per-trial", "1"),
        *("--trials", str(options.trials), "--study", str(folder / "study")),
    ]
    if options.slurm:
        command += ["--slurm", str(options.slurm), "--gpus-per-trial", "0"]
    usage, began = Usage(), time.time()
    run = subprocess.Popen(
        command,
        env={**os.environ, **environment, "PATH": path, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    print(f"running {options.trials} trials of {options.seconds:g} s …", file=sys.stderr)
    master = psutil.Process(run.pid)
    while run.poll() is None:
        with contextlib.suppress(psutil.Error):
            usage.look(master)
        jobs.look()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(1.0)
    seconds = time.time() - began
    if run.returncode:
        sys.exit(run.stderr.read().decode() if run.stderr else "the study failed")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    print(
        f"{options.trials} trials of {options.seconds:g} s and {options.steps} reports in "
        f"{seconds / 60:.1f} minutes; {machine}, load {os.getloadavg()[0]:.1f}"
    )
    print_calls(log, seconds)
    for what, most in usage.memory.items():
        early = usage.after_start.get(what, usage.spent(what))
        later = (usage.spent(what) - early) / max(seconds - START_SECONDS, 1.0)
        print(
            f"{what:28}{most / 1e6:.0f} MB at most in a process; {early:.1f} s of a core in the "
            f"first minute, then {later:.1%} of one"
        )
    jobs.print_use(times)
    print(f"listens on                  {', '.join(sorted(usage.ports)) or 'no port'}")
    print_files(folder / "study", options.trials)
    print(f"left in $TMPDIR             {len(list(temporary.rglob('*')))} files and directories")


if __name__ == "__main__":
    main()
