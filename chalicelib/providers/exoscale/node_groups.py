"""Builds the cluster's node groups from the state of the zone.

Every pass reads everything again in a few calls, independent of the number of nodes and of earlier passes. A group that
cannot be read carries its error and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.vendors.exoscale import LEAST, PROVIDER, ExoscaleSettings
from chalicelib.providers.base import Observation
from chalicelib.providers.errors import ProviderError
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.group_selection import ExoscaleSelection, choose
from chalicelib.providers.exoscale.instances import classify, placeholders
from chalicelib.providers.exoscale.models import InstanceType
from chalicelib.providers.exoscale.node_template import make_template, type_of
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames
from chalicelib.providers.exoscale.size_bounds import Room, missing, occupied, range_of
from chalicelib.providers.exoscale.zone_state import Zone, read_zone


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
        within = range_of(site, selection.bounds, self._room, self._settings.unlimited_max)
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
