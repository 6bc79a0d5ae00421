"""One authenticated connection to one cluster's API: bytes in, bytes out.

Responses stay bytes because the caller decodes them into the few fields that are used, and never
into full objects. The `kubernetes` package is not used, because importing it alone takes longer
than the rest of a cold start.

Here: objects, lists in pages, watches. What is sent again, and when, is in transport.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import structs

from chalicelib.cluster.errors import Expired, Unavailable
from chalicelib.cluster.list_page import ListHead, Page, TypedList, TypedPage, decoded, typed_page
from chalicelib.cluster.transport import JSON, TIMEOUT, KubeRequest, KubeTransport

T = TypeVar("T")

_RESTARTS = 3  # of a list whose continue token expired
# not allowed with a continue token
_OF_FIRST_PAGE_ONLY = frozenset({"resourceVersion", "resourceVersionMatch"})
# seconds that the process of a watch may be frozen, beyond which its connection is given up
_FROZEN = 150.0


def path_segment(name: str) -> str:
    """Quote a name as part of a path."""
    return quote(name, safe="")


class KubeClient(KubeTransport):
    """A cluster's API. Safe to share between threads. Every method raises ClusterError
    (errors.py) and nothing else."""

    _lists_began: float | None = None

    def get(self, path: str, *, query: Mapping[str, str] | None = None) -> bytes:
        """Return one object, or one List that is known to be short; complete JSON, read
        again if it was truncated."""
        # msgspec.Raw validates without creating objects.
        return self._persist(_get(path, query), lambda body: decoded(body, msgspec.Raw)[1])

    def read(self, path: str, kind: type[T], *, query: Mapping[str, str] | None = None) -> T:
        """Return one object, decoded into a msgspec.Struct that names the fields wanted."""
        return self._persist(_get(path, query), lambda body: decoded(body, kind)[0])

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None, limit: int = 500
    ) -> Iterator[Page]:
        """Read a List, `limit` items at a time. If a continue token expires in between (410), the
        list starts over: first=True.

        Raises Expired if that happens more than a few times: the list takes longer to read
        than the server keeps a token. Raises Unavailable for a list of more pages, bytes or
        seconds than the limits allow.
        """
        first_query = {**(query or {}), "limit": str(limit)}
        page_query, restarts, pages, size = first_query, 0, 0, 0
        while True:
            request = structs.replace(_get(path, page_query), gzip=True)
            try:
                head, body = self._persist(
                    request, lambda body: decoded(body, ListHead), within=self._list_seconds(path)
                )
            except Expired:
                if page_query is first_query or restarts == _RESTARTS:
                    raise
                page_query, restarts = first_query, restarts + 1
                continue
            next_page = head.metadata.next_page
            pages, size = pages + 1, size + len(body)
            if pages > self._bounds.pages or size > self._bounds.volume:
                raise Unavailable(
                    f"{path}: the list does not end: {pages} pages, {size} bytes", lasting=True
                )
            yield Page(body, first=page_query is first_query)
            if not next_page:
                return
            if next_page == page_query.get("continue"):
                raise Unavailable(
                    f"{path}: the server gives the same page again and again", lasting=True
                )
            page_query = {
                key: value for key, value in first_query.items() if key not in _OF_FIRST_PAGE_ONLY
            }
            page_query["continue"] = next_page

    def list_page(
        self,
        path: str,
        query: Mapping[str, str],
        decode: Callable[[bytes], TypedList],
        *,
        accept: str = JSON,
        on_piece: Callable[[bytes], None] | None = None,
        gzip: bool = True,
    ) -> TypedPage:
        """Read one page of a List. on_piece: called with the pieces of its body as they arrive, and
        with b"" before the first one of each attempt. gzip: whether it may be compressed. Raises
        Expired for a continue token that is too old."""
        request = structs.replace(_get(path, query), gzip=gzip, accept=accept, on_piece=on_piece)
        return self._persist(
            request, lambda body: typed_page(body, decode), within=self._list_seconds(path)
        )

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        on_piece: Callable[[bytes], None],
        *,
        accept: str = JSON,
        longest: int,
    ) -> None:
        """Read a watch to its end, which the server makes after the query's
        timeoutSeconds. Not repeated.

        Lambda may freeze the process before that end, until the next pass. The rest is then read,
        so that the connection can be used again.

        on_piece: as in list_page; the pieces are lines of JSON, cut anywhere. longest: bytes.
        """
        total = float(query.get("timeoutSeconds", "1")) + _FROZEN
        request = structs.replace(
            _get(path, query), accept=accept, on_piece=on_piece, keep_body=False
        )
        self._ask(structs.replace(request, total=total, longest=longest))

    def begin_lists(self) -> None:
        """Start the time for all lists anew: a client that is kept serves several passes."""
        self._lists_began, self._looked_again = None, False

    def _list_seconds(self, path: str) -> float:
        """Return the seconds that remain for all lists. Raises Unavailable."""
        if self._lists_began is None:
            self._lists_began = self._monotonic()
        seconds = self._lists_began + self._bounds.lists - self._monotonic()
        if seconds <= 0:
            raise Unavailable(
                f"{path}: the cluster's lists took longer than {self._bounds.lists:g} s",
                lasting=True,
            )
        return seconds


def _get(path: str, query: Mapping[str, str] | None) -> KubeRequest:
    return KubeRequest("GET", path, dict(query or {}), None, "", TIMEOUT)


class LazyKubeClient:
    """A connection that is opened at its first use, because many messages find nothing to do and
    must not pay for it. connect: called once, when `connected` is first read."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._connect = connect
        self._cluster: KubeClient | None = None

    @property
    def connected(self) -> KubeClient:
        """Return the connection, opened now if there was none. Raises what connecting raises."""
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster
