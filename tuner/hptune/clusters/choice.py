"""The choice of a run's cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config.asked import Asked, cluster_options
from ..config.plugins import made
from .base import Cluster


def choose_cluster(asked: Asked, study: Path, client: Any = None) -> Cluster:
    """Return the cluster that the user asked for; it is not open yet.

    Args:
        asked: What the user asked for.
        study: The study's directory.
        client: A `distributed.Client` whose workers to use; None for the settings' choice.

    Raises:
        UsageError: There can be no such workers, or what describes them is wrong.
        StudyError: The scheduler's file holds no address.
    """
    if client is not None:
        from .existing import ClientWorkers

        return ClientWorkers(client)
    row, settings = asked.cluster, asked.settings
    given = cluster_options(settings, row)
    cluster: Cluster = made(row, Cluster, settings, study, given=given)
    return cluster
