"""The servers of a project, listed at one instant: their states, their pools, and the nodes that
they have become; and the context of all calls.

The members of a pool are the servers with both tags, the name of its cluster and its own name; node
labels do not matter. Sizes are counted from every new list, without leaving servers.

The vendor's cloud controller writes `cherryservers://1000` and also reads a bare `1000`. Nodes and
servers are matched from one list of each, without further calls:

    the node's providerID       its server
    cherryservers://1000, 1000  number 1000, if it is listed
    empty                       the one server of the project with the node's name
    of another scheme           none: the node belongs to another provider

A kubelet can write any providerID and cannot choose its node's name. Therefore a node whose name is
that of a server other than the one its providerID names is matched to neither, and a server that
two nodes claim has no known node (providers/kit/node_identity.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.group import InstanceError, InstanceState
from chalicelib.model.managed_group import PREFIX, MachineChoice
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.model.timestamps import instant
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherryBounds, CherrySettings
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.decoding import (
    CLUSTER_TAG,
    DEFINITION_TAG,
    POOL_TAG,
    CherryServer,
    UnreadableServer,
)
from chalicelib.providers.cherryservers.definition_reader import Definitions
from chalicelib.providers.cherryservers.managed_groups import (
    managed_definition,
    own_sizes,
    refuse_taken,
)
from chalicelib.providers.cherryservers.pool_definition import Definition, is_fingerprint
from chalicelib.providers.cherryservers.tokens import Tokens
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError, Transient, Unknown
from chalicelib.providers.kit.managed_pools import ManagedPools
from chalicelib.providers.kit.node_identity import (
    Identity,
    N,
    Seen,
    nodes,
    refuse_changed,
    refuse_joined,
)
from chalicelib.providers.kit.services import Cache, KubeLists, OneTimeRequests, TtlCache

SCHEME = "cherryservers://"
FAILED, RESCUE = "failed deployment", "rescue mode"

_ID = re.compile(r"[1-9][0-9]{0,18}\Z", re.ASCII)
# State, the required status (empty for any), and the instance state. The first matching row
# applies. The vocabularies were collected from the vendor's clients; words that occur in none of
# them are reported. Upstream ignores states: servers being deleted count as existing, and a failed
# deployment is noticed only when the provision time is over.
_ROWS: tuple[tuple[str, str, InstanceState], ...] = (
    ("terminating", "", InstanceState.DELETING),
    ("", "terminating", InstanceState.DELETING),
    ("", FAILED, InstanceState.CREATING),
    ("pending", "", InstanceState.CREATING),
    ("provisioning", "", InstanceState.CREATING),
    ("", "deploying", InstanceState.CREATING),
    ("inactive", "", InstanceState.RUNNING),
    ("", RESCUE, InstanceState.RUNNING),
    ("active", "deployed", InstanceState.RUNNING),
    ("active", "allocated", InstanceState.RUNNING),
)

# -- ids and names


def parse(provider_id: str) -> int | None:
    """Return the server's id in a node's providerID, with or without the scheme; None if it
    is empty or anything else."""
    text = provider_id.removeprefix(SCHEME)
    return int(text) if _ID.match(text) else None


def likely(provider_id: str) -> int | None:
    """Return the server's id in a text that resembles a providerID of this vendor (capitals, a
    path, blanks) but is invalid."""
    text = provider_id.strip()
    return (
        parse(text.rpartition("/")[2])
        if text.lower().startswith(SCHEME.rstrip("/")) or text.isdecimal()
        else None
    )


def id_of(target: RemovalTarget) -> int | None:
    """Return the server that a target names by its handle or its provider
    id; None if neither does."""
    return parse(target.handle) or parse(target.instance)


def alike(one: str, other: str) -> bool:
    """Whether two host names are equal in DNS and in Kubernetes, which
    writes them in lower case."""
    return bool(one) and one.casefold() == other.casefold()


# -- states


class ServerState(msgspec.Struct, frozen=True):
    """The state of a server; doubt: the unknown words, empty if all are known."""

    state: InstanceState
    error: InstanceError | None = None
    doubt: str = ""


def server_state(server: CherryServer) -> ServerState:
    """Return the state for a state and status. Unknown words count as running: a word alone must
    not cause a deletion or a purchase."""
    state, status = server.state.strip().casefold(), server.status.strip().casefold()
    for row_state, row_status, instance_state in _ROWS:
        if row_state in ("", state) and row_status in ("", status):
            failed = status == FAILED and instance_state is InstanceState.CREATING
            text = f"server {server.id}: its deployment has failed"
            return ServerState(
                instance_state, InstanceError("Unknown", FAILED, text) if failed else None
            )
    if state == "active" and not status:
        return ServerState(InstanceState.RUNNING)  # a row without a status, as in older responses
    return ServerState(
        InstanceState.RUNNING, doubt=f"state {state[:40]!r} with status {status[:40]!r}"
    )


def is_leaving(server: CherryServer) -> bool:
    """Whether the vendor is deleting the server."""
    return server_state(server).state is InstanceState.DELETING


_LONGEST_NOTICE = 86400.0  # seconds; the vendor gives two minutes
# seconds for which a server that is still listed counts as one that leaves
_LONGEST_OVERDUE = 3600.0


def leaves_at(server: CherryServer, now: float) -> float:
    """Return when the vendor takes a spot server back, in epoch seconds; 0.0 without a notice. The
    vendor does not document which field is the notice. That it is termination_date is inferred, so
    the date counts only for a spot server, and not if it is more than a day ahead or an hour past
    (docs/providers/cherryservers.md "Spot servers")."""
    at = instant(server.termination_date) if server.spot_instance else 0.0
    return at if -_LONGEST_OVERDUE <= at - now <= _LONGEST_NOTICE else 0.0


def outdated(server: CherryServer, definition: Definition, fingerprint: str) -> str:
    """Return in what a server differs from one that would be bought now; "" if in nothing, or if
    its tag does not say from which definition it was made (docs/providers/cherryservers.md
    "Drift"). fingerprint: of the definition."""
    made_from = server.tags.get(DEFINITION_TAG, "")
    if not is_fingerprint(made_from) or made_from == fingerprint:
        return ""
    plan, region = server.plan, server.region
    rows = (
        ("plan", plan.slug, definition.plan, {plan.slug, plan.name, str(plan.id)}),
        ("region", region.slug, definition.region, {region.slug, region.name, str(region.id)}),
    )
    differences = [
        f"{what} {own}, the group's is {wanted}"
        for what, own, wanted, names in rows
        if own and wanted not in names
    ]
    if server.spot_instance != definition.spot:
        differences.append(
            "a spot server, the group's are not"
            if server.spot_instance
            else "no spot server, the group's are"
        )
    return "; ".join(differences) or "made from another definition of its group"


# -- the list


def belongs(server: CherryServer, definition: Definition) -> bool:
    """Whether the server has both tags of the pool."""
    return (server.tags.get(CLUSTER_TAG), server.tags.get(POOL_TAG)) == (
        definition.cluster_name,
        definition.pool,
    )


class ServerList:
    """One list. gone: ids that Outscaler has deleted, even if the list contains them. odd:
    rows that cannot be read."""

    def __init__(
        self,
        servers: Iterable[CherryServer],
        gone: frozenset[int] = frozenset(),
        odd: Iterable[UnreadableServer] = (),
    ) -> None:
        self._gone, self._odd = gone, tuple(odd)
        self.by_id = {server.id: server for server in servers}
        self._pools: dict[tuple[str, str], list[CherryServer]] = {}
        for _, server in sorted(self.by_id.items()):
            pool = server.tags.get(CLUSTER_TAG, ""), server.tags.get(POOL_TAG, "")
            self._pools.setdefault(pool, []).append(server)
        self._names = Counter(
            server.hostname.casefold() for server in self.by_id.values() if not self.leaves(server)
        )

    def members(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Return the servers of a pool by id, including leaving ones."""
        return tuple(self._pools.get((definition.cluster_name, definition.pool), ()))

    def counted(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Return the servers of a pool that count towards its size."""
        return tuple(server for server in self.members(definition) if not self.leaves(server))

    def tagged_otherwise(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Return the servers that bear the tags of a pool in the form of the vendor's guide,
        `k8s-cluster-NAME` and `k8s-nodepool-NAME`, and not as key and value. They are no members:
        every upstream release counts the latter."""
        names = {f"{CLUSTER_TAG}-{definition.cluster_name}", f"{POOL_TAG}-{definition.pool}"}
        return tuple(
            server
            for _, server in sorted(self.by_id.items())
            if names <= server.tags.keys() | set(server.tags.values())
            and not belongs(server, definition)
        )

    def doubt(self, definition: Definition) -> str:
        """Return why the members of a pool are uncertain; "" if they are known."""
        return next((row.why for row in self._odd if row.may_be_of(definition)), "")

    def leaves(self, server: CherryServer) -> bool:
        """Whether the server is being deleted, according to the vendor or because
        Outscaler has deleted it."""
        return server.id in self._gone or is_leaving(server)

    def lives(self, server: int) -> bool:
        """Whether the server is listed and not being deleted."""
        return server in self.by_id and not self.leaves(self.by_id[server])

    def leaves_at(self, server: CherryServer, now: float) -> float:
        """Return `leaves_at` of a server; 0.0 for one that Outscaler has deleted,
        whose date is no notice."""
        return 0.0 if server.id in self._gone else leaves_at(server, now)

    def state(self, server: CherryServer) -> ServerState:
        """Return its state; a recent deletion by Outscaler overrides the list."""
        return (
            ServerState(InstanceState.DELETING) if server.id in self._gone else server_state(server)
        )

    def is_only(self, hostname: str) -> bool:
        """Whether exactly one server of the project has this name. Only then
        does the name identify it."""
        return self._names[hostname.casefold()] == 1


# -- nodes


def _identify(nodes: Iterable[N], servers: ServerList) -> Identity[int, N]:
    """Return the nodes by the server's number."""
    by_name = {
        server.hostname.casefold(): server.id
        for server in servers.by_id.values()
        if not servers.leaves(server) and servers.is_only(server.hostname)
    }

    def claimed(node: N) -> tuple[int, ...]:
        number = parse(node.provider_id) if node.provider_id else by_name.get(node.name.casefold())
        return () if number is None else (number,)

    def hinted(node: N) -> tuple[int, ...]:
        numbers = (likely(node.provider_id), by_name.get(node.name.casefold()))
        return tuple(number for number in numbers if number is not None)

    return Identity(nodes, claimed, hinted)


class Matching:
    """The matching of servers to nodes. controller_labels: keys that mark the
    nodes that belong to no pool."""

    def __init__(
        self, nodes: Iterable[Node], servers: ServerList, controller_labels: Sequence[str]
    ) -> None:
        nodes = tuple(nodes)
        self._labels, self._servers = tuple(controller_labels), servers
        self._identity = _identify(nodes, servers)
        self._names = {node.name.casefold() for node in nodes}

    def node_of(self, server: CherryServer) -> Node | None:
        """Return the node of a server; None if it has not joined or its node is ambiguous."""
        return self._identity.node_of(server.id)

    def claimants(self, server: CherryServer) -> tuple[str, ...]:
        """Return the nodes that claim a server whose node is ambiguous."""
        return self._identity.claimants(server.id)

    def is_control_plane(self, server: CherryServer) -> bool:
        """Whether the server is a control plane node."""
        node = self.node_of(server)
        return node is not None and any(label in node.labels for label in self._labels)

    def name_of(self, server: CherryServer) -> str:
        """Return the name of its node, or the name that its node will have; empty if
        that would be ambiguous."""
        node = self.node_of(server)
        if node is not None:
            return node.name
        free = (
            self._servers.is_only(server.hostname) and server.hostname.casefold() not in self._names
        )
        return server.hostname if free else ""

    def provider_id(self, server: CherryServer) -> str:
        """Return the provider id of a server in the form that its node uses or will use."""
        node = self.node_of(server)
        return node.provider_id if node is not None and node.provider_id else f"{SCHEME}{server.id}"


# -- checks against the cluster's nodes during a change

Lister = Callable[[str], tuple[Seen, ...]]


def lister(kube: KubeLists) -> Lister:
    """Return a function: label selector ("" for all) -> the nodes. It raises
    Transient if they cannot be read."""
    return lambda selector: nodes(kube, selector)


def refuse_joined_servers(list_nodes: Lister | None, servers: Iterable[CherryServer]) -> None:
    """Raise PermanentConflict if one of the servers is a node by now. Without access to the cluster
    this cannot be checked; the caller has already checked by name (operations/steps/repairs.py)."""
    if list_nodes is not None:
        current = list_nodes("")
        refuse_joined(
            f"{node.name} (server {server.id})"
            for server in servers
            for node in current
            if _is(node, server)
        )


def control_plane(
    list_nodes: Lister | None, labels: Iterable[str], servers: Iterable[CherryServer]
) -> frozenset[int]:
    """Return the servers that are nodes with one of these labels: they are control plane
    nodes and belong to no pool."""
    if list_nodes is None:
        return frozenset()
    controllers = [node for label in labels for node in list_nodes(label) if label in node.labels]
    return frozenset(
        server.id for server in servers if any(_is(node, server) for node in controllers)
    )


def refuse_changed_servers(
    list_nodes: Lister | None,
    operation: Operation,
    server_list: ServerList,
    servers: Mapping[int, CherryServer],
) -> None:
    """Raise PermanentConflict unless every server is still, without doubt, the node
    that was planned. servers: those to be deleted, by number. Without access to the
    cluster this cannot be checked."""
    if list_nodes is None:
        return
    current = list_nodes("")

    def number_of(target: RemovalTarget) -> int | None:
        number = id_of(target)
        if number is None:
            number = next(
                (each.id for each in servers.values() if alike(each.hostname, target.node)), None
            )
        return number if number in servers else None

    refuse_changed(operation.spec.targets, number_of, _identify(current, server_list), current)


def _is(node: Seen, server: CherryServer) -> bool:
    """Whether the server has become this node: by id, or by name if the node has no providerID
    yet. A node of another cloud with the same name counts as well, because an ambiguous name
    must not justify a deletion."""
    number = parse(node.provider_id)
    if number is not None:
        return number == server.id
    return likely(node.provider_id) == server.id or alike(node.name, server.hostname)


# -- the context of all calls: settings, definitions, the vendor's API and the cluster, each created
# on first use The project is named in the definitions, and those may be in a secret, so even the
# API is unknown before the first call. An error in them is an error of that call.

KEPT = 3600.0  # seconds for which a deleted server is remembered
_TRIES = 3


class CherryContext:
    """open_api and open_gone: by the project's number. nodes: None if the cluster cannot be
    reached. requests: makes reboots once per operation. now: epoch seconds."""

    def __init__(
        self,
        settings: CherrySettings,
        *,
        read_definitions: Callable[[], Definitions],
        open_api: Callable[[int], CherryApi],
        open_gone: Callable[[int], DeletedServers],
        open_tokens: Callable[[], Tokens],
        open_pools: Callable[[Callable[[], Definitions]], ManagedPools],
        nodes: Lister | None,
        requests: OneTimeRequests,
        now: Callable[[], float],
    ) -> None:
        self.settings, self.nodes, self.requests, self.now = settings, nodes, requests, now
        self._read_definitions, self._open_api, self._open_gone = (
            read_definitions,
            open_api,
            open_gone,
        )
        self._open_tokens = open_tokens
        self.managed = open_pools(lambda: self.definitions)

    @cached_property
    def definitions(self) -> Definitions:
        """Return the definitions. Raises InvalidRequest for an error that affects every pool,
        Transient if they cannot be read now."""
        try:
            return self._read_definitions()
        except ProviderError:
            raise
        except BadInput as mistake:
            raise InvalidRequest(str(mistake), code="Definitions") from None
        except OutscalerError as error:
            raise Transient(str(error), code="Definitions") from None

    @cached_property
    def api(self) -> CherryApi:
        """Return the vendor's API for the project."""
        return self._open_api(self.definitions.project)

    @cached_property
    def gone(self) -> DeletedServers:
        """Return the servers of the project that Outscaler has deleted recently."""
        return self._open_gone(self.definitions.project)

    @cached_property
    def tokens(self) -> Tokens:
        """Return the source of bootstrap tokens."""
        return self._open_tokens()

    def is_managed(self, group: str) -> bool:
        """Return whether it is the name of a group that Outscaler makes itself."""
        return group.startswith(PREFIX) and all(
            bounds.name != group for bounds in self.settings.groups
        )

    def refuse_foreign(self, definition: Definition, servers: ServerList) -> None:
        """Raise InvalidRequest for an own group whose servers are all another cluster's, or have
        lost their mark: nothing of them is changed."""
        if self.is_managed(definition.pool):
            refuse_taken(definition.pool, servers.members(definition), self.managed)

    def check_managed(self, operation: Operation, servers: ServerList) -> None:
        """Check a scale-up of an own group against the policy; do nothing for another group. Raises
        InvalidRequest for what the policy does not allow, and other ProviderErrors."""
        group = operation.spec.group
        if not self.is_managed(group):
            return
        cluster = self.definitions.cluster_name
        counted = [
            server
            for server in servers.by_id.values()
            if server.tags.get(CLUSTER_TAG) == cluster and not servers.leaves(server)
        ]
        exists = any(server.tags.get(POOL_TAG) == group for server in counted)
        self.managed.check(operation, own_sizes(counted, group, self.managed), exists=exists)

    def bounds(self, group: str, choice: MachineChoice | None = None) -> CherryBounds:
        """Return the policy's bounds of a pool. choice: the machines of an own group that is to
        grow; without it none grows. Raises InvalidRequest for a pool that the policy does not name,
        whose servers must not be changed."""
        for bounds in self.settings.groups:
            if bounds.name == group:
                return bounds
        if self.is_managed(group):
            declared = self.managed.declared(group, choice) if choice is not None else None
            most = declared.pool.limits.nodes if declared is not None else 0
            return CherryBounds(group, 0, most)
        raise InvalidRequest(f"the policy names no pool {group} of {PROVIDER}")

    def definition(self, group: str, choice: MachineChoice | None = None) -> Definition:
        """Return the definition of one pool. choice: the machines of an own group; without it the
        definition says only which servers belong to it. Raises InvalidRequest, which affects this
        pool only."""
        try:
            if self.is_managed(group):
                return managed_definition(self.definitions, self.managed, group, choice)
            return self.definitions.of(group)
        except BadInput as mistake:
            raise InvalidRequest(str(mistake), code="Definition") from None

    def servers(self, definition: Definition | None = None) -> ServerList:
        """Return the current servers of the project; raises ProviderError. definition:
        the pool that is to be changed; raises Unknown if an unreadable row of the list
        may be one of its servers."""
        odd: list[UnreadableServer] = []
        servers = self.api.servers(odd)
        if definition is not None:
            for row in odd:
                if row.may_be_of(definition, untagged=True):
                    raise Unknown(row.why)
        return ServerList(servers, self.gone.among(server.id for server in servers), odd)


class DeletedServers:
    """The recently deleted servers of one project, which do not count while a list still reports
    them as `active`. now: epoch seconds. One row per project in the cache shared by all functions.
    It is written after the deletion: a crash in between leaves a server that is deleted once more,
    which is harmless. The reverse order could leave out a running server."""

    def __init__(self, cache: Cache, project: int, now: Callable[[], float]) -> None:
        self._cache, self._key, self._now = cache, f"cherryservers/deleted/{project}", now

    def among(self, servers: Iterable[int]) -> frozenset[int]:
        """Return those of the ids that Outscaler has deleted within the hour."""
        return frozenset(
            int(number) for number in self._row().get(str(server) for server in servers)
        )

    def add(self, servers: Iterable[int]) -> None:
        """Add ids to the row. Other functions write the same row and the last write wins,
        so it is read again afterwards. An id that is still lost counts as running until
        the list reports otherwise."""
        missing = frozenset(servers)
        for _ in range(_TRIES):
            if not missing:
                return
            self._row().put(
                {str(number): True for number in sorted(missing)}, known=KEPT, unknown=0.0
            )
            missing -= self.among(missing)

    def _row(self) -> TtlCache[bool]:
        """Return the row, read each time to include writes by other functions."""
        return TtlCache(self._cache, lambda: self._key, bool, self._now)
