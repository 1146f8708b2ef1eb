"""Versions of installed packages, here and elsewhere; nothing is imported to find them."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping, Sequence

OF_MASTER_AND_WORKER = ("python", "hptune", "distributed")
"""Packages of which a master and its workers need the same version to exchange messages."""

OF_PICKLED_CODE = ("cloudpickle",)
"""Packages needed in the same version, too, if the user's code is sent as a pickle."""

OF_FRAMEWORKS = ("keras", "tensorflow", "jax", "torch")
"""Packages of which all workers of a study need the same version, for comparable results."""


_OTHER_NAMES = {"tensorflow": ("tensorflow-cpu",)}
"""Other distributions of a package; hptune's image for CPUs has the smaller one of TensorFlow."""


def installed() -> dict[str, str]:
    """Return the versions of the packages that are installed here.

    For Python, only the major and the minor number: bytecode and pickles depend on no other.
    """
    from importlib.metadata import PackageNotFoundError, version  # loads the parser of e-mails

    major, minor, _ = platform.python_version_tuple()
    found = {"python": f"{major}.{minor}"}
    names = ("hptune", "distributed", "dask", *OF_PICKLED_CODE, *OF_FRAMEWORKS, "numpy")
    for name in names:
        for distribution in (name, *_OTHER_NAMES.get(name, ())):
            with contextlib.suppress(PackageNotFoundError):
                found.setdefault(name, version(distribution))
    return found


def differences(
    here: Mapping[str, str], there: Mapping[str, str], names: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return the packages whose versions differ: name, version here, version there.

    >>> differences({"python": "3.11", "keras": "3.1"}, {"python": "3.12"}, ["python", "keras"])
    [('python', '3.11', '3.12'), ('keras', '3.1', 'none')]
    """
    pairs = [(name, here.get(name, "none"), there.get(name, "none")) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


def text(different: Sequence[tuple[str, str, str]], *, here: str, there: str) -> str:
    """Return differences in words that name both sides.

    >>> text([("python", "3.11", "3.12")], here="the master", there="this worker")
    'the master has python 3.11, this worker has 3.12'
    """
    return "; ".join(
        f"{here} has {name} {ours}, {there} has {theirs}" for name, ours, theirs in different
    )
