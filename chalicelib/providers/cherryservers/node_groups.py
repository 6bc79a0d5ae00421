"""Builds the policy's node groups from one list of servers.

An idle pass reads the pages of one list, and one plan per kind of server and hour, independent of the number of groups
and nodes. A pool with a wrong definition carries its error and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.group import GroupOptions, Instance, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import instant
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherryBounds
from chalicelib.providers.base import Observation
from chalicelib.providers.cherryservers.cloud_init import labels_pool
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.definition_reader import Definition
from chalicelib.providers.cherryservers.instance_states import doubts
from chalicelib.providers.cherryservers.instances import ServerList
from chalicelib.providers.cherryservers.models import CherryPlan, CherryServer
from chalicelib.providers.cherryservers.node_matching import Matching
from chalicelib.providers.cherryservers.node_template import POOL_LABEL, make_template
from chalicelib.providers.cherryservers.plans import hourly
from chalicelib.providers.cherryservers.provider_ids import CLUSTER_TAG, POOL_TAG
from chalicelib.providers.errors import InvalidRequest, ProviderError, Throttled, Transient


def observe(context: CherryContext, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the policy, in its order; raises ProviderError if the definitions or the list cannot be
    read."""
    known: dict[str, Definition] = {}
    wrong: dict[str, str] = {}
    for bounds in context.settings.groups:
        try:
            known[bounds.name] = context.definition(bounds.name)
        except InvalidRequest as mistake:
            if mistake.code != "Definition":
                raise
            wrong[bounds.name] = mistake.message
    roll = context.roll()
    plans = _Plans(context, known)
    maker = _CherryGroupBuilder(context, roll, Matching(nodes, roll, context.settings.controller_labels), plans)
    groups = tuple(
        _broken(bounds, wrong[bounds.name])
        if bounds.name in wrong
        else _broken(bounds, f"its servers are not known: {doubt}")
        if (doubt := roll.doubt(known[bounds.name]))
        else maker.make(bounds, known[bounds.name])
        for bounds in context.settings.groups
    )
    return Observation(groups, tuple(maker.gaps))


def _broken(bounds: CherryBounds, error: str) -> NodeGroup:
    return NodeGroup(
        id=bounds.name, provider=PROVIDER, min=bounds.min, max=bounds.max, error=error, priority=bounds.priority
    )


class _Plans:
    """The plans of all pools, each requested once.

    After throttling or a request without a response, the API is not called for the remaining plans, which are reported
    with the same problem."""

    def __init__(self, context: CherryContext, definitions: dict[str, Definition]) -> None:
        self._found: dict[str, CherryPlan | None] = {}
        self._problems: dict[str, str] = {}
        self._silence = ""
        for slug in sorted({each.plan for each in definitions.values()}):
            try:
                self._found[slug] = context.api.plan(slug)
            except ProviderError as error:
                self._problems[slug] = f"plan {slug} could not be read: {error.error_class}: {error.message}"
                if isinstance(error, Throttled) or (isinstance(error, Transient) and not error.code):
                    self._silence = self._problems[slug]
                    break

    def of(self, slug: str) -> tuple[CherryPlan | None, str]:
        """Return the plan (None: the vendor has none of that name), and why it is unknown, empty if it is known."""
        return (self._found[slug], "") if slug in self._found else (None, self._problems.get(slug, self._silence))


_NO_LABEL = (
    "its cloud-init does not set the label pool, which a new node is expected to have: pods that choose by it "
    "would get a machine that they cannot use; give the kubelet --node-labels=pool={{.NodeGroup}}"
)


_JOINED_WITHOUT = (
    "has joined without the label pool, so no further server is bought for pods that choose by it; "
    "give the kubelet --node-labels=pool={{.NodeGroup}}"
)


class _CherryGroupBuilder:
    """Builds one group after another and collects the gaps."""

    def __init__(self, context: CherryContext, servers: ServerList, matching: Matching, plans: _Plans) -> None:
        self._context, self._roll, self._matching, self._plans = context, servers, matching, plans
        self._told: set[str] = set()
        self.gaps: list[MissingData] = []

    def make(self, bounds: CherryBounds, definition: Definition) -> NodeGroup:
        """Build the node group of one policy entry."""
        members = []
        for server in self._roll.members(definition):
            if self._matching.controls(server):
                self._warn(
                    bounds.name,
                    f"server {server.id} ({server.hostname}) bears the tags of this pool and is a "
                    "node of the control plane; it is ignored",
                )
            else:
                members.append(server)
        self._doubt(bounds.name, members)
        instances = tuple(self._instance(each) for each in members)
        plan, unread = self._plans.of(definition.plan)
        made = None if unread else make_template(definition, plan, self._context.settings.reserve)
        for warning in made.warnings if made is not None else ():
            self._once(bounds.name, warning)
        if not labels_pool(definition):
            self._once(bounds.name, _NO_LABEL)
        if without := self._without_label(members):
            self._warn(bounds.name, f"node {without} {_JOINED_WITHOUT}")
        for server in self._roll.tagged_otherwise(definition):
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
            target=sum(each.state is not InstanceState.DELETING for each in instances),
            instances=instances,
            template=made.node if made is not None else None,
            template_error=unread or (made.problem if made else ""),
            options=GroupOptions(max_node_provision_time=self._context.settings.max_node_provision_time),
            priority=bounds.priority,
            price=(hourly(plan, spot=definition.spot) or 0.0) if plan is not None else 0.0,
        )

    def _without_label(self, members: Sequence[CherryServer]) -> str:
        """Return the first node of the pool without the label that its template promises, "" if there is none."""
        nodes = (self._matching.node_of(server) for server in members)
        return min((node.name for node in nodes if node is not None and POOL_LABEL not in node.labels), default="")

    def _instance(self, server: CherryServer) -> Instance:
        """Build an instance. A server that is a node counts as running, whatever state its deployment reports."""
        standing = self._roll.standing(server)
        joined = self._matching.node_of(server) is not None
        state = InstanceState.RUNNING if joined and standing.state is InstanceState.CREATING else standing.state
        return Instance(
            self._matching.spell(server),
            state,
            None if joined else standing.error,
            handle=str(server.id),
            node=self._matching.name_of(server),
            created=instant(server.created_at),
            claimants=self._matching.claimants(server),
        )

    def _doubt(self, group: str, members: Sequence[CherryServer]) -> None:
        for doubt, server in doubts(members).items():
            text = f"server {server.id} has {doubt}, which is not known; it is taken for a running one"
            self._once(group, text, doubt)

    def _once(self, group: str, detail: str, what: str = "") -> None:
        """Report a problem that many pools or servers share for the first of them only."""
        if (what or detail) not in self._told:
            self._told.add(what or detail)
            self._warn(group, detail)

    def _warn(self, group: str, detail: str) -> None:
        self.gaps.append(
            MissingData("NodeGroup", detail, name=group, place=f"spec.nodeGroups[provider={PROVIDER}, id={group}]")
        )
