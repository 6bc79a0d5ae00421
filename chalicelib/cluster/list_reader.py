"""Reads one list ahead of the code that folds it.

A page begins with the token of the page after it (`metadata` precedes `items`), so the next page is
requested as soon as the first bytes of this one have arrived, on another connection. A list of 40
pages over a line with a round trip of 80 ms would otherwise wait three seconds for nothing. The
number of objects of a page follows the size of the pages before it.

Whether pages are compressed depends on how fast both forms arrive. Compressed pages are an eighth
as large and cost the server time. Over a wide area they are faster, and cheaper, because clouds
charge for outgoing traffic. In one network the server's compression may be what takes longest. One
small page of each long list has the other form, so that both are known.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future

import msgspec

from chalicelib.cluster.class_table import unbounded
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import Expired, Unavailable
from chalicelib.cluster.list_page import TypedList, TypedPage
from chalicelib.cluster.listed_resources import ListedResource
from chalicelib.cluster.snapshot_builder import LISTINGS
from chalicelib.cluster.transport import JSON, METADATA_ONLY, TOO_LARGE, ReadBounds

FIRST = 1_000
"""Objects of the first pages."""
_LEAST, _MOST = 50, 5_000
_PAGE_BYTES = 8 * 2**20  # wanted, uncompressed: more would only raise the peak of memory
_PROBED = 2  # number of the request whose page has the other form
_AHEAD = 3  # pages that are being read or wait to be folded
_RESTARTS = 3  # of a list whose token expired
_HEAD = 4096  # bytes in which a page's metadata ends
FASTER = 1.5
"""Times as fast as compressed pages at which plain ones are read."""
PROBE = 150
"""Objects of the page that has the other form."""
_LEAST_MEASURED = 100_000  # bytes of a page that is measured
_EARLIER = 0.5  # share of the earlier rate in a new one
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
# bytes, bytes, heaps
_MALLOC = ((_M_MMAP_THRESHOLD, 1 << 20), (_M_TRIM_THRESHOLD, 1 << 17), (_M_ARENA_MAX, 2))
_TOKEN = re.compile(rb'\A\s*\{[^\[]{0,4000}?"continue"\s*:\s*"([^"\\]{1,3000})"')


@functools.cache
def map_large_buffers() -> None:
    """Let this process return the memory of large responses to the system as soon as they are
    released; does nothing where the C library is another one.

    glibc raises the size from which it maps memory directly to that of the largest released block.
    After the first page of 8 MB, all later ones come from the heaps of the threads that read them,
    which keep what is released: the peak of a pass with 34,000 pods was 120 MB higher. A fixed size
    prevents that. Two heaps are enough, because Python runs one thread at a time.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in _MALLOC:
            mallopt(setting, value)


class PageRates:
    """The rates of one cluster, in uncompressed bytes per second. local: whether its address is
    private; plain pages of others would cost traffic."""

    def __init__(self, *, local: bool) -> None:
        self._local = local
        self._rates: dict[bool, float] = {}

    @property
    def compressed(self) -> bool:
        """Return whether pages are to be compressed."""
        plain, packed = self._rates.get(False), self._rates.get(True)
        return not self._local or plain is None or packed is None or plain < FASTER * packed

    @property
    def measures(self) -> bool:
        """Return whether a page of the other form is of use."""
        return self._local

    def note(self, *, compressed: bool, size: int, seconds: float) -> None:
        """Record a page. size: bytes, uncompressed. seconds: from the first byte of
        its body to the last one."""
        if size < _LEAST_MEASURED or seconds <= 0.0:
            return
        rate = size / seconds
        earlier = self._rates.get(compressed, rate)
        self._rates[compressed] = _EARLIER * earlier + (1.0 - _EARLIER) * rate


class ListPart(msgspec.Struct, frozen=True):
    """A page to fold. first: discard the earlier ones, because the list starts (again) here."""

    page: TypedPage
    first: bool


class _Fetch:
    """A page that is being read. token: of the page after it, once known."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.query = query
        self.future: Future[TypedPage] | None = None
        self.token: str | None = None
        self.head: bytes | None = b""  # None: the token was found, or there is none
        self.compressed = True
        self.began = self.ended = 0.0
        self.size = 0


class ListReader:
    """Iterates over the pages of one list, each as soon as it is complete. Starts reading at once.

    rates: how fast the cluster's pages arrive; None: they are compressed. at: the resourceVersion
    at which the list is read, "" for the present one. check: called when a page has arrived, see
    ClassTable. decode: what is read of a page, None for its objects.

    Iterating raises ClusterError: Expired if the server no longer has that version, or if the token
    of a page expires again and again; Unavailable for a list of more pages or bytes than the limits
    allow. It raises what check raises.
    """

    def __init__(
        self,
        kube: KubeClient,
        resource: ListedResource,
        executor: Executor,
        bounds: ReadBounds,
        rates: PageRates | None = None,
        *,
        at: str = "",
        check: Callable[[], None] = unbounded,
        decode: Callable[[bytes], TypedList] | None = None,
    ) -> None:
        self._check = check
        self._first = {"resourceVersion": at, "resourceVersionMatch": "Exact"} if at else {}
        self._kube, self._resource, self._pool, self._bounds, self._rates = (
            kube,
            resource,
            executor,
            bounds,
            rates,
        )
        self._requested = 0
        self._decode = decode or LISTINGS[resource.kind].decode
        self._accept = METADATA_ONLY if resource.metadata else JSON
        self._limit = FIRST
        self._lock = threading.RLock()  # a pool of the emulation reads at once, in this thread
        self._coming: deque[_Fetch] = deque()
        self._start()

    def __iter__(self) -> Iterator[ListPart]:
        restarts, pages, size, first = 0, 0, 0, True
        while self._coming:
            fetch = self._coming[0]
            assert fetch.future is not None
            try:
                page = fetch.future.result()
            except Unavailable as refusal:
                if refusal.reason != TOO_LARGE or self._limit == 1:
                    raise
                # Ask again with fewer objects; nothing after this page is known to be right.
                with self._lock:
                    self._limit = max(1, self._limit // 8)
                    self._coming = deque()
                    self._request(
                        {key: value for key, value in fetch.query.items() if key != "limit"}
                    )
                continue
            except Expired:
                if "continue" not in fetch.query or restarts == _RESTARTS:
                    raise
                restarts, pages, size, first = restarts + 1, 0, 0, True
                self._start()
                continue
            pages, size = pages + 1, size + len(page.body)
            if pages > self._bounds.pages or size > self._bounds.volume:
                raise Unavailable(
                    f"{self._resource.path}: the list does not end: {pages} pages, {size} bytes",
                    lasting=True,
                )
            if page.listing is not None and page.listing.items:
                object_size = len(page.body) / len(page.listing.items)
                self._limit = max(_LEAST, min(_MOST, int(_PAGE_BYTES / object_size)))
            self._follow(fetch, page.meta.next_page)
            yield ListPart(page, first)
            first = False

    def _start(self) -> None:
        with self._lock:
            for fetch in self._coming:
                if fetch.future is not None:
                    fetch.future.cancel()
            self._coming = deque()
            self._request({**self._resource.query, **self._first})

    def _follow(self, fetch: _Fetch, token: str | None) -> None:
        """Forget the page that is complete, and request what comes after it. token: as
        the whole page gives it."""
        with self._lock:
            self._coming.popleft()
            if self._coming and (token or None) != fetch.token:
                self._coming.clear()  # the beginning of the page had another token than the page
            if not token:
                return
            if token == fetch.query.get("continue"):
                path = self._resource.path
                raise Unavailable(
                    f"{path}: the server gives the same page again and again", lasting=True
                )
            if not self._coming:
                self._request(self._after(token))
            last = self._coming[-1]
            if last.token is not None:
                self._request(self._after(last.token))

    def _after(self, token: str) -> dict[str, str]:
        return {**self._resource.query, "continue": token}

    def _request(self, query: dict[str, str]) -> None:
        """Start reading a page. The lock is held."""
        fetch, limit = _Fetch(query), self._limit
        self._requested += 1
        if self._rates is not None:
            fetch.compressed = self._rates.compressed
            if self._requested == _PROBED and self._rates.measures:
                fetch.compressed, limit = not fetch.compressed, min(limit, PROBE)
        fetch.query = {**query, "limit": str(limit)}
        self._coming.append(fetch)
        fetch.future = self._pool.submit(self._read, fetch)

    def _read(self, fetch: _Fetch) -> TypedPage:
        page = self._kube.list_page(
            self._resource.path,
            fetch.query,
            self._decode,
            accept=self._accept,
            on_piece=lambda piece: self._note_piece(fetch, piece),
            gzip=fetch.compressed,
        )
        self._check()
        if self._rates is not None:
            self._rates.note(
                compressed=fetch.compressed, size=fetch.size, seconds=fetch.ended - fetch.began
            )
        return page

    def _note_piece(self, fetch: _Fetch, piece: bytes) -> None:
        """Note when the body of a page arrives, and request the next page once its token is known.
        The first piece, empty, comes before each attempt."""
        fetch.ended = time.monotonic()
        fetch.size += len(piece)
        if fetch.size > self._bounds.page and fetch.query["limit"] != "1":
            raise Unavailable(
                f"{self._resource.path}: a page is too long", reason=TOO_LARGE, lasting=True
            )
        if not piece:
            fetch.began, fetch.size = fetch.ended, 0
        if fetch.head is None or not piece:
            return
        fetch.head += piece[: _HEAD - len(fetch.head)]
        token = _TOKEN.match(fetch.head)
        if token is None:
            if len(fetch.head) >= _HEAD:
                fetch.head = None
            return
        fetch.head = None
        with self._lock:
            if fetch not in self._coming:
                return
            fetch.token = token.group(1).decode("ascii", "replace")
            if fetch is self._coming[-1] and len(self._coming) < _AHEAD:
                self._request(self._after(fetch.token))
