"""TODO"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState, NodeGroup, Pool
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.vendors.huaweicloud import PROVIDER, CceBounds, CceSettings
from chalicelib.providers.base import Observation
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import InstallFailed, ProviderError, Throttled, Unauthorized
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import (
    DEFAULT_GROUP,
    ERROR,
    NODE_STATES,
    Addon,
    CceNode,
    Flavor,
    NodePool,
    ScaleGroup,
    Service,
    alone,
    failure,
    is_leaving,
    is_marked,
    why_all_held,
    why_held,
)
from chalicelib.providers.huaweicloud.node_template import UNPROMISED, CceTemplate, make_template
from chalicelib.providers.huaweicloud.provider_ids import CceGroupNames, group_id, group_of, is_zone, placeholder


class CceRange(msgspec.Struct, frozen=True):
    """The minimum and maximum number of nodes. error: why these bounds are unusable."""

    min: int
    max: int
    error: str = ""


def entry_of_pool(pool: NodePool, settings: CceSettings) -> CceBounds | None:
    """Return the policy's entry for the pool, by uid or by name."""
    return _first(settings.groups, (pool.id, pool.name))


def entry_of_group(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceBounds | None:
    """Return the policy's entry for one scale group."""
    return _first(settings.groups, tuple(f"{of}/{group.name}" for of in (pool.id, pool.name) if of))


def _first(entries: Iterable[CceBounds], names: tuple[str, ...]) -> CceBounds | None:
    entries = tuple(entries)
    found = (each for name in names if name for each in entries if each.name == name)
    return next(found, None)


def is_ours(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> bool:
    """Whether the group is a node group: it is named itself, or it is enabled in a pool that is named or discovered.

    The pool's own flavour has only the pool's switch, and naming the pool enables it."""
    if entry_of_group(pool, group, settings) is not None:
        return True
    if entry_of_pool(pool, settings) is not None:
        return group.enabled or group is pool.groups[0]
    return settings.autodiscovery and pool.autoscaling.enable and group.enabled


def pool_range(pool: NodePool, settings: CceSettings) -> CceRange:
    """Return the pool's bounds: the policy's, otherwise its own.

    If the pool's autoscaling is off and the policy names only one of its groups, that group's entry applies."""
    entry, own = entry_of_pool(pool, settings) or CceBounds(pool.id), pool.autoscaling
    on = own.enable
    groups = [found for group in pool.groups if (found := entry_of_group(pool, group, settings)) is not None]
    least = entry.min if entry.min is not None else (own.min or 0) if on else 0
    most = entry.max if entry.max is not None else own.max if on else None
    if most is None and groups and all(each.max is not None for each in groups):
        most = -1
    if most is None:
        return CceRange(least, 0, "neither the pool nor the policy says how large it may be; write max in the policy")
    if 0 <= most < least:
        return CceRange(least, most, f"its minimum {least} is above its maximum {most}; correct the pool or the policy")
    return CceRange(least, most)


def group_range(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceRange:
    """Return the group's bounds within the pool's (`pool_range`, whose error applies to the group too).

    A group's own maximum of 0 means that it has none, as the vendor writes it. The only group of a pool has the pool's
    minimum."""
    whole, entry = pool_range(pool, settings), entry_of_group(pool, group, settings) or CceBounds(pool.id)
    sole = whole.min if len(pool.groups) == 1 else 0
    least = entry.min if entry.min is not None else max(group.min or 0, sole)
    own = entry.max if entry.max is not None else group.max or None
    most = own if own is not None else max(whole.max, 0)
    if whole.max >= 0:
        most = min(most, whole.max)
    error = whole.error
    if not error and least > most:
        error = f"its minimum {least} is above its maximum {most}; correct the scale group or the policy"
    return CceRange(least, max(most, 0), error)


def total_of(pool: NodePool) -> int:
    """Return the sum of the desired sizes of the pool's groups."""
    return sum(each.desired for each in pool.groups)


def is_settled(pool: NodePool) -> bool:
    """Whether the groups' sizes add up to the pool's; otherwise one of the numbers is outdated."""
    return total_of(pool) == pool.desired


class CceSelection(msgspec.Struct, frozen=True):
    """A pool with those of its groups that are node groups. error: why it must not be changed."""

    pool: NodePool
    groups: tuple[ScaleGroup, ...]
    error: str = ""

    @property
    def elsewhere(self) -> int:
        """The desired nodes of its other groups."""
        return sum(each.desired for each in self.pool.groups if each not in self.groups)


def choose(pools: Sequence[NodePool], settings: CceSettings) -> tuple[CceSelection, ...]:
    """Return the pools that have node groups, by name and uid.

    A pool that cannot be decoded but has a uid is included, because it may be one of them."""
    names = Counter(pool.name for pool in pools if pool.name)
    chosen = []
    for pool in sorted(pools, key=lambda pool: (pool.name, pool.id)):
        if pool.error or alone(pool):
            continue
        groups = tuple(each for each in pool.groups if is_ours(pool, each, settings))
        if not groups:
            continue
        entries = [entry_of_pool(pool, settings), *(entry_of_group(pool, each, settings) for each in groups)]
        doubtful = names[pool.name] > 1 and any(_by_name(each, pool) for each in entries)
        error = f"{names[pool.name]} pools are called {pool.name}; write the uid of one" if doubtful else ""
        chosen.append(CceSelection(pool, groups, error))
    return tuple(chosen)


def unread(pools: Iterable[NodePool], settings: CceSettings) -> tuple[NodePool, ...]:
    """Return pools that cannot be decoded and may have node groups: all if pools are discovered, otherwise the named
    ones."""
    return tuple(
        pool
        for pool in pools
        if pool.error
        and pool.id
        and (
            settings.autodiscovery
            or entry_of_pool(pool, settings) is not None
            or any(entry.name.startswith(f"{pool.id}/") for entry in settings.groups)
        )
    )


def unmatched(pools: Sequence[NodePool], settings: CceSettings) -> tuple[tuple[str, str], ...]:
    """Return the policy's entries that match no pool, with a remedy."""
    found = []
    for entry in settings.groups:
        name, _, group = entry.name.partition("/")
        meant = [pool for pool in pools if name in {pool.id, pool.name}]
        if not meant:
            found.append((entry.name, f"there is no node pool {name} in the cluster; correct it, or take it out"))
        for pool in meant:
            if text := "" if pool.error else alone(pool):
                found.append((entry.name, f"node pool {name} {text}; take it out of the policy"))
            elif group and not pool.error and pool.group(group) is None:
                names = ", ".join(each.name for each in pool.groups)
                found.append((entry.name, f"node pool {name} has no scale group {group}; it has {names}"))
    return tuple(found)


def _by_name(bounds: CceBounds | None, pool: NodePool) -> bool:
    return bounds is not None and bounds.name.partition("/")[0] != pool.id


MOST_PLACEHOLDERS = 1000
_BROKEN = InstanceError(InstallFailed.__name__, "node-error", "the node is in the phase Error at CCE")


def classify(
    pool: NodePool, group: ScaleGroup, machines: Sequence[CceNode], names: CceGroupNames[Node]
) -> tuple[Instance, ...]:
    """Return all nodes of the group by id, and a placeholder for each that CCE reports as failed. machines: the
    group's."""
    known = [is_marked(each.annotations) or _is_marked(names.node_of(each.id)) for each in machines]
    held = why_all_held(f"{pool.name}/{group.name}", group.held, known)
    return (
        *(_one(each, names, held) for each in sorted(machines, key=lambda each: each.id)),
        *_missing(pool, group, machines),
    )


def unnamed(pool: NodePool, group: ScaleGroup, machines: Sequence[CceNode], names: CceGroupNames[Node]) -> str:
    """Return a remedy for protected nodes that cannot be identified; "" if there are none."""
    known = (is_marked(each.annotations) or _is_marked(names.node_of(each.id)) for each in machines)
    return why_all_held(f"{pool.name}/{group.name}", group.held, known)


def _is_marked(node: Node | None) -> bool:
    return node is not None and is_marked(node.annotations)


def _one(machine: CceNode, names: CceGroupNames[Node], held: str) -> Instance:
    """Build one instance. In an unknown phase it is running if it is a node, otherwise it is being created.

    A node has been created, whatever CCE's phase; its readiness is judged by the planner."""
    node = names.node_of(machine.id)
    state = NODE_STATES.get(machine.phase, InstanceState.CREATING)
    if node is not None and state is InstanceState.CREATING:
        state = InstanceState.RUNNING
    error = _BROKEN if machine.phase == ERROR and node is None else None
    return Instance(
        (node.provider_id if node is not None else "") or machine.id,
        state,
        error,
        handle=machine.id,
        node=node.name if node is not None else "",
        held=why_held(machine) or (held if node is not None else ""),
        created=machine.created,
        claimants=names.claimants(machine.id),
    )


def _missing(pool: NodePool, group: ScaleGroup, machines: Sequence[CceNode]) -> tuple[Instance, ...]:
    alive = sum(not is_leaving(each) for each in machines)
    count = group.desired - max(group.existing, alive)
    why = failure(pool, group) if count > 0 else None
    if why is None:
        return ()
    reported = f"{pool.name}/{group.name} is to have {group.desired} nodes, and {count} do not come: {why.message}"
    error = InstanceError(why.error_class, why.code, reported)
    names = [placeholder(group_id(pool.id, group.name), number) for number in range(min(count, MOST_PLACEHOLDERS))]
    return tuple(Instance(name, InstanceState.CREATING, error, handle=name) for name in names)


NAME = "autoscaler"
SWITCHES = ("scaleUpUnscheduledPodEnabled", "scaleUpUtilizationEnabled", "scaleDownEnabled")
_HOUR, _ENTRY = 3600.0, "switches"


class Switches(msgspec.Struct, frozen=True):
    """The enabled functions of the vendor's autoscaler."""

    on: tuple[str, ...] = ()


def find_rival(api: CceApi, kept: TtlCache[Switches] | None) -> MissingData | None:
    """Return a warning if the vendor's autoscaler is active. kept: caches the result for an hour. Never raises."""
    known = kept.get([_ENTRY]) if kept is not None else {}
    switches = known[_ENTRY] if _ENTRY in known else _ask(api, kept)
    if switches is None or not switches.on:
        return None
    return MissingData(
        f"provider/{PROVIDER}",
        f"CCE's own add-on {NAME} is at work ({', '.join(switches.on)}): two autoscalers fight over the same pools; "
        "uninstall it, or switch all of that off",
        name=f"add-on {NAME}",
        place=f"spec.providers.{PROVIDER}",
        affected_decisions=("two autoscalers fight",),
    )


def _ask(api: CceApi, kept: TtlCache[Switches] | None) -> Switches | None:
    try:
        found: Switches | None = _switches(api.addons())
    except Unauthorized:
        found = None  # a missing permission will not appear within a minute
    except ProviderError:
        return None
    if kept is not None:
        kept.put({_ENTRY: found}, known=_HOUR, unknown=_HOUR)
    return found


def _switches(addons: tuple[Addon, ...]) -> Switches:
    """Return the add-on's switches. A missing one has the vendor's default: scale-up on, scale-down off."""
    for each in addons:
        if each.template == NAME and each.status.lower() not in {"uninstalled", "deleted"}:
            return Switches(tuple(name for name in SWITCHES if _is_on(each.custom.get(name), name)))
    return Switches()


def _is_on(value: object, name: str) -> bool:
    if value is None:
        return name != SWITCHES[-1]
    return value is True or str(value).strip().lower() == "true"


_LISTS = 2


def observe(
    api: CceApi, settings: CceSettings, nodes: Sequence[Node], kept: TtlCache[Switches] | None = None
) -> Observation:
    """Return all groups of the cluster; raises ProviderError if pools or nodes cannot be listed."""
    api.expect(_LISTS)
    pools = api.pools()
    listed = api.nodes()
    machines = tuple(each for each in listed if not each.error)
    maker = _CceGroupBuilder(api, settings, CceGroupNames(nodes, machines), machines)
    maker.doubt(pools, [each for each in listed if each.error])
    if not settings.known_region and Service.CCE not in settings.endpoints:
        maker.gaps.append(
            MissingData(
                f"provider/{PROVIDER}",
                (f"{settings.region} is none of the regions known to have CCE; correct it, or set cceEndpoint"),
                place=f"spec.providers.{PROVIDER}.region",
            )
        )
    for name, text in unmatched(pools, settings):
        maker.warn(name, text)
    groups = [maker.make(chosen, group) for chosen in choose(pools, settings) for group in chosen.groups]
    groups += [maker.unread(pool) for pool in unread(pools, settings)]
    for pool in pools:
        if pool.error and not pool.id:
            maker.gaps.append(MissingData(f"provider/{PROVIDER}", f"a node pool cannot be understood: {pool.error}"))
    rival = find_rival(api, kept) if settings.warn_about_addon else None
    return Observation(tuple(groups), (*maker.gaps, *([rival] if rival is not None else [])))


class _CceGroupBuilder:
    """Builds one group after another and collects the gaps."""

    def __init__(
        self, api: CceApi, settings: CceSettings, names: CceGroupNames[Node], machines: Sequence[CceNode]
    ) -> None:
        self._api, self._settings, self._names = api, settings, names
        self._of_pool: dict[str, list[CceNode]] = {}
        for each in machines:
            self._of_pool.setdefault(each.pool, []).append(each)
        self._stopped = ""
        self._unsure: dict[str, str] = {}
        self.gaps: list[MissingData] = []

    def doubt(self, pools: Sequence[NodePool], odd: Sequence[CceNode]) -> None:
        """Set errors for the pools of nodes that cannot be decoded.

        These are the pools that the nodes name and, if a node names none, the pools with fewer listed nodes than they
        report."""
        if not odd:
            return
        self.gaps.append(MissingData(f"provider/{PROVIDER}", f"{len(odd)} nodes cannot be understood: {odd[0].error}"))
        doubtful = {each.pool for each in odd}
        if "" in doubtful:
            doubtful |= {
                pool.id
                for pool in pools
                if len(self._of_pool.get(pool.id, ())) < pool.current + pool.creating + pool.deleting
            }
        self._unsure = dict.fromkeys(doubtful, f"a node of its pool cannot be understood: {odd[0].error}")

    def make(self, selection: CceSelection, group: ScaleGroup) -> NodeGroup:
        """Build the node group of a scale group."""
        pool, settings = selection.pool, self._settings
        whole, within = pool_range(pool, settings), group_range(pool, group, settings)
        machines = [each for each in self._of_pool.get(pool.id, ()) if group_of(each, pool) == group]
        template = self._template(pool, group)
        name = group_id(pool.id, group.name)
        if text := unnamed(pool, group, machines, self._names):
            self.warn(name, text)
        return NodeGroup(
            id=name,
            provider=PROVIDER,
            min=within.min,
            max=within.max,
            target=group.desired,
            instances=classify(pool, group, machines, self._names),
            template=template.node,
            template_error=template.problem,
            error=selection.error or group.error or self._unsure.get(pool.id, "") or within.error or _broken(pool),
            options=_options(pool),
            priority=self._priority(pool, group),
            rank=group.priority,
            pool=Pool(pool.id, pool.name, whole.min, whole.max, selection.elsewhere),
            aliases=tuple(dict.fromkeys((pool.id, pool.name, f"{pool.name}/{group.name}"))),
        )

    def unread(self, pool: NodePool) -> NodeGroup:
        """Build the node group of a pool of which only the uid is known."""
        return NodeGroup(
            id=group_id(pool.id, DEFAULT_GROUP),
            provider=PROVIDER,
            pool=Pool(pool.id, pool.name),
            error=f"node pool {pool.name or pool.id} cannot be understood: {pool.error}",
        )

    def warn(self, group: str, detail: str) -> None:
        """Add a gap about one group or entry."""
        self.gaps.append(
            MissingData("NodeGroup", detail, name=group, place=f"spec.nodeGroups[provider={PROVIDER}, id={group}]")
        )

    def _priority(self, pool: NodePool, group: ScaleGroup) -> int:
        entries = (entry_of_group(pool, group, self._settings), entry_of_pool(pool, self._settings))
        said = next((each.priority for each in entries if each is not None and each.priority), 0)
        return said or pool.autoscaling.priority

    def _template(self, pool: NodePool, group: ScaleGroup) -> CceTemplate:
        az = group.az if is_zone(group.az) else ""
        try:
            flavor = self._flavors(az).get(group.flavor)
        except ProviderError as error:
            problem = f"flavours could not be read: {error.error_class}: {error.message}"
            if isinstance(error, Throttled | Unauthorized):  # a refusal applies to every AZ
                self._stopped = problem
            return CceTemplate(None, problem)
        if flavor is None and self._stopped:
            return CceTemplate(None, self._stopped)
        return make_template(pool, group, flavor, self._settings.region, self._settings.reserve)

    def _flavors(self, az: str) -> Mapping[str, Flavor]:
        return {} if self._stopped else self._api.flavors(az)


def _options(pool: NodePool) -> GroupOptions:
    """Return the group's options. The pool's settings apply only if all its flavours are scaled automatically. CCE
    keeps a pool that is scaled always within its range, so its minimum is enforced."""
    own = pool.autoscaling
    every = own.enable and all(each.enabled for each in pool.groups)
    return GroupOptions(
        scale_down_cooldown=60.0 * own.cooldown_minutes if own.cooldown_minutes > 0 else None,
        scale_down_unneeded_time=60.0 * own.unneeded_minutes if every and own.unneeded_minutes is not None else None,
        scale_down_utilization_threshold=own.utilization if every else None,
        enforce_min=True,
        unpromised_labels=UNPROMISED,
    )


def _broken(pool: NodePool) -> str:
    return f"node pool {pool.name} is in the phase Error; look at it in CCE's console" if pool.phase == "Error" else ""
