"""A node group belongs to one cluster: two that grow and shrink the same machines would undo each other for ever.

All claims lie in one partition, so that they are unique over all clusters of a deployment. A claim is made once and
read in every pass; it does not run out: only `release`, or a person, takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.store.client import Refused, Table
from chalicelib.store.tables import CLAIMS, ClaimRow

Group = tuple[str, str]     # (provider, the group's key there)


class Claims:
    """Who owns which node group."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def claim_groups(self, cluster: str, groups: Iterable[Group]) -> dict[Group, str]:
        """Claim them all; those that belong to another cluster come back with its name and are not to be touched.

        The key must name the group in the world (e.g. with its zone or project), not only within a policy.
        """
        wanted = {f"{provider}#{key}": (provider, key) for provider, key in groups}
        found = self._table.get_many([(CLAIMS, item) for item in wanted])
        others: dict[Group, str] = {}
        for item, group in wanted.items():
            raw = found.get((CLAIMS, item))
            owner = ClaimRow.from_raw_data(raw).owner if raw else self._claim(cluster, item)
            if owner != cluster:
                others[group] = owner
        return others

    def release(self, cluster: str, groups: Iterable[Group]) -> None:
        """Give groups back; those of other clusters stay theirs."""
        for provider, key in groups:
            it_is_ours = ClaimRow.owner == cluster
            try:
                self._table.write(self._table.delete(CLAIMS, f"{provider}#{key}", it_is_ours))
            except Refused:
                continue

    def owners(self) -> dict[Group, str]:
        """Every claimed group and its cluster."""
        rows = (ClaimRow.from_raw_data(raw) for raw in self._table.query(CLAIMS, ""))
        owners: dict[Group, str] = {}
        for row in rows:
            provider, _, key = row.item.partition("#")
            owners[provider, key] = row.owner
        return owners

    def _claim(self, cluster: str, item: str) -> str:
        """Whose it is after the attempt."""
        nobody_has_it = ClaimRow.owner.does_not_exist()
        row = ClaimRow(CLAIMS, item, owner=cluster, since=self._clock())
        try:
            self._table.write(self._table.put(row, nobody_has_it))
        except Refused as refused:
            return ClaimRow.from_raw_data(refused.old).owner
        return cluster
