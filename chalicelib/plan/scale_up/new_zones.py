"""Zones in which managed pools could open a group.

A zone without nodes is no domain for the scheduler, so it puts all pods of a spread in the first
zone that gets a node. Pods that need new nodes are therefore spread as if minDomains were the
number of zones that they may be in.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.simulation.pod_constraints import SpreadConstraint
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.readiness import ZONE


def spread_over_new_zones(search: ScaleUpSearch, classes: Iterable[int]) -> None:
    """Require for classes that are spread over zones the zones with nodes, and those in which a
    group could be opened for them."""
    simulated, candidates = search.simulated, search.candidates
    zones = {
        row: candidates.table.nodes[row].labels.get(ZONE, "")
        for row, group in enumerate(candidates.groups)
        if is_candidate(group.group)
    }
    if not zones:
        return
    for cls in classes:
        constraints = simulated.needs(cls)
        spreads = constraints.evenness if constraints is not None else ()
        over_zones = [spread for spread in spreads if spread.key == ZONE]
        if not over_zones:
            continue
        fits = candidates.fits(cls)
        domains = {zone for row, zone in zones.items() if zone and fits[row]}
        if domains:
            domains |= _zones_with_nodes(simulated, over_zones[0])
            simulated.require_domains(cls, ZONE, len(domains))


def _zones_with_nodes(simulated: SimulatedCluster, spread: SpreadConstraint) -> set[str]:
    codes, values = simulated.table.label(ZONE)
    counted = set(np.unique(codes[simulated.counts_in_spread(spread)]).tolist())
    return {zone for zone, code in values.items() if code in counted}
