"""The rows of one table: by partition key, within it in the order of the sort key, and read a megabyte at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infra.emulators.dynamodb.errors import bad_value, invalid
from infra.emulators.dynamodb.values import Item, Value, item_size

LARGEST_PAGE = 1024 * 1024  # bytes that one Query or Scan reads
_LAST = chr(0x10FFFF)


class Kept(NamedTuple):
    """A row and how many bytes it takes."""

    item: Item
    size: int


class Page(NamedTuple):
    """What one reading gave. more: rows may follow the last one."""

    items: list[Item]
    more: bool


class Partitions:
    """Rows whose two keys are strings. partition_key, sort_key: their attributes."""

    def __init__(self, partition_key: str, sort_key: str) -> None:
        self.partition_key, self.sort_key = partition_key, sort_key
        self.keys = frozenset({partition_key, sort_key})
        self._rows: dict[str, dict[str, Kept]] = {}
        self._order: dict[str, list[str]] = {}

    def key(self, values: Item) -> tuple[str, str]:
        """The two texts of a Key; ValidationException where it is not exactly that."""
        if values.keys() != self.keys:
            raise invalid("The provided key element does not match the schema")
        return self._text(values[self.partition_key]), self._text(values[self.sort_key])

    def key_of(self, item: Item) -> tuple[str, str]:
        """The same of a whole row."""
        for name in (self.partition_key, self.sort_key):
            if name not in item:
                raise bad_value(f"Missing the key {name} in the item")
            if "S" not in item[name]:
                raise bad_value(f"Type mismatch for key {name} expected: S actual: {next(iter(item[name]))}")
        return self._text(item[self.partition_key]), self._text(item[self.sort_key])

    def _text(self, value: Value) -> str:
        text = value.get("S")
        if text is None:
            raise invalid("The provided key element does not match the schema")
        if not text:
            raise bad_value("The AttributeValue for a key attribute cannot contain an empty string value.")
        return str(text)

    def get(self, key: tuple[str, str]) -> Kept | None:
        """The row, which nobody may change."""
        return self._rows.get(key[0], {}).get(key[1])

    def put(self, key: tuple[str, str], item: Item) -> None:
        """The row from now on."""
        partition, sort = key
        rows = self._rows.setdefault(partition, {})
        if sort not in rows:
            insort(self._order.setdefault(partition, []), sort)
        rows[sort] = Kept(item, item_size(item))

    def drop(self, key: tuple[str, str]) -> None:
        """No such row from now on."""
        partition, sort = key
        if self._rows.get(partition, {}).pop(sort, None) is not None:
            order = self._order[partition]
            del order[bisect_left(order, sort)]

    def all(self) -> Iterator[tuple[tuple[str, str], Item]]:
        """Every row, in the order of its keys."""
        for partition in sorted(self._rows):
            for sort in self._order.get(partition, ()):
                yield (partition, sort), self._rows[partition][sort].item

    # --- pages

    def range(self, partition: str, low: str, high: str, *, with_high: bool = True) -> list[str]:
        """Sort keys from low to high."""
        order = self._order.get(partition, [])
        end = bisect_right(order, high) if with_high else bisect_left(order, high)
        return order[bisect_left(order, low) : end]

    def beginning(self, partition: str, prefix: str) -> list[str]:
        """Sort keys with that beginning."""
        order = self._order.get(partition, [])
        at = bisect_left(order, prefix)
        end = bisect_right(order, prefix + _LAST, at)
        return [each for each in order[at:end] if each.startswith(prefix)]

    def page(self, keys: Sequence[tuple[str, str]], limit: int | None) -> Page:
        """Rows of these keys until the limit, or a megabyte, is reached."""
        items: list[Item] = []
        total = 0
        for partition, sort in keys:
            kept = self._rows[partition][sort]
            if items and total + kept.size > LARGEST_PAGE:
                return Page(items, more=True)
            items.append(kept.item)
            total += kept.size
            if len(items) == limit:
                return Page(items, more=True)
        return Page(items, more=False)
