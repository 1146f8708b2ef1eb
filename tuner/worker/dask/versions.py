"""The versions of what matters, here and elsewhere; nothing is imported to find them."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

OF_MASTER_AND_WORKER = ("python", "hptune", "distributed")
"""What a master and its workers must have in the same version to understand each other."""

OF_PICKLED_CODE = ("cloudpickle",)
"""And this, where the user's code travels as a pickle."""

OF_FRAMEWORKS = ("keras", "tensorflow", "jax", "torch")
"""What all workers of a study must have in the same version, so that results can be compared."""


def installed() -> dict[str, str]:
    """The versions of what is installed here; what is not is left out.

    Of Python only the major and the minor number: bytecode and pickles do not change with others.
    """
    major, minor, _ = platform.python_version_tuple()
    found = {"python": f"{major}.{minor}"}
    names = ("hptune", "distributed", "dask", *OF_PICKLED_CODE, *OF_FRAMEWORKS, "numpy")
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def differences(
    here: Mapping[str, str], there: Mapping[str, str], names: Sequence[str]
) -> list[tuple[str, str, str]]:
    """What has another version there than here: names, with both versions.

    >>> differences({"python": "3.11", "keras": "3.1"}, {"python": "3.12"}, ["python", "keras"])
    [('python', '3.11', '3.12'), ('keras', '3.1', 'none')]
    """
    pairs = [(name, here.get(name, "none"), there.get(name, "none")) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


def told(different: Sequence[tuple[str, str, str]], *, here: str, there: str) -> str:
    """Differences in words, with both sides named.

    >>> told([("python", "3.11", "3.12")], here="the master", there="this worker")
    'the master has python 3.11, this worker has 3.12'
    """
    return "; ".join(
        f"{here} has {name} {ours}, {there} has {theirs}" for name, ours, theirs in different
    )
