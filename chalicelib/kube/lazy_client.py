"""A connection that is opened at its first use, because many messages find nothing to do and must not pay for it."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.kube.client import KubeClient


class LazyKubeClient:
    """Opens the connection lazily. connect: called once, when `connected` is first read."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._connect = connect
        self._cluster: KubeClient | None = None

    @property
    def connected(self) -> KubeClient:
        """Return the connection, opened now if there was none. Raises what connecting raises."""
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster
