"""Strong scaling: one CNN, one global batch size, on 1 and 2 processes, bare and under hptune.

    python benchmarks/strong_scaling.py [--rounds 3] [--only torch,jax,tensorflow]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from scaling import case

HERE = Path(__file__).parent
FRAMEWORKS = ("torch", "jax", "tensorflow")
VARIANTS = ("bare", "objective", "keras-bare", "keras")
COUNTS = (1, 2)
LIMIT_SECONDS = 900.0
Record = list[dict[str, Any]]


class RunFailed(Exception):
    """A training ended without all its epochs."""


def main() -> None:
    options = _options()
    chosen = options.only.split(",") if options.only else FRAMEWORKS
    measured: dict[str, list[float]] = {}
    recovered: dict[str, float] = {}
    try:
        for number in range(options.rounds):
            for framework in chosen:
                for variant in VARIANTS:
                    for count in COUNTS if variant != "keras-bare" else (1,):
                        seconds = _epoch_seconds(_run(framework, variant, count))
                        measured.setdefault(f"{framework} {variant} {count}", []).append(seconds)
                        print(f"{number} {framework:10} {variant:10} {count}: {seconds:.3f} s")
        for framework in chosen:
            recovered[framework] = _recovery_seconds(framework)
    except RunFailed as error:
        sys.exit(f"error: {error}")
    print(_table(measured, chosen))
    for framework, seconds in recovered.items():
        print(f"{framework}: {seconds:.1f} s from the death of a rank to the next step")
    result = {
        "machine": _machine(), "measured": measured, "recovery_seconds": recovered,
        "images": case.IMAGES, "batch_size": case.BATCH_SIZE, "epochs": case.EPOCHS,
    }  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"Every measurement: {options.json}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all variants (3)")
    parser.add_argument("--only", help="frameworks, with commas between (all)")
    default = HERE / "results/strong_scaling.json"
    parser.add_argument("--json", type=Path, default=default, help="where the measurements go")
    return parser.parse_args()


# --- one training ---------------------------------------------------------------------------------


def _run(
    framework: str, variant: str, count: int, during: Callable[[Path], None] = lambda _: None
) -> Record:
    """Train by one variant on some processes; return what the ranks recorded.

    Args:
        framework: The framework.
        variant: One of `VARIANTS`.
        count: Number of processes, each on a core of its own.
        during: Called with the record's file while the training runs.
    """
    with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
        record = Path(scratch, "record")
        record.touch()
        environment = {
            **_environment(framework), case.RECORD: str(record), "KERAS_BACKEND": framework,
            "STRONG_SCALING_MODULE": f"plain_{framework}",
        }  # fmt: skip
        if variant in ("bare", "keras-bare"):
            module = "keras_model" if variant == "keras-bare" else f"plain_{framework}"
            processes = _start_bare(framework, module, count, environment, scratch)
        else:
            processes = [_start_hptune(variant, count, environment, scratch)]
        try:
            during(record)
            deadline = time.monotonic() + LIMIT_SECONDS
            for process in processes:
                process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in processes:
                process.kill()
                process.wait()
        found = [json.loads(line) for line in record.read_text().splitlines()]
        ended = [each for each in found if each["kind"] == "epoch" and each["rank"] == 0]
        if {each["number"] for each in ended} != set(range(case.EPOCHS)):
            shown = Path(scratch, "output").read_text()[-3000:]
            raise RunFailed(f"{framework} {variant} {count} trained {len(ended)} epochs\n{shown}")
        return found


def _environment(framework: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, (str(HERE), str(HERE.parent), os.getenv("PYTHONPATH"))))
    environment = {
        **os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
        "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    if framework == "jax":
        environment["JAX_PLATFORMS"] = "cpu"
    return environment


def _start_bare(
    framework: str, module: str, count: int, environment: dict[str, str], scratch: str
) -> list[subprocess.Popen[bytes]]:
    """Start one process per rank on one core each; PyTorch's by torchrun."""
    output = _output(scratch)
    if count > 1 and framework == "torch":
        torchrun = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={count}", str(HERE / "scaling/pinned.py"), module),
        ]
        return [subprocess.Popen(torchrun, env=environment, stdout=output, stderr=output)]
    addresses = [f"127.0.0.1:{_free_port()}" for _ in range(count)]
    processes = []
    for rank in range(count):
        own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        if count > 1:
            task = {"type": "worker", "index": rank}
            own["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
            own["JAX_COORDINATOR_ADDRESS"] = addresses[0]
        command = [sys.executable, str(HERE / "scaling/pinned.py"), module]
        processes.append(subprocess.Popen(command, env=own, stdout=output, stderr=output))
    return processes


def _start_hptune(
    variant: str, count: int, environment: dict[str, str], scratch: str
) -> subprocess.Popen[bytes]:
    file = HERE / "scaling" / ("keras_model.py" if variant == "keras" else "objective.py")
    command = [
        *(sys.executable, "-m", "hptune", "run", str(file), "--trials", "1", "--seed", "1"),
        *("--study", str(Path(scratch, "study")), "--cpus-per-trial", str(count)),
        *("--epochs", str(case.EPOCHS), "--workers", "1", "--processes-per-trial", str(count)),
    ]
    output = _output(scratch)
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=scratch)


def _output(scratch: str) -> int:
    """Return a descriptor of the file that a training's processes write to."""
    return os.open(Path(scratch, "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# --- figures --------------------------------------------------------------------------------------


def _epoch_seconds(record: Record) -> float:
    """Return the median time of an epoch of rank 0, without the first, which compiles."""
    ends = [each["at"] for each in record if each["kind"] == "epoch" and each["rank"] == 0]
    return float(statistics.median(later - end for end, later in pairwise(ends)))


def _recovery_seconds(framework: str) -> float:
    """Kill rank 1 within the second epoch; return the time until the new attempt's first step."""
    died_at = 0.0

    def kill_once(path: Path) -> None:
        nonlocal died_at
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            lines = [json.loads(x) for x in path.read_text().splitlines() if x.endswith("}")]
            epochs = [x for x in lines if x["kind"] == "epoch" and x["rank"] == 0]
            steps = [x for x in lines if x["kind"] == "step" and x["rank"] == 1]
            if epochs and steps and steps[-1]["at"] > epochs[0]["at"]:
                died_at = time.monotonic()
                os.kill(steps[-1]["pid"], signal.SIGKILL)
                return
            time.sleep(0.02)

    record = _run(framework, "keras", 2, kill_once)
    first = next(x["pid"] for x in record if x["rank"] == 0)
    later = [x for x in record if x["kind"] == "step" and x["rank"] == 0 and x["pid"] != first]
    if not later:
        raise RunFailed(f"{framework}: the trial did not begin again")
    return float(later[0]["at"] - died_at)


def _table(measured: dict[str, list[float]], frameworks: Sequence[str]) -> str:
    """Return the medians, and the ratios within each round, as Markdown."""
    lines = [
        "",
        "| framework | variant | 1 process, s | 2 processes, s | efficiency | over bare at 2 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for framework in frameworks:
        for variant in VARIANTS:
            one = measured.get(f"{framework} {variant} 1", [])
            two = measured.get(f"{framework} {variant} 2", [])
            bare = measured[f"{framework} bare 2"]
            efficiency = [a / (2 * b) for a, b in zip(one, two, strict=False)]
            over = [a / b for a, b in zip(two, bare, strict=False)]
            cells = [_median(each) for each in (one, two, efficiency, over)]
            lines.append(f"| {framework} | `{variant}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _median(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.2f}{spread}"


def _machine() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"), "load": os.getloadavg(),
        "cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
        "command": sys.argv,
    }  # fmt: skip


if __name__ == "__main__":
    main()
