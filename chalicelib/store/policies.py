"""Policy documents, with every version kept. The text is the author's own; chalicelib/policy interprets it.

Two operators who apply at the same time must not overwrite each other unnoticed, so storing names the version it
replaces.

Each version in force has a small row for the webhook, written in the same transaction. Anyone on the Internet can make
the webhook look up a cluster, so the data it reads for that must not grow with the size of the policies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.store.errors import PolicyChanged, RowUnreadable
from chalicelib.store.table_client import ConditionFailed, Raw, Table, TransactionCancelled, readable, row_of
from chalicelib.store.tables import PARTITION_KEY, POLICIES, POLICY, SORT_KEY, WEBHOOKS, PolicyRow, WebhookRow

FITTING = 390_000  # bytes of text and compiled form; DynamoDB's limit for an item is 400 KB


class StoredPolicy(msgspec.Struct, frozen=True):
    """One version of a cluster's document. digest: as given by the caller that stored it; stored_at: epoch seconds.
    problem: why its row cannot be read, "" where it can; the text is then empty."""

    name: str
    version: int
    text: str
    digest: str
    stored_at: float
    compiled: bytes | None = None
    problem: str = ""


class StoredWebhook(msgspec.Struct, frozen=True):
    """The webhook's part of a policy in force. secret: the name of its secret, "" where the policy has none, None where
    it was not stored separately and only the text contains it."""

    version: int
    secret: str | None


class Policies:
    """One document per cluster; those in force are in a common partition, so that one query finds all clusters."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def put(
        self,
        name: str,
        text: str,
        digest: str,
        expected_version: int | None,
        *,
        webhook: str | None = None,
        compiled: bytes | None = None,
    ) -> int:
        """Store the next version and put it in force; return its number. webhook: see StoredWebhook.secret.

        expected_version: the one in force, None: there is none; versions of an archived policy keep their numbers.
        Raises PolicyChanged, and stores nothing, if that is not so; BadInput for an invalid cluster name.
        """
        if not name or name.startswith("!"):
            raise BadInput("metadata.name", f"{name!r} is not a name", "use lower-case letters, digits and hyphens")
        version = self._next_version(name, expected_version)
        values: dict[str, Any] = {
            "name": name,
            "version": version,
            "text": text,
            "digest": digest,
            "stored_at": self._clock(),
            "compiled": _fitting(text, compiled),
        }
        none_is_in_force = PolicyRow.version.does_not_exist()
        the_expected_is_in_force = PolicyRow.version == expected_version
        version_is_new = PolicyRow.version.does_not_exist()
        try:
            self._table.transact(
                [
                    self._table.put(
                        PolicyRow(POLICIES, name, **values),
                        none_is_in_force if expected_version is None else the_expected_is_in_force,
                    ),
                    self._table.put(PolicyRow(name, _item(version), **values), version_is_new),
                    self._table.put(WebhookRow(WEBHOOKS, name, version=version, secret=webhook)),
                ]
            )
        except TransactionCancelled as cancelled:
            in_force = next((row for row in cancelled.refused.values() if row), None)
            raise PolicyChanged(expected_version, stored(in_force).version if in_force else None) from None
        return version

    def archive(self, policy: StoredPolicy) -> None:
        """End the version in force: the cluster is in no tick any more, and its versions remain in the history. Raises
        PolicyChanged, and changes nothing, if another version is in force."""
        it_is_still_in_force = PolicyRow.version == policy.version
        try:
            self._table.transact(
                [
                    self._table.delete(POLICIES, policy.name, it_is_still_in_force),
                    self._table.delete(WEBHOOKS, policy.name, None),
                ]
            )
        except TransactionCancelled as cancelled:
            in_force = next((row for row in cancelled.refused.values() if row), None)
            raise PolicyChanged(policy.version, stored(in_force).version if in_force else None) from None

    def _next_version(self, name: str, expected_version: int | None) -> int:
        """Return the number of the next version. Where none is in force, an archived policy may have versions."""
        if expected_version is None:
            return max((each.version for each in self.history(name, 1)), default=0) + 1
        return expected_version + 1

    def compile_again(self, policy: StoredPolicy, compiled: bytes) -> bool:
        """Give the version in force another compiled form; False if another version is in force now."""
        it_is_still_in_force = (PolicyRow.version == policy.version) & (PolicyRow.digest == policy.digest)
        try:
            self._table.write(
                self._table.put(
                    PolicyRow(
                        POLICIES,
                        policy.name,
                        name=policy.name,
                        version=policy.version,
                        text=policy.text,
                        digest=policy.digest,
                        stored_at=policy.stored_at,
                        compiled=_fitting(policy.text, compiled),
                    ),
                    it_is_still_in_force,
                )
            )
        except ConditionFailed:
            return False
        return True

    def current(self, name: str, *, consistent: bool = True) -> StoredPolicy | None:
        """Return the version in force. consistent=False: possibly the previous one, for half the price."""
        raw = self._table.find(POLICIES, name, consistent=consistent)
        return stored(raw) if raw else None

    def all_current(self) -> tuple[StoredPolicy, ...]:
        """Return every cluster's version in force, by name; one query, for the tick."""
        return tuple(stored(raw) for raw in self._table.query(POLICIES, ""))

    def webhooks(self) -> dict[str, StoredWebhook]:
        """Return the webhook's part of every policy in force, by cluster; one eventually consistent query over small
        rows. A row that cannot be read is one without a secret: nothing authenticates its callers."""
        raws = self._table.query(WEBHOOKS, "", consistent=False)
        return {raw[SORT_KEY]["S"]: _stored_webhook(raw) for raw in raws}

    def names(self) -> tuple[str, ...]:
        """Return every cluster with a policy."""
        return tuple(policy.name for policy in self.all_current())

    def version(self, name: str, number: int) -> StoredPolicy | None:
        """Return one version, in force or not."""
        row = self._table.get(PolicyRow, name, _item(number))
        return stored_row(row) if row else None

    def history(self, name: str, limit: int = 50) -> tuple[StoredPolicy, ...]:
        """Return the versions, newest first."""
        return tuple(stored(raw) for raw in self._table.query(name, POLICY, newest_first=True, limit=limit))


def _fitting(text: str, compiled: bytes | None) -> bytes | None:
    """The compiled form, if text and form fit an item together."""
    if compiled is None or len(text.encode("utf-8", "surrogatepass")) + len(compiled) > FITTING:
        return None
    return compiled


def _item(version: int) -> str:
    return f"{POLICY}{version:010d}"


def stored(raw: Raw) -> StoredPolicy:
    """Return the policy in an item, under the name in its key. An item that cannot be read is a policy with a problem:
    it must not hide those of other clusters."""
    try:
        return stored_row(row_of(PolicyRow, raw))
    except RowUnreadable as error:
        return StoredPolicy(
            _name(raw[PARTITION_KEY]["S"], raw[SORT_KEY]["S"]), _version_of(raw), "", "", 0.0, problem=str(error)
        )


def stored_row(row: PolicyRow) -> StoredPolicy:
    """Return the policy in a row. Raises RowUnreadable."""
    with readable(row.cluster, row.item):
        return msgspec.convert(
            {
                "name": _name(row.cluster, row.item),
                "version": int(row.version),
                "text": row.text,
                "digest": row.digest,
                "stored_at": row.stored_at,
                "compiled": row.compiled,
            },
            StoredPolicy,
        )


def _name(cluster: str, item: str) -> str:
    return item if cluster == POLICIES else cluster


def _version_of(raw: Raw) -> int:
    """Return the number of a version whose row cannot be read, so that it can be replaced; 0 where that is unreadable,
    too."""
    text = raw.get("version", {}).get("N", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _stored_webhook(raw: Raw) -> StoredWebhook:
    try:
        row = row_of(WebhookRow, raw)
        with readable(row.cluster, row.item):
            return StoredWebhook(int(row.version), row.secret)
    except RowUnreadable:
        return StoredWebhook(_version_of(raw), "")
