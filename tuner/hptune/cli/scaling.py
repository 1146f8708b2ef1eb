"""The command that measures how a model scales: scaling."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config.kinds import duration
from ..core.kinds import Kind, named_once
from ..core.table import Section
from ..errors import UsageError, how_to_install
from .commands import KindType, PathType, SectionedCommand, WholeNumber, option_in, path_option
from .options import setting_options
from .output import echo

if TYPE_CHECKING:
    from ..config.asked import Asked
    from ..master.scaling import ScalingRequest
    from ..scaling.curve import Mode, ScalingCurve
    from ..user_code.source import ObjectiveSource

_BACKENDS = ("tensorflow", "jax", "torch")
_FORMATS = (".md", ".html")


_ALL = "all backends"


def _devices(given: str | tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of devices in a text, with commas between, increasing."""
    if isinstance(given, tuple):
        return given
    parts = [each.strip() for each in given.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal()]
    is_increasing = all(a < b for a, b in zip([0, *numbers], numbers, strict=False))
    if len(numbers) < len(parts) or not is_increasing:
        raise ValueError
    return tuple(numbers)


def _backends(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of Keras's backends in a text, with commas between."""
    if isinstance(given, tuple):
        return given
    names = tuple(each.strip() for each in given.split(","))
    for name in names:
        if name not in _BACKENDS:
            raise ValueError(f"{name!r} is given; allowed are {', '.join(_BACKENDS)}")
    if len(set(names)) < len(names):
        raise ValueError(f"{given!r} names a backend twice")
    return names


_DEVICES = Kind("N,N,…", "increasing whole numbers from 1 on, such as 1,2,4", _devices)
_COMPARE = Kind("NAME,…", ", ".join(_BACKENDS), _backends)


@click.command(
    cls=SectionedCommand, short_help="Measure how a model scales over cores, GPUs or nodes."
)
@click.argument("model_file", type=PathType(path_type=Path))
@option_in(
    Section.AMOUNT,
    "--devices",
    type=KindType(_DEVICES),
    default="1,2",
    show_default=True,
    help="Numbers of devices to measure: GPUs, or cores of workers without GPUs. Each has a "
    "process of its own, unless --one-process is given.",
)
@option_in(
    Section.AMOUNT,
    "--one-process",
    "in_one_process",
    is_flag=True,
    help="Let one process have all devices, as `hptune run --gpus-per-trial 2` does; for JAX and "
    "TensorFlow.",
)
@option_in(
    Section.AMOUNT,
    "--mode",
    type=click.Choice(["strong", "weak", "both"]),
    default="both",
    show_default=True,
    help="strong: all devices together train the batch of one; weak: each trains a whole batch.",
)
@option_in(
    Section.AMOUNT,
    "--compare",
    type=KindType(_COMPARE),
    help="Backends of Keras to measure: tensorflow, jax, torch.  [default: that of the model file]",
)
@option_in(
    Section.AMOUNT,
    "--batch-size",
    type=WholeNumber(min=1),
    metavar="N",
    help="Samples of a step on one device; in strong scaling, of all devices together.  [default: "
    "those of the model's own fit]",
)
@option_in(
    Section.AMOUNT,
    "--repeats",
    type=WholeNumber(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="How often each point is measured, each time in fresh processes.",
)
@option_in(
    Section.AMOUNT,
    "--timeout",
    "timeout_seconds",
    type=KindType(duration()),
    default=300.0,
    help="Longest time to measure, of all backends together; what is known by then is shown.  "
    "[default: 5m]",
)
@option_in(
    Section.AMOUNT,
    "--efficiency",
    type=WholeNumber(1, 100),
    default=80,
    show_default=True,
    metavar="PERCENT",
    help="Efficiency that is worth the devices; the batch at which it is reached is shown.",
)
@option_in(
    Section.PLACE,
    "--python",
    "pythons",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Python whose environment has the frameworks, or that of one backend, such as "
    "jax=envs/jax/bin/python; hptune must be installed there. May be repeated.",
)
@setting_options("entry", "connect", "certs", "insecure", "slurm")
@path_option("--study", metavar="DIR", text="Keep the result in this study, whose report shows it.")
@path_option("--json", "json_file", text="Write JSON.")
@path_option("-o", "--output", text="Write a report: .html with figures, or .md.")
def scaling(
    model_file: Path,
    *,
    devices: tuple[int, ...],
    in_one_process: bool,
    mode: str,
    compare: tuple[str, ...] | None,
    batch_size: int | None,
    repeats: int,
    timeout_seconds: float,
    efficiency: int,
    pythons: Sequence[str],
    study: Path | None,
    json_file: Path | None,
    output: Path | None,
    **place: Any,
) -> None:
    """Measure how the training of MODEL_FILE scales over several devices.

    \b
    hptune scaling model.py --devices 1,2,4
    hptune scaling model.py --compare jax,torch -o report.html

    A few seconds of training steps are timed at each number of devices, with the default
    hyperparameters, so it takes minutes. Nothing is trained to its end.
    """
    from ..core.step_request import check_divides
    from ..master.scaling import ScalingRequest
    from ..scaling.curve import Mode
    from ..scaling.measurer import MeasuringPlan
    from ..scaling.texts import scaling_text
    from ..user_code.model_file import check_path

    _check_files(json_file, output, study)
    named = _pythons(pythons, compare)
    source = check_path(model_file, next(iter(named.values()), ""))
    given = {name: value for name, value in place.items() if value is not None}
    plan = MeasuringPlan(
        devices=devices,
        modes=tuple(Mode) if mode == "both" else (Mode(mode),),
        repeats=repeats,
        seconds=timeout_seconds / max(1, len(compare or ())),
        batch=batch_size,
    )
    requests = [
        ScalingRequest(
            asked=_asked(source, backend, named, given),
            plan=plan,
            in_one_process=in_one_process,
            is_compared=bool(backend),
        )
        for backend in compare or ("",)
    ]
    if batch_size is not None:
        check_divides(batch_size, plan.divisors)
    curves: list[ScalingCurve] = []
    try:
        _measure(requests, curves.append)
    finally:
        if curves:  # a backend that fails takes nothing from those before it
            echo(scaling_text(curves, modes=plan.modes, efficiency=efficiency / 100))
            _write(
                curves,
                plan.modes,
                efficiency / 100,
                json_file=json_file,
                output=output,
                study=study,
            )


def _check_files(json_file: Path | None, output: Path | None, study: Path | None) -> None:
    """Check where the results go, before minutes of measuring.

    Raises:
        UsageError: A file has another ending, or cannot be written.
        NoStudyError: There is no study.
    """
    from ..storage.directory import StudyDirectory
    from ..storage.whose import Use

    if output is not None and output.suffix.lower() not in _FORMATS:
        raise UsageError(
            f"{output} ends with {output.suffix or 'nothing'}; allowed are {' and '.join(_FORMATS)}"
        )
    for file in (json_file, output):
        if file is None:
            continue
        if not file.absolute().parent.is_dir():
            raise UsageError(f"{file} cannot be written: there is no folder {file.parent}")
        if file.is_dir():
            raise UsageError(f"{file} cannot be written: it is a folder")
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise UsageError(f"{file} cannot be written: permission denied")
    if study is not None:
        StudyDirectory(study).open(Use.WRITE)


def _pythons(given: Sequence[str], compare: Sequence[str] | None) -> Mapping[str, str]:
    """Return the Python of each backend; that of `_ALL` is for all others."""
    pythons = []
    for each in given:
        name, sign, path = each.partition("=")
        if not sign:
            name, path = _ALL, each
        elif name not in (compare or ()):
            raise UsageError(
                f"--python {each} is for the backend {name!r}; allowed are those of --compare"
                + (f": {', '.join(compare)}" if compare else ", which is not given")
            )
        pythons.append((name, path))
    return named_once(pythons, "--python")


def _asked(
    source: ObjectiveSource, backend: str, pythons: Mapping[str, str], place: Mapping[str, Any]
) -> Asked:
    from ..config.asked import asked
    from ..config.settings import StudySettings

    python = pythons.get(backend, pythons.get(_ALL, ""))
    request = asked(
        StudySettings(
            source=replace(source, backend=backend or source.backend),
            python=python,
            pack="off",
            **place,
        )
    )
    is_here = not python and request.cluster.is_local
    if backend and is_here and importlib.util.find_spec(backend) is None:
        raise UsageError(
            f"--compare asks for {backend}, which is not installed: {how_to_install(backend)}; or "
            f"name an environment that has it: --python {backend}=PATH"
        )
    return request


def _measure(requests: Sequence[ScalingRequest], keep: Callable[[ScalingCurve], object]) -> None:
    """Measure all backends; `keep` takes the curve of each as soon as it is known."""
    from ..files.file_errors import storage_errors
    from ..master.scaling import measure
    from ..master.stop_requests import end_process, interrupt_on_signals
    from ..reporting.terminal.display import progress_on
    from ..storage.directory import StudyDirectory
    from ..worker.private_folder import NAME, create_folder

    # Workers on other machines see the folder of studies, but not this machine's /tmp.
    parent = None if requests[0].asked.cluster.is_local else Path("studies")
    with storage_errors(parent or Path(tempfile.gettempdir())):
        scratch = create_folder(
            str(parent) if parent else None, prefix=f"{NAME}scaling-"
        ).absolute()

    def clear() -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        if parent is not None:
            with contextlib.suppress(OSError):  # it has studies
                parent.rmdir()

    def end() -> None:
        clear()
        end_process()

    # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that workers and folders are removed.
    with interrupt_on_signals(end):
        try:
            for number, request in enumerate(requests, start=1):
                with progress_on(sys.stderr) as progress:
                    curve = measure(
                        request, StudyDirectory(scratch / f"scaling-{number}"), progress
                    )
                keep(curve)
        finally:
            clear()


def _write(
    curves: Sequence[ScalingCurve],
    modes: Sequence[Mode],
    efficiency: float,
    *,
    json_file: Path | None,
    output: Path | None,
    study: Path | None,
) -> None:
    from ..scaling.curve import write_curves
    from ..scaling.page import scaling_report
    from ..scaling.texts import scaling_json
    from ..storage.output_files import write_output

    if study is not None:
        write_curves(study, curves)
    if json_file is not None:
        content = scaling_json(curves, modes=modes, efficiency=efficiency)
        write_output(json_file, f"{json.dumps(content, indent=2)}\n".encode())
    if output is not None:
        as_html = output.suffix.lower() == ".html"
        page = scaling_report(curves, modes=modes, efficiency=efficiency, as_html=as_html)
        write_output(output, page.encode())
        click.echo(f"Wrote {output}", err=True)
