"""What a step is, and what it may use: one provider, a few methods of one
cluster, the options in force.

Steps do not know the store, the queues or the policy's mode. Each dependency is a narrow protocol,
so that a test or the local emulation can replace it without patching; operations/kube_node_api.py
implements the one for a real cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from chalicelib.model.node import Condition, Taint
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit.base import Provider


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Node as the removal steps see it. delays: its `delay-deletion.` annotations
    (docs/reference/drain.md "Deletion delay"). operation: the one that tainted it, as noted on the
    node; empty where no operation of Outscaler did. ready: whether its kubelet reports Ready;
    ready_since: last change of that condition, epoch seconds; boot: id of the machine's present
    boot. 0.0, "": unknown. conditions: without their messages."""

    name: str
    uid: str = ""
    provider_id: str = ""
    unschedulable: bool = False
    scale_down_disabled: bool = False
    taints: tuple[Taint, ...] = ()
    delays: tuple[str, ...] = ()
    operation: str = ""
    ready: bool = False
    ready_since: float = 0.0
    boot: str = ""
    conditions: tuple[Condition, ...] = ()

    def taint(self, key: str) -> Taint | None:
        """Return the first taint with that key, if any."""
        return next((taint for taint in self.taints if taint.key == key), None)


class PodState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod as the removal steps see it. grace and deletion_grace in seconds; deleted
    in epoch seconds, 0.0 if it is not being deleted. gated: it has scheduling gates, so
    no scheduler binds it yet."""

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
        """Return namespace/name, as in every message."""
        return f"{self.namespace}/{self.name}"


class Eviction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one eviction request: accepted (also for a pod that is gone), or the API's
    message why not. gone: there was nothing left to evict. retry_after: seconds the API asked to
    wait, 0.0 if it named none."""

    accepted: bool
    why_not: str = ""
    gone: bool = False
    retry_after: float = 0.0


class Recheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of the drain rules just before acting: the first pod that blocks the node
    and the rule, or nothing."""

    pod: str = ""
    rule: str = ""

    @property
    def clear(self) -> bool:
        """Return whether nothing blocks the node."""
        return not (self.pod or self.rule)


class NodeApi(Protocol):
    """The methods of the cluster's API that operations need. Every method raises ClusterError."""

    def node(self, name: str) -> NodeState | None:
        """Return the current node; None if there is no node of that name."""

    def taint(self, name: str, taint: Taint, *, operation: str, cordon: bool) -> None:
        """Taint, cordon and note the operation in one write; an existing taint of that key keeps
        its value. Raises NotFound if there is no node."""

    def untaint(self, name: str, key: str, *, operation: str, uncordon: bool) -> None:
        """Remove what this operation set: taint, cordon and note, in one write. What another
        operation has noted stays. uncordon: also where the note is missing. A node without any of
        it, or no node at all, is not an error."""

    def pod(self, namespace: str, name: str) -> PodState | None:
        """Return the current pod of that name; None if there is none."""

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        """Return every pod bound to the node, including finished ones."""

    def pods_nominated(self, node: str) -> tuple[PodState, ...]:
        """Return the pods that the scheduler has nominated for this node after a preemption."""

    def claims_awaiting(self, node: str) -> tuple[str, ...]:
        """Return the claims (namespace/name) whose volume is being provisioned on this node, for
        pods not bound to it yet; none where claims may not be read."""

    def evict(self, pod: PodState, grace: float) -> Eviction:
        """Request the eviction of exactly this pod (by uid); the API enforces budgets."""


class SiblingRemovals(Protocol):
    """The other open removals of the operation's group (operations/sibling_removals.py). Every
    method raises StoreError."""

    def soon_ready(self, now: float) -> bool:
        """Return whether the operation should wait for others, once the vendor takes a change."""

    def claim_ready(self) -> Iterator[Operation]:
        """Claim those that wait to be deleted, the oldest first; each is released after the step
        unless it is given an outcome."""

    def end_step(self, operation: Operation, outcome: Outcome) -> None:
        """Give a claimed one the outcome of its step, which is recorded after the step."""

    def wake_one(self) -> None:
        """Let one that waits to be deleted try now, unless one is due already: the
        vendor's change is over."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """Everything one step may use. provider opens the operation's provider; it raises
    ProviderError, or ClusterError for one that lives in the cluster. recheck: node -> result of the
    drain rules. checkpoint is called with a name after each change made outside, before it can
    be recorded: a test dies there to show that nothing is done twice. siblings: None where an
    operation is carried out by itself. announced_by_vendor: node -> whether the last pass knew from
    the vendor's API that the node is taken back; raises StoreError."""

    provider: Callable[[], Provider]
    cluster: NodeApi
    options: Options
    recheck: Callable[[str], Recheck] = lambda _: Recheck()
    checkpoint: Callable[[str], None] = lambda _: None
    siblings: SiblingRemovals | None = None
    announced_by_vendor: Callable[[str], bool] = lambda _: False


Step = Callable[[Operation, StepContext, float], Outcome]


@dataclass(frozen=True, slots=True)
class OperationDefinition:
    """One kind of operation as data. steps: names and functions; a new operation begins with the
    first. rollback: turns a failure into the outcome that leaves no changes behind. timed_steps:
    those that end by themselves and may continue past the deadline. irreversible_steps: those at
    which the vendor has already accepted the request, so that cancelling would only hide its
    result."""

    steps: tuple[tuple[str, Step], ...]
    rollback: Callable[[Operation, Failed], Outcome] = lambda _, failure: failure
    timed_steps: frozenset[str] = frozenset()
    irreversible_steps: frozenset[str] = frozenset({"poll"})

    def step(self, name: str) -> tuple[str, Step]:
        """Return the step of that name. A name that no longer exists (planned by an older version)
        starts over, which is safe because every step may be repeated."""
        return next((entry for entry in self.steps if entry[0] == name), self.steps[0])


# A provider may keep a request id in InProgress.data and a step name of its own in InProgress.step.
# Both are passed back unchanged at the next call, and neither collides with the steps and data of
# operations, which share the operation's row.
NOT_STARTED = "NotStarted"
"""Error class of an operation that started after its deadline: the delay is Outscaler's own."""
OWN = "own."
"""Prefix of the keys in the operation's data that belong to operations."""
VENDOR_STEP = f"{OWN}vendorStep"
LEAST_WAIT = 1.0


def for_provider(operation: Operation) -> Operation:
    """Return the operation as its provider sees it: with the provider's own data and step."""
    data = {key: value for key, value in operation.status.data.items() if not key.startswith(OWN)}
    return operation.with_status(data=data, step=operation.status.data.get(VENDOR_STEP, ""))


def from_provider(operation: Operation, outcome: Outcome) -> Outcome:
    """Return a provider's outcome as it is recorded: InProgress becomes step `poll` and keeps
    the operation's own data."""
    if not isinstance(outcome, InProgress):
        return outcome
    own = {key: value for key, value in operation.status.data.items() if key.startswith(OWN)}
    data = {**outcome.data, **own, VENDOR_STEP: outcome.step}
    return InProgress(max(outcome.after, LEAST_WAIT), "poll", data, outcome.note)
