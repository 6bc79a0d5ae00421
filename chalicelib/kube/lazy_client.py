"""A connection made at its first use: many messages find nothing to do, and should not pay for a cluster."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.kube.client import Cluster


class Lazily:
    """connect: called once, when `connected` is first asked for."""

    def __init__(self, connect: Callable[[], Cluster]) -> None:
        self._connect = connect
        self._cluster: Cluster | None = None

    @property
    def connected(self) -> Cluster:
        """The connection, made now if there was none. Raises what connecting raises."""
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster
