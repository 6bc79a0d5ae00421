"""What requests to the emulated tables would be charged as, in DynamoDB's read
and write request units.

The rules are the Developer Guide's ("DynamoDB throughput capacity"): a strongly consistent read is
a unit per 4 KB, any other is half of it; a write is a unit per KB of the larger of the two rows,
the one before and the one after; a transaction takes two units for one, and a check in it is
charged as a write. A write whose condition does not hold is charged by the row that was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from infra.emulators.memory_table import Json, MemoryAccount, item_size

_READ, _WRITE = 4096, 1024  # bytes of a unit
_SINGLE = frozenset({"put_item", "update_item", "delete_item"})
_TRANSACTION = "transact_write_items"


class Metered:
    """A client that counts. reads, writes: units since the last `reset`. read, written: units by
    the row's sort key or the prefix of it that is queried, or by partition for the common ones.
    note: called with the partition key, `read` or `write`, and units."""

    def __init__(
        self, client: MemoryAccount, note: Callable[[str, str, float], None] | None = None
    ) -> None:
        self._client, self._tell = client, note
        self.meta, self.create, self.drop = client.meta, client.create, client.drop
        self.reset()

    def reset(self) -> None:
        """Count from 0."""
        self.reads = 0.0
        self.writes = 0
        self.requests: Counter[str] = Counter()
        self.read: defaultdict[str, float] = defaultdict(float)
        self.written: Counter[str] = Counter()

    def __getattr__(self, method: str) -> Callable[..., Json]:
        call = getattr(self._client, method)

        def counted(**arguments: Any) -> Json:
            self.requests[method] += 1
            writes = list(_writes(method, arguments))
            before = [self._size(each) for each in writes]
            try:
                answer: Json = call(**arguments)
            finally:
                for each, size in zip(writes, before, strict=True):
                    self._note(
                        each, max(size, self._size(each)), 2 if method == _TRANSACTION else 1
                    )
            for partition, item, units in _reads(method, arguments, answer):
                self.reads += units
                self.read[partition if partition.startswith("!") else item] += units
                if self._tell is not None:
                    self._tell(partition, "read", units)
            return answer

        return counted

    def _size(self, write: Json) -> int:
        return self._client.size_of(write["TableName"], write.get("Key") or write["Item"])

    def _note(self, write: Json, size: int, times: int) -> None:
        units = times * max(1, -(-size // _WRITE))
        key = write.get("Key") or write["Item"]
        self.writes += units
        if self._tell is not None:
            self._tell(key["cluster"]["S"], "write", units)
        self.written[
            key["cluster"]["S"] if key["cluster"]["S"].startswith("!") else key["item"]["S"]
        ] += units


def _writes(method: str, arguments: Json) -> Iterator[Json]:
    if method in _SINGLE:
        yield arguments
    elif method == _TRANSACTION:
        for part in arguments["TransactItems"]:
            yield from part.values()


def _reads(method: str, arguments: Json, answer: Json) -> Iterator[tuple[str, str, float]]:
    """Yield (partition, row or prefix of rows, units)."""
    if method == "get_item":
        key = arguments["Key"]
        yield (
            key["cluster"]["S"],
            key["item"]["S"],
            _read(item_size(answer.get("Item", {})), arguments),
        )
    if method == "query":
        size, values = (
            sum(item_size(item) for item in answer["Items"]),
            arguments["ExpressionAttributeValues"],
        )
        yield (
            values[":cluster"]["S"],
            values.get(":prefix", {}).get("S", ""),
            _read(size, arguments),
        )
    if method == "batch_get_item":
        for table, asked in arguments["RequestItems"].items():
            found = {
                (item["cluster"]["S"], item["item"]["S"]): item
                for item in answer["Responses"].get(table, ())
            }
            for key in asked["Keys"]:
                # A row that is not there is charged as the smallest.
                item = found.get((key["cluster"]["S"], key["item"]["S"]), {})
                yield key["cluster"]["S"], key["item"]["S"], _read(item_size(item), asked)


def _read(size: int, asked: Json) -> float:
    return max(1, -(-size // _READ)) * (1.0 if asked.get("ConsistentRead") else 0.5)
