"""Changes of a group's size, and what all changes share: the group as it is now, its Machines, and
the delete-machine annotations on them.

An operation was planned from an earlier state, so everything is read again and checked before
anything is written. A resource that would not be a node group now must not be changed.

A MachineSet that is scaled down deletes annotated Machines first. This package
maintains one invariant:

    the size is never set below the number of living Machines without the annotation

A lower size therefore never deletes a Machine that was not selected. The difference between living
Machines and size is the number that the MachineSets are about to delete (`excess`). Further
annotations were set by a change that has not lowered the size yet, or never will. Everything is
read from the cluster, so it is valid after changes by any party and after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Outcome, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.clusterapi.api import (
    DEPLOYMENT,
    MACHINE,
    POOL,
    SET,
    CapiApi,
    Served,
    decode,
    discover,
)
from chalicelib.providers.clusterapi.capi_state import (
    by_deployment,
    controller,
    gives_way,
    has_deployment,
    rolling_out,
)
from chalicelib.providers.clusterapi.instances import (
    Match,
    Nodes,
    managed_by,
    normalise,
    without_machine,
)
from chalicelib.providers.clusterapi.models import (
    FORGOTTEN_AFTER,
    MARK_PREFIX,
    CapiAnnotations,
    CapiMachine,
    CapiResource,
    Metadata,
    is_forgotten,
    mark_age,
)
from chalicelib.providers.clusterapi.node_groups import (
    CapiBounds,
    is_meant,
    is_paused,
    read_bounds,
    speaks_of,
)
from chalicelib.providers.clusterapi.settings import CapiSettings, Reach
from chalicelib.providers.kit.errors import Conflict, InvalidRequest, ProviderError, Transient
from chalicelib.providers.kit.node_identity import PermanentConflict

# Attempts of a write whose resourceVersion was outdated, each after a new decision.
TRIES = 3
# The key under which a removal records, and finally reports, how many of its
# machines were not Nodes.
NEVER_JOINED = "never_joined"
# Seconds after which the function that set it cannot be about to lower the size:
# it has crashed, or waits.
STALLED_AFTER = 30.0
# Seconds after an annotation during which its function, or a request that it sent, may still
# lower the size: the limit of an act function (.chalice/config.json), and the time that a request
# of it may take to arrive.
MAY_LOWER_FOR = 75.0
# Seconds after which an annotation is set anew before the size is lowered.
RENEWED_AFTER = 5.0
_DIGITS = 18


class ScalableResourceState(PermanentConflict):
    """A rollout or a pause must end first. The change is refused now, and an
    immediate retry would not help."""


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

    def check_minimum(self, size: int) -> None:
        """Raise InvalidRequest if the size is below the group's minimum;
        called only for a lower size."""
        if size < self.bounds.min:
            raise InvalidRequest(
                f"{self.group}: the size {size} is below the minimum {self.bounds.min}"
            )

    def check_maximum(self, size: int) -> None:
        """Raise InvalidRequest if the size is above the group's maximum;
        called only for a scale-up."""
        if size > self.bounds.max:
            raise InvalidRequest(
                f"{self.group}: the size {size} is above the maximum {self.bounds.max}"
            )


class CapiContext:
    """The calls and settings of one pass. The API versions that the management cluster serves are
    read once. unnamed: why it is unknown which of the management cluster's clusters is this one.
    Nothing is then read or changed, except that annotations set by Outscaler are still removed.
    now: epoch seconds."""

    def __init__(
        self,
        reach: Reach,
        settings: CapiSettings,
        policies: Iterable[GroupPolicy],
        now: Callable[[], float],
        unnamed: BadInput | None = None,
    ) -> None:
        self.reach, self.settings, self.policies, self.now = reach, settings, tuple(policies), now
        self._unnamed = unnamed
        self._served: Served | None = None

    def check_named(self) -> None:
        """Raise InvalidRequest if the settings lack the name of this cluster."""
        if self._unnamed is not None:
            raise InvalidRequest(str(self._unnamed))

    def served(self, *, kinds: bool) -> Served:
        """Return the version to use, and with `kinds` the kinds of the API group,
        which take another call."""
        if self._served is None or (kinds and self._served.kinds is None):
            version = self.settings.version or (self._served.version if self._served else "")
            self._served = discover(
                self.reach.management(), self.settings.keys.group, version, kinds=kinds
            )
        return self._served

    @cached_property
    def api(self) -> CapiApi:
        """The calls of the version that the management cluster serves."""
        version = self.served(kinds=False).version
        return CapiApi(self.reach.management(), self.settings.keys, version, self.reach.workload)

    def subject(self, group: str, *, checked: bool = True) -> Subject:
        """Return the group of that id, read again. Raises NotFound, and InvalidRequest for an id
        that is not a group's. checked: raise if it must not be changed: InvalidRequest if it is not
        a group of this cluster, ScalableResourceState if paused. Without it, only our own
        annotations may be removed, which neither a pause nor deleted bounds must prevent; its
        bounds are then meaningless."""
        if checked:
            self.check_named()
        kind, _, rest = group.partition("/")
        namespace, _, name = rest.partition("/")
        if kind not in {DEPLOYMENT, SET, POOL} or not namespace or not name or "/" in name:
            raise InvalidRequest(
                f"{group!r} is not a node group of Cluster API: MachineDeployment/namespace/name"
            )
        resource = self.api.resource(kind, namespace, name)
        bounds = self._checked_bounds(group, kind, resource) if checked else CapiBounds(0, 0)
        return Subject(group, kind, resource, bounds)

    def _checked_bounds(self, group: str, kind: str, resource: CapiResource) -> CapiBounds:
        settings, namespace = self.settings, resource.metadata.namespace
        if not is_meant(resource, settings):
            raise InvalidRequest(f"{group} is outside what providers.clusterapi discovers")
        if kind == SET and has_deployment(resource):
            raise InvalidRequest(f"{group} belongs to a MachineDeployment, which sets its size")
        if kind == POOL and (other := managed_by(resource)):
            raise InvalidRequest(f"{group} has its size managed by {other} (replicas-managed-by)")
        if is_paused(resource):
            raise ScalableResourceState(f"{group} is paused")
        cluster = resource.cluster(settings.keys)
        if cluster and self.api.cluster_paused(namespace, cluster):
            raise ScalableResourceState(f"{group} is paused with its Cluster {namespace}/{cluster}")
        entry = next((entry for entry in self.policies if speaks_of(entry, group)), None)
        try:
            bounds = read_bounds(resource.annotations, settings.keys, entry, group)
        except BadInput as bad:
            raise InvalidRequest(str(bad)) from None
        if bounds is None or resource.spec.replicas is None:
            raise InvalidRequest(f"{group} has no bounds or no size, so it is not a node group")
        return bounds


def noted(operation: Operation, key: str) -> int | None:
    """Return the number that an earlier step of the operation recorded; None if it is
    missing or not a number."""
    text = operation.status.data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


# -- reading the group's objects


def machine_sets(api: CapiApi, subject: Subject) -> tuple[CapiResource, ...]:
    """Return the MachineSets of the group's Machines: the group itself, or those that the
    MachineDeployment controls. A MachinePool has none, because it controls its Machines itself."""
    if subject.kind != DEPLOYMENT:
        return (subject.resource,) if subject.kind == SET else ()
    readable = []
    for item in api.objects(SET, subject.namespace):
        try:
            readable.append(decode(item, CapiResource))
        except Transient:
            continue  # a malformed set owns no Machine that would be changed; observe() reports it
    return tuple(by_deployment(readable).get(subject.resource.metadata.uid, ()))


def machines_of(
    api: CapiApi, subject: Subject, sets: Sequence[CapiResource]
) -> tuple[list[CapiMachine], list[CapiMachine]]:
    """Return (the group's Machines, all others of its namespace), the former sorted by name.
    Raises Transient if a Machine cannot be decoded, because it might belong to the group and
    the count would be wrong."""
    owner_kind = POOL if subject.kind == POOL else SET
    owners = {
        owner.metadata.uid for owner in ((subject.resource,) if subject.kind == POOL else sets)
    }
    own: list[CapiMachine] = []
    others: list[CapiMachine] = []
    for item in api.objects(MACHINE, subject.namespace):
        machine = decode(item, CapiMachine)
        (own if controller(machine.metadata, owner_kind) in owners else others).append(machine)
    own.sort(key=lambda machine: machine.metadata.name)
    return own, others


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
        nodes.append(
            Node(
                node.metadata.name,
                {},
                {},
                provider_id=node.spec.provider_id or "",
                annotations=annotations,
            )
        )
    return nodes


class Standing(msgspec.Struct, frozen=True):
    """A group's living Machines and its size. targets: the living ones to be
    removed now; targets_marked: all of them are annotated; others: annotated,
    living, and not among the targets."""

    size: int
    living: tuple[CapiMachine, ...]
    targets: tuple[CapiMachine, ...]
    targets_marked: bool
    others: tuple[CapiMachine, ...]

    @property
    def excess(self) -> int:
        """The number of Machines that the MachineSets are about to delete; negative while some
        are still to be created."""
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
    size: int,
    machines: Sequence[CapiMachine],
    handles: Collection[str],
    annotations: CapiAnnotations,
) -> Standing:
    """Return a group's state. machines: all of the group's; handles: those to be removed."""
    living = tuple(machine for machine in machines if not machine.leaving)
    targets = tuple(machine for machine in living if machine.handle in handles)
    marked = [machine for machine in living if machine.mark(annotations) is not None]
    others = tuple(machine for machine in marked if machine.handle not in handles)
    return Standing(size, living, targets, len(marked) - len(others) == len(targets), others)


# -- checks of the targets


def check_membership(
    subject: Subject,
    targets: Mapping[str, str],
    own: Sequence[CapiMachine],
    foreign: Iterable[CapiMachine],
) -> None:
    """Raise InvalidRequest if a handle is another group's Machine, or a new Machine with the name
    of the planned one. targets: handle -> instance id."""
    elsewhere = {machine.handle for machine in foreign}
    for handle in sorted(targets):
        if handle.partition("/")[0] != subject.namespace or handle in elsewhere:
            raise InvalidRequest(f"{MACHINE} {handle} does not belong to {subject.group}")
    for machine in own:
        planned, provider_id = targets.get(machine.handle, ""), machine.spec.provider_id
        if "/" in planned and provider_id and normalise(provider_id) != normalise(planned):
            raise InvalidRequest(
                f"{MACHINE} {machine.handle} is another machine by now than {planned}"
            )


def check_identity(
    context: CapiContext,
    operation: Operation,
    machines: Collection[CapiMachine],
    known: Iterable[CapiMachine],
) -> Nodes:
    """Return the cluster's current Nodes. Removes our annotations and raises ScalableResourceState
    unless each Machine is still what was planned: an unregistered one must not be a Node, and one
    to be removed must belong to the drained Node. It is called immediately before the change,
    because a Node may take another one's providerID at any time. known: all Machines of the
    namespace, of which those of the same cluster count."""
    keys = context.settings.keys
    clusters = {machine.cluster(keys) for machine in machines}
    nodes = Nodes(
        nodes_of(context.api),
        keys,
        [machine for machine in known if machine.cluster(keys) in clusters],
    )
    drained = {target.handle: target.node for target in operation.spec.targets}
    for machine in machines:
        match = nodes.match(machine)
        if operation.spec.kind is not OperationKind.DELETE_INSTANCES:
            problem = _other_node(nodes, match, machine, drained.get(machine.handle, ""))
        elif match.node is not None:
            problem = f"has joined as node {match.node.name} meanwhile"
        else:
            problem = match.doubt and f"stays: {match.doubt}"
        if problem:
            unmark(context, operation, machines)
            raise ScalableResourceState(f"{MACHINE} {machine.handle} {problem}")
    return nodes


def _other_node(nodes: Nodes, match: Match, machine: CapiMachine, drained: str) -> str:
    """Return why it is not the Machine of the drained Node. A Node that is gone by
    now is not a contradiction."""
    if match.doubt and not match.gone:
        return f"stays: {match.doubt}"
    name = match.node.name if match.node is not None else machine.node_name
    if not drained or name == drained or (not name and nodes.named(drained) is None):
        return ""
    return f"is node {name or 'none'} by now, and {drained} was drained"


# -- delete-machine annotations


def has_stalled(mark: str, now: float) -> bool:
    """Whether an annotation set by Outscaler has not expired, but its function has stopped. The
    function that continues this removal will check the machine's node again, so until then no other
    function lowers the size for it."""
    return (
        mark.startswith(MARK_PREFIX)
        and not is_forgotten(mark, now)
        and mark_age(mark, now) > STALLED_AFTER
    )


def without_forgotten(
    context: CapiContext, marked: Iterable[CapiMachine]
) -> tuple[CapiMachine, ...]:
    """Return the Machines with a valid annotation, and remove expired ones set by Outscaler. Raises
    ScalableResourceState for an annotation that is not ours, because another party's Machine would
    be deleted instead of a target."""
    valid = []
    for machine in marked:
        mark = machine.mark(context.settings.keys) or ""
        if not mark.startswith(MARK_PREFIX):
            raise ScalableResourceState(
                f"{MACHINE} {machine.handle} carries a {context.settings.keys.delete_machine} mark "
                "that is not ours, "
                "so it would be deleted in the place of another: take the mark off or delete that "
                "Machine"
            )
        if is_forgotten(mark, context.now()):
            context.api.mark(machine, None)
        else:
            valid.append(machine)
    return tuple(valid)


def remove_forgotten(context: CapiContext, marked: Iterable[CapiMachine]) -> None:
    """Remove our annotations of removals that ended long ago. Nothing else removes them, and the
    next manual decrease of the group would delete these machines."""
    for machine in marked:
        mark = machine.mark(context.settings.keys) or ""
        if is_forgotten(mark, context.now()):
            context.api.mark(machine, None)


def set_marks(
    context: CapiContext,
    operation: Operation,
    machines: Iterable[CapiMachine],
    *,
    renewed: bool = True,
) -> None:
    """Annotate the Machines with `outscaler/<operation>/<epoch seconds>`. An annotation set by a
    user has the same effect and is kept; an expired one set by Outscaler is set anew. renewed: the
    size is lowered now, so that any older one set by Outscaler is set anew, too
    (check_nothing_lowers). Raises NotFound if a Machine has disappeared since it was listed: the
    next call counts it as removed."""
    value, age = (
        f"{MARK_PREFIX}{operation.spec.id}/{int(context.now())}",
        RENEWED_AFTER if renewed else FORGOTTEN_AFTER,
    )
    for machine in machines:
        mark = machine.mark(context.settings.keys)
        if mark is None or (mark.startswith(MARK_PREFIX) and mark_age(mark, context.now()) > age):
            context.api.mark(machine, value)


def unmark(context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]) -> None:
    """Remove this operation's annotations as far as possible; a remaining one is
    removed after it has expired."""
    for machine in machines:
        try:
            release_marks(
                context,
                operation,
                [context.api.machine(machine.metadata.namespace, machine.metadata.name)],
            )
        except ProviderError:
            continue


def release_marks(
    context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]
) -> None:
    """Remove this operation's annotations; raises ProviderError if that fails."""
    prefix = f"{MARK_PREFIX}{operation.spec.id}/"
    for machine in machines:
        if (machine.mark(context.settings.keys) or "").startswith(prefix):
            context.api.mark(machine, None)


def check_nothing_lowers(
    context: CapiContext, operation: Operation, machines: Iterable[CapiMachine]
) -> None:
    """Raise Transient while a size may still be lowered for one of this operation's annotations: by
    a function that was stopped in the middle of its call, or by a request that the API server has
    not processed yet. Without the annotation that write would cost another Machine, whose Node was
    not drained."""
    prefix = f"{MARK_PREFIX}{operation.spec.id}/"
    for machine in machines:
        mark = machine.mark(context.settings.keys) or ""
        if mark.startswith(prefix) and mark_age(mark, context.now()) <= MAY_LOWER_FOR:
            raise Transient(
                f"{MACHINE} {machine.handle}: a request that lowers the size may be under way"
            )


# -- changes of the size that name no Machine: increases, and decreases where only Machines
# that never joined are lost. Absolute sizes are written, and only over the size that the
# operation was planned for.
#
# GET scale ── to_size ──► done         (an earlier attempt succeeded)
#     │ └───── other  ──► conflict     (another writer's size stays)
#  from_size
#     └─ check bounds ─► PATCH scale with the resourceVersion just read ── 409 ──►
#     again, at most three times


def resize(context: CapiContext, operation: Operation) -> Outcome:
    """Write to_size over from_size, after the check of a scale-up or of a
    decrease. Raises ProviderError."""
    from_size, to_size = operation.spec.from_size, operation.spec.to_size
    grows = operation.spec.kind is OperationKind.SCALE_UP
    if not grows and to_size == from_size:
        return _take_marks_off(context, operation)
    if to_size <= from_size if grows else not 0 <= to_size < from_size:
        verb = "increase" if grows else "decrease"
        raise InvalidRequest(f"from {from_size} to {to_size} does not {verb} the size")
    conflict = Conflict("")
    for _ in range(TRIES):
        subject = context.subject(operation.spec.group)
        scale = context.api.scale(subject.kind, subject.namespace, subject.name)
        size, version = scale.spec.replicas, scale.metadata.resource_version
        if size == to_size:
            return Succeeded({"from": from_size, "to": size})
        if size != from_size:
            text = (
                f"{operation.spec.group} has size {size}, but from {from_size} to {to_size} was "
                "planned"
            )
            raise ScalableResourceState(text)
        (_check_increase if grows else _check_decrease)(context, subject, operation)
        try:
            context.api.set_scale(subject.kind, subject.namespace, subject.name, to_size, version)
        except Conflict as error:
            conflict = error
            continue
        return Succeeded({"from": size, "to": to_size})
    raise conflict


def _take_marks_off(context: CapiContext, operation: Operation) -> Outcome:
    """Remove the annotations that removals have left on the group's Machines; the size stays."""
    subject = context.subject(operation.spec.group)
    machines, _ = machines_of(context.api, subject, machine_sets(context.api, subject))
    remove_forgotten(context, [machine for machine in machines if not machine.leaving])
    return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})


def has_requested(context: CapiContext, operation: Operation) -> bool:
    """Return whether the size is to_size; raises ProviderError."""
    subject = context.subject(operation.spec.group)
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    return scale.spec.replicas == operation.spec.to_size


def _check_increase(context: CapiContext, subject: Subject, operation: Operation) -> None:
    """Raise above the maximum, and temporarily while MachineSets have yet to delete
    annotated Machines. A size raised now would keep those Machines alive, and their
    removal would lower it again."""
    subject.check_maximum(operation.spec.to_size)
    machines, _ = machines_of(context.api, subject, machine_sets(context.api, subject))
    state = standing(operation.spec.from_size, machines, (), context.settings.keys)
    if state.others and state.excess > 0:
        raise Conflict(f"{subject.group}: the deletion of marked machines has not begun")
    with suppress(ProviderError):  # opportunistic cleanup: the scale-up does not depend on it
        remove_forgotten(context, state.others)


def _check_decrease(context: CapiContext, subject: Subject, operation: Operation) -> None:
    """Raise unless a MachineSet that shrinks to this size takes Machines that never joined: it
    takes marked ones first, then those without a Node or with an unhealthy one, by name, and only
    then the rest. A pool promises no order, so there every instance counts."""
    to_size, keys = operation.spec.to_size, context.settings.keys
    subject.check_minimum(to_size)
    sets = machine_sets(context.api, subject)
    if reason := rolling_out(subject.resource, sets):
        raise ScalableResourceState(f"{subject.group}: {reason}")
    machines, _ = machines_of(context.api, subject, sets)
    state = standing(operation.spec.from_size, machines, (), keys)
    if subject.kind == POOL:
        unclaimed = without_machine(subject.resource, machines)
        _check_remaining(subject, operation, len(state.living) + len(unclaimed), "there")
        return
    if not state.others_settled:
        remove_forgotten(context, state.others)
        raise Conflict(
            f"{subject.group}: machines of another removal are marked and would be taken first"
        )
    unjoined = any(machine.status.node_ref is None for machine in machines)
    nodes = Nodes(nodes_of(context.api) if unjoined else (), keys, machines)
    # Who has a Node stays, whatever else is said of it; whose Node we know may be
    # news to Cluster API (D26).
    running = [
        machine
        for machine in state.living
        if machine.status.node_ref or _may_have_joined(machine, nodes)
    ]
    _check_remaining(subject, operation, len(running), "running")
    if running and gives_way(subject.kind, subject.resource, sets) is None:
        raise ScalableResourceState(
            f"{subject.group}: several of its MachineSets have machines, so one that is running "
            "might go"
        )
    ailing = next((machine for machine in running if machine.ailing), None)
    if ailing is not None and to_size < len(state.living):
        raise ScalableResourceState(
            f"{MACHINE} {ailing.handle} has joined and is not healthy: it might go in the place of "
            "another"
        )


def _may_have_joined(machine: CapiMachine, nodes: Nodes) -> bool:
    match = nodes.match(machine)
    return match.node is not None or bool(match.doubt)


def _check_remaining(subject: Subject, operation: Operation, count: int, state: str) -> None:
    if operation.spec.to_size < count:
        raise InvalidRequest(
            f"{subject.group}: from {operation.spec.from_size} to {operation.spec.to_size} would "
            "delete "
            f"existing machines, {count} of which are {state}"
        )
