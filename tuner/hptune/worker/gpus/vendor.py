"""What there is to know of a vendor's GPUs, and what is the same for all vendors."""

from __future__ import annotations

import abc
import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

ROOT = Path("/")
"""The directory of `sys` and `dev`."""

_NAME = re.compile(r"\d+(\.\d+)?|(GPU|MIG)-.+")


def path(*parts: str) -> Path:
    """Return the path of a file or directory of the kernel's, such as `sys/class/drm`."""
    return Path(ROOT, *parts)


def read(file: Path) -> str:
    """Return a file's text without surrounding blanks; empty if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def number(text: object) -> int | None:
    """Return a whole number; None for any other text.

    >>> number("17"), number("[N/A]")
    (17, None)
    """
    return int(str(text)) if str(text).isdecimal() else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that a trial can have.

    Attributes:
        name: Its name in the vendor's first variable.
        identity: Its name among all processes of this machine, whatever their variables say.
        address: Its PCI address in sysfs; empty if unknown.
        memory_bytes: Its memory; 0 if unknown.
        is_integrated: Whether it is a part of a desktop processor, which a trial gets only if a
            variable names it.
    """

    name: str
    identity: str
    address: str = ""
    memory_bytes: int = 0
    is_integrated: bool = False


class Note(NamedTuple):
    """Something that a user should know of the devices: what was found, and what to do."""

    found: str
    advice: str


@dataclass(frozen=True, slots=True)
class Filter:
    """A step by which a vendor's runtime leaves out devices.

    Attributes:
        variables: Of these, the first that is set and not empty counts.
        empty_hides_all: Whether an empty value leaves no device; else it leaves all.
    """

    variables: tuple[str, ...]
    empty_hides_all: bool = False


class Vendor(abc.ABC):
    """A vendor's GPUs on this machine. Each value is None or 0 where it is unknown.

    Attributes:
        title: The vendor's name.
        prefix: What hptune puts before the names of its devices.
        filters: How variables leave out devices, in the order in which the runtime applies them.
        hidden: Variables with values that leave no device.
        source: By which way its devices are found without a variable.
        tool: A command that shows whether the driver works.
        build: How to install a framework for it.
    """

    title: ClassVar[str]
    prefix: ClassVar[str]
    filters: ClassVar[tuple[Filter, ...]]
    hidden: ClassVar[Mapping[str, str]]
    source: ClassVar[str]
    tool: ClassVar[str]
    build: ClassVar[str]

    @functools.cached_property
    def devices(self) -> tuple[Gpu, ...]:
        """All devices, in the order of their numbers."""
        return tuple(self._find())

    @abc.abstractmethod
    def _find(self) -> Iterator[Gpu]:
        """Yield the devices in the order of their numbers."""

    def used_bytes(self, name: str, pids: Collection[int] | None) -> int | None:  # noqa: B027 - few tell
        """Return the memory that these processes, or all (None), hold on a device."""

    def is_busy(self, name: str) -> bool | None:  # noqa: B027 - few tell
        """Return whether a device computes."""

    def joules(self, name: str) -> float | None:  # noqa: B027 - few tell
        """Return what the energy counter of a device shows."""

    def gpu(self, name: str) -> Gpu | None:
        """Return what is known of a device."""
        return next((device for device in self.devices if device.name == name), None)

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """Return the names of the variables of all filters."""
        return tuple(name for each in cls.filters for name in each.variables)

    @classmethod
    def confine(cls, names: Sequence[str], environment: MutableMapping[str, str]) -> None:
        """Change variables so that a runtime which reads them sees these devices alone."""
        first, *others = cls.variables()
        environment[first] = ",".join(names)
        for each in others:
            text = environment.get(each)
            if text is not None and (not text or cls._named(each, text, environment) is not None):
                del environment[each]

    @classmethod
    def applied(cls, environment: Mapping[str, str]) -> list[tuple[str, list[str]]]:
        """Return the variables that leave out devices, in their order, with what they name."""
        found = []
        for each in cls.filters:
            given = [name for name in each.variables if environment.get(name)]
            given += [name for name in each.variables[:1] if each.empty_hides_all]
            if given and (text := environment.get(given[0])) is not None:
                names = cls._named(given[0], text, environment)
                found += [] if names is None else [(given[0], names)]
        return found

    @classmethod
    def _named(cls, variable: str, text: str, environment: Mapping[str, str]) -> list[str] | None:
        """Return the devices that a variable names; None if it leaves all of them."""
        del variable, environment
        return [each.strip() for each in text.split(",")] if text else []

    def visible(self, environment: MutableMapping[str, str]) -> list[str]:
        """Return the names of the devices that a process with these variables may use.

        A second variable that repeats the first one, as batch systems set it, does not count.
        """
        applied = self.applied(environment)
        if not applied:
            return [device.name for device in self.devices if not device.is_integrated]
        left: Sequence[str] = [device.name for device in self.devices]
        for place, (_, names) in enumerate(applied):
            if place and names == applied[0][1]:
                continue
            left = self._chosen(left, names) if left or place else self._plausible(names)
        return list(left)

    def _chosen(self, left: Sequence[str], names: Sequence[str]) -> list[str]:
        """Return the devices that are named, up to a name that is wrong or a repeated one."""
        chosen = list[str]()
        for name in names:
            found = self._match(left, name)
            if found is None or found in chosen:
                break
            chosen.append(found)
        return chosen

    def _match(self, left: Sequence[str], name: str) -> str | None:
        """Return the device that a variable's number or name denotes among those that are left."""
        place = number(name)
        return left[place] if place is not None and place < len(left) else None

    def _plausible(self, names: Sequence[str]) -> list[str]:
        """Return the names, each once, up to one that can be none, where no device is known."""
        return list(dict.fromkeys(itertools.takewhile(_NAME.fullmatch, names)))

    def notes(self, environment: Mapping[str, str]) -> Iterator[Note]:
        """Yield what is wrong with the variables, or unknown of the visible devices."""
        applied = self.applied(environment)
        for variable, names in applied[1:]:
            first, numbers = applied[0]
            if names == numbers != [str(each) for each in range(len(names))]:
                yield Note(
                    f"{first} and {variable} are both {','.join(names)}, and {variable} counts "
                    f"the devices that {first} leaves from 0: together they hide devices",
                    f"unset {variable} for other programs; a trial gets {first} alone",
                )
        known = len(self.visible(dict(environment)))
        if applied and 0 < known < len(applied[-1][1]):  # none may be on purpose, as by -1
            variable, names = applied[-1]
            yield Note(
                f"{variable} is {','.join(names)}, which names {known} of the devices here",
                f"correct {variable}, or unset it",
            )
