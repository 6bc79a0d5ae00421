"""Assigns each node group to one cluster, because two clusters that scale the same machines would
undo each other endlessly.

All claims are in one partition, so that they are unique over all clusters of a deployment. A
claim is made with the first operation on a group. It is not renewed: the owning cluster writes
its lease in every pass. It ends

- where its cluster has made no pass for EXPIRES, or for NO_POLICY without a policy:
  the group is not scaled;
- where another cluster names the group, and its own only discovered it: a policy takes precedence;
- where an operator releases it (`outscaler release --claim`).

Two clusters must never act on one group. A claim therefore changes hands only while its cluster
makes no pass and has no operation open on the group, and the change raises the token of that
cluster's lease: a pass that was suspended since before, and still treats the group as its own,
cannot save its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from chalicelib.store.memory_rows import to_operations
from chalicelib.store.staged_saves import Staging
from chalicelib.store.table_client import (
    ConditionFailed,
    Table,
    TransactionCancelled,
    Write,
    row_of,
)
from chalicelib.store.tables import CLAIMS, LEASE, OPEN, ClaimRow, LeaseRow

Group = tuple[str, str]  # (provider, the group's key there)

EXPIRES = 7 * 86400.0
"""Seconds without a pass of its cluster after which a claim may be taken over."""
NO_POLICY = 3600.0
"""The same if the cluster has no active policy."""
STUCK = 86400.0
"""Seconds after the deadline of an open operation at which it stops keeping a claim,
because it is not continued."""


class OwnershipClaim(msgspec.Struct, frozen=True):
    """key: the place and the group's id there. since: epoch seconds. named: the cluster's policy,
    or the vendor's list for the cluster, names the group; claims of earlier releases do not say,
    and count as named. ended: why another cluster may take it over, "" while it is valid."""

    provider: str
    key: str
    owner: str
    since: float
    named: bool = True
    ended: str = ""

    @property
    def group(self) -> str:
        """Return the group's id, without the place."""
        return self.key.partition("#")[2]


class GroupOwnership:
    """Ownership of node groups. has_policy: whether a cluster has a policy in force."""

    def __init__(
        self,
        table: Table,
        clock: Callable[[], float],
        staging: Staging,
        has_policy: Callable[[str], bool],
    ) -> None:
        self._table, self._clock, self._staging, self._has_policy = (
            table,
            clock,
            staging,
            has_policy,
        )

    def claim_groups(
        self,
        cluster: str,
        groups: Iterable[Group],
        *,
        discovered: Collection[Group] = (),
        taken: Callable[[Group, str], None] | None = None,
    ) -> dict[Group, str]:
        """Claim all the groups; return those that belong to another cluster, with its name.
        They must not be changed.

        The key must identify the group globally (e.g. with its zone or project), not only within a
        policy. discovered: those of the groups that only Nodes associate with this cluster. taken:
        called with each group that was taken over, and its former owner.
        """
        items = {f"{provider}#{key}": (provider, key) for provider, key in groups}
        rows = self._table.get_many([(CLAIMS, item) for item in items])
        others: dict[Group, str] = {}
        for item, group in items.items():
            named = group not in discovered
            raw = rows.get((CLAIMS, item))
            row = row_of(ClaimRow, raw) if raw else self._claim(cluster, item, named=named)
            if row.owner == cluster:
                self._strengthen(row, named=named)
            elif self._take_over(row, cluster, named=named):
                if taken is not None:
                    taken(group, row.owner)
            else:
                others[group] = row.owner
        return others

    def release(self, cluster: str, groups: Iterable[Group]) -> None:
        """Release groups; those of other clusters are unchanged."""
        for provider, key in groups:
            it_is_ours = ClaimRow.owner == cluster
            try:
                self._table.write(self._table.delete(CLAIMS, f"{provider}#{key}", it_is_ours))
            except ConditionFailed:
                continue

    def give_back(self, cluster: str, group: Group) -> str:
        """Release one group at an operator's request; return why not, "" where it is done."""
        row = self._table.get(ClaimRow, CLAIMS, "#".join(group))
        if row is None or row.owner != cluster:
            return f"{cluster} has no claim on it (any more)"
        lease = self._table.get(LeaseRow, cluster, LEASE)
        it_is_the_claim_that_was_read = (ClaimRow.owner == cluster) & (ClaimRow.since == row.since)
        return self._between_passes(
            row, lease, self._table.delete(CLAIMS, row.item, it_is_the_claim_that_was_read)
        )

    def owners(self) -> dict[Group, str]:
        """Return every claimed group and its cluster."""
        return {(claim.provider, claim.key): claim.owner for claim in self.all()}

    def all(self) -> tuple[OwnershipClaim, ...]:
        """Return every claim, by provider and key, for display."""
        claims: list[OwnershipClaim] = []
        for row in (row_of(ClaimRow, raw) for raw in self._table.query(CLAIMS, "")):
            provider, _, key = row.item.partition("#")
            named, ended = _is_named(row) is not False, self._ended(row)
            claims.append(OwnershipClaim(provider, key, row.owner, row.since, named, ended))
        return tuple(claims)

    def open_operations(self, cluster: str, group: Group) -> tuple[str, ...]:
        """Return the ids of a cluster's operations that are open on a group
        and may still be continued."""
        provider, key = group
        now = self._clock()
        return tuple(
            operation.spec.id
            for operation in to_operations(self._staging.view(cluster, OPEN))
            if operation.is_open
            and operation.spec.provider == provider
            and key.endswith(f"#{operation.spec.group}")
            and now < max(operation.spec.deadline, operation.spec.created_at) + STUCK
        )

    def _claim(self, cluster: str, item: str, *, named: bool) -> ClaimRow:
        """Return the owner after the attempt."""
        nobody_has_it = ClaimRow.owner.does_not_exist()
        row = ClaimRow(CLAIMS, item, owner=cluster, since=self._clock(), named=int(named))
        try:
            self._table.write(self._table.put(row, nobody_has_it))
        except ConditionFailed as refused:
            return row_of(ClaimRow, refused.old)
        return row

    def _strengthen(self, row: ClaimRow, *, named: bool) -> None:
        """Record that the group is now named, or is now only discovered; write
        nothing where that is known."""
        stored = _is_named(row)
        if stored is named or (stored is None and named):
            return
        it_is_ours = ClaimRow.owner == row.owner
        try:
            self._table.write(
                self._table.update(CLAIMS, row.item, [ClaimRow.named.set(int(named))], it_is_ours)
            )
        except ConditionFailed:
            return  # released or taken over concurrently: the next operation finds out

    def _take_over(self, row: ClaimRow, cluster: str, *, named: bool) -> bool:
        """Return whether the cluster owns the group now.

        the other's lease, read         its open operations, read        one transaction
        ──┬───────────────────────────────┬────────────────────────────────┬──────────►
          │ in force: not now             │ any on the group: not now      │ refused if a pass of
                                                                           the other began
        """
        lease = self._table.get(LeaseRow, row.owner, LEASE)
        weaker = named and _is_named(row) is False
        if not weaker and not self._ended(row, lease):
            return False
        it_is_the_claim_that_was_read = (ClaimRow.owner == row.owner) & (
            ClaimRow.since == row.since
        )
        actions = [
            ClaimRow.owner.set(cluster),
            ClaimRow.since.set(self._clock()),
            ClaimRow.named.set(int(named)),
        ]
        change = self._table.update(CLAIMS, row.item, actions, it_is_the_claim_that_was_read)
        return not self._between_passes(row, lease, change)

    def _between_passes(self, row: ClaimRow, lease: LeaseRow | None, write: Write) -> str:
        """Change a claim while no pass or operation of its cluster depends on it; return why not,
        "" where it is done. lease: as read before."""
        if lease is not None and lease.owner and (lease.until or 0.0) >= self._clock():
            return f"a pass of {row.owner} is under way"
        provider, key = row.item.split("#", 1)
        if waiting := self.open_operations(row.owner, (provider, key)):
            return f"{', '.join(waiting)} of {row.owner} is open on it"
        no_pass_has_begun = (
            LeaseRow.token.does_not_exist() if lease is None else LeaseRow.token == lease.token
        )
        actions = [LeaseRow.token.add(1), LeaseRow.owner.remove(), LeaseRow.until.remove()]
        end_older_passes = self._table.update(row.owner, LEASE, actions, no_pass_has_begun)
        try:
            self._table.transact([end_older_passes, write])
        except TransactionCancelled:
            return f"a pass of {row.owner} has begun, or the claim has changed hands"
        return ""

    def _ended(self, row: ClaimRow, lease: LeaseRow | None = None) -> str:
        """Return why a claim is no longer valid; "" where it is. lease: of its cluster, read
        anew where none is given."""
        lease = lease or self._table.get(LeaseRow, row.owner, LEASE)
        silent = self._clock() - max(
            row.since, (lease.last_pass if lease is not None else None) or 0.0
        )
        if silent > EXPIRES:
            return f"{row.owner} has made no pass for {int(silent // 86400)} days"
        if silent > NO_POLICY and not self._has_policy(row.owner):
            return f"{row.owner} has no policy"
        return ""


def _is_named(row: ClaimRow) -> bool | None:
    """Return whether the row's group is named; None for a row that does not say."""
    named: float | None = row.named
    return None if named is None else bool(named)
