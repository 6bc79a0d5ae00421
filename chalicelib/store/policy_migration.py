"""Migrates policies from the state table, where releases before the policy table stored them and every function may
write.

Functions never use those rows, because write access to state would then suffice to put a policy in force. They only
detect them, so that an unfinished upgrade is reported clearly. An operator's command copies them (`outscaler migrate`);
it may be killed at any point and repeated:

    versions, the oldest first ─► the version in force and its webhook row, in one transaction ─► (on request) old rows

A cluster is in force in the policy table only when all its versions are there. Existing rows of the policy table are
never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from chalicelib.store.policies import StoredPolicy, stored, stored_row
from chalicelib.store.table_client import ConditionFailed, Table, TransactionCancelled, row_of
from chalicelib.store.tables import POLICIES, POLICY, WEBHOOKS, PolicyRow, WebhookRow

SHOWN = 10  # maximum names in a sentence


def not_used(names: Sequence[str]) -> str:
    """Return a sentence for logs and operators. names: from not_moved; any writer of state can choose them, so they are
    truncated."""
    shown = ", ".join(name[:63].encode("ascii", "backslashreplace").decode() for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"policies in the state table are not used, clusters {shown}{more}"


class Moved(msgspec.Struct, frozen=True):
    """Result for one cluster's policies. copied: versions written now. conflict: why it was skipped, or "". version:
    the one that is in force in the policy table now, 0 for none."""

    name: str
    version: int
    copied: int = 0
    conflict: str = ""


class Moving:
    """Migration from the state table (old) to the policy table (new)."""

    def __init__(self, old_table: Table, new_table: Table) -> None:
        self._old, self._new = old_table, new_table

    def in_old_place(self) -> tuple[StoredPolicy, ...]:
        """Return the versions in force according to the old place, by name, whether or not they were copied. One
        query."""
        return tuple(stored(raw) for raw in self._old.query(POLICIES, "", consistent=False))

    def not_moved(self, known: Iterable[StoredPolicy]) -> tuple[str, ...]:
        """Return clusters whose policy in the old place is neither the one in force nor an older one. known: those in
        force."""
        in_force = {policy.name: policy for policy in known}
        return tuple(old.name for old in self.in_old_place() if not _is_superseded(old, in_force.get(old.name)))

    def waits_for_move(self, name: str) -> bool:
        """Return whether the cluster has no policy in force, and one in the old place."""
        return self._new.get(PolicyRow, POLICIES, name) is None and self._old.get(PolicyRow, POLICIES, name) is not None

    def copy(self, name: str, webhook: Callable[[str], str | None]) -> Moved:
        """Copy one cluster's policies, unless it has one in force. webhook: a document's text -> StoredWebhook.secret.
        Raises StoreError."""
        old, there = self._old.get(PolicyRow, POLICIES, name), self._new.get(PolicyRow, POLICIES, name)
        if old is None or there is not None:
            return _left_alone(name, old, there)
        copied = 0
        for raw in self._old.query(name, POLICY):
            row = row_of(PolicyRow, raw)
            if int(row.version) > int(old.version):
                continue
            is_new = self._put_once(row)
            if is_new is None:
                return Moved(name, 0, copied, _differs(int(row.version)))
            copied += is_new
        return self._put_in_force(old, webhook(old.text), copied)

    def delete_old(self, name: str) -> int:
        """Delete the old rows of a cluster that the policy table also has, the one in force last; return their
        number."""
        deleted = 0
        items = [(name, raw["item"]["S"]) for raw in self._old.query(name, POLICY)]
        for cluster, item in [*items, (POLICIES, name)]:
            there = self._new.get(PolicyRow, cluster, item)
            here = self._old.get(PolicyRow, cluster, item)
            if here is None or there is None or not _is_superseded(stored_row(here), stored_row(there)):
                continue
            it_is_what_was_compared = PolicyRow.digest == here.digest
            try:
                self._old.write(self._old.delete(cluster, item, it_is_what_was_compared))
            except ConditionFailed:
                continue
            deleted += 1
        return deleted

    def _put_once(self, row: PolicyRow) -> bool | None:
        """Return True if written now; False if it existed; None if a different row existed."""
        nothing_is_there = PolicyRow.version.does_not_exist()
        try:
            self._new.write(self._new.put(_copy(row, row.cluster, row.item), nothing_is_there))
        except ConditionFailed as refused:
            return False if row_of(PolicyRow, refused.old).digest == row.digest else None
        return True

    def _put_in_force(self, old_row: PolicyRow, webhook: str | None, copied: int) -> Moved:
        name, version = old_row.item, int(old_row.version)
        none_is_in_force = PolicyRow.version.does_not_exist()
        try:
            self._new.transact(
                [
                    self._new.put(_copy(old_row, POLICIES, name), none_is_in_force),
                    self._new.put(WebhookRow(WEBHOOKS, name, version=version, secret=webhook)),
                ]
            )
        except TransactionCancelled as cancelled:
            there = next((row_of(PolicyRow, row) for row in cancelled.refused.values() if row), None)
            return msgspec.structs.replace(_left_alone(name, old_row, there), copied=copied)
        return Moved(name, version, copied)


def _left_alone(name: str, old_row: PolicyRow | None, there: PolicyRow | None) -> Moved:
    """Return the result where a policy is in force and stays: a conflict, unless it equals the one in the old place, or
    is newer."""
    in_force = stored_row(there) if there is not None else None
    fine = old_row is None or _is_superseded(stored_row(old_row), in_force)
    conflict = "" if fine or old_row is None else _differs(int(old_row.version))
    return Moved(name, in_force.version if in_force else 0, 0, conflict)


def _is_superseded(old_policy: StoredPolicy, policy_in_force: StoredPolicy | None) -> bool:
    """Return whether the policy table has this version, or one that was stored after it."""
    if policy_in_force is None or policy_in_force.version < old_policy.version:
        return False
    return policy_in_force.version > old_policy.version or policy_in_force.digest == old_policy.digest


def _differs(version: int) -> str:
    return f"version {version} differs from what the policy table holds"


def _copy(row: PolicyRow, cluster: str, item: str) -> PolicyRow:
    return PolicyRow(
        cluster,
        item,
        name=row.name,
        version=int(row.version),
        text=row.text,
        digest=row.digest,
        stored_at=row.stored_at,
    )
