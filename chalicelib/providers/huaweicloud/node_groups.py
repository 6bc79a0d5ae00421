"""Builds the cluster's node groups from CCE's responses, one per scale group: bounds,
selection, instances, groups.

Every pass reads everything again: one list of pools, one of nodes. Flavours and add-ons are cached
for an hour. A pool that cannot be decoded carries its error and does not affect the others.

    a pool with autoscaling on     its enabled groups; the others count into Pool.elsewhere
    a pool with autoscaling off    only what the policy names
    the default pool, prepaid pools and those being deleted     not changed, and their
                                                                nodes belong to no group

A name matches at most one pool. The policy's values for a pool or a group replace the pool's own.
The pool's bounds apply to all its groups together, the group's to its own nodes; a group without
bounds may be as large as the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.group import (
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    Pool,
)
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.vendors.huaweicloud import PROVIDER, CceBounds, CceSettings
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import (
    DEFAULT_GROUP,
    ERROR,
    NODE_STATES,
    CceNode,
    NodePool,
    ScaleGroup,
    Service,
    failure,
    has_servers,
    is_leaving,
    is_protected,
    unchangeable,
    undeletable,
    unidentified_protection,
    work_on,
    work_on_pool,
)
from chalicelib.providers.huaweicloud.node_template import (
    UNPROMISED,
    is_spot_node,
    make_template,
)
from chalicelib.providers.huaweicloud.provider_ids import (
    ANY_ZONE,
    CceGroupNames,
    group_id,
    group_of,
    is_zone,
    placeholder,
)
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import InstallFailed, ProviderError, Throttled, Unauthorized
from chalicelib.providers.kit.group_builder import GroupBuilder, instance_state, placeholders
from chalicelib.providers.kit.node_template import GroupTemplate
from chalicelib.providers.kit.price_reader import with_price
from chalicelib.providers.kit.services import TtlCache

_LISTS = 2
_SHOWN = 40  # maximum characters of a value in a difference
_BROKEN = InstanceError(
    InstallFailed.__name__, "node-error", "the node is in the phase Error at CCE"
)

# -- bounds


class CceRange(msgspec.Struct, frozen=True):
    """The minimum and maximum number of nodes. error: why these bounds are unusable."""

    min: int
    max: int
    error: str = ""


def _entry_of_pool(pool: NodePool, settings: CceSettings) -> CceBounds | None:
    """Return the policy's entry for the pool, by uid or by name."""
    return _first_entry(settings, (pool.id, pool.name))


def _entry_of_group(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceBounds | None:
    """Return the policy's entry for one scale group."""
    pool_names = (name for name in (pool.id, pool.name) if name)
    return _first_entry(settings, [f"{name}/{group.name}" for name in pool_names])


def _first_entry(settings: CceSettings, names: Sequence[str]) -> CceBounds | None:
    for name in names:
        for entry in settings.groups:
            if name and entry.name == name:
                return entry
    return None


def is_node_group(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> bool:
    """Whether the scale group is named itself, or is enabled in a pool that is named or discovered.
    The pool's own flavour has only the pool's switch, and naming the pool enables it."""
    if _entry_of_group(pool, group, settings) is not None:
        return True
    if _entry_of_pool(pool, settings) is not None:
        return group.enabled or group is pool.groups[0]
    return settings.autodiscovery and pool.autoscaling.enable and group.enabled


def pool_range(pool: NodePool, settings: CceSettings) -> CceRange:
    """Return the pool's bounds: the policy's, otherwise its own. If the pool's autoscaling is off
    and the policy names only one of its groups, that group's entry applies."""
    entry = _entry_of_pool(pool, settings) or CceBounds(pool.id)
    own = pool.autoscaling
    own_min = (own.min or 0) if own.enable else 0
    own_max = own.max if own.enable else None
    least = own_min if entry.min is None else entry.min
    most = own_max if entry.max is None else entry.max
    if most is None:
        entries = [_entry_of_group(pool, group, settings) for group in pool.groups]
        maxima = [bounds.max for bounds in entries if bounds is not None]
        if maxima and None not in maxima:
            most = -1
    problem = ""
    if most is None:
        most = 0
        problem = (
            "neither the pool nor the policy says how large it may be; write max in the policy"
        )
    elif 0 <= most < least:
        problem = f"its minimum {least} is above its maximum {most}; correct the pool or the policy"
    return CceRange(least, most, problem)


def group_range(pool: NodePool, group: ScaleGroup, settings: CceSettings) -> CceRange:
    """Return the group's bounds within the pool's (`pool_range`, whose error applies to the group
    too). A group's own maximum of 0 means that it has none, as the vendor writes it. The only group
    of a pool has the pool's minimum."""
    whole = pool_range(pool, settings)
    entry = _entry_of_group(pool, group, settings) or CceBounds(pool.id)
    least = entry.min
    if least is None:
        min_of_sole_group = whole.min if len(pool.groups) == 1 else 0
        least = max(group.min or 0, min_of_sole_group)
    most = entry.max
    if most is None:
        most = group.max or max(whole.max, 0)
    if whole.max >= 0:
        most = min(most, whole.max)
    error = whole.error
    if not error and least > most:
        bounds = f"its minimum {least} is above its maximum {most}"
        error = f"{bounds}; correct the scale group or the policy"
    return CceRange(least, max(most, 0), error)


def total_of(pool: NodePool) -> int:
    """Return the sum of the desired sizes of the pool's groups."""
    return sum(group.desired for group in pool.groups)


def is_settled(pool: NodePool) -> bool:
    """Whether the groups' sizes add up to the pool's; otherwise one of the numbers is outdated."""
    return total_of(pool) == pool.desired


# -- selection


class CceSelection(msgspec.Struct, frozen=True):
    """A pool with those of its groups that are node groups. error: why it must not be changed."""

    pool: NodePool
    groups: tuple[ScaleGroup, ...]
    error: str = ""


def _select(pools: Sequence[NodePool], settings: CceSettings) -> tuple[CceSelection, ...]:
    """Return the pools that have node groups, by name and uid."""
    times = Counter(pool.name for pool in pools if pool.name)
    selections = []
    for pool in sorted(pools, key=lambda pool: (pool.name, pool.id)):
        if pool.error or unchangeable(pool):
            continue
        groups = tuple(group for group in pool.groups if is_node_group(pool, group, settings))
        if not groups:
            continue
        entries = [_entry_of_pool(pool, settings)]
        entries += [_entry_of_group(pool, group, settings) for group in groups]
        pool_names = {entry.name.partition("/")[0] for entry in entries if entry is not None}
        is_named = not pool_names <= {pool.id}
        error = ""
        if times[pool.name] > 1 and is_named:
            error = f"{times[pool.name]} pools are called {pool.name}; write the uid of one"
        selections.append(CceSelection(pool, groups, error))
    return tuple(selections)


def _unread_pools(pools: Iterable[NodePool], settings: CceSettings) -> tuple[NodePool, ...]:
    """Return pools that cannot be decoded and may have node groups: all if pools are discovered,
    otherwise the named ones."""

    def may_have_groups(pool: NodePool) -> bool:
        if settings.autodiscovery or _entry_of_pool(pool, settings) is not None:
            return True
        return any(entry.name.startswith(f"{pool.id}/") for entry in settings.groups)

    unread = (pool for pool in pools if pool.error and pool.id)
    return tuple(pool for pool in unread if may_have_groups(pool))


def _unmatched_entries(
    pools: Sequence[NodePool], settings: CceSettings
) -> tuple[tuple[str, str], ...]:
    """Return the policy's entries that match no pool, with a remedy."""
    unmatched = []
    for entry in settings.groups:
        name, _, group = entry.name.partition("/")
        named_pools = [pool for pool in pools if name in {pool.id, pool.name}]
        if not named_pools:
            problem = f"there is no node pool {name} in the cluster; correct it, or take it out"
            unmatched.append((entry.name, problem))
        for pool in named_pools:
            if pool.error:
                continue
            why_unchangeable = unchangeable(pool)
            if why_unchangeable:
                problem = f"node pool {name} {why_unchangeable}; take it out of the policy"
                unmatched.append((entry.name, problem))
            elif group and pool.group(group) is None:
                names = ", ".join(other.name for other in pool.groups)
                problem = f"node pool {name} has no scale group {group}; it has {names}"
                unmatched.append((entry.name, problem))
    return tuple(unmatched)


# -- instances


def differences(machine: CceNode, pool: NodePool, group: ScaleGroup) -> str:
    """Return in what a node differs from one that its scale group would create now, empty if in
    nothing. A field counts only if CCE states it for both."""
    fields = (
        ("flavour", machine.flavor, group.flavor),
        ("AZ", machine.az, group.az if is_zone(group.az) else ""),
        ("operating system", machine.os, pool.template.os),
        ("runtime", machine.runtime, pool.template.runtime),
    )
    texts: list[str] = []
    for name, own, new in fields:
        if own and new and own.lower() != new.lower():
            texts.append(f"{name} {own[:_SHOWN]}, new nodes have {new[:_SHOWN]}")
    return ", ".join(texts)


def _instances(
    pool: NodePool,
    group: ScaleGroup,
    machines: Sequence[CceNode],
    names: CceGroupNames[Node],
    held: str,
) -> tuple[Instance, ...]:
    """Return all nodes of the group by id, and a placeholder for each that CCE reports as failed.
    machines: the group's; held: why none that is a node must be deleted."""
    instances = []
    for machine in sorted(machines, key=lambda machine: machine.id):
        node = names.node_of(machine.id)
        # in an unknown phase it is running if it is a node, otherwise it is being created
        reported = NODE_STATES.get(machine.phase, InstanceState.CREATING)
        is_broken = machine.phase == ERROR and node is None
        provider_id = node.provider_id if node is not None else ""
        held_as_node = held if node is not None else ""
        instances.append(
            Instance(
                provider_id or machine.id,
                instance_state(reported, is_node=node is not None),
                _BROKEN if is_broken else None,
                handle=machine.id,
                node=node.name if node is not None else "",
                held=undeletable(machine) or held_as_node,
                created=machine.created,
                claimants=names.claimants(machine.id),
                outdated=differences(machine, pool, group),
                busy=work_on(machine) if node is not None else "",
            )
        )
    staying = sum(not is_leaving(machine) for machine in machines)
    missing = group.desired - max(group.existing, staying)
    why = failure(pool, group) if missing > 0 else None
    if why is None:
        return tuple(instances)
    sizes = f"is to have {group.desired} nodes, and {missing} do not come"
    text = f"{pool.name}/{group.name} {sizes}: {why.message}"
    error = InstanceError(why.error_class, why.code, text)
    full_id = group_id(pool.id, group.name)
    missing_ones = placeholders(missing, error, lambda number: placeholder(full_id, number))
    return (*instances, *missing_ones)


# -- the vendor's own autoscaler

_ADDON = "autoscaler"
SWITCHES = {
    "scaleUpUnscheduledPodEnabled": True,
    "scaleUpUtilizationEnabled": True,
    "scaleDownEnabled": False,
}
"""Functions of the add-on, and whether they are on where it does not say so."""
_HOUR, _SWITCHES_ENTRY = 3600.0, "switches"


class Switches(msgspec.Struct, frozen=True):
    """The enabled functions of the vendor's autoscaler."""

    on: tuple[str, ...] = ()


def find_rival(api: CceApi, cache: TtlCache[Switches] | None) -> MissingData | None:
    """Return a warning if the vendor's autoscaler, an add-on, is active in the same cluster. Never
    raises. cache: for the result, which is requested once an hour for all functions together. If
    the key lacks the permission or there is no response, nothing is reported: this is only a
    warning, and no pass depends on it."""
    cached = cache.get([_SWITCHES_ENTRY]) if cache is not None else {}
    switches = cached[_SWITCHES_ENTRY] if _SWITCHES_ENTRY in cached else _read_switches(api, cache)
    if switches is None or not switches.on:
        return None
    functions = ", ".join(switches.on)
    return MissingData(
        f"provider/{PROVIDER}",
        f"CCE's own add-on {_ADDON} is at work ({functions}): two autoscalers fight over the same "
        "pools; uninstall it, or switch all of that off",
        name=f"add-on {_ADDON}",
        place=f"spec.providers.{PROVIDER}",
        affected_decisions=("two autoscalers fight",),
    )


def _read_switches(api: CceApi, cache: TtlCache[Switches] | None) -> Switches | None:
    """Return the add-on's switches; None if they cannot be read."""
    try:
        addons = api.addons()
    except Unauthorized:
        switches = None  # a missing permission will not appear within a minute
    except ProviderError:
        return None
    else:
        switches = Switches()
        for addon in addons:
            is_installed = addon.status.lower() not in {"uninstalled", "deleted"}
            if addon.template == _ADDON and is_installed:
                switches = _switches_of(addon.custom)
                break
    if cache is not None:
        cache.put({_SWITCHES_ENTRY: switches}, known=_HOUR, unknown=_HOUR)
    return switches


def _switches_of(custom: Mapping[str, Any]) -> Switches:
    """Return the functions that an add-on's own settings enable."""
    stated = {name: value for name, value in custom.items() if value is not None}
    values = SWITCHES | stated
    return Switches(tuple(name for name in SWITCHES if str(values[name]).strip().lower() == "true"))


# -- groups


def observe(
    api: CceApi,
    settings: CceSettings,
    nodes: Sequence[Node],
    cache: TtlCache[Switches] | None = None,
) -> Observation:
    """Return all groups of the cluster; raises ProviderError if pools or nodes cannot be
    listed. cache: of find_rival."""
    api.expect(_LISTS)
    pools = api.pools()
    listed = api.nodes()
    machines = tuple(machine for machine in listed if not machine.error)
    builder = _CceGroupBuilder(api, settings, CceGroupNames(nodes, machines), machines)
    builder.doubt(pools, [machine for machine in listed if machine.error])
    if not settings.known_region and Service.CCE not in settings.endpoints:
        text = (
            f"{settings.region} is none of the regions known to have CCE; correct it, or set "
            "cceEndpoint"
        )
        place = f"spec.providers.{PROVIDER}.region"
        builder.gaps.append(MissingData(f"provider/{PROVIDER}", text, place=place))
    for name, text in _unmatched_entries(pools, settings):
        builder.warn(name, text)
    groups: list[NodeGroup] = []
    for selection in _select(pools, settings):
        groups += [builder.build(selection, group) for group in selection.groups]
    groups = builder.priced(groups, pools)
    groups += [builder.unread(pool) for pool in _unread_pools(pools, settings)]
    for pool in pools:
        if pool.error and not pool.id:
            text = f"a node pool cannot be understood: {pool.error}"
            builder.gaps.append(MissingData(f"provider/{PROVIDER}", text))
    rival = find_rival(api, cache) if settings.warn_about_addon else None
    if rival is not None:
        builder.gaps.append(rival)
    return Observation(tuple(groups), tuple(builder.gaps))


class _CceGroupBuilder(GroupBuilder):
    def __init__(
        self,
        api: CceApi,
        settings: CceSettings,
        names: CceGroupNames[Node],
        machines: Sequence[CceNode],
    ) -> None:
        super().__init__(PROVIDER)
        self._api = api
        self._settings = settings
        self._names = names
        self._by_pool: dict[str, list[CceNode]] = {}
        for machine in machines:
            self._by_pool.setdefault(machine.pool, []).append(machine)
        self._flavors_problem = ""
        self._doubts: dict[str, str] = {}

    def doubt(self, pools: Sequence[NodePool], undecoded: Sequence[CceNode]) -> None:
        """Set errors for the pools of nodes that cannot be decoded. These are the pools that the
        nodes name and, if a node names none, the pools with fewer listed nodes than they report."""
        if not undecoded:
            return
        error = undecoded[0].error
        text = f"{len(undecoded)} nodes cannot be understood: {error}"
        self.gaps.append(MissingData(f"provider/{PROVIDER}", text))
        doubtful = {machine.pool for machine in undecoded}
        if "" in doubtful:
            for pool in pools:
                listed = len(self._by_pool.get(pool.id, ()))
                reported = pool.current + pool.creating + pool.deleting
                if listed < reported:
                    doubtful.add(pool.id)
        self._doubts = dict.fromkeys(doubtful, f"a node of its pool cannot be understood: {error}")

    def build(self, selection: CceSelection, group: ScaleGroup) -> NodeGroup:
        """Build the node group of a scale group."""
        pool = selection.pool
        settings = self._settings
        whole = pool_range(pool, settings)
        sizes = group_range(pool, group, settings)
        of_pool = self._by_pool.get(pool.id, ())
        machines = [machine for machine in of_pool if group_of(machine, pool) == group]
        template = self._template(pool, group)
        full_id = group_id(pool.id, group.name)
        full_name = f"{pool.name}/{group.name}"
        protected = sum(self._is_protected(machine) for machine in machines)
        held = unidentified_protection(pool, group, protected)
        if held:
            self.warn(full_id, held)
        entries = (_entry_of_group(pool, group, settings), _entry_of_pool(pool, settings))
        priorities = (entry.priority for entry in entries if entry is not None and entry.priority)
        elsewhere = sum(other.desired for other in pool.groups if other not in selection.groups)
        error = selection.error or group.error or self._doubts.get(pool.id, "") or sizes.error
        if not error and pool.phase == ERROR:
            error = f"node pool {pool.name} is in the phase Error; look at it in CCE's console"
        return NodeGroup(
            id=full_id,
            provider=PROVIDER,
            min=sizes.min,
            max=sizes.max,
            target=group.desired,
            instances=_instances(pool, group, machines, self._names, held),
            template=template.node,
            template_error=template.problem,
            states_taints=True,
            error=error,
            options=_options(pool),
            priority=next(priorities, pool.autoscaling.priority),
            rank=group.priority,
            pool=Pool(pool.id, pool.name, whole.min, whole.max, elsewhere),
            aliases=tuple(dict.fromkeys((pool.id, pool.name, full_name))),
            name=pool.name if group.name == DEFAULT_GROUP else full_name,
            spot=pool.template.spot or any(self._is_spot(machine) for machine in machines),
            restarts=has_servers(pool),
            busy=work_on_pool(pool),
            zones=("",) if group.az == ANY_ZONE else (),
        )

    def priced(self, groups: Sequence[NodeGroup], pools: Iterable[NodePool]) -> list[NodeGroup]:
        """Return the groups with the hourly prices of their nodes, or why they have none."""
        scale_groups: dict[str, tuple[NodePool, ScaleGroup]] = {}
        for pool in pools:
            for scale_group in pool.groups:
                scale_groups[group_id(pool.id, scale_group.name)] = (pool, scale_group)
        flavors: dict[str, str] = {}
        for group in groups:
            pool, scale_group = scale_groups[group.id]
            if scale_group.flavor and not _unpriced(pool):
                flavors[group.id] = scale_group.flavor
        prices, denied = self._api.prices(flavors.values(), self._settings.region)
        self.warn_of_denied("Price", denied)
        priced: list[NodeGroup] = []
        for group in groups:
            pool, _ = scale_groups[group.id]
            price = prices.get(flavors.get(group.id, ""))
            priced.append(with_price(group, price, spot=group.spot, error=_unpriced(pool)))
        return priced

    def unread(self, pool: NodePool) -> NodeGroup:
        """Build the node group of a pool of which only the uid is known."""
        return NodeGroup(
            id=group_id(pool.id, DEFAULT_GROUP),
            provider=PROVIDER,
            pool=Pool(pool.id, pool.name),
            error=f"node pool {pool.name or pool.id} cannot be understood: {pool.error}",
        )

    def _is_protected(self, machine: CceNode) -> bool:
        node = self._names.node_of(machine.id)
        if is_protected(machine.annotations):
            return True
        return node is not None and is_protected(node.annotations)

    def _is_spot(self, machine: CceNode) -> bool:
        node = self._names.node_of(machine.id)
        return machine.spot or (node is not None and is_spot_node(node.labels))

    def _template(self, pool: NodePool, group: ScaleGroup) -> GroupTemplate:
        if self._flavors_problem:
            return GroupTemplate(None, self._flavors_problem)
        zone = group.az if is_zone(group.az) else ""
        try:
            flavor = self._api.flavors(zone).get(group.flavor)
        except ProviderError as error:
            problem = f"flavours could not be read: {error.described}"
            if isinstance(error, Throttled | Unauthorized):  # a refusal applies to every AZ
                self._flavors_problem = problem
            return GroupTemplate(None, problem)
        return make_template(pool, group, flavor, self._settings.region, self._settings.reserve)


def _unpriced(pool: NodePool) -> str:
    """Return why the vendor is not asked for the price of the pool's nodes; empty if it is."""
    if pool.template.spot:
        return (
            "the vendor states no price of spot instances, and spotPrice of the pool is only their "
            "limit; write it in "
            "spec.prices.spot"
        )
    if has_servers(pool):
        return ""
    return f"the vendor is not asked for prices of nodes of type {pool.type}"


def _options(pool: NodePool) -> GroupOptions:
    """Return the group's options. The pool's settings apply only if all its flavours
    are scaled automatically. CCE keeps a pool that is scaled always within its range,
    so its minimum is enforced."""
    own = pool.autoscaling
    all_enabled = own.enable and all(group.enabled for group in pool.groups)
    cooldown = 60.0 * own.cooldown_minutes if own.cooldown_minutes > 0 else None
    unneeded_time = None
    if all_enabled and own.unneeded_minutes is not None:
        unneeded_time = 60.0 * own.unneeded_minutes
    return GroupOptions(
        scale_down_cooldown=cooldown,
        scale_down_unneeded_time=unneeded_time,
        scale_down_utilization_threshold=own.utilization if all_enabled else None,
        enforce_min=True,
        unpromised_labels=UNPROMISED,
    )
