"""Machines, the Nodes that they have become, and the instances that a group consists of.

Three ways connect a Machine to its Node, in descending order of certainty: the Machine's nodeRef,
equal provider ids, and the ids' last segment. The owner of a kubelet can recreate and annotate its
Node, so an ambiguous or contradictory match connects nothing. The Machine is then blocked, and
neither it nor the Nodes are changed (docs/providers/clusterapi.md "Mapping of Nodes to Machines").

A joined Machine gets its Node's id where upstream would use a placeholder or nothing, because an
instance without a Node is removed without a drain. For the same reason a Machine with a nodeRef, or
with an uncertain Node, is blocked: it may be a Node of another cluster.

Some infrastructure providers create a Machine for every instance of a MachinePool; those are read
and removed like any other. Without Machines there is only a list of provider ids: the Nodes show
which of them have joined, and it is impossible to select the one to be deleted
(docs/providers/clusterapi.md "MachinePools").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.models import (
    CapiAnnotations,
    CapiMachine,
    CapiResource,
    StatusCondition,
)
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.kit.errors import OutOfStock, QuotaExceeded, Throttled, Unknown
from chalicelib.reasons.words import some

FAILED, DELETING, PENDING = "failed-machine-", "deleting-machine-", "pending-machine-"
# The annotations that Cluster API sets on a Node about its owner, with this
# prefix in every API group.
_OWNER_KIND, _OWNER_NAME = "cluster.x-k8s.io/owner-kind", "cluster.x-k8s.io/owner-name"
_SHOWN = 80  # maximum characters of untrusted text

# -- ids


def placeholder(prefix: str, machine: CapiMachine) -> str:
    """Return the id of a Machine without a Node: `pending-machine-<namespace>_<name>`; every
    real id contains a slash."""
    return f"{prefix}{machine.metadata.namespace}_{machine.metadata.name}"


def handle_of(instance: str) -> str:
    """Return `ns/name` of `pending-machine-ns_name`; empty for any other id. A namespace
    cannot contain an underscore."""
    for prefix in (FAILED, DELETING, PENDING):
        if instance.startswith(prefix) and "/" not in instance:
            namespace, _, name = instance.removeprefix(prefix).partition("_")
            return f"{namespace}/{name}"
    return ""


def folded(provider_id: str) -> str:
    """Return the id for an exact comparison. Azure's components write one id in different
    case, so it is lower-cased."""
    return provider_id.lower() if provider_id.startswith("azure://") else provider_id


def normalise(provider_id: str) -> str:
    """Return the part after the last slash, on which Machine and Node agree even if the rest
    differs. A virtual machine of a scale set on Azure keeps its whole id, because its last
    segment is a bare number."""
    provider_id = folded(provider_id)
    if provider_id.startswith("azure://") and "virtualmachinescalesets" in provider_id:
        return provider_id
    return provider_id.rpartition("/")[2]


def same_id(one: str, other: str) -> bool:
    """Whether both are ids of one machine, in any form; an empty id matches nothing."""
    segment = normalise(one)
    return bool(segment) and segment == normalise(other)


# -- Machines and Nodes


class Match(msgspec.Struct, frozen=True):
    """The Node of a Machine. node: None if it has not joined or is uncertain. doubt: why neither
    of them may be changed, empty if the match is certain. gone: the only reason is that the Node
    of its nodeRef is missing."""

    node: Node | None = None
    doubt: str = ""
    gone: bool = False


class Nodes:
    """The cluster's Nodes, found by what a Machine records of its Node. Contains Nodes
    of one cluster only. machines: all Machines of that cluster, so that two with the
    same claim are detected."""

    def __init__(
        self,
        nodes: Iterable[Node],
        annotations: CapiAnnotations,
        machines: Iterable[CapiMachine] = (),
    ) -> None:
        self._keys = annotations
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[tuple[str, str], Node] = {}
        self._by_id: dict[str, list[Node]] = {}
        self._by_segment: dict[str, list[Node]] = {}
        for node in nodes:
            self._by_name[node.name] = node
            if name := node.annotations.get(annotations.machine):
                self._by_machine[node.annotations.get(annotations.cluster_namespace, ""), name] = (
                    node
                )
            if node.provider_id:
                self._by_id.setdefault(folded(node.provider_id), []).append(node)
                self._by_segment.setdefault(normalise(node.provider_id), []).append(node)
        self._machines_by_id: dict[str, list[str]] = {}
        self._machines_by_segment: dict[str, int] = {}
        self._machines_by_node: dict[str, list[str]] = {}
        for machine in machines:
            if provider_id := machine.spec.provider_id:
                self._machines_by_id.setdefault(folded(provider_id), []).append(machine.handle)
                segment = normalise(provider_id)
                self._machines_by_segment[segment] = self._machines_by_segment.get(segment, 0) + 1
            if machine.node_name:
                self._machines_by_node.setdefault(machine.node_name, []).append(machine.handle)

    def match(self, machine: CapiMachine) -> Match:
        """Return the Node of a Machine, or why it is uncertain."""
        if problem := self._shared_value(machine):
            return Match(doubt=problem)
        return (
            self._match_reference(machine)
            if machine.status.node_ref is not None
            else self._match_ids(machine)
        )

    def named(self, name: str) -> Node | None:
        """Return the Node of that name."""
        return self._by_name.get(name)

    def listed(self, provider_id: str, pool: str) -> Match:
        """Return the Node of an instance that the MachinePool of that name lists.
        Matched by the exact id; otherwise by its last segment, among the Nodes whose
        annotations name no other owner."""
        nodes = list(self._by_id.get(folded(provider_id), ()))
        if not nodes and (segment := normalise(provider_id)):
            nodes = [
                node for node in self._by_segment.get(segment, ()) if self._may_be_of(pool, node)
            ]
        return Match(doubt=_one_id(nodes)) if len(nodes) > 1 else Match(nodes[0] if nodes else None)

    def first(self, instances: Iterable[Instance]) -> Node | None:
        """Return the Node of the first instance that has one."""
        return next(
            (self._by_name[each.node] for each in instances if each.node in self._by_name), None
        )

    def _may_be_of(self, pool: str, node: Node) -> bool:
        owner = node.annotations.get(_OWNER_KIND, ""), node.annotations.get(_OWNER_NAME, "")
        return owner == (POOL, pool) or (
            owner == ("", "") and not node.annotations.get(self._keys.machine)
        )

    def _shared_value(self, machine: CapiMachine) -> str:
        """Describe two Machines or two Nodes that share a value that must be unique."""
        provider_id = folded(machine.spec.provider_id or "")
        if len(handles := self._machines_by_id.get(provider_id, ())) > 1:
            return f"Machines {_names(handles)} have one providerID, {provider_id[:_SHOWN]}"
        if len(handles := self._machines_by_node.get(machine.node_name, ())) > 1:
            return f"Machines {_names(handles)} have one Node, {machine.node_name[:_SHOWN]}"
        node = self._by_name.get(machine.node_name)
        for node_id in (provider_id, folded(node.provider_id) if node else ""):
            if len(nodes := self._by_id.get(node_id, ())) > 1:
                return _one_id(nodes)
        return ""

    def _match_reference(self, machine: CapiMachine) -> Match:
        """Match by the nodeRef, which only Cluster API writes. A Machine with a nodeRef has joined,
        even if its Node is not one of this cluster."""
        name, provider_id = machine.node_name, machine.spec.provider_id or ""
        node = self._by_name.get(name)
        if node is None:
            what = f"Node {name[:_SHOWN]}" if name else "an object that is not a Node"
            return Match(
                doubt=f"Cluster API has seen it join as {what}, which is not among this cluster's "
                "Nodes; if "
                "it is no longer needed, delete the Machine",
                gone=bool(name),
            )
        if provider_id and node.provider_id and not same_id(provider_id, node.provider_id):
            return Match(
                doubt=f"its Node {name[:_SHOWN]} has another providerID, "
                f"{node.provider_id[:_SHOWN]}, than "
                f"{provider_id[:_SHOWN]}"
            )
        return Match(node)

    def _match_ids(self, machine: CapiMachine) -> Match:
        """Match by the ids, if Cluster API cannot see the Node. An annotation of
        a Node is not sufficient."""
        provider_id = machine.spec.provider_id or ""
        segment = normalise(provider_id)
        nodes: Sequence[Node] = self._by_id.get(folded(provider_id), ()) if provider_id else ()
        if not nodes and segment:
            nodes = self._by_segment.get(segment, ())
            if len(nodes) > 1 or (nodes and self._machines_by_segment.get(segment, 0) > 1):
                names = _names([node.name for node in nodes])
                return Match(doubt=f"it may be Node {names}, and its id does not tell")
        if not nodes:
            claimant = self._by_machine.get((machine.metadata.namespace, machine.metadata.name))
            if claimant is None:
                return Match()
            return Match(
                doubt=f"an annotation of Node {claimant.name} names it, and no id confirms that"
            )
        if others := self._machines_by_node.get(nodes[0].name):
            return Match(
                doubt=(
                    f"its providerID is that of Node {nodes[0].name}, which is Machine "
                    f"{_names(others)}"
                )
            )
        return Match(nodes[0])


def _names(names: Sequence[str]) -> str:
    return some(names, 2) if len(names) > 2 else " and ".join(names)


def _one_id(nodes: Sequence[Node]) -> str:
    return (
        f"Nodes {_names([node.name for node in nodes])} have one providerID, "
        f"{nodes[0].provider_id[:_SHOWN]}"
    )


# -- Machines as instances Since Cluster API v1.11 no controller sets the phase Failed. Conditions
# still report that a machine will not be created, but they also report temporary problems. They are
# used only after the duration in the settings, and never for a Machine with a Node.

_INFRASTRUCTURE, _HEALTH_CHECK, _STARTUP_TIMEOUT = (
    "InfrastructureReady",
    "HealthCheckSucceeded",
    "NodeStartupTimeout",
)
# Cluster API has no field for "sold out" or "over quota", only reasons and messages, whose wording
# each infrastructure provider chooses. The class decides whether the next group is tried in the
# same pass and whether the operator is notified; a wrong guess only results in a backoff of the
# wrong class. The first matching row decides. A limit on calls is not a limit on machines; "no
# capacity within your quota" is a quota.
_FAILURE_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), cls.__name__)
    for pattern, cls in (
        (r"throttl|rate.?limit|limit.?rate|request.?limit|too.?many.?requests", Throttled),
        (r"out.?of.?stock|no.?stock|limited.?availability", OutOfStock),
        (r"quota|limit(?!ed|range)", QuotaExceeded),
        (
            r"capacity|stock|sold.?out|exhausted|sku.?not.?available|insufficient.?resources",
            OutOfStock,
        ),
        (r"allocation.?failed|no.?valid.?host", OutOfStock),
    )
)
# Unambiguous error classes, accepted after two minutes without a setting: waiting longer yields no
# machine, and meanwhile no other group is tried.
_UNAMBIGUOUS, _UNAMBIGUOUS_AFTER = frozenset({OutOfStock.__name__, QuotaExceeded.__name__}), 120.0


def failure_class(reason: str, message: str) -> str:
    """Return the name of the provider error class for a reason and a message,
    `Unknown` if none matches."""
    text = f"{reason} {message}"
    return next((cls for pattern, cls in _FAILURE_WORDS if pattern.search(text)), Unknown.__name__)


class Patience(msgspec.Struct, frozen=True):
    """now: epoch seconds. stuck_after: seconds that the infrastructure may be not ready; 0.0:
    unlimited, except if it reports stock or quota."""

    now: float = 0.0
    stuck_after: float = 0.0

    def error_of(self, condition: StatusCondition | None) -> InstanceError | None:
        """Return the error of a condition of the infrastructure that has been false for too long,
        None for any other. A missing or future time proves nothing."""
        if condition is None or condition.status != "False":
            return None
        error = _error(condition)
        after = _UNAMBIGUOUS_AFTER if error.cls in _UNAMBIGUOUS else 0.0
        limits = [limit for limit in (self.stuck_after, after) if limit > 0]
        try:
            since = parse_time(condition.last_transition_time or "")
        except BadInput:
            return None
        return error if limits and self.now - since >= min(limits) else None


def classify(machine: CapiMachine, match: Match, patience: Patience | None = None) -> Instance:
    """Return the instance of a Machine. If its Node is uncertain, it has none and is blocked:
    neither a removal nor a repair selects it. patience: None: without end. The order of the checks
    is significant: a failed Machine that is also being deleted counts as failed."""
    node, failed = match.node, bool(machine.failure) and machine.status.phase == "Failed"
    # CAPI may be unable to reach the cluster that the Node has joined; the Machine
    # is running nevertheless.
    never_joined = machine.status.node_ref is None and node is None
    error = None
    if failed and machine.leaving:
        name, state = placeholder(FAILED, machine), InstanceState.DELETING
        error = InstanceError(Unknown.__name__, "DeletingFailed", machine.failure)
    elif failed and never_joined:
        name, state = placeholder(FAILED, machine), InstanceState.CREATING
        cls = failure_class(machine.failure_reason, machine.failure)
        error = InstanceError(cls, "ProvisioningFailed", machine.failure)
    elif failed and node is None:  # it has joined before; upstream gives it no state
        name, state = placeholder(FAILED, machine), InstanceState.RUNNING
    elif machine.leaving:
        name, state = placeholder(DELETING, machine), InstanceState.DELETING
    elif never_joined:
        name, state = placeholder(PENDING, machine), InstanceState.CREATING
        error = _creation_error(machine, patience or Patience())
    else:
        # The Node's own form takes precedence, because ids are compared by exact text. The id is
        # never empty: a Node without one is found by its name.
        provider_id = (node.provider_id if node else "") or machine.spec.provider_id
        name, state = provider_id or placeholder(PENDING, machine), InstanceState.RUNNING
    held = "" if machine.leaving else match.doubt
    return Instance(
        name, state, error, handle=machine.handle, node=node.name if node else "", held=held
    )


def _creation_error(machine: CapiMachine, patience: Patience) -> InstanceError | None:
    """Return why the Machine will not be created, from its conditions; None if it may be, or if
    they are not to be used."""
    check = machine.condition(_HEALTH_CHECK)
    # A health check reports this only after its own timeout.
    if (
        patience.stuck_after > 0
        and check is not None
        and (check.status, check.reason) == ("False", _STARTUP_TIMEOUT)
    ):
        return _error(check)
    return patience.error_of(machine.condition(_INFRASTRUCTURE))


def _error(condition: StatusCondition) -> InstanceError:
    reason, message = condition.reason or "", condition.message or ""
    return InstanceError(failure_class(reason, message), reason or condition.type, message)


# -- MachinePools

_MANAGED_BY = "cluster.x-k8s.io/replicas-managed-by"
# prefix of a handle that is a provider id; a Machine's is namespace/name, without a colon
_LISTED = "listed:"


def managed_by(resource: CapiResource) -> str:
    """Return the other scaler that sets the pool's size, empty if there is none. Such a
    pool is not a node group."""
    name = resource.annotations.get(_MANAGED_BY, "false")
    return "" if name.lower() == "false" else name or "somebody unnamed"


def listed_handle(provider_id: str) -> str:
    """Return the handle of an instance without a Machine."""
    return f"{_LISTED}{provider_id}"


def listed_id(handle: str) -> str:
    """Return the provider id in such a handle, empty for any other."""
    return handle.removeprefix(_LISTED) if handle.startswith(_LISTED) else ""


def without_machine(resource: CapiResource, machines: Iterable[CapiMachine]) -> tuple[str, ...]:
    """Return the listed provider ids that no Machine of the pool has, in the list's order."""
    exact = {machine.spec.provider_id for machine in machines if machine.spec.provider_id}
    segments = {normalise(provider_id) for provider_id in exact}
    return tuple(
        listed
        for listed in resource.listed
        if listed not in exact and normalise(listed) not in segments
    )


def listed_instances(
    resource: CapiResource, machines: Sequence[CapiMachine], nodes: Nodes
) -> tuple[Instance, ...]:
    """Return the instances of a pool that are listed without a Machine. No
    Node matches two of them."""
    instances: list[Instance] = []
    node_names: set[str] = set()
    elsewhere = joined_elsewhere(resource, nodes)
    for provider_id in without_machine(resource, machines):
        match, handle = (
            nodes.listed(provider_id, resource.metadata.name),
            listed_handle(provider_id),
        )
        node, doubt = match.node, match.doubt or elsewhere
        if node is not None and node.name not in node_names:
            node_names.add(node.name)
            instances.append(
                Instance(node.provider_id or provider_id, handle=handle, node=node.name)
            )
            continue
        if node is not None:
            doubt = f"Node {node.name} is another instance of the pool already"
        instances.append(Instance(provider_id, InstanceState.CREATING, handle=handle, held=doubt))
    return tuple(instances)


def joined_elsewhere(resource: CapiResource, nodes: Nodes) -> str:
    """Return why none of the pool's instances may count as never joined; empty if that can be
    decided. The pool's status does not say which instance each of its Nodes is."""
    name = next((name for name in resource.node_names if nodes.named(name) is None), "")
    return name and (
        f"Cluster API has seen Node {name[:80]} of this pool join, which is not among this "
        "cluster's Nodes"
    )


def pool_stuck(resource: CapiResource, patience: Patience) -> str:
    """Return why a MachinePool's instances are not created, from its condition; empty
    while they may be. It is only reported, because without a Machine there is no instance
    that could carry the error."""
    error = patience.error_of(
        next((each for each in resource.conditions if each.type == _INFRASTRUCTURE), None)
    )
    return (
        f"its infrastructure is not ready ({error.cls}): {error.code}: {error.message}"
        if error
        else ""
    )


def pool_held(
    resource: CapiResource, machines: Sequence[CapiMachine], settings: CapiSettings
) -> str:
    """Return why nothing may be removed from the pool, empty if something may. It is reported
    before a node is drained needlessly. It is not reported while fewer instances are listed than
    requested, because it would also prevent lowering the size to the existing instances, which
    deletes none."""
    listed = len(resource.listed)
    if (
        machines
        or settings.allow_pool_shrink
        or listed < 2
        or (resource.spec.replicas or 0) > listed
    ):
        return ""
    return cannot_choose(resource)


def cannot_choose(resource: CapiResource) -> str:
    """Return the refusal, with its remedy."""
    return (
        f"MachinePool {resource.metadata.namespace}/{resource.metadata.name} has no Machines, so "
        "the instance to "
        "remove cannot be selected: set allowPoolShrink in providers.clusterapi to lower its size "
        "anyway; the "
        "infrastructure then selects the instance"
    )
