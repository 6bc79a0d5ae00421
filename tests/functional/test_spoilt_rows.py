"""What the rows of one cluster contain never changes what is shown and done for the others: three
clusters, and every attribute of every kind of row of the second one is spoilt in turn."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from chalicelib.functions import prometheus, read_api
from chalicelib.model.machine_offers import MachineOffers
from chalicelib.model.memory import (
    BreakerState,
    GroupMemory,
    LearntTemplate,
    Memory,
    NodeMemory,
    RuleMemory,
)
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause
from chalicelib.page.render import Links
from chalicelib.page.routes import PageRequest, respond
from chalicelib.passes import scan_scheduler
from chalicelib.policy.compiled import compiled
from chalicelib.policy.load import digest, load
from chalicelib.runtime.runtime import build
from chalicelib.store import Store
from chalicelib.store.gauge_ring import GaugePoint
from chalicelib.store.journal import UNREADABLE
from chalicelib.store.leases import PassFailure
from chalicelib.store.tables import PARTITION_KEY, SORT_KEY, policy_table_of
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.example_clusters import NOW, decided, quiet_plan
from infra.emulators.memory_table import MemoryAccount
from tests.amounts import examples
from tests.functional.app_client import Outbox
from tests.operations import new_operation

CLUSTERS = ("north", "middle", "south")
SPOILT = CLUSTERS[1]
TABLE = "spoilt"
ONE_OF = examples(3, 1)
"""Of the contents of an attribute, `make test` tries one of so many; the
next attribute has others."""
TOPIC = "arn:aws:sns:eu-central-2:123456789012:outscaler-events"
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: active
  kubernetes: {{kubeconfigSecret: outscaler/{name}/kubeconfig}}
  providers: {{clusterapi: {{namespace: capi}}}}
  webhook: {{secret: outscaler/{name}/webhook}}
  notifications: {{topic: "{topic}", minSeverity: info}}
"""

Item = dict[str, dict[str, Any]]
Rows = dict[tuple[str, str, str], Item]


def _store(rows: Rows, clock: ManualClock) -> Store:
    account = MemoryAccount()
    store = account.store(TABLE, clock=clock)
    for (table, _, _), item in rows.items():
        account.put_item(TableName=table, Item=item)
    return store


def _rows() -> Rows:
    """Every kind of row, for each of the clusters."""
    account = MemoryAccount()
    clock = ManualClock(NOW)
    store = account.store(TABLE, clock=clock)
    for name in CLUSTERS:
        text = POLICY.format(name=name, topic=TOPIC)
        policy = load(text, place="p")[0]
        store.policies.put(
            name,
            text,
            digest(text),
            None,
            webhook=policy.webhook.secret,
            compiled=compiled(policy, text),
        )
        failure = PassFailure(
            "Unauthorized", "the cluster refuses the token", NOW - 4200, NOW - 300, 60
        )
        decided(store, name, quiet_plan(name, NOW - 900), NOW - 300, failure=failure)
        lease = store.leases.acquire(name, "w", 60.0)
        operation = new_operation(
            id="op-1",
            cluster=name,
            provider="clusterapi",
            group="workers",
            kind=OperationKind.SCALE_UP,
            plan="p",
            created_at=NOW - 400,
            to_size=3,
        )
        memory = Memory(
            groups={"workers": GroupMemory(target=3)},
            nodes={"n": NodeMemory(unneeded_since=NOW - 60)},
            templates={"workers": LearntTemplate(Node("n", {}, {}), NOW)},
            unregistered={"i-1": NOW - 60},
            rules={"evening": RuleMemory()},
            breaker=BreakerState(tripped_at=NOW - 60),
            last_scale_up=NOW - 60,
        )
        store.memory.save(name, Memory(), memory, (operation,), lease)
        store.leases.release(lease, passed_at=NOW - 300, failure=failure)
        store.breaker_overrides.release(name, NOW + 60)
        store.journal.count(name, {"errors_total;type=cloudProviderError": 2.0})
        store.journal.tell(name, {}, b"told", expected="")
        store.gauge_rings.add(name, GaugePoint(NOW, 3, 1), ClusterOverview(NOW), seen=0.0)
        store.journal.put_offers(name, "20833-0", MachineOffers(), NOW)
        store.pauses.change(name, lambda _: (Pause(NOW + 4800, NOW - 60, reason="test", by="kim"),))
        store.notices().save(name, b"{}", "")
    rows: Rows = {}
    for table in (TABLE, policy_table_of(TABLE)):
        for item in account.scan(TableName=table)["Items"]:
            rows[table, item[PARTITION_KEY]["S"], item[SORT_KEY]["S"]] = item
    return rows


class Shown(NamedTuple):
    """What is shown and done, by cluster."""

    api: dict[str, Any]
    metrics: dict[str, list[str]]
    page: dict[str, str]
    sent: dict[str, list[str]]
    queued: dict[str, list[bytes]]
    webhooks: dict[str, Any]
    failed: tuple[str, ...]


class _Topics:
    """Records what is published."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        assert topic == TOPIC
        self.sent.append(text)


def _shown(rows: Rows) -> Shown:
    clock, outbox, topics = ManualClock(NOW), Outbox(), _Topics()
    store = _store(rows, clock)
    rt = dataclasses.replace(
        build(clock=clock, store=store, sender=outbox, read_secret=lambda name: name), topics=topics
    )
    answer, scrape = read_api.clusters(rt), prometheus.metrics(rt)
    page = respond(store, PageRequest("/", {}, None), NOW, Links(), rt.deployment)
    assert (answer.status, scrape.status, page.status) == (200, 200, 200)
    lines = scrape.body[prometheus.PAGE].splitlines()
    cells = re.findall(
        r'<tr><th scope="row"><a href="[^"]*">(\w+)</a></th>(.*)', page.body.decode()
    )
    report = scan_scheduler.run(rt)
    return Shown(
        {line["name"]: line for line in answer.body["clusters"]},
        {name: [line for line in lines if f'cluster="{name}"' in line] for name in CLUSTERS},
        dict(cells),
        {name: sorted(_type_of(text) for text in topics.sent if name in text) for name in CLUSTERS},
        {name: [body for _, body, _ in outbox.sent if name.encode() in body] for name in CLUSTERS},
        store.policies.webhooks(),
        report.failed,
    )


def _type_of(text: str) -> str:
    return str(msgspec.json.decode(text)["type"])


ROWS = _rows()
GOOD = _shown(ROWS)
KINDS = sorted({(table, item) for table, cluster, item in ROWS if cluster == SPOILT}) + [
    (table, cluster) for table, cluster, item in ROWS if item == SPOILT
]


def _spoilt(value: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
    """Other contents of one attribute: other types, none, and garbage of the same type."""
    yield None
    yield {"NULL": True}
    yield {"S": "\x00garbage{[\u2028"}
    yield {"B": b"\x02\x00\xff\x01garbage"}
    yield {"B": b""}
    for number in ("-1", "1e125", "0.5", "1" * 38):
        yield {"N": number}
    if "S" in value:
        yield {"S": ""}
        yield {"S": "[" * 100_000}
        yield {"S": '{"a": 1e400}'}


def _other(shown: Shown) -> tuple[Any, ...]:
    """What is shown of the clusters that are not spoilt."""
    return tuple({name: part[name] for name in CLUSTERS if name != SPOILT} for part in shown[:-1])


def test_baseline_shows_every_cluster_in_every_place() -> None:
    assert all(set(part) == set(CLUSTERS) and all(part.values()) for part in GOOD[:-1])
    assert GOOD.failed == ()
    assert len(KINDS) >= 18


@pytest.mark.more
@pytest.mark.parametrize(("table", "item"), KINDS, ids=lambda part: re.sub(r"[^a-z!-]+", "_", part))
def test_spoilt_attribute_changes_nothing_for_other_clusters(table: str, item: str) -> None:
    key = next(
        at
        for at in ROWS
        if at[0] == table and (at[1:] == (SPOILT, item) or at[1:] == (item, SPOILT))
    )
    attributes = sorted(set(ROWS[key]) - {PARTITION_KEY, SORT_KEY})
    assert attributes
    for number, attribute in enumerate(attributes):
        values = list(_spoilt(ROWS[key][attribute]))[number % ONE_OF :: ONE_OF]
        assert values
        for value in values:
            row = {name: old for name, old in ROWS[key].items() if name != attribute}
            row |= {attribute: value} if value is not None else {}
            assert _other(_shown(ROWS | {key: row})) == _other(GOOD), (attribute, value)


@pytest.mark.parametrize(
    ("partition", "item", "attribute", "places"),
    [
        ("!policies", SPOILT, "text", {"api", "metrics", "page", "tick"}),
        ("!policies", SPOILT, "version", {"api", "metrics", "page", "tick"}),
        (SPOILT, "lease", "last_pass", {"api", "metrics", "page", "tick"}),
        (SPOILT, "lease", "failures", {"api", "metrics", "page", "tick"}),
        (SPOILT, "memory#operation#op-1", "state", {"api", "tick"}),
        (SPOILT, "memory", "generation", {"api", "tick"}),
        ("!pauses", SPOILT, "text", {"api", "metrics", "page"}),
        (SPOILT, "ledger", "told", {"metrics"}),
    ],
)
def test_cluster_with_an_unreadable_row_is_shown_as_unreadable(
    partition: str, item: str, attribute: str, places: set[str]
) -> None:
    key = next(at for at in ROWS if at[1:] == (partition, item))
    other = {"N": "1"} if "S" in ROWS[key].get(attribute, {"N": "0"}) else {"S": "x"}
    shown = _shown(ROWS | {key: ROWS[key] | {attribute: other}})
    found = {
        "api": bool(shown.api[SPOILT].get("problem"))
        and shown.api[SPOILT]["health"] == "unreadable",
        "metrics": f'outscaler_unreadable{{cluster="{SPOILT}"}} 1' in shown.metrics[SPOILT],
        "page": ">not read<" in shown.page[SPOILT],
        "tick": SPOILT in shown.failed,
    }
    assert {place for place, seen in found.items() if seen} == places


def test_rows_that_a_function_writes_into_the_former_place_of_policies_stop_no_tick() -> None:
    key = (TABLE, "!policies", "anything")
    row = {
        PARTITION_KEY: {"S": key[1]},
        SORT_KEY: {"S": key[2]},
        "version": {"S": "x"},
        "name": {"N": "1"},
    }
    shown = _shown(ROWS | {key: row})
    assert (shown.failed, _other(shown)) == ((), _other(GOOD))


@pytest.mark.parametrize(
    "label", ["cluster=north", 'a"b=c', "le=x", "function=main;le=x", "state=ready;x=1"]
)
def test_counters_with_other_labels_cost_prometheus_nothing(label: str) -> None:
    key = (TABLE, SPOILT, "ledger")
    counters = {
        f"n {name};{label}": {"N": "1"}
        for name in ("function_duration_seconds_bucket", "nodes_count")
    }
    assert _shown(ROWS | {key: ROWS[key] | counters}).metrics == GOOD.metrics


def test_row_that_expands_to_more_than_is_ever_stored_is_unreadable() -> None:
    key = next(at for at in ROWS if at[1] == SPOILT and at[2].startswith("journal#"))
    store = _store(
        ROWS | {key: ROWS[key] | {"blob": {"B": zlib.compress(b" " * 40_000_000)}}},
        ManualClock(NOW),
    )
    (entry,) = store.journal.recent(SPOILT)
    assert entry.kind == UNREADABLE
    assert "expands to more than is ever stored" in str(entry.facts["problem"])
