"""A cluster's API as providers meet it: some live in it (Cluster API), others ask it which machines have become nodes.

The kube package and the providers stand in one layer and may not know each other, so its client is met as a Protocol.
Its errors are OutscalerErrors with a `status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable


class ListPage(Protocol):
    """One page of a list; first: the list begins (again), what came before is void."""

    @property
    def body(self) -> bytes:
        """The List as the server sent it."""

    @property
    def first(self) -> bool:
        """Whether it is the first page."""


class KubeLists(Protocol):
    """A connection to a cluster, for who only looks."""

    def list_pages(self, path: str, *, query: Mapping[str, str] | None = None) -> Iterable[ListPage]:
        """A whole list in pages."""


@runtime_checkable
class Identified(Protocol):
    """A connection that tells which cluster it leads to."""

    @property
    def identity(self) -> str:
        """The same for every way to one cluster, and another for every other cluster."""


class KubeApi(KubeLists, Protocol):
    """A connection to a cluster, for who lives in it."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """One call, answered with the body."""
