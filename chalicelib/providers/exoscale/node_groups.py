"""TODO"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.group import Instance, InstanceError, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import instant
from chalicelib.providers.base import Observation
from chalicelib.providers.errors import ProviderError
from chalicelib.providers.exoscale import decoding
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import InstanceType, Quota
from chalicelib.providers.exoscale.node_template import make_template, type_of
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames, placeholder, placeholder_id
from chalicelib.providers.exoscale.settings import LEAST, PROVIDER, ExoscaleBounds, ExoscaleSettings
from chalicelib.providers.exoscale.zone import ERROR, INSTANCE_STATES, ExoscalePool, Zone, living, read_zone

NO_LIMIT = -1


class ExoscaleRange(msgspec.Struct, frozen=True):
    """doubt: why the bounds differ from the policy's or are unknown; error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


class Room:
    """The account's quota, read once on first use."""

    def __init__(self, ask: Callable[[], Quota]) -> None:
        self._ask = ask
        self._quota: Quota | None = None
        self._asked = False
        self.problem = ""

    def quota(self) -> Quota | None:
        """None if it cannot be read; `problem` is the reason."""
        if not self._asked:
            self._asked = True
            try:
                self._quota = self._ask()
            except ProviderError as error:
                self.problem = f"the quota could not be read: {error.error_class}: {error.message}"
        return self._quota

    def full(self) -> bool:
        """Whether the account has reached its limit, as far as is known."""
        quota = self.quota()
        return quota is not None and quota.limit != NO_LIMIT and quota.usage >= quota.limit


def most_of(target: int, quota: Quota, unlimited: int) -> int:
    """Return the size up to which the account allows a group of that size to scale. unlimited: the limit without a
    quota."""
    if quota.limit == NO_LIMIT:
        return max(target, unlimited)
    return target + max(0, quota.limit - quota.usage)


def least_of(pool: ExoscalePool, bounds: ExoscaleBounds | None) -> int:
    """Return the minimum size of a group: the policy's, or 1, and never less than the vendor accepts."""
    return max(bounds.min if bounds is not None else LEAST, pool.least)


def range_of(pool: ExoscalePool, bounds: ExoscaleBounds | None, room: Room, unlimited: int) -> ExoscaleRange:
    """Return the bounds of a group."""
    least = least_of(pool, bounds)
    said = f"the policy's minimum of {bounds.min}" if bounds is not None else ""
    doubts = [f"{pool.title} keeps {least}, not {said}"] if bounds is not None and bounds.min < least else []
    if bounds is not None and bounds.max is not None:
        if bounds.max < least:
            return ExoscaleRange(
                bounds.min,
                bounds.max,
                error=(
                    f"{pool.title} has at least {least} and the policy's maximum is {bounds.max}; change the policy"
                ),
            )
        return ExoscaleRange(least, bounds.max, "; ".join(doubts))
    quota = room.quota()
    if quota is None:
        doubts.append(f"its maximum is its size, for {room.problem}; give it one in the policy")
    most = pool.target if quota is None else most_of(pool.target, quota, unlimited)
    return ExoscaleRange(least, max(most, least), "; ".join(doubts))


def occupied(pool: ExoscalePool, zone: Zone) -> int:
    """Return the smallest size at which no machine has to be deleted.

    The larger of the pool's own list and the machine list is used, because the two are not read at one instant."""
    return max(len(pool.members), len(living(zone.listed.get(pool.id, []))))


def missing(pool: ExoscalePool, there: int) -> int:
    """Return the number of machines that are desired, do not exist and will not be created; 0 while the vendor works on
    it.

    Machines below the vendor's minimum size do not count, because the size cannot be lowered for them."""
    if not pool.settled:
        return 0
    return max(0, min(pool.target, pool.pool.size) - max(there, pool.least))


MOST_PLACEHOLDERS = 1000
_BROKEN = InstanceError("Unknown", "instance-error", "the machine is in the state error at Exoscale")


def classify(pool: ExoscalePool, zone: Zone, names: ExoscaleGroupNames, held: str = "") -> tuple[Instance, ...]:
    """Return all machines of the pool by id: those that name the pool, and those that it lists and that are in no
    other.

    held: why machines that are not nodes must not be deleted, unless the vendor itself reports them as broken."""
    states = {each.id.lower(): each.state for each in zone.listed.get(pool.id, ())}
    for name in pool.members - states.keys():
        listed = zone.instances.get(name)
        if listed is None or listed.manager is None:
            states[name] = "" if listed is None else listed.state
    known = {name: zone.instances.get(name, decoding.ExoscaleInstance(name)) for name in states}
    return tuple(
        _one(known[name], name, state, names, _nameless(known[name].name, names) or (held if state != ERROR else ""))
        for name, state in sorted(states.items())
    )


def _nameless(name: str, names: ExoscaleGroupNames) -> str:
    if not name or not names.may_be(name):
        return ""
    return (
        f"the node {name} has no providerID and the name of a machine of this group, so it may be that machine; "
        "let the vendor's cloud controller write it"
    )


def _one(machine: decoding.ExoscaleInstance, name: str, said: str, names: ExoscaleGroupNames, held: str) -> Instance:
    """Build one instance. In an unknown state it is running if it is a node, otherwise it is being created.

    A node has been created, whatever the vendor's state; its readiness is judged by the planner."""
    node = names.node_of(name)
    state = INSTANCE_STATES.get(said, InstanceState.CREATING)
    if node is not None and state is InstanceState.CREATING:
        state = InstanceState.RUNNING
    error = _BROKEN if said == ERROR and node is None else None
    return Instance(
        names.spell(name),
        state,
        error,
        handle=name,
        node=node.name if node is not None else "",
        held="" if node is not None else held,
        created=instant(machine.created_at),
        claimants=names.claimants(name),
    )


def placeholders(pool: ExoscalePool, count: int, *, quota: bool) -> tuple[Instance, ...]:
    """Return one placeholder per missing machine. quota: the account has reached its limit."""
    of = f"{pool.title} has the size {pool.target}, and {count} of its machines are not being made"
    error = (
        InstanceError("QuotaExceeded", "quota", f"{of}: the account's quota of instances is used up")
        if quota
        else InstanceError("OutOfStock", "unavailable", of)
    )
    handles = [placeholder(pool.id, number) for number in range(min(count, MOST_PLACEHOLDERS))]
    return tuple(Instance(placeholder_id(each), InstanceState.CREATING, error, handle=each) for each in handles)


class ExoscaleSelection(msgspec.Struct, frozen=True):
    """A pool that is a group. bounds None: no policy entry names it. error: why it must not be changed; held: why its
    machines that are not nodes must not be deleted. discovered: only nodes make it a group."""

    site: ExoscalePool
    bounds: ExoscaleBounds | None = None
    error: str = ""
    held: str = ""
    discovered: bool = False


class Warned(msgspec.Struct, frozen=True):
    """A problem with an entry of the policy. name: the entry."""

    name: str
    text: str


def choose(
    zone: Zone, settings: ExoscaleSettings, ours: Mapping[str, int]
) -> tuple[tuple[ExoscaleSelection, ...], tuple[Warned, ...]]:
    """Return the groups, those of the policy's entries first and in their order, and the warnings.

    ours: pool -> number of its machines that are nodes of this cluster."""
    chooser = _Chooser(zone, settings, ours)
    chooser.name_them()
    chooser.discover()
    return tuple(chooser.chosen.values()), tuple(chooser.warned)


class _Chooser:
    def __init__(self, zone: Zone, settings: ExoscaleSettings, ours: Mapping[str, int]) -> None:
        self._zone, self._settings, self._ours = zone, settings, ours
        self._sites = [site for site in zone.sites if not site.ending]
        self._exact = _index((name, site) for site in self._sites for name in site.exact)
        self._bare = _index((site.name, site) for site in self._sites if site.name)
        self._doubtful: dict[str, str] = {}
        self.chosen: dict[str, ExoscaleSelection] = {}
        self.warned: list[Warned] = []
        self._discovers = settings.auto_discovery or not settings.groups
        self._listed = False  # the policy names the SKS cluster, and nothing contradicts it
        self._home = self._cluster_of_ours()
        self._known = self._home or frozenset(
            site.cluster.id
            for entry in settings.groups
            for site in self._exact.get(entry.name, ())
            if site.cluster is not None
        )

    def _cluster_of_ours(self) -> frozenset[str]:
        """Return this cluster's SKS cluster: the one that the policy names, otherwise the one with most nodes; none in
        a tie."""
        counts = Counter[str]()
        for site in self._sites:
            if site.cluster is not None and self._ours.get(site.id):
                counts[site.cluster.id] += self._ours[site.id]
        # Nodes of a pool that no list contains might belong to a cluster that has more nodes than any other.
        known = {site.id for site in self._zone.sites} | self._zone.unread.keys()
        lost = sum(count for name, count in self._ours.items() if name not in known)
        most = max(counts.values(), default=0)
        if lost >= most:
            most = 0
        found = frozenset(name for name, count in counts.items() if count == most)
        wanted = self._settings.sks_cluster
        if wanted and self._zone.clusters is not None:
            named = [each.id for each in self._zone.clusters if wanted in {each.id, each.name}]
            foreign = len(named) == 1 and counts[named[0]] < most
            if len(named) == 1 and not foreign:
                self._listed = True
                return frozenset(named)
            # If the setting were followed, machines of the other cluster would be deleted, because few of them are
            # nodes of this cluster.
            text = (
                f"its nodes are of {', '.join(sorted(found))} and not of {wanted}; correct it"
                if foreign
                else f"it is the name of {len(named)} SKS clusters: {', '.join(sorted(named))}; write the id"
                if named
                else f"there is no SKS cluster {wanted} in {self._settings.zone}"
            )
            self.warned.append(Warned("", f"providers.exoscale.sksCluster: {text}"))
        return found if len(found) == 1 else frozenset()

    def name_them(self) -> None:
        """Resolve the entries to pools; ids and cluster/name before bare names, as in Context.bounds."""
        for entry in sorted(self._settings.groups, key=lambda entry: entry.name not in self._exact):
            meant = self._meant(entry.name)
            if not meant:
                if entry.name not in self._zone.unread:
                    self.warned.append(Warned(entry.name, self._unmatched(entry.name)))
            elif len(meant) > 1:
                ids = ", ".join(site.title for site in meant)
                text = f"{entry.name} means {len(meant)} groups: {ids}; write the id, or cluster/name, of one"
                self.warned.append(Warned(entry.name, text))
                self._doubtful |= dict.fromkeys((site.id for site in meant), text)
            elif (site := meant[0]).id in self.chosen:
                self.warned.append(
                    Warned(
                        entry.name,
                        (
                            f"{entry.name} is the same group as {_entry(self.chosen[site.id])}, "
                            f"which decides; take one of the "
                            "two out"
                        ),
                    )
                )
            else:
                self.chosen[site.id] = ExoscaleSelection(site, entry, held=self._held(entry.name, site))

    def discover(self) -> None:
        """Add the pools that belong to the cluster without being named, and the warnings about those that do not."""
        for site in sorted(self._sites, key=lambda site: (site.name, site.id)):
            if site.id in self.chosen:
                continue
            count, error = self._ours.get(site.id, 0), self._doubtful.get(site.id, "")
            if (error and count) or self._is_group(site, count):
                self.chosen[site.id] = ExoscaleSelection(
                    site, None, error, discovered=not (self._listed or self._strong(site))
                )
            elif count:
                self.warned.append(Warned(site.id, self._left_alone(site, count)))

    def _is_group(self, pool: ExoscalePool, count: int) -> bool:
        """Whether a pool that no entry names is a group.

        A Nodepool whose cluster could not be read is kept with an error, so that it does not count as deleted."""
        if pool.is_sks and pool.cluster is None:
            return count > 0 and (self._discovers or bool(self._settings.sks_cluster))
        of_home = pool.cluster is not None and pool.cluster.id in self._home
        if self._listed:
            return of_home and (count > 0 or self._settings.scale_from_zero)
        if not self._discovers:
            return False
        return (of_home and (count > 0 or self._settings.scale_from_zero)) or (not pool.is_sks and count > 0)

    def _strong(self, pool: ExoscalePool) -> bool:
        """Whether most machines of the Nodepool's SKS cluster are nodes of this cluster."""
        if pool.cluster is None or pool.cluster.id not in self._home:
            return False
        sites = [each for each in self._sites if each.cluster is not None and each.cluster.id == pool.cluster.id]
        return 2 * sum(self._ours.get(each.id, 0) for each in sites) > sum(
            len(self._zone.machines(each)) for each in sites
        )

    def _left_alone(self, pool: ExoscalePool, count: int) -> str:
        nodes = f"{count} of the machines of {pool.title} {'is a node' if count == 1 else 'are nodes'} of this cluster"
        if self._listed or (pool.is_sks and self._discovers):
            return (
                f"{nodes}, and its SKS cluster is not the one that is scaled here, so it is left alone; look where "
                "these nodes come from, or name the pool in nodeGroups"
            )
        remedy = "name it, or set sksCluster or autoDiscovery"
        return f"{nodes}, and the policy names other pools, so it is left alone; {remedy}"

    def _meant(self, name: str) -> Sequence[ExoscalePool]:
        if name in self._exact:
            return self._exact[name]
        found = [
            site
            for site in self._bare.get(name, ())
            if site.cluster is None or not self._home or site.cluster.id in self._home
        ]
        ours = [
            site
            for site in found
            if self._ours.get(site.id) or (site.cluster is not None and site.cluster.id in self._home)
        ]
        return ours or found

    def _held(self, name: str, pool: ExoscalePool) -> str:
        if pool.cluster is None or name in pool.exact or pool.cluster.id in self._known:
            return ""
        return (
            f"nothing says that the SKS cluster {pool.cluster.name} is this cluster, so {pool.name} may be "
            f"another's; write {pool.cluster.name}/{pool.name}, or set providers.exoscale.sksCluster"
        )

    def _unmatched(self, name: str) -> str:
        text = f"no Nodepool and no instance pool of {self._settings.zone} is called {name}"
        foreign = [site.cluster.name for site in self._bare.get(name, ()) if site.cluster is not None]
        ending = any(name == site.name or name in site.exact for site in self._zone.sites if site.ending)
        rows = (
            (ending, "; the one that was is being deleted"),
            (bool(foreign), f"; another SKS cluster has one, to mean it write {''.join(foreign[:1])}/{name}"),
            (bool(self._zone.no_clusters), f" ({self._zone.no_clusters})"),
        )
        return text + next((more for applies, more in rows if applies), "; correct the name, or take it out")


def _index(pairs: Iterable[tuple[str, ExoscalePool]]) -> dict[str, list[ExoscalePool]]:
    found: dict[str, list[ExoscalePool]] = {}
    for name, site in pairs:
        found.setdefault(name, []).append(site)
    return found


def _entry(selection: ExoscaleSelection) -> str:
    return selection.bounds.name if selection.bounds is not None else selection.site.id


def observe(api: ExoscaleApi, settings: ExoscaleSettings, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the cluster; raises ProviderError if the zone cannot be read at all."""
    plain = ExoscaleGroupNames(nodes)
    zone = read_zone(api, settings, plain)
    names = plain.knowing(zone.called)
    chosen, warned = choose(zone, settings, zone.ours(names))
    maker = _ExoscaleGroupBuilder(api, settings, names, zone)
    for warning in warned:
        maker.warn(warning.name, warning.text)
    for doubt in zone.doubts:
        maker.gaps.append(MissingData(f"provider/{PROVIDER}", doubt))
    if zone.no_clusters and (settings.sks_cluster or any(each.site.is_sks for each in chosen)):
        maker.gaps.append(
            MissingData(f"provider/{PROVIDER}", zone.no_clusters, affected_decisions=("the groups of SKS clusters",))
        )
    maker.know_types(chosen)
    groups = (
        *(maker.make(each) for each in chosen),
        *(maker.unread(pool, why) for pool, why in sorted(zone.unread.items())),
    )
    return Observation(groups, tuple(maker.gaps))


class _ExoscaleGroupBuilder:
    """Builds one group after another and collects the gaps."""

    def __init__(self, api: ExoscaleApi, settings: ExoscaleSettings, names: ExoscaleGroupNames, zone: Zone) -> None:
        self._api, self._settings, self._names, self._zone = api, settings, names, zone
        self._room = Room(api.quota)
        self._types: Mapping[str, InstanceType | None] = {}
        self._types_problem = ""
        self.gaps: list[MissingData] = []

    def know_types(self, chosen: Sequence[ExoscaleSelection]) -> None:
        """Read the instance types of all groups at once; one by one if one of them cannot be read."""
        wanted = sorted({type_of(each.site) for each in chosen} - {""})
        try:
            self._types = self._api.instance_types(wanted) if wanted else {}
        except ProviderError as error:
            self._types_problem = f"instance types could not be read: {error.error_class}: {error.message}"

    def make(self, selection: ExoscaleSelection) -> NodeGroup:
        """Build the node group of a pool."""
        site = selection.site
        within = range_of(site, selection.bounds, self._room, self._settings.unlimited)
        if within.doubt:
            self.warn(site.id, within.doubt)
        template = make_template(site, self._types, self._settings.zone, self._settings.reserve, self._types_problem)
        machines = classify(site, self._zone, self._names, selection.held)
        for warning in (*template.warnings, *sorted({each.held for each in machines} - {""})[:1]):
            self.warn(site.id, warning)
        lost = missing(site, occupied(site, self._zone))
        return NodeGroup(
            id=site.id,
            provider=PROVIDER,
            min=within.min,
            max=within.max,
            target=max(0, site.target),
            instances=(*machines, *(placeholders(site, lost, quota=self._room.full()) if lost else ())),
            template=template.node,
            template_error=template.problem,
            error=selection.error or site.off or self._unsure(site) or site.skipped or within.error,
            priority=selection.bounds.priority if selection.bounds is not None else 0,
            aliases=site.aliases,
            discovered=selection.discovered,
        )

    def _unsure(self, pool: ExoscalePool) -> str:
        return (
            f"{pool.title} has a machine that the vendor describes in a way that cannot be understood"
            if pool.id.lower() in self._zone.unsure
            else ""
        )

    def unread(self, pool: str, why: str) -> NodeGroup:
        """Build the node group of a pool of which only the id is known."""
        bounds = next((each for each in self._settings.groups if each.name == pool), None)
        least = bounds.min if bounds is not None else LEAST
        most = bounds.max if bounds is not None and bounds.max is not None else least
        return NodeGroup(
            id=pool,
            provider=PROVIDER,
            min=least,
            max=most,
            error=f"instance pool {pool} {why}",
            priority=bounds.priority if bounds is not None else 0,
        )

    def warn(self, group: str, detail: str) -> None:
        """Add a gap about one group, or about the settings if no group is named."""
        place = f"spec.nodeGroups[provider={PROVIDER}, id={group}]" if group else f"spec.providers.{PROVIDER}"
        self.gaps.append(MissingData("NodeGroup", detail, name=group, place=place))
