"""A list that comes in pages, read whole or not at all (cherryservers.md §3).

The vendor sends everything when nothing is said about pages, as far as is known, and how many there are in a header. If
fewer came, the rest is asked for by offset; where the header is missing, until nothing new comes. A list that does not
add up is read once more and is then no answer: a short list taken for a size buys machines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chalicelib.providers.errors import Transient

T = TypeVar("T")

TOTAL = "x-total-count"
MOVED = "ListMoved"  # the code of a list that changes faster than it is read
_MOST_PAGES = 200
_MOST_DIGITS = 9

Page = tuple[int | None, list[T]]  # (how many there are, None where it does not say; those on this page)


def total_of(call: str, header: str | None) -> int | None:
    """What the header says; None where there is none. Raises Transient for one that is no number."""
    if header is None:
        return None
    text = header.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise Transient(f"{call}: the number of rows is not to be read", code=MOVED)
    return int(text)


def read_all(what: str, page: Callable[[int], Page[T]], identity: Callable[[T], object]) -> tuple[T, ...]:
    """All things, each once, in the vendor's order. page: offset -> the rows from there on.

    Raises what `page` raises, and Transient for a list that does not add up.
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
