"""Protocols of a cluster's API for providers.

Some providers work in the cluster itself (Cluster API); others read which machines have become nodes. The kube package
and the providers are in one layer and must not import each other, so its client is typed as a Protocol. Its errors are
OutscalerErrors with a `status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable


class ListPage(Protocol):
    """One page of a list. first: the list starts, or starts again, and earlier pages are void."""

    @property
    def body(self) -> bytes:
        """The List as the server sent it."""

    @property
    def first(self) -> bool:
        """Whether it is the first page."""


class KubeLists(Protocol):
    """A read-only connection to a cluster."""

    def list_pages(self, path: str, *, query: Mapping[str, str] | None = None) -> Iterable[ListPage]:
        """Return a complete list in pages."""


@runtime_checkable
class Identified(Protocol):
    """A connection that reports which cluster it reaches."""

    @property
    def identity(self) -> str:
        """An identifier that is equal for all connections to one cluster and different for every other cluster."""


class KubeApi(KubeLists, Protocol):
    """A read-write connection to a cluster."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send one request and return the response body."""
