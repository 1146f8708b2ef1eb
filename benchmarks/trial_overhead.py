"""Overhead of a tool per short trial: the same trials, bare and under each tool.

    python benchmarks/trial_overhead.py [--peers PEERS_PYTHON] [--rounds 8] [--only bare,hptune]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
from overhead.figures import figures, table
from overhead.runner import (
    Measurement,
    RunFailed,
    adopt_orphans,
    counts_instructions,
    run,
)
from overhead.variants import VARIANTS, Variant

CORES = 2
# Equal seeds on one thread should give equal weights; half an image of the 360 is for rounding.
TOLERANCE = 0.5 / 360
PACKAGES = ("tensorflow", "keras", "numpy", "scikit-learn", "hptune", "distributed")
PEER_PACKAGES = ("tensorflow", "keras", "numpy", "scikit-learn", "ray", "optuna", "keras-tuner")
VERSIONS_CODE = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({"python": sys.version.split()[0]} | {n: version(n) for n in sys.argv[1:]}))
"""
HERE = Path(__file__).parent


def main() -> None:
    options = _options()
    own = Path(sys.executable)
    peers: Path | None = options.peers
    chosen = _choose(options.only, peers)
    pythons = {v.name: (peers if v.is_peer and peers else own) for v in chosen}
    try:
        machine = _machine(own, peers if any(v.is_peer for v in chosen) else None)
        adopt_orphans()
        measurements = _measure(chosen, pythons, options.trials, options.rounds)
    except RunFailed as error:
        sys.exit(f"error: {error}")

    difference = _largest_difference(measurements)
    found = figures(
        measurements, counts=options.trials, processes={v.name: v.processes for v in chosen}
    )
    _say_machine(machine)
    rounds = f"{options.rounds} round{'s' if options.rounds > 1 else ''}"
    print(f"{rounds}. Seconds of a run: median (least to greatest); others: 95 % intervals.")
    print(f"Largest difference from bare's accuracies: {difference:.2g}.\n")
    unit = "10⁹ instructions" if counts_instructions() else "CPU s"
    print(table(found, counts=options.trials, unit=unit))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": machine,
        "counts": options.trials,
        "largest_accuracy_difference": difference,
        "figures": {name: dataclasses.asdict(value) for name, value in found.items()},
        "measurements": [dataclasses.asdict(m) for m in measurements],
    }
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nEvery measurement: {options.json}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default_peers = HERE.parent / ".venv-peers/bin/python"
    parser.add_argument(
        "--peers",
        # Not resolved: a virtual environment's python is a link out of it.
        type=lambda path: Path(path).absolute(),
        default=default_peers if default_peers.exists() else None,
        help="Python of the peers' environment [.venv-peers/bin/python if it exists]",
    )
    parser.add_argument("--rounds", type=int, default=8, help="how often all is measured [8]")
    parser.add_argument("--only", help="comma-separated names, bare always among them [all]")
    parser.add_argument(
        "--trials", type=int, nargs=2, default=(6, 18), help="the two numbers of trials [6 18]"
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=HERE / "results/trial_overhead.json",
        help="where every measurement is written [benchmarks/results/trial_overhead.json]",
    )
    options = parser.parse_args()
    small, large = options.trials = tuple(options.trials)
    if not 2 <= small < large:
        parser.error(f"--trials is {small} {large}: the first must be 2 or more, the second larger")
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}: allowed are 1 or more")
    return options


def _choose(only: str | None, peers: Path | None) -> list[Variant]:
    """Return the variants to run, bare first; all that can run if none is named."""
    names = [v.name for v in VARIANTS]
    if only is None:
        wanted = {v.name for v in VARIANTS if peers or not v.is_peer}
    else:
        wanted = {"bare", *only.split(",")}
        if unknown := sorted(wanted.difference(names)):
            sys.exit(f"error: --only names {', '.join(unknown)}; there are: {', '.join(names)}")
    chosen = [v for v in VARIANTS if v.name in wanted]
    if peers is None and any(v.is_peer for v in chosen):
        sys.exit(
            "error: the peers need an environment of their own. Make it with\n"
            "    python -m venv .venv-peers\n"
            "    .venv-peers/bin/pip install -r benchmarks/requirements-peers.txt"
        )
    return chosen


def _measure(
    chosen: Sequence[Variant], pythons: dict[str, Path], counts: tuple[int, int], rounds: int
) -> list[Measurement]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < CORES:
        raise RunFailed(f"this process may use {len(cores)} core; the benchmark needs {CORES}")
    os.sched_setaffinity(0, cores[:CORES])
    # Unmeasured: fills the file cache, compiles modules, and fails early if something is missing.
    for variant in chosen:
        _progress(f"warm-up, {variant.name}")
        run(variant, python=pythons[variant.name], trials=2, round_number=0)
    measurements = []
    for number in range(1, rounds + 1):
        for trials in counts:
            # A machine that becomes slower meanwhile is no disadvantage of the same one each time.
            for variant in chosen if number % 2 else chosen[::-1]:
                found = run(
                    variant, python=pythons[variant.name], trials=trials, round_number=number
                )
                _progress(
                    f"round {number}, {variant.name}, {trials} trials: {found.wall_seconds:.1f} s "
                    f"(CPU {found.cpu_seconds:.1f} s, "
                    f"first epoch after {found.first_epoch_seconds:.1f} s)"
                )
                measurements.append(found)
    return measurements


def _largest_difference(measurements: Sequence[Measurement]) -> float:
    """Return the largest difference of an accuracy from bare's; exit if it is too large."""
    reference = max((m for m in measurements if m.variant == "bare"), key=lambda m: m.trials)
    worst = 0.0
    for found in measurements:
        for case, accuracy in found.accuracies.items():
            difference = abs(accuracy - reference.accuracies[case])
            if not difference <= TOLERANCE:
                sys.exit(
                    f"error: {found.variant} trained case {case} to {accuracy:.4f}, bare to "
                    f"{reference.accuracies[case]:.4f}: they did not run the same trial"
                )
            worst = max(worst, difference)
    return worst


def _machine(own: Path, peers: Path | None) -> dict[str, object]:
    versions = _versions(own, PACKAGES)
    peer_versions = _versions(peers, PEER_PACKAGES) if peers else None
    if peer_versions and peer_versions["tensorflow"] != versions["tensorflow"]:
        raise RunFailed(
            f"TensorFlow is {versions['tensorflow']} here and {peer_versions['tensorflow']} in "
            f"the peers' environment; install the same version in both"
        )
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_used": CORES,
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "load_at_start": os.getloadavg()[0],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.argv]),
        "versions": versions,
        "peer_versions": peer_versions,
    }


def _versions(python: Path, packages: Sequence[str]) -> dict[str, str | None]:
    command = [str(python), "-c", VERSIONS_CODE, *packages]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    versions: dict[str, str | None] = json.loads(found.stdout)
    return versions


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _say_machine(machine: dict[str, object]) -> None:
    print(f"\n{machine['cpu']}, {machine['cores']} cores ({CORES} used), {machine['system']}")
    for title in ("versions", "peer_versions"):
        versions = machine[title]
        if isinstance(versions, dict):
            known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
            print(f"{'hptune' if title == 'versions' else 'peers'}: {known}")
    print(f"{machine['date']}, load at the start {machine['load_at_start']:.2f}")
    print(f"Command: {machine['command']}\n")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
