"""Dask's object for connections with certificates."""

from __future__ import annotations

from typing import Any

from distributed import Security

from ...security.certificates import Identity


def security(identity: Identity | None) -> Any:
    """Return Dask's object for an identity; None for connections without encryption."""
    if identity is None:
        return None
    roles = {
        f"tls_{role}_{part}": text
        for role in ("client", "scheduler", "worker")
        for part, text in (("key", identity.key), ("cert", identity.certificate))
    }
    return Security(require_encryption=True, tls_ca_file=identity.authority, **roles)
