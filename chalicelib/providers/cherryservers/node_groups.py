"""Builds the policy's node groups from one list of servers.

An idle pass reads the pages of one list, and one plan per kind of server and hour,
independent of the number of groups and nodes. A pool with a wrong definition carries its
error and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceState, NodeGroup
from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.node import Node
from chalicelib.model.timestamps import instant
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherryBounds
from chalicelib.providers.cherryservers.decoding import (
    CLUSTER_TAG,
    POOL_TAG,
    CherryPlan,
    CherryServer,
)
from chalicelib.providers.cherryservers.instances import (
    RESCUE,
    CherryContext,
    Matching,
    ServerList,
    outdated,
    server_state,
)
from chalicelib.providers.cherryservers.managed_groups import (
    OwnGroup,
    own_groups,
    plan_of,
)
from chalicelib.providers.cherryservers.node_template import (
    POOL_LABEL,
    amount_of,
    hourly,
    make_template,
    price_unit,
)
from chalicelib.providers.cherryservers.pool_definition import Definition, fingerprint, labels_pool
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError, Throttled, Transient
from chalicelib.providers.kit.group_builder import GroupBuilder, instance_state
from chalicelib.providers.kit.managed_pools import (
    candidate_group,
    pool_of,
    with_kernel,
    with_outdated,
)

_NO_LABEL = (
    "its cloud-init does not set the label pool, which a new node is expected to have: pods that "
    "choose by it "
    "would get a machine that they cannot use; give the kubelet --node-labels=pool={{.NodeGroup}}"
)
_TAKEN = (
    "servers of this name exist that Outscaler has not ordered: they are left alone, and no group "
    "is opened under the name; give them another tag k8s-nodepool"
)
_HOUR = 3600.0  # hourly plans are billed by the started hour
_JOINED_WITHOUT = (
    "has joined without the label pool, so no further server is bought for pods that choose by it; "
    "give the kubelet --node-labels=pool={{.NodeGroup}}"
)


def observe(context: CherryContext, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the policy, in its order; raises ProviderError if the definitions or
    the list cannot be read."""
    servers = context.servers()
    own = _own_groups(context, servers)
    choices: dict[str, MachineChoice | None] = {
        **{bounds.name: None for bounds in context.settings.groups},
        **{group.name: group.managed.choice for group in own},
    }
    definitions, problems = _definitions(context, choices)
    for name, definition in definitions.items():
        if doubt := servers.doubt(definition):
            problems[name] = f"its servers are not known: {doubt}"
    plans = _Plans(context, definitions)
    builder = _CherryGroupBuilder(context, servers, nodes, plans)
    groups: list[NodeGroup] = []
    for bounds in context.settings.groups:
        if bounds.name in problems:
            groups.append(_faulty_group(bounds, problems[bounds.name]))
        else:
            groups.append(builder.build(bounds, definitions[bounds.name]))
    for group in own:
        if group.taken:
            builder.warn(group.name, _TAKEN)
        elif group.name in problems:
            groups.append(_faulty_group(CherryBounds(group.name, 0, 0), problems[group.name]))
        else:
            groups.append(_own_group(builder, context, group, definitions[group.name]))
    if not context.managed.pools:
        return Observation(tuple(groups), tuple(builder.gaps))
    candidates = _candidates(context, {group.name for group in own})
    selections = context.managed.selections()
    return Observation(tuple(groups), tuple(builder.gaps), candidates, selections)


def _definitions(
    context: CherryContext, choices: Mapping[str, MachineChoice | None]
) -> tuple[dict[str, Definition], dict[str, str]]:
    """Return the definitions of groups, and why others have none; raises ProviderError if none can
    be read. choices: group -> its machines if it is an own one."""
    definitions: dict[str, Definition] = {}
    problems: dict[str, str] = {}
    for name, choice in choices.items():
        try:
            definitions[name] = context.definition(name, choice)
        except InvalidRequest as mistake:
            if mistake.code != "Definition":
                raise
            problems[name] = mistake.message
    return definitions, problems


def _own_groups(context: CherryContext, servers: ServerList) -> tuple[OwnGroup, ...]:
    """Return the groups of Outscaler's own that have servers of this cluster."""
    cluster = context.definitions.cluster_name
    ours = [
        server
        for server in servers.by_id.values()
        if server.tags.get(CLUSTER_TAG) == cluster and not servers.leaves(server)
    ]
    groups = own_groups(ours, context.managed)
    return tuple(group for group in groups if context.is_managed(group.name))


def _own_group(
    builder: _CherryGroupBuilder, context: CherryContext, own: OwnGroup, definition: Definition
) -> NodeGroup:
    """Return an own group that exists. It grows no further than stock and limits allow, and not at
    all once its declaration does not allow it."""
    choice = own.managed.choice
    candidate = context.managed.growable(own.name, choice) if not own.managed.retiring else None
    group = builder.build(CherryBounds(own.name, 0, 0), definition)
    most = group.target
    if candidate is not None:
        stock, limit = candidate.machine.stock, candidate.pool.limits.nodes
        most = limit if stock is None else min(limit, group.target + stock)
    most = max(most, group.target)
    instances = with_outdated(group.instances, own.managed.retiring)
    return msgspec.structs.replace(
        group, max=most, instances=instances, pool=pool_of(choice.declaration), managed=own.managed
    )


def _candidates(context: CherryContext, existing: Collection[str]) -> tuple[NodeGroup, ...]:
    """Return the groups that could be opened. existing: names of groups that have servers."""
    pools = context.managed
    stored = pools.shelf.read()
    if stored is None:
        return ()
    groups = []
    for name, candidate in pools.candidates.items():
        if name in existing:
            continue
        try:
            definition = context.definition(name, candidate.group.choice)
        except InvalidRequest:
            continue  # the vendor calls the type or the region by a name that no order can have
        reserve = with_kernel(context.settings.reserve, candidate.machine.entry.memory)
        template = make_template(definition, plan_of(candidate.machine.entry), reserve)
        groups.append(
            candidate_group(candidate, template, stored.catalogue.currency, stored.read_at)
        )
    return tuple(groups)


def _faulty_group(bounds: CherryBounds, problem: str) -> NodeGroup:
    return NodeGroup(
        id=bounds.name,
        provider=PROVIDER,
        min=bounds.min,
        max=bounds.max,
        error=problem,
        priority=bounds.priority,
    )


class _Plans:
    """The plans of all pools, each requested once. After throttling or a request
    without a response, the API is not called for the remaining plans, which are
    reported with the same problem."""

    def __init__(self, context: CherryContext, definitions: dict[str, Definition]) -> None:
        self._plans: dict[str, CherryPlan | None] = {}
        self._problems: dict[str, str] = {}
        self._silence = ""
        self._read_at = context.api.plan_read_at
        for slug in sorted({definition.plan for definition in definitions.values()}):
            try:
                self._plans[slug] = context.api.plan(slug)
            except ProviderError as error:
                self._problems[slug] = f"plan {slug} could not be read: {error.described}"
                has_no_response = isinstance(error, Transient) and not error.code
                if isinstance(error, Throttled) or has_no_response:
                    self._silence = self._problems[slug]
                    break

    def read_at(self, slug: str) -> float:
        """Return when the vendor stated the plan, 0.0: in this pass."""
        return self._read_at(slug)

    def of(self, slug: str) -> tuple[CherryPlan | None, str]:
        """Return the plan (None: the vendor has none of that name), and why it is
        unknown, empty if it is known."""
        if slug in self._plans:
            return self._plans[slug], ""
        return None, self._problems.get(slug, self._silence)


class _CherryGroupBuilder(GroupBuilder):
    def __init__(
        self, context: CherryContext, servers: ServerList, nodes: Sequence[Node], plans: _Plans
    ) -> None:
        super().__init__(PROVIDER)
        self._settings, self._is_own = context.settings, context.is_managed
        self._servers = servers
        self._plans = plans
        self._now = context.now()
        self._matching = Matching(nodes, servers, context.settings.controller_labels)
        self._reported: set[str] = set()

    def build(self, bounds: CherryBounds, definition: Definition) -> NodeGroup:
        """Build the node group of one policy entry."""
        members = self._members(bounds.name, definition)
        current = fingerprint(definition)
        instances = tuple(self._instance(server, definition, current) for server in members)
        plan, unread = self._plans.of(definition.plan)
        template = None if unread else make_template(definition, plan, self._reserve(bounds, plan))
        if template is not None:
            for warning in template.warnings:
                self._warn_once(bounds.name, warning)
        self._warn_of_labels(bounds.name, definition, members)
        self._warn_of_tags(bounds.name, definition)
        stated_price = hourly(plan, spot=definition.spot) if plan is not None else None
        price, currency = stated_price or (0.0, "")
        price_error = ""
        if not price:
            kind = price_unit(spot=definition.spot)
            price_error = unread or f"plan {definition.plan} has no {kind} price"
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
            price=price,
            currency=currency,
            priced_at=self._plans.read_at(definition.plan) if price else 0.0,
            billed_per=_HOUR,
            price_error=price_error,
            spot=definition.spot,
            restarts=True,
        )

    def _reserve(self, bounds: CherryBounds, plan: CherryPlan | None) -> Mapping[str, int]:
        """Return what a node of a pool reserves; one of an own group as much as of the candidate
        that it was, so that it holds the pods for which it was opened."""
        if plan is None or not self._is_own(bounds.name):
            return self._settings.reserve
        memory = amount_of(plan.specs.memory.total, plan.specs.memory.unit) or 0
        return with_kernel(self._settings.reserve, memory)

    def _members(self, group: str, definition: Definition) -> list[CherryServer]:
        """Return the servers of a pool, and report those that are doubtful."""
        members = []
        for server in self._servers.members(definition):
            if self._matching.is_control_plane(server):
                self.warn(
                    group,
                    f"server {server.id} ({server.hostname}) bears the tags of this pool and is a "
                    "node of the control plane; it is ignored",
                )
            else:
                members.append(server)
        for server in members:
            doubt = server_state(server).doubt
            if doubt:
                text = (
                    f"server {server.id} has {doubt}, which is not known; it is taken for a "
                    "running one"
                )
                self._warn_once(group, text, doubt)
        return members

    def _warn_of_labels(
        self, group: str, definition: Definition, members: Sequence[CherryServer]
    ) -> None:
        if not labels_pool(definition):
            self._warn_once(group, _NO_LABEL)
        nodes = [self._matching.node_of(server) for server in members]
        joined = [node for node in nodes if node is not None]
        unlabelled = [node.name for node in joined if POOL_LABEL not in node.labels]
        first_unlabelled = min(unlabelled, default="")
        if first_unlabelled:
            self.warn(group, f"node {first_unlabelled} {_JOINED_WITHOUT}")

    def _warn_of_tags(self, group: str, definition: Definition) -> None:
        cluster = definition.cluster_name
        tags = f"{CLUSTER_TAG}: {cluster} and {POOL_TAG}: {definition.pool}"
        for server in self._servers.tagged_otherwise(definition):
            self.warn(
                group,
                f"server {server.id} ({server.hostname}) bears tags of another form, such as "
                f"{CLUSTER_TAG}-{cluster}: it is not counted and never removed; give it the tags "
                f"{tags} to make it a member",
            )

    def _instance(self, server: CherryServer, definition: Definition, current: str) -> Instance:
        """Build an instance. A server that is a node counts as running, whatever
        state its deployment reports."""
        reported = self._servers.state(server)
        is_node = self._matching.node_of(server) is not None
        is_leaving = self._servers.leaves(server)
        is_in_rescue = server.status.strip().casefold() == RESCUE
        return Instance(
            self._matching.provider_id(server),
            instance_state(reported.state, is_node=is_node),
            None if is_node else reported.error,
            handle=str(server.id),
            node=self._matching.name_of(server),
            created=instant(server.created_at),
            claimants=self._matching.claimants(server),
            leaves_at=self._servers.leaves_at(server, self._now),
            outdated="" if is_leaving else outdated(server, definition, current),
            busy=RESCUE if is_in_rescue else "",
        )

    def _warn_once(self, group: str, detail: str, subject: str = "") -> None:
        """Report a problem that many pools or servers share for the first of them only."""
        subject = subject or detail
        if subject not in self._reported:
            self._reported.add(subject)
            self.warn(group, detail)
