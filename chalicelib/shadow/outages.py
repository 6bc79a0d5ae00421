"""Times without the other autoscaler: when its process ended, when a new one began,
and what counts in between.

Nothing counts that happened between the last sign of life of a process and the beginning of the
next one. An outage is noticed late, so acts that are later than the last status are held until a
status follows them. Acts that nothing follows are dropped with the time that is left out.
"""

from __future__ import annotations

import msgspec

from chalicelib.shadow.observed import Pass, being_removed
from chalicelib.shadow.other_status import DEAD_AFTER
from chalicelib.shadow.records import (
    MOST_TRACKED,
    Episode,
    Growth,
    Ledger,
    Match,
    Observation,
    add,
    latest,
)


def passes_between(last_observation: Observation, this_pass: Pass) -> int:
    """Return the number of passes since the last observation. Those in which
    nothing changed are not kept."""
    if not this_pass.token:
        return 1
    passes = this_pass.token - last_observation.token
    return max(1, min(passes, 1000))


def stopped_at(last_observation: Observation, this_pass: Pass) -> float:
    """Return the last sign of life of the process that has ended: the time of its last status.
    Passes that were not kept saw no change, so the silence began after the last of them."""
    last = last_observation
    status = this_pass.status
    if status is not None and status.is_dead(this_pass.at):
        return status.at
    if last.late:
        return last.alive
    if not last.alive:
        return this_pass.at
    seconds = this_pass.at - last.at
    seconds_per_pass = seconds / passes_between(last, this_pass)
    unchanged_seconds = seconds - seconds_per_pass
    return last.alive + unchanged_seconds


def restarted_at(last_observation: Observation, soft: dict[str, int], this_pass: Pass) -> float:
    """Return when the other autoscaler started anew since the last pass, 0.0 if it did not.

    Signs, the best first: all transitions in its status are later than its last status; its
    ConfigMap is another one; most soft taints that stayed have a newer value. Cluster Autoscaler
    itself leaves its soft taints as they are.
    """
    last = last_observation
    status = this_pass.status
    written_at = this_pass.at
    if status is not None:
        if status.starting:
            return status.at if status.at > last.alive else 0.0
        if status.began > 0 and last.alive > 0:
            return status.began if status.began > last.alive else 0.0
        written_at = status.at or this_pass.at
        has_both_uids = bool(status.uid and last.uid)
        if has_both_uids and status.uid != last.uid:
            return written_at
    common = [node for node in soft if node in last.soft]
    newer = sum(soft[node] > last.soft[node] for node in common)
    most_are_newer = 2 * newer > len(common)
    return written_at if most_are_newer else 0.0


def without_outage(
    ledger: Ledger, this_pass: Pass, stopped: float
) -> tuple[Ledger, Episode | None]:
    """Return the ledger in a time without the other autoscaler, and its last episode,
    if that was over before.

    stopped: its last sign of life. Nodes that are being removed now are not its
    removals when it is back.
    """
    ledger = _with_matches_before(ledger, stopped)
    existing = this_pass.node_names
    deleting = {node: at for node, at in ledger.deleting.items() if node in existing}
    deleting |= being_removed(this_pass)
    question = _before(ledger.episode, stopped)
    ledger = msgspec.structs.replace(
        ledger, episode=None, wanted=None, planned={}, held=(), deleting=latest(deleting)
    )
    return ledger, question


def _with_matches_before(ledger: Ledger, stopped: float) -> Ledger:
    matches = (match for match in ledger.held if match.at <= stopped)
    return add(ledger, *matches)


def _before(episode: Episode | None, stopped: float) -> Episode | None:
    """Return the episode with the growths that are surely the other
    autoscaler's, None if it has none."""
    if episode is None:
        return None
    others = (growth for growth in episode.growths if growth.is_others)
    growths = tuple(growth for growth in others if growth.at <= stopped)
    return msgspec.structs.replace(episode, growths=growths) if growths else None


def after_restart(ledger: Ledger, stopped: float, began: float) -> Ledger:
    """Return the ledger for a new process. What happened between both processes is
    nobody's act that counts."""
    ledger = _with_matches_before(ledger, stopped)
    episode = ledger.episode
    if episode is not None:
        growths = outside(episode.growths, stopped, began)
        episode = msgspec.structs.replace(episode, growths=growths) if growths else None
    return msgspec.structs.replace(ledger, episode=episode, held=(), wanted=None, restarted=began)


def outside(growths: tuple[Growth, ...], stopped: float, began: float) -> tuple[Growth, ...]:
    """Return the growths that did not happen between two processes."""
    return tuple(growth for growth in growths if not stopped < growth.at < began)


def hold(ledger: Ledger, matches: tuple[Match, ...]) -> Ledger:
    """Return the ledger with removals that count when a status follows them."""
    return msgspec.structs.replace(ledger, held=(*ledger.held, *matches)[-MOST_TRACKED:])


def release(ledger: Ledger, known_until: float, now: float) -> Ledger:
    """Return the ledger with the results that a status has followed, or that none will follow
    because it cannot be read any more."""

    def is_due(match: Match) -> bool:
        return match.at <= known_until or now - match.at > DEAD_AFTER

    due = {match.id for match in ledger.held if is_due(match)}
    ready = [match for match in ledger.held if match.id in due]
    waiting = tuple(match for match in ledger.held if match.id not in due)
    return add(msgspec.structs.replace(ledger, held=waiting), *ready)
