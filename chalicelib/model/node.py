"""Nodes as the planner sees them, both real nodes and templates."""

from __future__ import annotations

import msgspec

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
LEAVING_MARKS = ("outscaler.dev/leaving", "outscaler.dev/leaving-2", "outscaler.dev/leaving-3")
"""Soft taints of a node that a horizon empties, one for each level. A taint is unique by key and
effect, so levels are keys. See docs/reference/consolidation.md "Marks"."""
OWN_TAINTS = (TO_BE_DELETED, DELETION_CANDIDATE, *LEAVING_MARKS)
"""Taints that an autoscaler writes and takes back: no part of what a node is."""
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DELAY_DELETION_PREFIX = "delay-deletion.cluster-autoscaler.kubernetes.io/"
HOSTNAME_LABEL = "kubernetes.io/hostname"


class Taint(msgspec.Struct, frozen=True, gc=False):
    """key=value:effect."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A node condition. changed: its last transition in epoch seconds, 0.0 if the API gave none.
    message: "node is shutting down" where the kubelet says so, "" otherwise."""

    type: str
    status: str
    reason: str = ""
    changed: float = 0.0
    message: str = ""


class Node(msgspec.Struct, frozen=True, gc=False):
    """A Node object. capacity and allocatable: cpu in millicores, memory and storage in bytes, the
    rest in pieces. identities: those of its addresses, its machine id and its system UUID that are
    the value of one of its labels."""

    name: str
    labels: dict[str, str]
    allocatable: dict[str, int]
    capacity: dict[str, int] = {}
    uid: str = ""
    provider_id: str = ""
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    conditions: tuple[Condition, ...] = ()
    created: float = 0.0
    resource_version: str = ""
    identities: tuple[str, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of that type, if the node reports it."""
        return next((c for c in self.conditions if c.type == kind), None)

    def taint(self, key: str) -> Taint | None:
        """Return the first taint with that key, if any."""
        return next((t for t in self.taints if t.key == key), None)


def mark_level(node: Node) -> int:
    """Return how many marks of a horizon a node has, -1 if they are not the first ones."""
    soft_taints = {taint.key for taint in node.taints if taint.effect == "PreferNoSchedule"}
    present = soft_taints.intersection(LEAVING_MARKS)
    level = len(present)
    return level if present.issubset(LEAVING_MARKS[:level]) else -1
