"""Reads paged lists completely or not at all.

Instances of a group may appear and disappear between two page requests, and then an instance can move from an unread
page to one that was already read. A list is accepted if every page reports the same total and that many items arrived.
Otherwise it is read once more, and after that the call fails, because a partial list would make nodes look unmanaged.
Items requested by id need no such check: the caller sees which are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chalicelib.providers.errors import Transient

T = TypeVar("T")

SIZE = 50  # maximum page size of ESS and ECS lists
MOVED = "ListMoved"  # code for a list that changes while it is read
_MOST_PAGES = 400  # 20,000 items; a scaling group has at most 2,000

Page = tuple[int, list[T]]  # (TotalCount, items on this page)


def pages_of(things: int) -> int:
    """Return the number of pages of a list; an empty list has one."""
    return max(1, -(-things // SIZE))


def read_all(what: str, page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """Return all items, each once, in the vendor's order. page: number from 1 -> TotalCount and the items on that page.

    Raises what `page` raises, and Transient for an inconsistent list.
    """
    for _ in range(2):
        totals, found = _pages(page, identity)
        if len(totals) == 1 and len(found) >= min(totals):
            return found
    raise Transient(f"{what}: {len(found)} of {max(totals)} came, the list changes while it is read", code=MOVED)


def read_named(page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """Return the found ones of items requested by id, each once.

    If the vendor counts more items than it returns (inactive groups), it is not called again."""
    return _pages(page, identity)[1]


def _pages(page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> tuple[set[int], list[T]]:
    found: dict[str, T] = {}
    totals: set[int] = set()
    for number in range(1, _MOST_PAGES + 1):
        total, things = page(number)
        totals.add(total)
        found.update((identity(thing), thing) for thing in things)
        if number * SIZE >= total or not things:
            break
    return totals, list(found.values())
