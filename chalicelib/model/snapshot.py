"""The cluster at one instant: what was read, and what could not be read (`gaps`).

A stored snapshot with a stored memory replays to the same plan, so it contains everything
that the planner may use.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.managed_group import PoolSelection
from chalicelib.model.node import Node
from chalicelib.model.pod import Owner, Pod, PodClass
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.model.selector import Selector
from chalicelib.model.storage import Storage

ALL_GROUPS_OF_PROVIDER = "all node groups of this provider"
"""In MissingData.affected_decisions of a provider: none of its node groups could be read."""
OF_PROVIDER = "provider/"
"""Begins the kind of a gap of a provider."""
ALL_CAPI_GROUPS = "every Cluster API node group"
"""The same for Cluster API while it is not known which cluster is scaled. The
text is stored, so it stays."""


class MissingData(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"affected_decisions": "weakens"}
):
    """Data that could not be read. affected_decisions: the verdicts that are
    less certain without it.

    kind: a resource kind (`PodDisruptionBudget`), a provider (`provider/clusterapi`) or one
    object's kind. name: namespace/name of one malformed object, empty for a whole kind. node: the
    node to which a malformed pod is bound, or the malformed Node itself: no pod is promised a place
    there, and it is not removed.
    """

    kind: str
    detail: str
    name: str = ""
    place: str = ""
    node: str = ""
    affected_decisions: tuple[str, ...] = ()

    @property
    def unread_provider(self) -> str:
        """Return the provider of which no node group could be read; "" where some of them could, as
        with a doubt about one object."""
        has_groups = {ALL_GROUPS_OF_PROVIDER, ALL_CAPI_GROUPS}.isdisjoint(self.affected_decisions)
        if has_groups or not self.kind.startswith(OF_PROVIDER):
            return ""
        return self.kind.removeprefix(OF_PROVIDER)


class PodDisruptionBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A PodDisruptionBudget; allowed is status.disruptionsAllowed. selector None matches nothing.
    whole: enough pods are healthy, so evicting a pod that is not ready costs no disruption.
    required: all of its pods, where it needs that many to be healthy and therefore never allows a
    disruption; otherwise 0."""

    namespace: str
    name: str
    selector: Selector | None
    allowed: int
    unhealthy_policy: str = ""
    whole: bool = False
    required: int = 0


class Controller(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ReplicaSet, ReplicationController, Job, StatefulSet or DaemonSet. replicas is
    spec.replicas, if it has one."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    replicas: int | None = None
    owner: Owner | None = None


class DaemonSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """A DaemonSet and the class of its pods (index into Snapshot.classes)."""

    namespace: str
    name: str
    uid: str
    cls: int


class PriorityConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ConfigMap `cluster-autoscaler-priority-expander`, as
    policy/priority_configmap.py parses it.

    text: data.priorities as written, None if the key is missing. rules: (priority, patterns),
    highest first. problem: why it cannot be used; rules are empty then.
    """

    text: str | None = None
    rules: tuple[tuple[int, tuple[str, ...]], ...] = ()
    problem: str = ""


class ObservedGroups(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all providers say. candidates: groups that Outscaler may make, which the vendor does not
    have. selections: what is left of the catalogues. gaps: what could not be read."""

    groups: tuple[NodeGroup, ...] = ()
    gaps: tuple[MissingData, ...] = ()
    candidates: tuple[NodeGroup, ...] = ()
    selections: tuple[PoolSelection, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cluster at one instant. controller_kinds: the kinds of controllers that could be read;
    the drain rule on replica counts does not apply to the others. candidates, selections: see
    ObservedGroups."""

    cluster: str
    taken_at: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    classes: tuple[PodClass, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    controllers: tuple[Controller, ...] = ()
    controller_kinds: tuple[str, ...] = ()
    daemonsets: tuple[DaemonSet, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    storage: Storage = Storage()
    rule_objects: tuple[RuleObject, ...] | None = None  # None: they were not read in this pass
    priorities: PriorityConfig | None = None  # None: the cluster has no such ConfigMap
    gaps: tuple[MissingData, ...] = ()
    candidates: tuple[NodeGroup, ...] = ()
    selections: tuple[PoolSelection, ...] = ()

    def cls(self, pod: Pod) -> PodClass:
        """Return the class of a pod."""
        return self.classes[pod.cls]
