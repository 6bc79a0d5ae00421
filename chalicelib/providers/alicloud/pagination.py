"""Lists that come in pages, read whole or not at all (alicloud.md §3.2; §8, 7).

A group's instances may come and go between two pages, and then one slips from a page that is still to come to one that
was read. What was read is believed if every page says the same total, and as much has come; otherwise it is read once
more, and then it is no answer: a partial list would make nodes look unmanaged. What was asked for by id needs no such
care: whoever asked knows what has not come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chalicelib.providers.errors import Transient

T = TypeVar("T")

SIZE = 50  # the largest page of ESS and ECS lists
MOVED = "ListMoved"  # the code of a list that changes faster than it is read
_MOST_PAGES = 400  # 20,000 things; a scaling group holds 2,000

Page = tuple[int, list[T]]  # (TotalCount, the things on this page)


def pages_of(things: int) -> int:
    """How many pages they take; an empty list takes one."""
    return max(1, -(-things // SIZE))


def read_all(what: str, page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """All things, each once, in the vendor's order. page: number from 1 -> TotalCount and what is on it.

    Raises what `page` raises, and Transient for a list that does not add up.
    """
    for _ in range(2):
        totals, found = _pages(page, identity)
        if len(totals) == 1 and len(found) >= min(totals):
            return found
    raise Transient(f"{what}: {len(found)} of {max(totals)} came, the list changes while it is read", code=MOVED)


def read_named(page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """What came of things that were asked for by id, each once; a vendor that counts more than it shows (inactive
    groups) is not asked again."""
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
