"""The two tables: their shape, their rows, and how their keys are made.

The state table holds what functions write. The policy table holds what people write and functions only read, so that a
function that is taken over cannot change what the others obey. Both have the same shape, stated once, here. Tests and
the local emulation create the tables from `definition`, and the deployment template is compared with it. The rows are
PynamoDB models without a connection of their own: they serialize, parse and give names to conditions; sending is
client.py's business.

The state table:

    cluster (partition)   item (sort)                  row
    <cluster>             lease                        LeaseRow: who reconciles, fencing token, queued marker, last
                                                       pass and what it left to the next
                          left                         LeftRow: what the last pass left, where it is large
                          ledger                       LedgerRow: counters, and events told lately
                          memory                       HeadRow: cluster-wide instants; the gate for large saves
                          memory#brake                 MemoryRow: what removals have taken lately
                          memory#group#<id>            MemoryRow: one node group
                          memory#nodes#<n>             BlobRow: timers of all nodes, compressed
                          memory#operation#<id>        OperationRow: one that is still open
                          memory#release               ReleaseRow: a person's word; no save writes or checks it
                          memory#rule-objects#<n>      BlobRow: HorizontalNodeAutoscalers as they were last right
                          memory#rules#<n>             BlobRow: what rules did last
                          memory#template#<id>         MemoryRow: one learnt template
                          memory#unregistered#<n>      BlobRow: instances without a Node
                          operation#<id>               OperationRow: one that is over
                          staged#<save>#<n>            BlobRow: part of a large save, not visible by itself
                          journal#<instant>#<digest>   JournalRow
                          seen#<kind>#<digest>         SeenRow: something that counts once
    !web                  seen#<kind>#<cluster>#<digest>  SeenRow: wake-ups and signatures; the only rows that the
                                                       function behind the HTTP API may write
    !claims               <provider>#<group>           ClaimRow: the one cluster that a node group belongs to
    !paces                <account and API>            PaceRow: how often a vendor was called lately
    !schema               schema                       SchemaRow: the form of all rows, and the release that wrote it
    !shelf                <what it is>                 ShelfRow: a vendor's answer that seldom changes, compressed

The policy table:

    <cluster>             policy#<version>             PolicyRow
    !policies             <cluster>                    PolicyRow: the version in force
    !webhooks             <cluster>                    WebhookRow: the webhook's part of it

Releases before the policy table kept PolicyRows in the state table under the same keys (moving.py).

All that a pass must know begins with `memory`: one strongly consistent query reads it, and the head comes first.
`!` cannot begin a cluster's name, so the common partitions meet no cluster's own.
"""

from __future__ import annotations

from typing import Any

from pynamodb.attributes import Attribute, BinaryAttribute, NumberAttribute, UnicodeAttribute
from pynamodb.constants import NUMBER
from pynamodb.models import Model

PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE = "cluster", "item", "expires_at"

POLICIES, CLAIMS, PACES, SHELF = "!policies", "!claims", "!paces", "!shelf"
WEBHOOKS, WEB = "!webhooks", "!web"
SCHEMA_PARTITION, SCHEMA_ITEM = "!schema", "schema"
LEASE, HEAD, MEMORY = "lease", "memory", "memory"
GROUPS, NODES, OPEN, TEMPLATES, UNREGISTERED = (
    "memory#group#",
    "memory#nodes#",
    "memory#operation#",
    "memory#template#",
    "memory#unregistered#",
)
RULES, RULE_OBJECTS = "memory#rules#", "memory#rule-objects#"
BRAKE, RELEASE = "memory#brake", "memory#release"
OVER, STAGED, JOURNAL, POLICY, SEEN = "operation#", "staged#", "journal#", "policy#", "seen#"
LEDGER, LEFT = "ledger", "left"


def policy_table_of(table_name: str) -> str:
    """What the policy table of a state table is called unless it is named."""
    return f"{table_name}-policies"


def definition(table_name: str) -> dict[str, Any]:
    """The table as CreateTable wants it; CloudFormation's properties have the same names."""
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
    """TimeToLiveSpecification of the table. It only tidies up: whoever reads compares the times himself."""
    return {"AttributeName": TTL_ATTRIBUTE, "Enabled": True}


class InstantAttribute(Attribute[float]):
    """Epoch seconds. At most 17 digits, where DynamoDB takes 38; comes back as float even if it is whole."""

    attr_type = NUMBER

    def serialize(self, value: float) -> str:
        """The shortest text that reads back to the same float."""
        return repr(float(value))

    def deserialize(self, value: str) -> float:
        """As it was stored."""
        return float(value)


class RowKey(Model):
    """What every row has."""

    cluster = UnicodeAttribute(hash_key=True)
    item = UnicodeAttribute(range_key=True)
    expires_at = NumberAttribute(null=True)


class LeaseRow(RowKey):
    """One per cluster. token only ever grows; giving the lease back removes owner and until, never the token.

    decision: digest of the last decision in the journal. left: what the last pass left; record/left.py knows it.
    last_success: when the last pass that decided began. failing_since and the four after it: pass_failure.py. peak and
    the three after it: pass_memory.py.
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


class LeftRow(RowKey):
    """One per cluster at most (left_rows.py). token: of the lease under which it was written."""

    left = BinaryAttribute(legacy_encoding=False)
    token = NumberAttribute()


class LedgerRow(RowKey):
    """One per cluster; its counters are attributes of their own (journal.py). version: the fingerprint of told."""

    told = BinaryAttribute(null=True, legacy_encoding=False)
    version = UnicodeAttribute(null=True)


class MemoryRow(RowKey):
    """A remembered value as JSON. version: the fingerprint of its content (codec.py), which every writer checks."""

    text = UnicodeAttribute(null=True)
    version = UnicodeAttribute(null=True)


class HeadRow(MemoryRow):
    """The cluster-wide instants, and the gate of large saves (staging.py).

    patches: how often an executor wrote to memory. pending, parts: a large save that is decided but not yet written
    out. generation: how many large saves there were.
    """

    patches = NumberAttribute(null=True)
    pending = UnicodeAttribute(null=True)
    parts = NumberAttribute(null=True)
    generation = NumberAttribute(null=True)


class ReleaseRow(RowKey):
    """The brake is let go until that instant (plan/brake.py)."""

    until = InstantAttribute()


class BlobRow(RowKey):
    """A compressed piece of something larger. parts: how many pieces there are."""

    blob = BinaryAttribute(legacy_encoding=False)
    version = UnicodeAttribute()
    parts = NumberAttribute()


class OperationRow(RowKey):
    """text: what never changes. The rest changes, each in an attribute of its own so that conditions can see it."""

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
    """One entry, compressed."""

    blob = BinaryAttribute(legacy_encoding=False)


class PolicyRow(RowKey):
    """One version of a policy document. compiled: the text, read already (policy/compiled.py); older rows lack it."""

    name = UnicodeAttribute()
    version = NumberAttribute()
    text = UnicodeAttribute()
    digest = UnicodeAttribute()
    stored_at = InstantAttribute()
    compiled = BinaryAttribute(null=True, legacy_encoding=False)


class WebhookRow(RowKey):
    """What the webhook asks before it knows who calls. secret: the name of the webhook's secret, "" where the policy
    has none; no such attribute: the policy's text says it. version: the policy's."""

    version = NumberAttribute()
    secret = UnicodeAttribute(null=True)


class ClaimRow(RowKey):
    """owner: the cluster that the node group belongs to. named: 1 where its policy or the vendor names the group, 0
    where it only discovered it; missing in rows of earlier releases."""

    owner = UnicodeAttribute()
    since = InstantAttribute()
    named = NumberAttribute(null=True)


class SeenRow(RowKey):
    """Something that counts once until that instant. by: whose use it was, for taking it back."""

    until = InstantAttribute()
    by = UnicodeAttribute(null=True)


class PaceRow(RowKey):
    """A budget of calls. arrival: when it is untouched again (paces.py). held_until: the vendor asked for a pause."""

    arrival = InstantAttribute(null=True)
    held_until = InstantAttribute(null=True)


class SchemaRow(RowKey):
    """The form of the rows of both tables, the release that wrote it first, and when. It never expires."""

    schema = NumberAttribute()
    release = UnicodeAttribute(null=True)
    since = InstantAttribute(null=True)


class ShelfRow(RowKey):
    """Something that is kept from `since` until `until`."""

    blob = BinaryAttribute(null=True, legacy_encoding=False)
    since = InstantAttribute(default=0.0)
    until = InstantAttribute(default=0.0)
