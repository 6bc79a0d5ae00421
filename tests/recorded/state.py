"""What a table holds in which the store has written everything that it can
write, each field of it set.

    python -m tests.recorded.state       write tests/recorded/state.json.gz
                                         with the code of this tree

Items are kept as DynamoDB has them. Run it in a worktree of the commit before a change that must
leave them alone, with this directory copied into it, and copy what was written back. Where types
have got new fields, the recorded values stay as they are and get these fields.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.journal import carry_over
from chalicelib.model.machine_offers import MachineOffers
from chalicelib.model.memory import Control, GroupMemory, Memory, NodeMemory, Replacement
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.model.operation_document import OperationDocument, from_document
from chalicelib.store import Store
from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import PassFailure
from chalicelib.store.pass_footprint import PassMemory
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.memory_table import MemoryAccount
from tests.recorded.filling import Filler, converted, words_in, words_of

FILE = Path(__file__).parent / "state.json.gz"
FIRST_OF_NEW = 100_001
"""The first number in values that are added to the recording."""
TABLE, CLUSTER, POLICIES = "recorded", "prod-geneva", "recorded-policies"
NOW = 1_795_245_654.25
OFFERS = "20778-0123456789abcdef0123"
STORED: tuple[Any, ...] = (Memory, OperationDocument, JournalEntry, carry_over.CarryOver)
TEXT = "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: prod-geneva}\n"


class Rate(msgspec.Struct, frozen=True):
    """A limit of calls to a vendor."""

    key: str = "exoscale#account#api"
    rate: float = 2.0
    burst: int = 10


def bed() -> tuple[Any, Store, ManualClock]:
    """An empty emulated account: a DynamoDB client, a store over its two tables, the clock."""
    client, clock = MemoryAccount(), ManualClock(NOW)
    return client, client.store(TABLE, clock=clock, sleep=clock.advance, chance=lambda: 0.5), clock


def values() -> dict[str, Any]:
    """JSON of what is stored: the recorded values, with what the types have now and the recording
    has not. Enumerations that have got a word get as many groups, nodes, replacements or
    operations as have all words."""
    old = recorded()["given"]
    filler = Filler(FIRST_OF_NEW, known=words_in(old["memory"], Memory)[0])
    memory = filler.completed({"replacements": {}, **old["memory"]}, Memory)
    for at in range(len(memory["groups"]), len(Control)):
        memory["groups"][f"group-{at}"] = filler.value(GroupMemory)
    for at in range(len(memory["nodes"]), _most_words(NodeMemory)):
        memory["nodes"][f"node-{at}"] = filler.value(NodeMemory)
    if len(memory["replacements"]) < (count := _most_words(Replacement, besides=NodeMemory)):
        rows = [filler.value(Replacement) for _ in range(count)]
        memory["replacements"] = {row["id"]: row for row in rows}  # stored by its id
    operations = [filler.completed(operation, OperationDocument) for operation in old["operations"]]
    known = {operation["id"] for operation in operations}
    for kind in OperationKind:
        for state in OperationState:
            made = filler.value(OperationDocument) | {
                "id": f"{kind.value}-{state.value}",
                "cluster": CLUSTER,
                "kind": kind.value,
                "state": state.value,
            }
            operations += [] if made["id"] in known else [made]
    return {
        "memory": memory,
        "operations": operations,
        "journal": [filler.completed(entry, JournalEntry) for entry in old["journal"]],
        "left": filler.completed(old["left"], carry_over.CarryOver),
        "offers": filler.completed(old.get("offers", {}), MachineOffers),
    }


def _most_words(kind: Any, besides: Any = None) -> int:
    """How many values of a type it takes to say every word of its enumerations. besides:
    a type that says others."""
    said = words_of(besides)[0] if besides is not None else set()
    return max(Counter(enum for enum, _ in words_of(kind)[0] - said).values(), default=1)


def write(store: Store, clock: ManualClock, given: dict[str, Any]) -> None:
    """Store all of it, a second between two writes of what is kept by its instant."""
    store.schema.raise_to_own()
    lease = store.leases.acquire(CLUSTER, "pass-1", 60.0)
    operations = [from_document(converted(each, OperationDocument)) for each in given["operations"]]
    store.memory.save(CLUSTER, Memory(), converted(given["memory"], Memory), operations, lease)
    store.leases.release(
        lease,
        passed_at=NOW,
        decision="0123456789abcdef",
        succeeded=False,
        carry_over=carry_over.write(converted(given["left"], carry_over.CarryOver)),
        failure=PassFailure("Throttled", "the vendor is busy", NOW - 60.0, NOW, 3),
        memory=PassMemory(300, 512, 2, NOW + 3600.0),
    )
    store.leases.acquire("held", "pass-2", 60.0)
    store.breaker_overrides.release(CLUSTER, NOW + 600.0)
    store.prunes.request(CLUSTER, given["memory"]["prunes"])
    store.drains.request(CLUSTER, given["memory"]["drains"])
    for entry in given["journal"]:
        store.journal.append(
            CLUSTER, msgspec.structs.replace(converted(entry, JournalEntry), at=clock())
        )
        clock.advance(1.0)
    offers = converted(given["offers"], MachineOffers)
    store.journal.put_offers(CLUSTER, OFFERS, offers, NOW)
    store.journal.count(CLUSTER, {"passes": 3.0, "scaled_up.nodes": 2.0})
    store.journal.tell(CLUSTER, {"events": 1.0}, b'{"told": 1}', expected="")
    store.scan_states.mark_queued(CLUSTER, NOW + 30.0)
    store.group_ownership.claim_groups(
        CLUSTER, [("exoscale", "ch-gva-2#workers"), ("clusterapi", "MachineDeployment/a/b")]
    )
    store.rate_limits.take(Rate(), 4)
    store.rate_limits.hold(Rate("held"), 20.0)
    store.cache.put("prices#ch-gva-2", b'{"standard": 1}', 3600.0)
    store.debounce.wake(CLUSTER, 2.0, by="request-1")
    store.debounce.first_use(CLUSTER, "signature", 300.0, by="request-2")
    store.policies.put(CLUSTER, TEXT, "digest-1", None, webhook="outscaler/prod-geneva/webhook")
    clock.advance(1.0)
    store.policies.put(
        CLUSTER, TEXT + "# second\n", "digest-2", 1, webhook="outscaler/prod-geneva/webhook"
    )


def carry_on(store: Store, clock: ManualClock) -> None:
    """What the next functions do to it: every open operation ends, and a pass
    forgets half of its memory."""
    clock.advance(4000.0)
    for operation in store.operations.list_open(CLUSTER):
        claimed = store.operations.claim(
            CLUSTER, operation.spec.id, f"act-{operation.spec.id}", 60.0
        )
        ended = claimed.with_status(state=OperationState.SUCCEEDED, outcome="done")
        store.operations.advance(claimed, ended, f"act-{operation.spec.id}")
        clock.advance(1.0)
    lease = store.leases.acquire(CLUSTER, "pass-3", 60.0)
    before = store.memory.load(CLUSTER)
    after = msgspec.structs.replace(
        before,
        nodes=dict(list(before.nodes.items())[:2]),
        unregistered={},
        groups=dict(list(before.groups.items())[:1]),
        last_scale_up=clock(),
    )
    store.memory.save(CLUSTER, before, after, [], lease)
    store.leases.release(lease, passed_at=clock(), succeeded=True)


def items(
    client: Any, tables: Sequence[str] = (TABLE, POLICIES)
) -> dict[str, list[dict[str, Any]]]:
    """The tables' items as JSON, by their keys; bytes in base64."""
    found = {}
    for table in tables:
        rows = client.scan(TableName=table)["Items"]
        plain = [json.loads(json.dumps(row, default=_text)) for row in rows]
        found[table] = sorted(plain, key=lambda row: (row["cluster"]["S"], row["item"]["S"]))
    return found


def _text(raw: Any) -> str:
    return base64.b64encode(bytes(getattr(raw, "value", raw))).decode()


def unpacked(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The same with compressed bytes as text: another zlib may pack the same text otherwise."""
    return {
        table: [{name: _plain(value) for name, value in row.items()} for row in rows]
        for table, rows in found.items()
    }


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    if "B" not in value:
        return value
    try:
        return {
            "unpacked": zlib.decompress(base64.b64decode(value["B"])).decode(
                "utf-8", "backslashreplace"
            )
        }
    except zlib.error:
        return value


def load(client: Any, recorded: dict[str, list[dict[str, Any]]]) -> None:
    """Put recorded items as they are."""
    for table, row in ((table, row) for table, rows in recorded.items() for row in rows):
        client.put_item(TableName=table, Item={name: _raw(value) for name, value in row.items()})


def _raw(value: dict[str, Any]) -> dict[str, Any]:
    return {"B": base64.b64decode(value["B"])} if "B" in value else value


def differences(one: Any, other: Any) -> Iterator[str]:
    """Rows that are not alike, both of them."""
    for table in one:
        keyed = [
            {(row["cluster"]["S"], row["item"]["S"]): row for row in each[table]}
            for each in (one, other)
        ]
        for key in sorted(keyed[0].keys() | keyed[1].keys()):
            if keyed[0].get(key) != keyed[1].get(key):
                yield f"{key}:\n  {keyed[0].get(key)}\n  {keyed[1].get(key)}"


def recorded() -> dict[str, Any]:
    """The recording: `given` values, `items` as written, and as `carried` on."""
    made: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return made


def main() -> None:
    """Make the recording."""
    client, store, clock = bed()
    given = values()
    write(store, clock, given)
    before = items(client)
    carry_on(store, clock)
    text = json.dumps(
        {"given": given, "items": before, "carried": items(client)}, sort_keys=True, indent=1
    )
    FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
