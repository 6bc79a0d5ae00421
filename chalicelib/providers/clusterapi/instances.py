"""Converts a Machine to an instance: its id, its state and its creation error.

The order of the checks is significant: a failed Machine that is also being deleted counts as failed. A joined Machine
gets its Node's id where upstream would use a placeholder or nothing, because an instance without a Node is removed
without a drain. For the same reason a Machine with a nodeRef, or with an uncertain Node, is blocked (provider_ids.py):
it may be a Node of another cluster.

Since Cluster API v1.11 no controller sets the phase Failed. Conditions still report that a machine will not be created,
but
they also report temporary problems. They are used only after the duration in the settings, and never for a Machine with
a Node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.clusterapi.annotations import CapiAnnotations
from chalicelib.providers.clusterapi.api import POOL
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, StatusCondition
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.errors import OutOfStock, QuotaExceeded, Throttled, Unknown

_OTHER = "Unknown"  # the error class of an unclassified failure
_INFRASTRUCTURE, _HEALTH_CHECK, _STARTUP_TIMEOUT = "InfrastructureReady", "HealthCheckSucceeded", "NodeStartupTimeout"


_TOLD_FOR = 120.0
_PLAIN = frozenset({OutOfStock.__name__, QuotaExceeded.__name__})
"""Unambiguous error classes, accepted after two minutes without a setting: waiting longer yields no machine, and
meanwhile no other group is tried."""


class Patience(msgspec.Struct, frozen=True):
    """now: epoch seconds. stuck_after: seconds that the infrastructure may be not ready; 0.0: unlimited, except if it
    reports stock or quota."""

    now: float = 0.0
    stuck_after: float = 0.0

    def is_over(self, condition: StatusCondition, cls: str) -> bool:
        """Whether a condition has lasted too long. A missing or future time proves nothing."""
        limits = [limit for limit in (self.stuck_after, _TOLD_FOR if cls in _PLAIN else 0.0) if limit > 0]
        try:
            since = parse_time(condition.last_transition_time or "")
        except BadInput:
            return False
        return bool(limits) and self.now - since >= min(limits)


WITHOUT_END = Patience()


def _failed(machine: CapiMachine, node: Node | None, patience: Patience) -> Instance | None:
    del patience
    if not machine.failure or machine.status.phase != "Failed":
        return None
    if machine.leaving:
        error = InstanceError(_OTHER, "DeletingFailed", machine.failure)
        return _instance(placeholder(FAILED, machine), InstanceState.DELETING, machine, node, error)
    if machine.status.node_ref is None and node is None:
        cls = failure_class(machine.failure_reason, machine.failure)
        error = InstanceError(cls, "ProvisioningFailed", machine.failure)
        return _instance(placeholder(FAILED, machine), InstanceState.CREATING, machine, node, error)
    # The Machine has joined before; upstream gives it no state. While its Node exists, it is a running Node like any
    # other.
    return (
        _running(machine, node)
        if node
        else _instance(placeholder(FAILED, machine), InstanceState.RUNNING, machine, node)
    )


def _deleting(machine: CapiMachine, node: Node | None, patience: Patience) -> Instance | None:
    del patience
    if not machine.leaving:
        return None
    return _instance(placeholder(DELETING, machine), InstanceState.DELETING, machine, node)


def _pending(machine: CapiMachine, node: Node | None, patience: Patience) -> Instance | None:
    if machine.status.node_ref is not None:
        return None
    # CAPI may be unable to reach the cluster that the Node has joined; the Machine is running nevertheless.
    if node is not None:
        return _running(machine, node)
    stuck = _stuck(machine, patience)
    return _instance(placeholder(PENDING, machine), InstanceState.CREATING, machine, None, stuck)


def _stuck(machine: CapiMachine, patience: Patience) -> InstanceError | None:
    """Return why the Machine will not be created, from its conditions; None if it may be, or if they are not to be
    used."""
    infrastructure, check = machine.condition(_INFRASTRUCTURE), machine.condition(_HEALTH_CHECK)
    # A health check reports this only after its own timeout.
    if patience.stuck_after > 0 and check is not None and (check.status, check.reason) == ("False", _STARTUP_TIMEOUT):
        return _told(check)
    if infrastructure is None or infrastructure.status != "False":
        return None
    error = _told(infrastructure)
    return error if patience.is_over(infrastructure, error.cls) else None


def _told(condition: StatusCondition) -> InstanceError:
    reason, message = condition.reason or "", condition.message or ""
    return InstanceError(failure_class(reason, message), reason or condition.type, message)


def pool_stuck(resource: CapiResource, patience: Patience) -> str:
    """Return why a MachinePool's instances are not created, from its condition; empty while they may be. It is only
    reported, because without a Machine there is no instance that could carry the error."""
    told = next((each for each in resource.conditions if each.type == _INFRASTRUCTURE), None)
    if told is None or told.status != "False":
        return ""
    error = _told(told)
    if not patience.is_over(told, error.cls):
        return ""
    return f"its infrastructure is not ready ({error.cls}): {error.code}: {error.message}"


_QUESTIONS: tuple[Callable[[CapiMachine, Node | None, Patience], Instance | None], ...] = (
    _failed,
    _deleting,
    _pending,
)


def classify(machine: CapiMachine, match: Match, patience: Patience = WITHOUT_END) -> Instance:
    """Return the instance of a Machine. If its Node is uncertain, it has none and is blocked: neither a removal nor a
    repair selects it."""
    node = match.node
    found = next((made for question in _QUESTIONS if (made := question(machine, node, patience))), None)
    return msgspec.structs.replace(found or _running(machine, node), held="" if machine.leaving else match.doubt)


def _running(machine: CapiMachine, node: Node | None) -> Instance:
    # The Node's own form takes precedence, because ids are compared by exact text. The id is never empty: a Node
    # without one is found by its name.
    provider_id = (node.provider_id if node else "") or machine.spec.provider_id or placeholder(PENDING, machine)
    return _instance(provider_id, InstanceState.RUNNING, machine, node)


def _instance(
    name: str, state: InstanceState, machine: CapiMachine, node: Node | None, error: InstanceError | None = None
) -> Instance:
    return Instance(name, state, error, handle=machine.handle, node=node.name if node else "")


# The first matching row decides. A limit on calls is not a limit on machines; "no capacity within your quota" is a
# quota.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"throttl|rate.?limit|limit.?rate|request.?limit|too.?many.?requests", Throttled.__name__),
    (r"out.?of.?stock|no.?stock|limited.?availability", OutOfStock.__name__),
    (r"quota|limit(?!ed|range)", QuotaExceeded.__name__),
    (
        r"capacity|stock|sold.?out|exhausted|sku.?not.?available|insufficient.?resources|allocation.?failed|no.?valid.?host",
        OutOfStock.__name__,
    ),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), cls) for pattern, cls in _WORDS)


def failure_class(reason: str, message: str) -> str:
    """Return the name of the provider error class for a reason and a message, `Unknown` if none matches."""
    text = f"{reason} {message}"
    return next((cls for pattern, cls in _PATTERNS if pattern.search(text)), Unknown.__name__)


FAILED, DELETING, PENDING = "failed-machine-", "deleting-machine-", "pending-machine-"
_PLACEHOLDERS = (FAILED, DELETING, PENDING)
# The annotations that Cluster API sets on a Node about its owner, with this prefix in every API group.
_OWNER_KIND, _OWNER_NAME = "cluster.x-k8s.io/owner-kind", "cluster.x-k8s.io/owner-name"


def placeholder(prefix: str, machine: CapiMachine) -> str:
    """Return the id of a Machine without a Node: `pending-machine-<namespace>_<name>`; every real id contains a
    slash."""
    return f"{prefix}{machine.metadata.namespace}_{machine.metadata.name}"


def handle_of(instance: str) -> str:
    """Return `ns/name` of `pending-machine-ns_name`; empty for any other id. A namespace cannot contain an
    underscore."""
    for prefix in _PLACEHOLDERS:
        if instance.startswith(prefix) and "/" not in instance:
            namespace, _, name = instance.removeprefix(prefix).partition("_")
            return f"{namespace}/{name}"
    return ""


def folded(provider_id: str) -> str:
    """Return the id for an exact comparison. Azure's components write one id in different case, so it is
    lower-cased."""
    return provider_id.lower() if provider_id.startswith("azure://") else provider_id


def normalise(provider_id: str) -> str:
    """Return the part after the last slash, on which Machine and Node agree even if the rest differs. A virtual machine
    of a scale set on Azure keeps its whole id, because its last segment is a bare number."""
    provider_id = folded(provider_id)
    if provider_id.startswith("azure://") and "virtualmachinescalesets" in provider_id:
        return provider_id
    return provider_id.rpartition("/")[2]


def same_id(one: str, other: str) -> bool:
    """Whether both are ids of one machine, in any form; an empty id matches nothing."""
    near = normalise(one)
    return bool(near) and near == normalise(other)


class Match(msgspec.Struct, frozen=True):
    """The Node of a Machine. node: None if it has not joined or is uncertain. doubt: why neither of them may be
    changed, empty if the match is certain. gone: the only reason is that the Node of its nodeRef is missing."""

    node: Node | None = None
    doubt: str = ""
    gone: bool = False


class Nodes:
    """The cluster's Nodes, found by what a Machine records of its Node. Contains Nodes of one cluster only. machines:
    all Machines of that cluster, so that two with the same claim are detected."""

    def __init__(
        self, nodes: Iterable[Node], annotations: CapiAnnotations, machines: Iterable[CapiMachine] = ()
    ) -> None:
        self._keys = annotations
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[tuple[str, str], Node] = {}
        self._by_id: dict[str, list[Node]] = {}
        self._by_normal: dict[str, list[Node]] = {}
        for node in nodes:
            self._by_name[node.name] = node
            if machine := node.annotations.get(annotations.machine):
                self._by_machine[node.annotations.get(annotations.cluster_namespace, ""), machine] = node
            if node.provider_id:
                self._by_id.setdefault(folded(node.provider_id), []).append(node)
                self._by_normal.setdefault(normalise(node.provider_id), []).append(node)
        self._with_id: dict[str, list[str]] = {}
        self._with_normal: dict[str, int] = {}
        self._with_node: dict[str, list[str]] = {}
        for each in machines:
            if provider_id := each.spec.provider_id:
                self._with_id.setdefault(folded(provider_id), []).append(each.handle)
                self._with_normal[normalise(provider_id)] = self._with_normal.get(normalise(provider_id), 0) + 1
            if each.node_name:
                self._with_node.setdefault(each.node_name, []).append(each.handle)

    def of(self, machine: CapiMachine) -> Node | None:
        """Return the Node of a Machine, None if it has not joined or is uncertain."""
        return self.match(machine).node

    def match(self, machine: CapiMachine) -> Match:
        """Return the Node of a Machine, or why it is uncertain."""
        if twice := self._twice(machine):
            return Match(doubt=twice)
        return self._referred(machine) if machine.status.node_ref is not None else self._found(machine)

    def named(self, name: str) -> Node | None:
        """Return the Node of that name."""
        return self._by_name.get(name)

    def listed(self, provider_id: str, pool: str) -> Match:
        """Return the Node of an instance that the MachinePool of that name lists. Matched by the exact id; otherwise by
        its last segment, among the Nodes whose annotations name no other owner."""
        exact = self._by_id.get(folded(provider_id), ())
        if len(exact) == 1:
            return Match(exact[0])
        near = exact or self._by_normal.get(normalise(provider_id), ()) if normalise(provider_id) else ()
        mine = exact or [node for node in near if self._may_be_of(pool, node)]
        return Match(doubt=_of_one_id(mine)) if len(mine) > 1 else Match(mine[0] if mine else None)

    def first(self, instances: Iterable[Instance]) -> Node | None:
        """Return the Node of the first instance that has one."""
        return next((self._by_name[each.node] for each in instances if each.node in self._by_name), None)

    def _may_be_of(self, pool: str, node: Node) -> bool:
        owner = node.annotations.get(_OWNER_KIND, ""), node.annotations.get(_OWNER_NAME, "")
        return owner == (POOL, pool) or (owner == ("", "") and not node.annotations.get(self._keys.machine))

    def _twice(self, machine: CapiMachine) -> str:
        """Describe two Machines or two Nodes that share a value that must be unique."""
        provider_id = folded(machine.spec.provider_id or "")
        with_id, with_node = self._with_id.get(provider_id, ()), self._with_node.get(machine.node_name, ())
        if len(with_id) > 1:
            return f"Machines {_names(with_id)} have one providerID, {provider_id[:_SHOWN]}"
        if len(with_node) > 1:
            return f"Machines {_names(with_node)} have one Node, {machine.node_name[:_SHOWN]}"
        named = self._by_name.get(machine.node_name)
        for each in (provider_id, folded(named.provider_id) if named else ""):
            if len(nodes := self._by_id.get(each, ())) > 1:
                return _of_one_id(nodes)
        return ""

    def _referred(self, machine: CapiMachine) -> Match:
        """Match by the nodeRef, which only Cluster API writes. A Machine with a nodeRef has joined, even if its Node is
        not one of this cluster."""
        name, provider_id = machine.node_name, machine.spec.provider_id or ""
        node = self._by_name.get(name)
        if node is None:
            what = f"Node {name[:_SHOWN]}" if name else "an object that is not a Node"
            return Match(
                doubt=f"Cluster API has seen it join as {what}, which is not among this cluster's Nodes; if "
                "it is no longer needed, delete the Machine",
                gone=bool(name),
            )
        if provider_id and node.provider_id and not same_id(provider_id, node.provider_id):
            return Match(
                doubt=f"its Node {name[:_SHOWN]} has another providerID, {node.provider_id[:_SHOWN]}, than "
                f"{provider_id[:_SHOWN]}"
            )
        return Match(node)

    def _found(self, machine: CapiMachine) -> Match:
        """Match by the ids, if Cluster API cannot see the Node. An annotation of a Node is not sufficient."""
        provider_id = machine.spec.provider_id or ""
        near = normalise(provider_id)
        found: Sequence[Node] = self._by_id.get(folded(provider_id), ()) if provider_id else ()
        if not found and near:
            found = self._by_normal.get(near, ())
            if len(found) > 1 or (found and self._with_normal.get(near, 0) > 1):
                return Match(doubt=f"it may be Node {_names([each.name for each in found])}, and its id does not tell")
        if not found:
            claims = self._by_machine.get((machine.metadata.namespace, machine.metadata.name))
            return (
                Match(doubt=f"an annotation of Node {claims.name} names it, and no id confirms that")
                if (claims is not None)
                else Match()
            )
        if other := self._with_node.get(found[0].name):
            return Match(doubt=f"its providerID is that of Node {found[0].name}, which is Machine {_names(other)}")
        return Match(found[0])


_SHOWN = 80  # maximum characters of untrusted text


def _names(found: Sequence[str]) -> str:
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    return f"{', '.join(found[:2])}{more}" if more else " and ".join(found)


def _of_one_id(nodes: Sequence[Node]) -> str:
    return f"Nodes {_names([each.name for each in nodes])} have one providerID, {nodes[0].provider_id[:_SHOWN]}"


_MANAGED_BY = "cluster.x-k8s.io/replicas-managed-by"
_LISTED = "listed:"  # prefix of a handle that is a provider id; a Machine's is namespace/name, without a colon


def managed_by(resource: CapiResource) -> str:
    """Return the other scaler that sets the pool's size, empty if there is none. Such a pool is not a node group."""
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
    exact = {each.spec.provider_id for each in machines if each.spec.provider_id}
    near = {normalise(each) for each in exact}
    return tuple(each for each in resource.listed if each not in exact and normalise(each) not in near)


def listed_instances(resource: CapiResource, machines: Sequence[CapiMachine], nodes: Nodes) -> tuple[Instance, ...]:
    """Return the instances of a pool that are listed without a Machine. No Node matches two of them."""
    found: list[Instance] = []
    taken: set[str] = set()
    elsewhere = joined_elsewhere(resource, nodes)
    for provider_id in without_machine(resource, machines):
        match = nodes.listed(provider_id, resource.metadata.name)
        node, handle = match.node, listed_handle(provider_id)
        if node is None or node.name in taken:
            doubt = (
                match.doubt or elsewhere
                if node is None
                else f"Node {node.name} is another instance of the pool already"
            )
            found.append(Instance(provider_id, InstanceState.CREATING, handle=handle, held=doubt))
            continue
        taken.add(node.name)
        found.append(Instance(node.provider_id or provider_id, handle=handle, node=node.name))
    return tuple(found)


def joined_elsewhere(resource: CapiResource, nodes: Nodes) -> str:
    """Return why none of the pool's instances may count as never joined; empty if that can be decided. The pool's
    status does not say which instance each of its Nodes is."""
    name = next((each for each in resource.node_names if nodes.named(each) is None), "")
    return name and f"Cluster API has seen Node {name[:80]} of this pool join, which is not among this cluster's Nodes"


def pool_held(resource: CapiResource, machines: Sequence[CapiMachine], settings: CapiSettings) -> str:
    """Return why nothing may be removed from the pool, empty if something may. It is reported before a node is drained
    needlessly. It is not reported while fewer instances are listed than requested, because it would also prevent
    lowering the size to the existing instances, which deletes none."""
    listed = len(resource.listed)
    if machines or settings.allow_pool_shrink or listed < 2 or (resource.spec.replicas or 0) > listed:
        return ""
    return cannot_choose(resource)


def cannot_choose(resource: CapiResource) -> str:
    """Return the refusal, with its remedy."""
    return (
        f"MachinePool {resource.metadata.namespace}/{resource.metadata.name} has no Machines, so the instance to "
        "remove cannot be selected: set allowPoolShrink in providers.clusterapi to lower its size anyway; the "
        "infrastructure then selects the instance"
    )
