"""Checks of certificates: whether others can read them, and when they end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..clusters.jobs import certificates_folder
from ..errors import HptuneError
from ..security.certificates import ENDING_DAYS, default_folder, file_of, read
from ..text import plural
from .findings import Finding, Subject, failed, passed, warned

_NAME = "certificates"


def certificate_findings(subject: Subject) -> Iterator[Finding]:
    """Yield the state of the certificates on this machine; nothing if there are none."""
    own = Path(subject.certs) if subject.certs else default_folder()
    places = [(own, "`hptune certs --renew`, then copy worker.pem to the workers again")]
    jobs = certificates_folder(Path(subject.study))
    places.append((jobs, "the next `hptune resume` makes new ones"))
    for place, advice in places:
        if file_of(place).exists() or str(place) == subject.certs:
            yield _state(place, advice)
    if subject.insecure:
        yield warned(
            _NAME,
            "--insecure: anyone who reaches the scheduler or a worker can run code as you",
            "leave it out, and use the tls:// address that `hptune scheduler` prints",
        )


def _state(place: Path, advice: str) -> Finding:
    try:
        found = read(place)
    except HptuneError as error:
        return failed(_NAME, error.message, "`hptune certs` shows and makes certificates")
    days = int(found.days_left)
    if found.days_left < 0:
        return failed(_NAME, f"{found.path} was valid until {found.last_day}", advice)
    words = f"{found.path} is valid until {found.last_day} ({plural(days, 'day')})"
    return passed(_NAME, words) if days > ENDING_DAYS else warned(_NAME, words, advice)
