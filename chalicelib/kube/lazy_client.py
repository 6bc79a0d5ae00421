"""A connection made at its first use: many messages find nothing to do, and should not pay for a cluster."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.kube.client import KubeClient


class LazyKubeClient:
    """connect: called once, when `connected` is first asked for."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._connect = connect
        self._cluster: KubeClient | None = None

    @property
    def connected(self) -> KubeClient:
        """The connection, made now if there was none. Raises what connecting raises."""
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster
