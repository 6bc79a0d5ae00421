"""Builds the policy's node groups from one list of servers.

An idle pass reads the pages of one list, and one plan per kind of server and hour, independent of the number of groups
and nodes. A pool with a wrong definition carries its error and does not affect the others.

The template is that of the node that a pool would add, from its plan. Labels are those that the vendor's cloud
controller sets on real nodes: plan and region by their slugs, no zone. Upstream uses the plan's name, which may contain
blanks; a pod that selects by slug then never scales a pool up from zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceState, NodeGroup
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import instant
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherryBounds
from chalicelib.providers.base import Observation
from chalicelib.providers.cherryservers.decoding import CLUSTER_TAG, POOL_TAG, AvailableRegion, CherryPlan, CherryServer
from chalicelib.providers.cherryservers.instances import CherryContext, Matching, ServerList, server_state
from chalicelib.providers.cherryservers.pool_definition import Definition, labels_pool
from chalicelib.providers.errors import InvalidRequest, OutOfStock, ProviderError, Throttled, Transient

_NO_LABEL = (
    "its cloud-init does not set the label pool, which a new node is expected to have: pods that choose by it "
    "would get a machine that they cannot use; give the kubelet --node-labels=pool={{.NodeGroup}}"
)
_JOINED_WITHOUT = (
    "has joined without the label pool, so no further server is bought for pods that choose by it; "
    "give the kubelet --node-labels=pool={{.NodeGroup}}"
)


def observe(context: CherryContext, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the policy, in its order; raises ProviderError if the definitions or the list cannot be
    read."""
    definitions: dict[str, Definition] = {}
    problems: dict[str, str] = {}
    for bounds in context.settings.groups:
        try:
            definitions[bounds.name] = context.definition(bounds.name)
        except InvalidRequest as mistake:
            if mistake.code != "Definition":
                raise
            problems[bounds.name] = mistake.message
    servers = context.servers()
    for name, definition in definitions.items():
        if doubt := servers.doubt(definition):
            problems[name] = f"its servers are not known: {doubt}"
    plans = _Plans(context, definitions)
    builder = _CherryGroupBuilder(context, servers, nodes, plans)
    groups = tuple(
        NodeGroup(
            id=bounds.name,
            provider=PROVIDER,
            min=bounds.min,
            max=bounds.max,
            error=problems[bounds.name],
            priority=bounds.priority,
        )
        if bounds.name in problems
        else builder.build(bounds, definitions[bounds.name])
        for bounds in context.settings.groups
    )
    return Observation(groups, tuple(builder.gaps))


class _Plans:
    """The plans of all pools, each requested once. After throttling or a request without a response, the API is not
    called for the remaining plans, which are reported with the same problem."""

    def __init__(self, context: CherryContext, definitions: dict[str, Definition]) -> None:
        self._plans: dict[str, CherryPlan | None] = {}
        self._problems: dict[str, str] = {}
        self._silence = ""
        for slug in sorted({definition.plan for definition in definitions.values()}):
            try:
                self._plans[slug] = context.api.plan(slug)
            except ProviderError as error:
                self._problems[slug] = f"plan {slug} could not be read: {error.error_class}: {error.message}"
                if isinstance(error, Throttled) or (isinstance(error, Transient) and not error.code):
                    self._silence = self._problems[slug]
                    break

    def of(self, slug: str) -> tuple[CherryPlan | None, str]:
        """Return the plan (None: the vendor has none of that name), and why it is unknown, empty if it is known."""
        return (self._plans[slug], "") if slug in self._plans else (None, self._problems.get(slug, self._silence))


class _CherryGroupBuilder:
    """Builds one group after another and collects the gaps."""

    def __init__(self, context: CherryContext, servers: ServerList, nodes: Sequence[Node], plans: _Plans) -> None:
        self._settings, self._servers, self._plans = context.settings, servers, plans
        self._matching = Matching(nodes, servers, context.settings.controller_labels)
        self._reported: set[str] = set()
        self.gaps: list[MissingData] = []

    def build(self, bounds: CherryBounds, definition: Definition) -> NodeGroup:
        """Build the node group of one policy entry."""
        members = []
        for server in self._servers.members(definition):
            if self._matching.is_control_plane(server):
                self._warn(
                    bounds.name,
                    f"server {server.id} ({server.hostname}) bears the tags of this pool and is a "
                    "node of the control plane; it is ignored",
                )
            else:
                members.append(server)
        for server in members:
            if doubt := server_state(server).doubt:
                text = f"server {server.id} has {doubt}, which is not known; it is taken for a running one"
                self._warn_once(bounds.name, text, doubt)
        instances = tuple(self._instance(server) for server in members)
        plan, unread = self._plans.of(definition.plan)
        template = None if unread else make_template(definition, plan, self._settings.reserve)
        for warning in template.warnings if template is not None else ():
            self._warn_once(bounds.name, warning)
        if not labels_pool(definition):
            self._warn_once(bounds.name, _NO_LABEL)
        joined = [node for server in members if (node := self._matching.node_of(server)) is not None]
        if unlabelled := min((node.name for node in joined if POOL_LABEL not in node.labels), default=""):
            self._warn(bounds.name, f"node {unlabelled} {_JOINED_WITHOUT}")
        for server in self._servers.tagged_otherwise(definition):
            self._warn(
                bounds.name,
                f"server {server.id} ({server.hostname}) bears tags of another form, such as "
                f"{CLUSTER_TAG}-{definition.cluster_name}: it is not counted and never removed; give it the tags "
                f"{CLUSTER_TAG}: {definition.cluster_name} and {POOL_TAG}: {definition.pool} to make it a member",
            )
        return NodeGroup(
            id=bounds.name,
            provider=PROVIDER,
            min=bounds.min,
            max=bounds.max,
            target=sum(instance.state is not InstanceState.DELETING for instance in instances),
            instances=instances,
            template=template.node if template is not None else None,
            template_error=unread or (template.problem if template else ""),
            options=GroupOptions(max_node_provision_time=self._settings.max_node_provision_time),
            priority=bounds.priority,
            price=(hourly(plan, spot=definition.spot) or 0.0) if plan is not None else 0.0,
        )

    def _instance(self, server: CherryServer) -> Instance:
        """Build an instance. A server that is a node counts as running, whatever state its deployment reports."""
        state = self._servers.state(server)
        joined = self._matching.node_of(server) is not None
        return Instance(
            self._matching.provider_id(server),
            InstanceState.RUNNING if joined and state.state is InstanceState.CREATING else state.state,
            None if joined else state.error,
            handle=str(server.id),
            node=self._matching.name_of(server),
            created=instant(server.created_at),
            claimants=self._matching.claimants(server),
        )

    def _warn_once(self, group: str, detail: str, subject: str = "") -> None:
        """Report a problem that many pools or servers share for the first of them only."""
        if (subject or detail) not in self._reported:
            self._reported.add(subject or detail)
            self._warn(group, detail)

    def _warn(self, group: str, detail: str) -> None:
        place = f"spec.nodeGroups[provider={PROVIDER}, id={group}]"
        self.gaps.append(MissingData("NodeGroup", detail, name=group, place=place))


# -- templates

GPU, POOL_LABEL = "nvidia.com/gpu", "pool"
_PODS = 110
_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_REGION = "topology.kubernetes.io/region"
_BYTES = MappingProxyType({"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40})


class CherryTemplate(msgspec.Struct, frozen=True):
    """node None: the pool cannot be scaled up from zero, and problem is the reason. warnings: what the template
    lacks."""

    node: Node | None
    problem: str = ""
    warnings: tuple[str, ...] = ()


def make_template(definition: Definition, plan: CherryPlan | None, reserve: Mapping[str, int]) -> CherryTemplate:
    """Return the template of a pool. plan: None if the vendor has none of that slug; reserve: reserved by the kubelet,
    cpu in millicores and the rest in bytes."""
    if plan is None:
        return CherryTemplate(None, f"plan {definition.plan!r} is not supported: the vendor has no plan of that slug")
    name = plan.slug or definition.plan
    cores = definition.cpu_override or plan.specs.cpus.cores
    memory = _amount(plan.specs.memory.total, plan.specs.memory.unit)
    problem = ""
    if cores <= 0:  # of the whole server, not per processor and not multiplied by threads
        problem = f"plan {name} does not say how many cores it has; set cpu-override for this pool"
    elif memory is None:
        unit = plan.specs.memory.unit
        problem = f"plan {name} gives its memory in {unit!r}, which is not one of {', '.join(_BYTES)}"
    elif memory == 0:
        problem = f"plan {name} does not say how much memory it has"
    if problem:
        return CherryTemplate(None, problem)
    disk, warning = _disk(definition, plan)
    capacity = {CPU: 1000 * cores, MEMORY: memory or 0, PODS: _PODS, GPU: 0, **({EPHEMERAL: disk} if disk else {})}
    allocatable = {resource: max(0, amount - reserve.get(resource, 0)) for resource, amount in capacity.items()}
    node_name, sold = f"{definition.pool}-asg-0", region_of(plan, definition.region)
    labels = {
        POOL_LABEL: definition.pool,
        **dict.fromkeys(_TYPES, name),
        _REGION: (sold.slug if sold else "") or definition.region,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        HOSTNAME_LABEL: node_name,
    }
    node = Node(name=node_name, labels=labels, capacity=capacity, allocatable=allocatable)
    return CherryTemplate(node, "", (warning,) if warning else ())


def _disk(definition: Definition, plan: CherryPlan) -> tuple[int, str]:
    """Return bytes, 0 if unknown, and a warning. One disk of the first kind counts, because how several are combined is
    unknown, and mirrored ones hold no more than one."""
    if definition.os_partition_size:
        return _BYTES["GB"] * definition.os_partition_size, ""
    row = next(iter(plan.specs.storage), None)
    disk = _amount(row.size, row.unit) if row is not None else None
    unknown = (
        f"plan {plan.slug or definition.plan} does not say how large its disk is; set os-partition-size for "
        "pods that ask for ephemeral storage"
    )
    return (disk, "") if disk else (0, unknown)


def _amount(number: float, unit: str) -> int | None:
    """Return bytes; None for an unknown unit."""
    size = _BYTES.get(unit.strip().upper())
    return None if size is None else max(0, int(number * size))


# -- plans

_UNITS = {False: "hourly", True: "spot hourly"}
_CURRENCY = "EUR"  # the vendor's currency, used if a plan has prices in several


def region_of(plan: CherryPlan, region: str) -> AvailableRegion | None:
    """Return the plan's entry for a region, matched by slug, then name or id; None if the plan is not sold there."""
    rows = plan.available_regions
    for keys in (lambda row: (row.slug,), lambda row: (row.name, str(row.id))):
        for row in rows:
            if region in keys(row):
                return row
    return None


def stock_of(plan: CherryPlan, region: str, *, spot: bool = False) -> int:
    """Return the stock in the region, or that of its spot market. Raises OutOfStock naming the plan's regions if it is
    not sold in this one."""
    row = region_of(plan, region)
    if row is None:
        sold = ", ".join(each.slug or each.name for each in plan.available_regions[:10]) or "no region"
        text = f"plan {plan.slug or plan.id} is not sold in region {region!r}; it is sold in {sold}"
        raise OutOfStock(text, code="Region")
    return max(0, row.spot_qty if spot else row.stock_qty)


def hourly(plan: CherryPlan, *, spot: bool = False) -> float | None:
    """Return the price of one server per hour, None if the plan has none. The price is in the vendor's currency and, if
    both are listed, without value added tax, because prices are only compared between groups. A spot price is a
    separate entry. The ordinary price does not replace it, and a monthly price does not replace an hourly one."""
    rows = [
        row
        for row in plan.pricing
        if row.unit.strip().casefold() == _UNITS[spot] and math.isfinite(row.price) and row.price > 0
    ]
    order = [(row.currency.upper() != _CURRENCY, row.taxed, row.price) for row in rows]
    return min(order)[2] if order else None
