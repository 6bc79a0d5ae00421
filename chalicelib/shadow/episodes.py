"""Joins growths to episodes: an autoscaler that grows one group per loop answers one need in several acts."""

from __future__ import annotations

import msgspec

from chalicelib.shadow.records import Episode, Growth

CHAIN = 120.0
"""Maximum seconds between two growths of one episode."""
MOST_GROWTHS, MOST_PODS = 200, 200


def joined(episode: Episode | None, found: tuple[Growth, ...], since: float, now: float) -> Episode | None:
    """Return the open episode with these growths, or a new one. since: the last pass before them; now: this pass."""
    if not found:
        return episode
    if episode is None:
        return Episode(since, found[:MOST_GROWTHS], noticed=now)
    return msgspec.structs.replace(episode, growths=(*episode.growths, *found)[:MOST_GROWTHS])


def is_over(episode: Episode, now: float) -> bool:
    """Return whether no further growth can belong to the episode."""
    return now - episode.ended > CHAIN


def follows(episode: Episode, found: tuple[Growth, ...]) -> bool:
    """Return whether the growths belong to the episode."""
    return not found or min(growth.at for growth in found) - episode.ended <= CHAIN


def sizes(episode: Episode) -> dict[str, int]:
    """Return how many nodes each group got."""
    total: dict[str, int] = {}
    for growth in episode.growths:
        total[growth.group] = total.get(growth.group, 0) + growth.count
    return dict(sorted(total.items()))


def is_somebody_elses(episode: Episode) -> bool:
    """Return whether the other autoscaler's status could be read and says of none of the growths that it made them."""
    return not any(growth.confirmed or growth.alone for growth in episode.growths)
