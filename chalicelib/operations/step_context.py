"""What a step may touch, and nothing else: one provider, a few verbs of one cluster, the options in force.

The steps know neither the store nor the queues nor the policy's mode. Each part is a narrow protocol, so that a test or
the local emulation puts another in its place without any patching; the real cluster is execute/cluster.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from chalicelib.model.node import Taint
from chalicelib.model.policy import Options
from chalicelib.providers.base import Provider


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Node as the removal steps see it. delays: its `delay-deletion.` annotations (scale-down.md §9, step 6).
    operation: the one that marked it, as noted on the node itself; empty where nobody of ours did."""

    name: str
    uid: str = ""
    provider_id: str = ""
    unschedulable: bool = False
    scale_down_disabled: bool = False
    taints: tuple[Taint, ...] = ()
    delays: tuple[str, ...] = ()
    operation: str = ""

    def taint(self, key: str) -> Taint | None:
        """The first taint with that key, if any."""
        return next((taint for taint in self.taints if taint.key == key), None)


class PodState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod as the removal steps see it. grace and deletion_grace in seconds; deleted in epoch seconds, 0.0: not.
    gated: it has scheduling gates, so that no scheduler takes it yet."""

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    phase: str = ""
    mirror: bool = False
    daemonset: bool = False
    enable_ds_eviction: str = ""
    priority: int = 0
    grace: float = 30.0
    deleted: float = 0.0
    deletion_grace: float = 30.0
    gated: bool = False

    @property
    def key(self) -> str:
        """namespace/name, as every message names it."""
        return f"{self.namespace}/{self.name}"


class Eviction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one eviction: accepted (a pod that is gone counts), or the API's own words why not. gone: there
    was nothing left to evict. retry_after: seconds the API asked us to wait, 0.0 if it named none."""

    accepted: bool
    why_not: str = ""
    gone: bool = False
    retry_after: float = 0.0


class Recheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """The drain rules asked again just before acting: the first pod that holds the node and the rule, or nothing."""

    pod: str = ""
    rule: str = ""

    @property
    def clear(self) -> bool:
        """Nothing holds the node."""
        return not (self.pod or self.rule)


class NodeApi(Protocol):
    """The verbs of the cluster's API that a removal needs. Every method raises ClusterError."""

    def node(self, name: str) -> NodeState | None:
        """The node as it is now; None: there is none of that name."""

    def taint(self, name: str, taint: Taint, *, operation: str, cordon: bool) -> None:
        """Put the taint on, cordon, and note the operation, in one write; a taint of that key already there keeps its
        value. Missing: there is no node."""

    def untaint(self, name: str, key: str, *, operation: str, uncordon: bool) -> None:
        """Take off what this operation put on: taint, cordon and note, in one write. What another operation has noted
        stays. uncordon: also where the note is gone. A node without any of it, or no node at all, is fine."""

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        """Every pod bound to the node, finished ones included."""

    def pods_nominated(self, node: str) -> tuple[PodState, ...]:
        """Pods that the scheduler has promised this node to after a preemption."""

    def claims_awaiting(self, node: str) -> tuple[str, ...]:
        """Claims (namespace/name) that are being given a volume on this node, for pods not bound to it yet; none where
        they may not be read."""

    def evict(self, pod: PodState, grace: float) -> Eviction:
        """Ask for the eviction of this very pod (by uid); budgets are the API's business."""


def no_recheck(node: str) -> Recheck:
    """The recheck where no rules are wired: only the ones in execute/recheck.py hold a node."""
    del node
    return Recheck()


def no_checkpoint(place: str) -> None:
    """Outside of tests and `make run`, nobody stops at a checkpoint."""
    del place


@dataclass(frozen=True, slots=True)
class StepContext:
    """Everything one step may use. provider opens the operation's provider; it raises ProviderError, or ClusterError
    for one that lives in the cluster. checkpoint is called with a name after each change made outside, before it can be
    recorded: a test dies there to show that nothing is done twice."""

    provider: Callable[[], Provider]
    cluster: NodeApi
    options: Options
    recheck: Callable[[str], Recheck] = field(default=no_recheck)
    checkpoint: Callable[[str], None] = field(default=no_checkpoint)
