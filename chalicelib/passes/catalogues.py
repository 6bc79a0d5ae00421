"""Reads the vendors' catalogues for managed pools, after the plan of a pass has been sent: a pass
decides with what an earlier one has read, and never waits for a list of machine types.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.providers.kit.base import PoolMaker, Provider
from chalicelib.providers.kit.errors import ProviderError
from chalicelib.runtime.log import failure, logger


def refresh_catalogues(
    cluster: str, providers: Sequence[Provider], snapshot: Snapshot, plan: Plan
) -> bool:
    """Read the catalogues that are due; return whether one has become known, so that another pass
    can plan with it. Raises nothing: without a catalogue nothing is opened."""
    wanted = {selection.provider for selection in snapshot.selections}
    groups = {group.id: group for group in (*snapshot.groups, *snapshot.candidates)}
    buying = {growth.provider for growth in plan.scale_ups if declaration_of(groups[growth.group])}
    has_new = False
    for provider in providers:
        if provider.name not in wanted or not isinstance(provider, PoolMaker):
            continue
        try:
            is_new = provider.refresh_catalogue(buying=provider.name in buying)
        except ProviderError as error:
            logger.warning("catalogue not read", cluster=cluster, **failure(error))
            continue
        has_new = has_new or is_new
    return has_new
