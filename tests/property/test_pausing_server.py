"""A server may pause before any change: no pass takes the pause for the end, or the
next one says that it did.
"""

from __future__ import annotations

import random

import pytest

from tests.property.pausing_server import (
    FollowedServer,
    Pauses,
    PausingServer,
    VirtualTime,
    healthy,
)

PASSES = 40
# pods: a list that is read where a server pauses, and one for whose mark a pass waits
FEW, MANY = 300, 6_000


def between(least: float, most: float, seed: int = 7) -> Pauses:
    generator = random.Random(seed)
    return lambda: generator.uniform(least, most)


def sometimes(pause: Pauses, share: float) -> Pauses:
    generator = random.Random(8)
    return lambda: pause() if generator.random() < share else healthy()


def followed(
    pause: Pauses,
    *,
    first: Pauses = healthy,
    marks: bool = False,
    pods: int = FEW,
    passes: int = PASSES,
    count: int = 12,
) -> FollowedServer:
    time = VirtualTime()
    process = FollowedServer(PausingServer(time, pods, pause, first=first, marks=marks), time)
    for _ in range(passes):
        process.run(count)
    return process


@pytest.mark.parametrize("marks", [False, True], ids=["no-bookmarks", "bookmarks"])
@pytest.mark.parametrize("share", [1.0, 0.05], ids=["always", "sometimes"])
def test_no_change_is_missed_where_the_server_pauses_between_changes(
    share: float, marks: bool
) -> None:
    process = followed(sometimes(between(0.2, 5.0), share), marks=marks)
    assert (process.missed, process.passes) == (0, PASSES)


@pytest.mark.parametrize("seed", range(3))
def test_no_change_is_missed_where_only_bookmarks_mark_the_end(seed: int) -> None:
    """The list is too long to be read, so that the pass waits for the bookmark."""
    process = followed(between(0.2, 0.5, seed), marks=True, pods=MANY, passes=8, count=2)
    assert (process.missed, process.passes) == (0, 8)


def test_pass_after_a_missed_change_says_so_and_waits_from_then_on() -> None:
    process = followed(between(0.2, 5.0), first=between(0.2, 2.5))
    assert process.missed_passes == [0]
    assert process.signs == [1]


def test_server_that_pauses_no_more_is_trusted_again() -> None:
    process = followed(between(0.5, 2.0), passes=3)
    assert process.pace.only_marks
    process.server.pause = healthy
    reread = ["Pod" in process.run(12).reread for _ in range(30)]
    assert reread[0]
    assert not any(reread[-10:])
    assert process.missed == 0


def test_pass_of_a_healthy_server_waits_no_longer_than_two_quiet_moments() -> None:
    process = followed(healthy)
    assert process.missed == 0
    assert process.seconds / process.passes < 0.2


@pytest.mark.parametrize(
    ("marks", "least", "most"),
    [(True, 9.0, 11.0), (False, 200.0, 500.0)],
    ids=["bookmarks", "no-bookmarks"],
)
def test_age_of_what_was_read_is_bounded_by_what_is_proven(
    marks: bool, least: float, most: float
) -> None:
    """With bookmarks each pass proves the one before; without them nothing is proven
    until all is read again."""
    process = followed(healthy, marks=marks)
    assert least <= process.behind <= most
