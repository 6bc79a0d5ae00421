"""Reads a paged list completely or not at all.

As far as is known, the vendor sends all items if the request names no page, and the total in a header. If fewer arrive,
the rest is requested by offset; without the header, until no new item arrives. An inconsistent list is read once more,
and after that the call fails, because a short list would be taken for the pool's size and lead to purchases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chalicelib.providers.errors import Transient

T = TypeVar("T")

TOTAL = "x-total-count"
MOVED = "ListMoved"  # code for a list that changes while it is read
_MOST_PAGES = 200
_MOST_DIGITS = 9

Page = tuple[int | None, list[T]]  # (total, None if not reported; items on this page)


def total_of(call: str, header: str | None) -> int | None:
    """Return the total in the header; None if there is none. Raises Transient if it is not a number."""
    if header is None:
        return None
    text = header.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise Transient(f"{call}: the number of rows is not to be read", code=MOVED)
    return int(text)


def read_all(what: str, page: Callable[[int], Page[T]], identity: Callable[[T], object]) -> tuple[T, ...]:
    """Return all items, each once, in the vendor's order. page: offset -> the rows from there on.

    Raises what `page` raises, and Transient for an inconsistent list.
    """
    totals, found = set[int](), list[T]()
    for _ in range(2):
        totals, found = _pages(page, identity)
        if len(totals) <= 1 and len(found) >= min(totals, default=0):
            return tuple(found)
    raise Transient(f"{what}: {len(found)} of {max(totals)} came, the list changes while it is read", code=MOVED)


def _pages(page: Callable[[int], Page[T]], identity: Callable[[T], object]) -> tuple[set[int], list[T]]:
    found: dict[object, T] = {}
    totals, rows = set[int](), 0
    for _ in range(_MOST_PAGES):
        total, things = page(rows)
        rows, before = rows + len(things), len(found)
        totals |= set() if total is None else {total}
        found.update((identity(thing), thing) for thing in things)
        if not things or (len(found) == before if total is None else rows >= total):
            break
    return totals, list(found.values())
