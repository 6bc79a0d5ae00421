"""The two tables: their schema, their rows, and the format of their keys.

The state table contains what functions write. The policy table contains what operators write and
functions only read, so that a compromised function cannot change the policies that the others
follow. Both have the same schema, which is defined here. Tests and the local emulation create the
tables from `definition`, and the deployment template is compared with it. The rows are PynamoDB
models without a connection of their own: they serialise, parse and give names to conditions;
table_client.py sends them. docs/architecture.md, "Tables", lists every item with its content and
writers.

All items that a pass needs begin with `memory`: one strongly consistent query reads them, and
the head comes first. A cluster's name cannot begin with `!`, so the common partitions never
collide with a cluster's own.
"""

from __future__ import annotations

from typing import Any

from pynamodb.attributes import Attribute, BinaryAttribute, NumberAttribute, UnicodeAttribute
from pynamodb.constants import NUMBER
from pynamodb.models import Model

PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE = "cluster", "item", "expires_at"

POLICIES, CLAIMS, RATE_LIMITS, CACHE = "!policies", "!claims", "!paces", "!shelf"
WEBHOOKS, WEB = "!webhooks", "!web"
PAUSES = "!pauses"
DEPLOYMENT_PARTITION, SETTINGS_ITEM = "!deployment", "settings"
SCHEMA_PARTITION, SCHEMA_ITEM = "!schema", "schema"
LEASE, HEAD, MEMORY = "lease", "memory", "memory"
GROUPS, NODES, TEMPLATES, UNREGISTERED = (
    "memory#group#",
    "memory#nodes#",
    "memory#template#",
    "memory#unregistered#",
)
RULES, RULE_OBJECTS = "memory#rules#", "memory#rule-objects#"
REPLACEMENTS, CONSOLIDATION = "memory#replacement#", "memory#consolidation#"
BREAKER, BREAKER_OVERRIDE = "memory#brake", "memory#release"
PRUNES, DRAINS = "memory#prune", "memory#drain"
OPEN, ENDED = "memory#operation#", "operation#"  # operations
STAGED, JOURNAL, POLICY, DEBOUNCE = "staged#", "journal#", "policy#", "seen#"
OFFERS = "offers#"
COUNTERS, CARRY_OVER = "ledger", "left"
GAUGES, HOURS, OVERVIEW, NOTICES = "gauges", "gauges#hours", "overview", "notices"
SHADOW, SHADOW_ACCEPTED = "shadow#comparison", "shadow#accepted"


def policy_table_of(table_name: str) -> str:
    """Return the default name of the policy table for a state table."""
    return f"{table_name}-policies"


def definition(table_name: str) -> dict[str, Any]:
    """Return the table's definition for CreateTable; CloudFormation's
    properties have the same names."""
    return {
        "TableName": table_name,
        "AttributeDefinitions": [
            {"AttributeName": PARTITION_KEY, "AttributeType": "S"},
            {"AttributeName": SORT_KEY, "AttributeType": "S"},
        ],
        "KeySchema": [
            {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


def time_to_live() -> dict[str, Any]:
    """Return the table's TimeToLiveSpecification. Expiry only cleans up: readers
    compare the times themselves."""
    return {"AttributeName": TTL_ATTRIBUTE, "Enabled": True}


class InstantAttribute(Attribute[float]):
    """Epoch seconds. At most 17 digits, of the 38 that DynamoDB supports; read back as
    float even if it is whole."""

    attr_type = NUMBER

    def serialize(self, value: float) -> str:
        """Return the shortest text that reads back to the same float."""
        return repr(float(value))

    def deserialize(self, value: str) -> float:
        """Return the stored value as a float."""
        return float(value)


class RowKey(Model):
    """Attributes of every row."""

    cluster = UnicodeAttribute(hash_key=True)
    item = UnicodeAttribute(range_key=True)
    expires_at = NumberAttribute(null=True)


class LeaseRow(RowKey):
    """One per cluster. token only ever grows; releasing the lease removes owner
    and until, never the token.

    decision: digest of the last decision in the journal. left: data of the last pass, defined in
    journal/carry_over.py. last_success: when the last pass that made a decision began.
    failing_since and the four attributes after it: the streak of failed passes. peak and the three
    attributes after it: memory use (store/pass_footprint.py).
    """

    owner = UnicodeAttribute(null=True)
    until = InstantAttribute(null=True)
    token = NumberAttribute(default=0)
    queued_until = InstantAttribute(null=True)
    last_pass = InstantAttribute(null=True)
    decision = UnicodeAttribute(null=True)
    left = BinaryAttribute(null=True, legacy_encoding=False)
    last_success = InstantAttribute(null=True)
    failing_since = InstantAttribute(null=True)
    error_at = InstantAttribute(null=True)
    error_class = UnicodeAttribute(null=True)
    error_text = UnicodeAttribute(null=True)
    failures = NumberAttribute(null=True)
    peak = NumberAttribute(null=True)
    size = NumberAttribute(null=True)
    unended = NumberAttribute(null=True)
    large_until = InstantAttribute(null=True)


class CarryOverRow(RowKey):
    """One per cluster at most (leases.py). token: of the lease under which it was written."""

    left = BinaryAttribute(legacy_encoding=False)
    token = NumberAttribute()


class CountersRow(RowKey):
    """One per cluster; its counters are attributes of their own (journal.py). version:
    the fingerprint of told."""

    told = BinaryAttribute(null=True, legacy_encoding=False)
    version = UnicodeAttribute(null=True)


class MemoryRow(RowKey):
    """A remembered value as JSON. version: the fingerprint of its content (codec.py),
    which every writer checks."""

    text = UnicodeAttribute(null=True)
    version = UnicodeAttribute(null=True)


class HeadRow(MemoryRow):
    """The cluster-wide instants, and the gate of large saves (staged_saves.py).

    patches: how often an executor wrote to memory. pending, parts: a large save that is decided but
    not yet applied. generation: number of large saves so far.
    """

    patches = NumberAttribute(null=True)
    pending = UnicodeAttribute(null=True)
    parts = NumberAttribute(null=True)
    generation = NumberAttribute(null=True)


class BreakerOverrideRow(RowKey):
    """The circuit breaker is overridden until that instant."""

    until = InstantAttribute()


class PoolRequestRow(RowKey):
    """An operator asked to delete the empty groups of these managed pools, or to drain those that
    retire. text: JSON, pool -> instant."""

    text = UnicodeAttribute()


class BlobRow(RowKey):
    """A compressed piece of a larger value. parts: the number of pieces."""

    blob = BinaryAttribute(legacy_encoding=False)
    version = UnicodeAttribute()
    parts = NumberAttribute()


class OperationRow(RowKey):
    """text: the immutable part. The rest changes, each value in an attribute of its own so
    that conditions can use it."""

    text = UnicodeAttribute()
    state = UnicodeAttribute()
    step = UnicodeAttribute()
    data = UnicodeAttribute()
    attempt = NumberAttribute()
    due_at = InstantAttribute()
    claimed_by = UnicodeAttribute()
    claimed_until = InstantAttribute()
    sent_at = InstantAttribute()
    updated_at = InstantAttribute()
    outcome = UnicodeAttribute()
    error_class = UnicodeAttribute()
    error_code = UnicodeAttribute()


class JournalRow(RowKey):
    """One entry, or the machines that a decision was chosen from, compressed."""

    blob = BinaryAttribute(legacy_encoding=False)


class ShadowRow(RowKey):
    """One per cluster in mode shadow (journal.py). token: of the lease
    under which it was written."""

    blob = BinaryAttribute(legacy_encoding=False)
    token = NumberAttribute()


class GaugesRow(RowKey):
    """A ring of points of one cluster (journal.py); in a row of its own the points of the hours.
    overview: fingerprints of the overview that is stored, overview_at: its instant."""

    blob = BinaryAttribute(legacy_encoding=False)
    overview = UnicodeAttribute(null=True)
    overview_at = InstantAttribute(null=True)


class OverviewRow(RowKey):
    """What the last passes saw of one cluster (model/overview.py), compressed."""

    blob = BinaryAttribute(legacy_encoding=False)


class NoticesRow(RowKey):
    """The state of a cluster's notifications, compressed (journal.py). version: the
    fingerprint of its content."""

    blob = BinaryAttribute(null=True, legacy_encoding=False)
    version = UnicodeAttribute(null=True)


class PolicyRow(RowKey):
    """One version of a policy document. compiled: the text, read already
    (policy/compiled.py); older rows lack it."""

    name = UnicodeAttribute()
    version = NumberAttribute()
    text = UnicodeAttribute()
    digest = UnicodeAttribute()
    stored_at = InstantAttribute()
    compiled = BinaryAttribute(null=True, legacy_encoding=False)


class WebhookRow(RowKey):
    """The data that the webhook reads before it has authenticated the caller. secret: the name of
    the webhook's secret, "" where the policy has none; no attribute where only the policy's text
    contains it. version: the policy's."""

    version = NumberAttribute()
    secret = UnicodeAttribute(null=True)


class PauseRow(RowKey):
    """The pauses of one cluster, as JSON (policies.py). version: the fingerprint of text."""

    text = UnicodeAttribute()
    version = UnicodeAttribute()


class SettingsRow(RowKey):
    """The settings of the functions that decide which policies are permitted, as JSON
    (policies.py), and the release that published them."""

    text = UnicodeAttribute()
    release = UnicodeAttribute(null=True)
    since = InstantAttribute(null=True)


class ClaimRow(RowKey):
    """owner: the cluster that owns the node group. named: 1 where its policy or the vendor names
    the group, 0 where it only discovered it; rows of earlier releases do not say."""

    owner = UnicodeAttribute()
    since = InstantAttribute()
    named = NumberAttribute(null=True)


class DebounceRow(RowKey):
    """An event that counts once until that instant. by: the writer, which may remove it. Of
    wake-ups: prompt_until, the same for prompt ones; full_at: when the burst of wake-ups is
    full again (debounce.py)."""

    until = InstantAttribute()
    by = UnicodeAttribute(null=True)
    prompt_until = InstantAttribute(null=True)
    full_at = InstantAttribute(null=True)


class RateLimitRow(RowKey):
    """A budget of calls. arrival: when it is full again (vendor_calls.py). held_until:
    end of a pause that the vendor requested. rate, burst: the slowest of those that share
    it have, until rate_until."""

    arrival = InstantAttribute(null=True)
    held_until = InstantAttribute(null=True)
    rate = NumberAttribute(null=True)
    burst = NumberAttribute(null=True)
    rate_until = InstantAttribute(null=True)


class SchemaRow(RowKey):
    """The schema of the rows of both tables, the release that wrote it first,
    and when. It never expires."""

    schema = NumberAttribute()
    release = UnicodeAttribute(null=True)
    since = InstantAttribute(null=True)


class CacheRow(RowKey):
    """A value that is cached from `since` until `until`."""

    blob = BinaryAttribute(null=True, legacy_encoding=False)
    since = InstantAttribute(default=0.0)
    until = InstantAttribute(default=0.0)
