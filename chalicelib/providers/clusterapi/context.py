"""The shared context of all changes of a group: the calls, the settings, and the group's Machines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.clusterapi.annotations import MARK_PREFIX, CapiAnnotations
from chalicelib.providers.clusterapi.api import DEPLOYMENT, MACHINE, POOL, SET, CapiApi, decode
from chalicelib.providers.clusterapi.capi_state import controller, has_deployment, sets_of
from chalicelib.providers.clusterapi.group_options import CapiBounds, read_bounds, speaks_of
from chalicelib.providers.clusterapi.instances import Match, Nodes, managed_by, normalise
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, Metadata
from chalicelib.providers.clusterapi.node_groups import is_meant, is_paused
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError, Transient

# Attempts of a write whose resourceVersion was outdated, each after a new decision.
TRIES = 3
# The key under which a removal records, and finally reports, how many of its machines were not Nodes.
NEVER_JOINED = "never_joined"
_DIGITS = 18


class CapiContext(msgspec.Struct, frozen=True):
    """now: epoch seconds."""

    api: CapiApi
    settings: CapiSettings
    policies: tuple[GroupPolicy, ...]
    now: Callable[[], float]

    def subject(self, group: str, *, asked: bool = True) -> Subject:
        """Return the group, read again. asked: raise if it must not be changed (scalable_resource.py)."""
        return read_subject(self.api, self.settings, self.policies, group) if asked else as_it_is(self.api, group)


def noted(operation: Operation, key: str) -> int | None:
    """Return the number that an earlier step of the operation recorded; None if it is missing or not a number."""
    text = operation.status.data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def check_minimum(subject: Subject, size: int) -> None:
    """Raise InvalidRequest if the size is below the group's minimum; called only for a lower size."""
    if size < subject.bounds.min:
        raise InvalidRequest(f"{subject.group}: the size {size} is below the minimum {subject.bounds.min}")


def check_maximum(subject: Subject, size: int) -> None:
    """Raise InvalidRequest if the size is above the group's maximum; called only for a scale-up."""
    if size > subject.bounds.max:
        raise InvalidRequest(f"{subject.group}: the size {size} is above the maximum {subject.bounds.max}")


def machines_of(
    api: CapiApi, subject: Subject, sets: Sequence[CapiResource]
) -> tuple[list[CapiMachine], list[CapiMachine]]:
    """Return (the group's Machines, all others of its namespace), the former sorted by name.

    Raises Transient if a Machine cannot be decoded, because it might belong to the group and the count would be wrong.
    """
    owned_by = POOL if subject.kind == POOL else SET
    owners = {subject.resource.metadata.uid} if subject.kind == POOL else {each.metadata.uid for each in sets}
    mine: list[CapiMachine] = []
    others: list[CapiMachine] = []
    for item in api.objects(MACHINE, subject.namespace):
        machine = decode(item, CapiMachine)
        (mine if controller(machine.metadata, owned_by) in owners else others).append(machine)
    mine.sort(key=lambda each: each.metadata.name)
    return mine, others


class _NodeSpec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _CapiNode(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _NodeSpec = _NodeSpec()


def nodes_of(api: CapiApi) -> list[Node]:
    """Return the cluster's current Nodes, with only the fields that connect them to Machines."""
    nodes = []
    for item in api.nodes():
        node = decode(item, _CapiNode)
        annotations = node.metadata.annotations or {}
        nodes.append(Node(node.metadata.name, {}, {}, provider_id=node.spec.provider_id or "", annotations=annotations))
    return nodes


class ScalableResourceState(Conflict):
    """A rollout or a pause must end first. The change is refused now, and an immediate retry would not help."""

    @property
    def error_class(self) -> str:
        """The class for backoff and journal: Conflict."""
        return Conflict.__name__


class Subject(msgspec.Struct, frozen=True):
    """A node group in its current state."""

    group: str
    kind: str
    resource: CapiResource
    bounds: CapiBounds

    @property
    def namespace(self) -> str:
        """Its namespace, and that of its Machines."""
        return self.resource.metadata.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self.resource.metadata.name


def read_subject(api: CapiApi, settings: CapiSettings, policies: Sequence[GroupPolicy], group: str) -> Subject:
    """Return the group of that id. Raises NotFound, InvalidRequest if it is not a group of this cluster, Held if
    paused."""
    there = as_it_is(api, group)
    kind, namespace, resource = there.kind, there.namespace, there.resource
    if not is_meant(resource, settings):
        raise InvalidRequest(f"{group} is outside what providers.clusterapi discovers")
    if kind == SET and has_deployment(resource):
        raise InvalidRequest(f"{group} belongs to a MachineDeployment, which sets its size")
    if kind == POOL and (other := managed_by(resource)):
        raise InvalidRequest(f"{group} has its size managed by {other} (replicas-managed-by)")
    if is_paused(resource):
        raise ScalableResourceState(f"{group} is paused")
    cluster = resource.cluster(settings.keys)
    if cluster and api.cluster_paused(namespace, cluster):
        raise ScalableResourceState(f"{group} is paused with its Cluster {namespace}/{cluster}")
    entry = next((each for each in policies if speaks_of(each, group)), None)
    try:
        bounds = read_bounds(resource.annotations, settings.keys, entry, group)
    except BadInput as bad:
        raise InvalidRequest(str(bad)) from None
    if bounds is None or resource.spec.replicas is None:
        raise InvalidRequest(f"{group} has no bounds or no size, so it is not a node group")
    return Subject(group, kind, resource, bounds)


def as_it_is(api: CapiApi, group: str) -> Subject:
    """Return the group without these checks, only for the removal of our own annotations.

    A pause or deleted bounds must not prevent that. Its bounds are meaningless. Raises NotFound, InvalidRequest for an
    id that is not a group's."""
    kind, _, rest = group.partition("/")
    namespace, _, name = rest.partition("/")
    if kind not in {DEPLOYMENT, SET, POOL} or not namespace or not name or "/" in name:
        raise InvalidRequest(f"{group!r} is not a node group of Cluster API: MachineDeployment/namespace/name")
    return Subject(group, kind, api.resource(kind, namespace, name), CapiBounds(0, 0))


def machine_sets(api: CapiApi, subject: Subject) -> tuple[CapiResource, ...]:
    """Return the MachineSets of the group's Machines: the group itself, or those that the MachineDeployment controls.

    A MachinePool has none, because it controls its Machines itself."""
    if subject.kind != DEPLOYMENT:
        return (subject.resource,) if subject.kind == SET else ()
    return sets_of(subject.resource.metadata.uid, _readable(api.objects(SET, subject.namespace)))


def _readable(items: Iterable[msgspec.Raw]) -> Iterable[CapiResource]:
    for item in items:
        try:
            yield decode(item, CapiResource)
        except Transient:
            continue  # a malformed set owns no Machine that would be changed; observe() reports it


# Seconds after which an annotation set by Outscaler is expired: longer than any function runs between annotation and
# size.
FORGOTTEN_AFTER = 300.0
# Seconds after which the function that set it cannot be about to lower the size: it has crashed, or waits.
STALLED_AFTER = 30.0


def mark_value(operation: str, now: float) -> str:
    """Return `outscaler/<operation>/<epoch seconds>`."""
    return f"{MARK_PREFIX}{operation}/{int(now)}"


def is_forgotten(mark: str, now: float) -> bool:
    """Whether an annotation set by Outscaler is so old that its change is over. An unreadable one counts as such."""
    written = mark.rpartition("/")[2]
    return not written.isdigit() or now - int(written) > FORGOTTEN_AFTER


def has_stalled(mark: str, now: float) -> bool:
    """Whether an annotation set by Outscaler has not expired, but its function has stopped.

    The function that continues this removal will check the machine's node again, so until then no other function lowers
    the size for it."""
    written = mark.rpartition("/")[2]
    return mark.startswith(MARK_PREFIX) and not is_forgotten(mark, now) and now - int(written) > STALLED_AFTER


class Standing(msgspec.Struct, frozen=True):
    """A group's living Machines and its size. targets: the living ones to be removed now."""

    size: int
    living: tuple[CapiMachine, ...]
    targets: tuple[CapiMachine, ...]
    others: tuple[CapiMachine, ...]  # annotated, living, and not among the targets

    @property
    def excess(self) -> int:
        """The number of Machines that the MachineSets are about to delete; negative while some are still to be
        created."""
        return len(self.living) - self.size

    @property
    def others_settled(self) -> bool:
        """Whether the size already accounts for every annotation that is not on a target."""
        return not self.others or self.excess >= len(self.others)

    @property
    def goal(self) -> int:
        """The size at which exactly all annotated Machines and all targets are deleted."""
        return min(self.size, len(self.living) - len(self.targets) - len(self.others))


def standing(
    size: int, machines: Sequence[CapiMachine], handles: Collection[str], annotations: CapiAnnotations
) -> Standing:
    """Return a group's state. machines: all of the group's; handles: those to be removed."""
    living = tuple(each for each in machines if not each.leaving)
    return Standing(
        size=size,
        living=living,
        targets=tuple(each for each in living if each.handle in handles),
        others=tuple(each for each in living if each.handle not in handles and each.mark(annotations) is not None),
    )


def check_membership(
    subject: Subject, targets: Mapping[str, str], mine: Sequence[CapiMachine], foreign: Iterable[CapiMachine]
) -> None:
    """Raise InvalidRequest if a handle is another group's Machine, or a new Machine with the name of the planned one.

    targets: handle -> instance id."""
    elsewhere = {each.handle for each in foreign}
    for handle in sorted(targets):
        if handle.partition("/")[0] != subject.namespace or handle in elsewhere:
            raise InvalidRequest(f"{MACHINE} {handle} does not belong to {subject.group}")
    for machine in mine:
        if _is_another(machine, targets.get(machine.handle, "")):
            raise InvalidRequest(f"{MACHINE} {machine.handle} is another machine by now than {targets[machine.handle]}")


def _is_another(machine: CapiMachine, instance: str) -> bool:
    """Whether a machine with another id than the planned one now has the name."""
    if "/" not in instance or not machine.spec.provider_id:
        return False
    return normalise(machine.spec.provider_id) != normalise(instance)


def check_identity(
    context: CapiContext, operation: Operation, machines: Collection[CapiMachine], known: Iterable[CapiMachine]
) -> Nodes:
    """Return the cluster's current Nodes.

    Removes our annotations and raises Held unless each Machine is still what was planned: an unregistered one must not
    be a Node, and one to be removed must belong to the drained Node. It is called immediately before the change,
    because a Node may take another one's providerID at any time. known: all Machines of the namespace, of which those
    of the same cluster count.
    """
    clusters = {each.cluster(context.settings.keys) for each in machines}
    near = [each for each in known if each.cluster(context.settings.keys) in clusters]
    nodes = Nodes(nodes_of(context.api), context.settings.keys, near)
    drained = {target.handle: target.node for target in operation.spec.targets}
    for machine in machines:
        match = nodes.match(machine)
        problem = (
            _joined(match)
            if operation.spec.kind is OperationKind.DELETE_INSTANCES
            else _another_node(nodes, match, machine, drained.get(machine.handle, ""))
        )
        if problem:
            unmark(context, operation, machines)
            raise ScalableResourceState(f"{MACHINE} {machine.handle} {problem}")
    return nodes


def _joined(match: Match) -> str:
    return (
        f"has joined as node {match.node.name} meanwhile"
        if match.node is not None
        else (match.doubt and f"stays: {match.doubt}")
    )


def _another_node(nodes: Nodes, match: Match, machine: CapiMachine, drained: str) -> str:
    """Return why it is not the Machine of the drained Node. A Node that is gone by now is not a contradiction."""
    if match.doubt and not match.gone:
        return f"stays: {match.doubt}"
    name = match.node.name if match.node is not None else machine.node_name
    if not drained or name == drained or (not name and nodes.named(drained) is None):
        return ""
    return f"is node {name or 'none'} by now, and {drained} was drained"


def without_forgotten(context: CapiContext, marked: Iterable[CapiMachine]) -> tuple[CapiMachine, ...]:
    """Return the Machines with a valid annotation, and remove expired ones set by Outscaler.

    Raises Held for an annotation that is not ours, because another party's Machine would be deleted instead of a
    target."""
    kept = []
    for machine in marked:
        mark = machine.mark(context.settings.keys) or ""
        if not mark.startswith(MARK_PREFIX):
            raise ScalableResourceState(
                f"{MACHINE} {machine.handle} carries a {context.settings.keys.delete_machine} mark that is not ours, "
                "so it would be deleted in the place of another: take the mark off or delete that Machine"
            )
        if is_forgotten(mark, context.now()):
            context.api.mark(machine, None)
        else:
            kept.append(machine)
    return tuple(kept)


def set_marks(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Annotate the Machines.

    An annotation set by a user has the same effect and is kept; an expired one set by Outscaler is renewed. Raises
    NotFound if a Machine has disappeared since it was listed: the next call counts it as removed."""
    value = mark_value(operation.spec.id, context.now())
    for machine in machines:
        mark = machine.mark(context.settings.keys)
        if mark is None or (mark.startswith(MARK_PREFIX) and is_forgotten(mark, context.now())):
            context.api.mark(machine, value)


def unmark(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Remove this operation's annotations as far as possible; a remaining one is removed after it has expired."""
    own = f"{MARK_PREFIX}{operation.spec.id}/"
    for machine in machines:
        try:
            fresh = context.api.machine(machine.metadata.namespace, machine.metadata.name)
            if (fresh.mark(context.settings.keys) or "").startswith(own):
                context.api.mark(machine, None)
        except ProviderError:
            continue


def release_marks(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Remove this operation's annotations; raises ProviderError if that fails."""
    own = f"{MARK_PREFIX}{operation.spec.id}/"
    for machine in machines:
        if (machine.mark(context.settings.keys) or "").startswith(own):
            context.api.mark(machine, None)
