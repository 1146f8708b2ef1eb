"""The values in a slurm.toml: reads and checks the value of each key."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from .errors import ConfigError


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise ConfigError(f"{key} is {value!r}; allowed is a line of text in quotes")
    return value.strip()


def _path(key: str, value: object) -> str:
    """Return a path, with the home directory for `~`: neither Slurm nor a quoted word knows it."""
    return os.path.expanduser(_text(key, value))  # noqa: PTH111 - Path raises an error on ~nobody


def _log_directory(key: str, value: object) -> str:
    path = _path(key, value)
    if "$" in path:
        raise ConfigError(f"{key} is {path!r}, but Slurm knows no variables there; write the path")
    return path


def _lines(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f'{key} is {value!r}; allowed is a list of texts, as in ["…", "…"]')
    return tuple(line for each in value for line in each.splitlines() if line.strip())


_SET_BY_KEYS = re.compile(r"(--signal|--output|--error|--wait)(?![\w-])|-[oeW]")
"""Options by which jobs are told to leave, read and submitted; sbatch obeys the last of a kind."""

_OWN_OPTIONS = re.compile(r"(--job-name|--array|--nodes)\b|-[JaN]")
"""Options by which jobs are found and counted, so that a directive must not change them."""

_CLUSTERS = re.compile(r"--clusters?[=\s]|-M")
"""The option that submits to another cluster, where other commands would not look for the job."""


def _directives(key: str, value: object) -> tuple[str, ...]:
    found = tuple(line.strip().removeprefix("#SBATCH").strip() for line in _lines(key, value))
    for each in found:
        if re.match(r"(--gpus\b|-G)", each) or re.search(r"(^|,)gpu\b", gres_of(each)):
            raise ConfigError(
                f"{key} has {each!r}, which would change the GPUs that trials are sized for; give "
                "gpus (for each node of a job) and gpu_type instead"
            )
        if _OWN_OPTIONS.match(each):
            raise ConfigError(
                f"{key} has {each!r}, but jobs are found and counted by their names, arrays and "
                "nodes; leave it out (the keys name and nodes are for shapes)"
            )
        if _SET_BY_KEYS.match(each):
            raise ConfigError(
                f"{key} has {each!r}, which hptune sets itself; leave it out, and give "
                "notice_seconds for the signal before a job's end, or log_directory for its output"
            )
        if _CLUSTERS.match(each):
            raise ConfigError(
                f"{key} has {each!r}, but the jobs are looked for in this cluster; set the "
                "environment variable SLURM_CLUSTERS instead, which all of Slurm's commands obey"
            )
    return found


def gres_of(directive: str) -> str:
    """Return the generic resources that a directive asks for; empty if it asks for none.

    >>> gres_of("--gres=nvme:1"), gres_of("--gres nvme:1"), gres_of("--qos=high")
    ('nvme:1', 'nvme:1', '')
    """
    found = re.fullmatch(r"--gres[=\s]\s*(\S+)", directive)
    return found[1] if found else ""


def _paths(key: str, value: object) -> tuple[str, ...]:
    paths = tuple(map(os.path.expanduser, _lines(key, value)))
    for path in paths:
        if not path.startswith("/"):
            raise ConfigError(f"{key} has {path!r}; allowed are directories as whole paths")
    return paths


def _table(key: str, value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise ConfigError(f'{key} is {value!r}; allowed is a table, as in {{ NAME = "value" }}')
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"{key} has {name!r}, which is not the name of a variable")
        if not isinstance(text, str | int | float) or isinstance(text, bool):
            raise ConfigError(f"{key}.{name} is {text!r}; allowed are texts and numbers")
    return tuple((name, str(text)) for name, text in value.items())


def _whole(least: int) -> Any:
    def read(key: str, value: object) -> int:
        if type(value) is not int or value < least:
            bare = ", without quotes" if isinstance(value, str) else ""
            raise ConfigError(
                f"{key} is {value!r}; allowed are whole numbers from {least} on{bare}"
            )
        return value

    return read


def _yes_or_no(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}; allowed are true and false")
    return value


def _one_of(*allowed: str) -> Callable[[str, object], str]:
    def read(key: str, value: object) -> str:
        if value not in allowed:
            raise ConfigError(f"{key} is {value!r}; allowed are {', '.join(allowed)}")
        return str(value)

    return read


def _walltime(key: str, value: object) -> str:
    if not isinstance(value, str):
        why = ", a bare number without a unit" if type(value) is int else ""
        raise ConfigError(
            f"{key} is {value}{why}; allowed are "
            'Slurm\'s forms, in quotes: "04:00:00" (four hours), "4-00:00:00" (four days)'
        )
    text = _text(key, value)
    duration_seconds(text)
    return text


def _size(key: str, value: object) -> int:
    if value == 0 and value is not False:
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt])(i?)b?", str(value).strip().lower())
    if found is None:
        raise ConfigError(
            f'{key} is {value!r}; allowed are sizes with their units, such as "64GB" or "512MiB", '
            "and 0"
        )
    number, prefix, binary = found.groups()
    power = ["", "k", "m", "g", "t"].index(prefix)
    return int(float(number) * (1024 if binary else 1000) ** power)


READERS: Mapping[str, Any] = {
    # Each takes a key and its value, and returns the parsed value or raises a ConfigError.
    **dict.fromkeys(
        ("name", "partition", "account", "qos", "gpu_type", "launcher", "interface"), _text
    ),
    **dict.fromkeys(("python", "scratch", "image"), _path),
    "log_directory": _log_directory,
    **dict.fromkeys(("nodes", "trials_per_job", "cpus", "max_jobs", "grace_seconds"), _whole(1)),
    **dict.fromkeys(("gpus", "notice_seconds"), _whole(0)),
    **dict.fromkeys(("modules", "prologue", "image_options"), _lines),
    "image_program": _one_of("apptainer", "singularity", "ch-run", "pyxis"),
    "mounts": _paths,
    "directives": _directives,
    "environment": _table,
    "exclusive": _yes_or_no,
    "walltime": _walltime,
    "memory": _size,
}  # fmt: skip


def duration_seconds(text: str) -> int:
    """Parse Slurm's forms of a duration: minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S.

    >>> [duration_seconds(each) for each in ("30", "04:00:00", "1-12", "2-00:30")]
    [1800, 14400, 129600, 174600]

    Raises:
        ConfigError: It is none of these, or 0.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        raise ConfigError(
            f'walltime is {text!r}; allowed are Slurm\'s forms, such as "04:00:00" (four hours), '
            '"90" (minutes) or "1-12:00:00" (a day and a half)'
        )
    days, *rest = (None if part is None else int(part) for part in found.groups())
    numbers = [part for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    total = (days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    if not total:
        raise ConfigError(f"walltime is {text!r}; allowed are times above 0")
    return total


def expanded(value: str) -> str:
    r"""Return a shell word in which the shell replaces variables of the node, and nothing else.

    A job ends whose node lacks the variable at the beginning: `$TMPDIR/x` must not become `/x`.

    >>> print(expanded("/data/it's"), expanded("$TMPDIR/x"), expanded("5$ `date` ${USER}"))
    '/data/it'"'"'s' "${TMPDIR:?}/x" "5\$ \`date\` ${USER}"
    """

    def word(found: re.Match[str]) -> str:
        if found[3]:
            return f"\\{found[3]}"
        return f"${{{found[1] or found[2]}{'' if found.start() else ':?'}}}"

    special = re.compile(r"\$\{(\w+)\}|\$([A-Za-z_]\w*)|([\"$`\\])")
    if not any(found[1] or found[2] for found in special.finditer(value)):
        return shlex.quote(value)
    return f'"{special.sub(word, value)}"'


def clock(seconds: int) -> str:
    """Return a duration in Slurm's form.

    >>> clock(4 * 3600), clock(36 * 3600)
    ('04:00:00', '1-12:00:00')
    """
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def gigabytes(size_bytes: float) -> str:
    """Return an amount of memory in words.

    >>> gigabytes(2_500_000_000), gigabytes(1_550_000_000_000)
    ('2.5 GB', '1,550 GB')
    """
    size = size_bytes / 1e9
    return f"{size:.3g} GB" if size < 100 else f"{size:,.0f} GB"
