"""The policy table: policy documents with every version, pauses, and the
settings of the deployment.

Operators write it and functions only read it: a function that was taken over can neither change
a policy nor end a pause.

The text of a document is the author's own; chalicelib/policy interprets it. Two operators who
apply or pause at the same time must not overwrite each other unnoticed, so every write names the
version that it replaces.

Each version in force has a small row for the webhook, written in the same transaction. Anyone on
the Internet can make the webhook look up a cluster, so the data it reads for that must not grow
with the size of the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.pause import MOST, Pause, in_force
from chalicelib.model.policy_permissions import (
    Deployment,
    deployment_published,
    published,
    published_in,
)
from chalicelib.reasons.words import some
from chalicelib.store.codec import encode, fingerprint
from chalicelib.store.errors import PolicyChanged, RowUnreadable, StaleWrite, StoreError
from chalicelib.store.table_client import (
    ConditionFailed,
    Raw,
    Table,
    TransactionCancelled,
    readable,
    row_of,
    value_or_error,
)
from chalicelib.store.tables import (
    DEPLOYMENT_PARTITION,
    PARTITION_KEY,
    PAUSES,
    POLICIES,
    POLICY,
    SETTINGS_ITEM,
    SORT_KEY,
    WEBHOOKS,
    PauseRow,
    PolicyRow,
    SettingsRow,
    WebhookRow,
)

FITTING = 390_000  # bytes of text and compiled form; DynamoDB's limit for an item is 400 KB
SHOWN = 10  # maximum names in a sentence
TIDY_AFTER = 86400  # seconds after the last end of a pause that DynamoDB may delete the row
_TRIES = 5
# of a PolicyRow, without the compiled form
_VALUES = ("name", "version", "text", "digest", "stored_at")


class StoredPolicy(msgspec.Struct, frozen=True):
    """One version of a cluster's document. digest: as given by the caller that stored
    it; stored_at: epoch seconds. problem: why its row cannot be read, "" where it
    can; the text is then empty."""

    name: str
    version: int
    text: str
    digest: str
    stored_at: float
    compiled: bytes | None = None
    problem: str = ""


class StoredWebhook(msgspec.Struct, frozen=True):
    """The webhook's part of a policy in force. secret: the name of its secret, "" where the policy
    has none, None where it was not stored separately and only the text contains it."""

    version: int
    secret: str | None


class Policies:
    """One document per cluster; those in force are in a common partition, so that one
    query finds all clusters."""

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
        """Store the next version and put it in force; return its number. webhook:
        see StoredWebhook.secret.

        expected_version: the one in force, None: there is none; versions of an archived policy
        keep their numbers. Raises PolicyChanged, and stores nothing, if that is not so; BadInput
        for an invalid cluster name.
        """
        if not name or name.startswith("!"):
            raise BadInput(
                "metadata.name",
                f"{name!r} is not a name",
                "use lower-case letters, digits and hyphens",
            )
        last_version = expected_version
        if last_version is None:  # none is in force, but an archived policy may have versions
            last_version = max((policy.version for policy in self.history(name, 1)), default=0)
        policy = StoredPolicy(
            name,
            last_version + 1,
            text,
            digest,
            self._clock(),
            compiled=_if_it_fits(text, compiled),
        )
        none_is_in_force = PolicyRow.version.does_not_exist()
        the_expected_is_in_force = PolicyRow.version == expected_version
        version_is_new = PolicyRow.version.does_not_exist()
        writes = [
            self._table.put(
                _policy_row(POLICIES, name, policy),
                none_is_in_force if expected_version is None else the_expected_is_in_force,
            ),
            self._table.put(_policy_row(name, _item(policy.version), policy), version_is_new),
            self._table.put(WebhookRow(WEBHOOKS, name, version=policy.version, secret=webhook)),
        ]
        try:
            self._table.transact(writes)
        except TransactionCancelled as cancelled:
            raise _policy_changed(expected_version, cancelled) from None
        return policy.version

    def archive(self, policy: StoredPolicy) -> None:
        """End the version in force: the cluster is in no tick any more, and its versions remain in
        the history. Raises PolicyChanged, and changes nothing, if another version is in force."""
        it_is_still_in_force = PolicyRow.version == policy.version
        end = self._table.delete(POLICIES, policy.name, it_is_still_in_force)
        try:
            self._table.transact([end, self._table.delete(WEBHOOKS, policy.name)])
        except TransactionCancelled as cancelled:
            raise _policy_changed(policy.version, cancelled) from None

    def compile_again(self, policy: StoredPolicy, compiled: bytes) -> bool:
        """Give the version in force another compiled form; False if another
        version is in force now."""
        it_is_still_in_force = (PolicyRow.version == policy.version) & (
            PolicyRow.digest == policy.digest
        )
        policy = msgspec.structs.replace(policy, compiled=_if_it_fits(policy.text, compiled))
        try:
            self._table.write(
                self._table.put(_policy_row(POLICIES, policy.name, policy), it_is_still_in_force)
            )
        except ConditionFailed:
            return False
        return True

    def current(self, name: str, *, consistent: bool = True) -> StoredPolicy | None:
        """Return the version in force. consistent=False: possibly the previous
        one, for half the price."""
        raw = self._table.find(POLICIES, name, consistent=consistent)
        return stored(raw) if raw else None

    def all_current(self) -> tuple[StoredPolicy, ...]:
        """Return every cluster's version in force, by name; one query, for the tick."""
        return tuple(stored(raw) for raw in self._table.query(POLICIES, ""))

    def webhooks(self) -> dict[str, StoredWebhook]:
        """Return the webhook's part of every policy in force, by cluster; one eventually consistent
        query over small rows. A row that cannot be read is one without a secret: nothing
        authenticates its callers."""
        raws = self._table.query(WEBHOOKS, "", consistent=False)
        return {raw[SORT_KEY]["S"]: _stored_webhook(raw) for raw in raws}

    def names(self) -> tuple[str, ...]:
        """Return every cluster with a policy."""
        return tuple(policy.name for policy in self.all_current())

    def version(self, name: str, number: int) -> StoredPolicy | None:
        """Return one version, in force or not."""
        row = self._table.get(PolicyRow, name, _item(number))
        return _stored_policy(row) if row else None

    def history(self, name: str, limit: int = 50) -> tuple[StoredPolicy, ...]:
        """Return the versions, newest first."""
        return tuple(
            stored(raw) for raw in self._table.query(name, POLICY, newest_first=True, limit=limit)
        )


def stored(raw: Raw) -> StoredPolicy:
    """Return the policy in an item, under the name in its key. An item that cannot be read is a
    policy with a problem: it must not hide those of other clusters."""
    try:
        return _stored_policy(row_of(PolicyRow, raw))
    except RowUnreadable as error:
        name = _name(raw[PARTITION_KEY]["S"], raw[SORT_KEY]["S"])
        return StoredPolicy(name, _version_of(raw), "", "", 0.0, problem=str(error))


def _stored_policy(row: PolicyRow) -> StoredPolicy:
    """Return the policy in a row. Raises RowUnreadable."""
    with readable(row.cluster, row.item):
        values = {field: getattr(row, field) for field in (*_VALUES, "compiled")}
        values |= {"name": _name(row.cluster, row.item), "version": int(row.version)}
        return msgspec.convert(values, StoredPolicy)


def _policy_row(cluster: str, item: str, policy: StoredPolicy) -> PolicyRow:
    return PolicyRow(
        cluster, item, **{field: getattr(policy, field) for field in (*_VALUES, "compiled")}
    )


def _name(cluster: str, item: str) -> str:
    return item if cluster == POLICIES else cluster


def _item(version: int) -> str:
    return f"{POLICY}{version:010d}"


def _if_it_fits(text: str, compiled: bytes | None) -> bytes | None:
    """Return the compiled form, if text and form fit an item together."""
    if compiled is None or len(text.encode("utf-8", "surrogatepass")) + len(compiled) > FITTING:
        return None
    return compiled


def _policy_changed(expected_version: int | None, cancelled: TransactionCancelled) -> PolicyChanged:
    in_force = next((row for row in cancelled.refused.values() if row), None)
    return PolicyChanged(expected_version, stored(in_force).version if in_force else None)


def _version_of(raw: Raw) -> int:
    """Return the number of a version whose row cannot be read, so that it can be replaced; 0 where
    that is unreadable, too."""
    text = raw.get("version", {}).get("N", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _stored_webhook(raw: Raw) -> StoredWebhook:
    try:
        row = row_of(WebhookRow, raw)
        with readable(row.cluster, row.item):
            return StoredWebhook(int(row.version), row.secret)
    except RowUnreadable:
        return StoredWebhook(_version_of(raw), "")


# --- policies in the state table, where releases before the policy table stored them


def not_used(names: Sequence[str]) -> str:
    """Return a sentence for logs and operators. names: from PolicyMigration.not_moved; any writer
    of state can choose them, so they are truncated."""
    printable = [name[:63].encode("ascii", "backslashreplace").decode() for name in names]
    return f"policies in the state table are not used, clusters {some(printable, SHOWN)}"


class MigrationResult(msgspec.Struct, frozen=True):
    """Result for one cluster's policies. copied: versions written now. conflict: why it was
    skipped, or "". version: the one that is in force in the policy table now, 0 for none."""

    name: str
    version: int
    copied: int = 0
    conflict: str = ""


class PolicyMigration:
    """Migration from the state table (old) to the policy table (new), where an operator requests it
    (`outscaler migrate`). It may be killed at any point and repeated:

        versions, the oldest first ─► the version in force and its webhook row, in one transaction
        ─► (on request) old rows

    Functions never use the old rows, because write access to state would then suffice to put a
    policy in force. They only detect them, so that an unfinished upgrade is reported clearly. A
    cluster is in force in the policy table only when all its versions are there. Existing rows of
    the policy table are never replaced.
    """

    def __init__(self, old_table: Table, new_table: Table) -> None:
        self._old, self._new = old_table, new_table

    def in_old_place(self) -> tuple[StoredPolicy, ...]:
        """Return the versions in force according to the old place, by name, whether or not
        they were copied. One query."""
        return tuple(stored(raw) for raw in self._old.query(POLICIES, "", consistent=False))

    def not_moved(self, policies: Iterable[StoredPolicy]) -> tuple[str, ...]:
        """Return clusters whose policy in the old place is neither the one in force nor an older
        one. policies: those in force."""
        in_force = {policy.name: policy for policy in policies}
        return tuple(
            old.name
            for old in self.in_old_place()
            if not _is_superseded(old, in_force.get(old.name))
        )

    def waits_for_move(self, name: str) -> bool:
        """Return whether the cluster has no policy in force, and one in the old place."""
        return (
            self._new.get(PolicyRow, POLICIES, name) is None
            and self._old.get(PolicyRow, POLICIES, name) is not None
        )

    def copy(self, name: str, webhook: Callable[[str], str | None]) -> MigrationResult:
        """Copy one cluster's policies, unless it has one in force. webhook: a document's text ->
        StoredWebhook.secret. Raises StoreError."""
        old_row, new_row = (
            self._old.get(PolicyRow, POLICIES, name),
            self._new.get(PolicyRow, POLICIES, name),
        )
        if old_row is None or new_row is not None:
            return _not_copied(name, old_row, new_row)
        copied = 0
        for raw in self._old.query(name, POLICY):
            row = row_of(PolicyRow, raw)
            if int(row.version) > int(old_row.version):
                continue
            nothing_is_there = PolicyRow.version.does_not_exist()
            try:
                self._new.write(self._new.put(_copy(row, row.cluster, row.item), nothing_is_there))
                copied += 1
            except ConditionFailed as refused:
                if row_of(PolicyRow, refused.old).digest != row.digest:
                    return MigrationResult(name, 0, copied, _differs(row))
        return self._put_in_force(old_row, webhook(old_row.text), copied)

    def delete_old(self, name: str) -> int:
        """Delete the old rows of a cluster that the policy table also has, the one in force
        last; return their number."""
        deleted = 0
        items = [(name, raw["item"]["S"]) for raw in self._old.query(name, POLICY)]
        for cluster, item in [*items, (POLICIES, name)]:
            new_row = self._new.get(PolicyRow, cluster, item)
            old_row = self._old.get(PolicyRow, cluster, item)
            if old_row is None or new_row is None:
                continue
            if not _is_superseded(_stored_policy(old_row), _stored_policy(new_row)):
                continue
            it_is_what_was_compared = PolicyRow.digest == old_row.digest
            try:
                self._old.write(self._old.delete(cluster, item, it_is_what_was_compared))
            except ConditionFailed:
                continue
            deleted += 1
        return deleted

    def _put_in_force(
        self, old_row: PolicyRow, webhook: str | None, copied: int
    ) -> MigrationResult:
        name, version = old_row.item, int(old_row.version)
        none_is_in_force = PolicyRow.version.does_not_exist()
        writes = [
            self._new.put(_copy(old_row, POLICIES, name), none_is_in_force),
            self._new.put(WebhookRow(WEBHOOKS, name, version=version, secret=webhook)),
        ]
        try:
            self._new.transact(writes)
        except TransactionCancelled as cancelled:
            new_row = next(
                (row_of(PolicyRow, row) for row in cancelled.refused.values() if row), None
            )
            return msgspec.structs.replace(_not_copied(name, old_row, new_row), copied=copied)
        return MigrationResult(name, version, copied)


def _not_copied(name: str, old_row: PolicyRow | None, new_row: PolicyRow | None) -> MigrationResult:
    """Return the result where a policy is in force and stays: a conflict, unless it equals the one
    in the old place, or is newer."""
    in_force = _stored_policy(new_row) if new_row is not None else None
    conflict = ""
    if old_row is not None and not _is_superseded(_stored_policy(old_row), in_force):
        conflict = _differs(old_row)
    return MigrationResult(name, in_force.version if in_force else 0, 0, conflict)


def _is_superseded(old_policy: StoredPolicy, policy_in_force: StoredPolicy | None) -> bool:
    """Return whether the policy table has this version, or one that was stored after it."""
    if policy_in_force is None or policy_in_force.version < old_policy.version:
        return False
    return (
        policy_in_force.version > old_policy.version or policy_in_force.digest == old_policy.digest
    )


def _differs(row: PolicyRow) -> str:
    return f"version {int(row.version)} differs from what the policy table holds"


def _copy(row: PolicyRow, cluster: str, item: str) -> PolicyRow:
    return PolicyRow(
        cluster,
        item,
        **{field: getattr(row, field) for field in _VALUES} | {"version": int(row.version)},
    )


# --- pauses


class Pauses:
    """Reads and changes the pauses of clusters, one row per cluster (`outscaler pause`)."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def current(self, cluster: str) -> tuple[Pause, ...]:
        """Return the pauses in force, the one that ends last first. One read. Raises
        StoreError, also for a row that cannot be read: to act in spite of a pause would
        be worse than not to act."""
        return self._in_force(cluster, self._table.get(PauseRow, PAUSES, cluster))

    def with_policy(self, cluster: str) -> tuple[StoredPolicy | None, tuple[Pause, ...]]:
        """Return the version in force and the pauses in force; one read."""
        rows = self._table.get_many([(POLICIES, cluster), (PAUSES, cluster)])
        policy, pauses = rows.get((POLICIES, cluster)), rows.get((PAUSES, cluster))
        current = self._in_force(cluster, row_of(PauseRow, pauses) if pauses is not None else None)
        return (stored(policy) if policy is not None else None), current

    def all_current(self) -> dict[str, tuple[Pause, ...] | StoreError]:
        """Return the pauses in force of every cluster that has some, or why they cannot be read;
        one query, eventually consistent, for display."""
        raws = {raw[SORT_KEY]["S"]: raw for raw in self._table.query(PAUSES, "", consistent=False)}
        pauses = {
            cluster: value_or_error(partial(self._in_item, raw)) for cluster, raw in raws.items()
        }
        return {cluster: current for cluster, current in pauses.items() if current}

    def change(
        self, cluster: str, change: Callable[[tuple[Pause, ...]], tuple[Pause, ...]]
    ) -> tuple[Pause, ...]:
        """Replace the pauses in force by what `change` makes of them, and return these. Raises
        StaleWrite where others wrote during every attempt; StoreError for more than MOST pauses."""
        for _ in range(_TRIES):
            row = self._table.get(PauseRow, PAUSES, cluster)
            before = self._in_force(cluster, row)
            after = in_force(change(before), self._clock())
            if len(after) > MOST:
                raise StoreError(
                    f"{cluster}: more than {MOST} pauses; end some with outscaler resume {cluster}"
                )
            if after == before:
                return before
            try:
                self._write(cluster, row.version if row is not None else "", after)
            except ConditionFailed as refused:
                if refused.old.get("version", {}).get("S") == fingerprint(encode(after)):
                    return after  # the first attempt succeeded, and only its response was lost
                continue
            return after
        raise StaleWrite(cluster, (PAUSES,))

    def _write(self, cluster: str, version: str, pauses: tuple[Pause, ...]) -> None:
        """Replace the row of that version, "" for none."""
        as_read = PauseRow.version == version if version else PauseRow.version.does_not_exist()
        if not pauses:
            self._table.write(self._table.delete(PAUSES, cluster, as_read))
            return
        data, end = encode(pauses), int(max(pause.until for pause in pauses))
        row = PauseRow(
            PAUSES,
            cluster,
            text=data.decode(),
            version=fingerprint(data),
            expires_at=end + TIDY_AFTER,
        )
        self._table.write(self._table.put(row, as_read))

    def _in_item(self, raw: Raw) -> tuple[Pause, ...]:
        row = row_of(PauseRow, raw)
        return self._in_force(row.item, row)

    def _in_force(self, cluster: str, row: PauseRow | None) -> tuple[Pause, ...]:
        if row is None:
            return ()
        try:
            pauses = msgspec.json.decode(row.text or "[]", type=tuple[Pause, ...])
        except (msgspec.MsgspecError, ValueError) as error:
            raise RowUnreadable(
                f"{cluster}: its pauses cannot be read ({error}); "
                f"run the release that wrote them, or outscaler resume {cluster}"
            ) from error
        return in_force(pauses, self._clock())


# --- the deployment


class DeploymentSettings:
    """The settings of a deployment that decide which policies its functions permit, one row.

    The functions have these settings in their environment, which commands do not see. A command
    that judged by its own environment would accept what every function refuses. The deployment
    therefore writes them (`make deploy`, `make finish`, the emulation), and commands read them.
    Releases before this row ignore it.

    table: of the policies. release: of this code, for people who look at the row.
    """

    def __init__(self, table: Table, clock: Callable[[], float], release: str) -> None:
        self._table, self._clock, self._release = table, clock, release

    def read(self) -> Deployment | None:
        """Return what the deployment has published; None where it has published nothing (an older
        release, or a CloudFormation stack, whose outputs say it). Raises StoreError, also for a
        row that cannot be read."""
        row = self._table.get(SettingsRow, DEPLOYMENT_PARTITION, SETTINGS_ITEM)
        if row is None:
            return None
        try:
            return deployment_published(published_in(row.text or ""))
        except BadInput as error:
            raise StoreError(str(error)) from None

    def publish(self, deployment: Deployment) -> None:
        """Write the settings that the functions of this deployment have. Raises StoreError."""
        text = msgspec.json.encode(published(deployment)).decode()
        values: dict[str, Any] = {"text": text, "release": self._release, "since": self._clock()}
        self._table.write(
            self._table.put(SettingsRow(DEPLOYMENT_PARTITION, SETTINGS_ITEM, **values))
        )
