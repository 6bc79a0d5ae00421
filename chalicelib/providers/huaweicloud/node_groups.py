"""Builds the cluster's node groups from CCE's responses, one per scale group.

Every pass reads everything again: one list of pools, one of nodes. Flavours and add-ons are cached for an hour. A pool
that cannot be decoded carries its error and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.model.group import GroupOptions, NodeGroup, Pool
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.vendors.huaweicloud import PROVIDER, CceSettings
from chalicelib.providers.base import Observation
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import ProviderError, Throttled, Unauthorized
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.autoscaler_addon import Switches, find_rival
from chalicelib.providers.huaweicloud.endpoints import Service
from chalicelib.providers.huaweicloud.group_selection import CceSelection, choose, unmatched, unread
from chalicelib.providers.huaweicloud.instances import classify, unnamed
from chalicelib.providers.huaweicloud.models import DEFAULT_GROUP, CceNode, Flavor, NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.node_template import UNPROMISED, CceTemplate, make_template
from chalicelib.providers.huaweicloud.provider_ids import CceGroupNames, group_id, group_of, is_zone
from chalicelib.providers.huaweicloud.size_bounds import entry_of_group, entry_of_pool, group_range, pool_range

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
