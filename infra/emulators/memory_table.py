"""An in-memory implementation of the store's table, for worlds of many thousand steps.

`MemoryTable` is the store's `Table` with one difference: conditions and actions stay PynamoDB's
objects and never become expressions. `MemoryAccount` replaces the botocore client. A request has
the usual operation name and arguments, so fault injection, policy checks and unit counts work with
either client. Retries and error names are the store's own. tests/unit/store/test_table_contract.py
runs the same tests on this table, on moto and on Amazon's DynamoDB Local.

    account = MemoryAccount()
    store = account.store("outscaler", clock=clock)
"""

from __future__ import annotations

import functools
import operator
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import (
    Context,
    Decimal,
    DecimalException,
    Inexact,
    InvalidOperation,
    Overflow,
    Underflow,
)
from typing import Any, NamedTuple

from botocore.exceptions import ClientError
from botocore.hooks import HierarchicalEmitter
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.operand import Path, Value
from pynamodb.expressions.update import Action, AddAction, RemoveAction, SetAction

from chalicelib.store import Store
from chalicelib.store.table_client import ITEMS_PER_READ, ITEMS_PER_TRANSACTION, Table
from chalicelib.store.tables import PARTITION_KEY, SORT_KEY, policy_table_of

Json = dict[str, Any]
Item = dict[str, dict[str, Any]]

LARGEST_ITEM = 400 * 1024  # bytes
_KEY_NAMES = frozenset({PARTITION_KEY, SORT_KEY})
_NUMBERS = Context(
    prec=38, Emax=125, Emin=-130, traps=[Inexact, InvalidOperation, Overflow, Underflow]
)
_SUMS = Context(prec=38)


def refusal(code: str, message: str, **more: Any) -> ClientError:
    """Return botocore's error for a response of DynamoDB. more: other members of the response
    (Item, CancellationReasons)."""
    status = {"HTTPStatusCode": 400}
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": status, **more}
    return ClientError(answer, "InMemory")


def invalid(message: str) -> ClientError:
    return refusal("ValidationException", message)


class Kept(NamedTuple):
    """A stored item and its size in bytes."""

    item: Item
    size: int


def kept(item: Mapping[str, Mapping[str, Any]]) -> Kept:
    """Return a copy in the form that DynamoDB stores. Raises ClientError for a value or a
    size that DynamoDB rejects."""
    made = {name: stored(value) for name, value in item.items()}
    size = item_size(made)
    if size > LARGEST_ITEM:
        raise invalid("Item size has exceeded the maximum allowed size")
    return Kept(made, size)


def shown(item: Item) -> Item:
    return {name: dict(value) for name, value in item.items()}


def stored(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an attribute value; a number becomes plain decimal digits
    without superfluous zeros."""
    ((kind, content),) = value.items()
    if kind == "N":
        return {"N": _number(content)}
    if kind not in _SIZES:
        raise NotImplementedError(f"attribute type {kind} (infra/emulators/memory_table.py)")
    return {kind: bytes(content) if kind == "B" else content}


@functools.lru_cache(maxsize=65536)
def _number(text: str) -> str:
    try:
        found = _NUMBERS.create_decimal(text)
    except DecimalException:
        raise invalid(f"The number has too many digits, or is out of range: {text}") from None
    if not found.is_finite():
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    return format(found.normalize(_NUMBERS), "f") if found else "0"


# --- sizes, as the Developer Guide counts them ("DynamoDB item sizes and formats")


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes of an item, including the names of its attributes."""
    return sum(
        _text_size(name) + _SIZES[kind](content)
        for name, value in item.items()
        for kind, content in value.items()
    )


def _text_size(content: str) -> int:
    return len(content) if content.isascii() else len(content.encode())


def _number_size(content: str) -> int:
    digits = content.strip("-0.").replace(".", "")
    return (len(digits) + 1) // 2 + 1 + content.startswith("-")


_SIZES: Mapping[str, Callable[[Any], int]] = {
    "S": _text_size,
    "N": _number_size,
    "B": len,
    "NULL": lambda _: 1,
}


# --- conditions


def holds(condition: Condition, item: Item) -> bool:
    """Return whether PynamoDB's condition is true for the item, which is empty if there is none."""
    test = _TESTS.get(condition.operator)
    if test is None:
        raise NotImplementedError(
            f"condition {condition.operator} (infra/emulators/memory_table.py)"
        )
    return test(item, *condition.values)


def _operand(item: Item, operand: Any) -> dict[str, Any] | None:
    if isinstance(operand, Path):
        return item.get(_name(operand))
    if isinstance(operand, Value):
        return stored(operand.value)
    raise NotImplementedError(f"operand {operand} (infra/emulators/memory_table.py)")


def _name(path: Any) -> str:
    (name,) = path.path
    return str(name)


def _same(item: Item, left: Any, right: Any) -> bool:
    one = _operand(item, left)
    return one is not None and one == _operand(item, right)


def _ordered(item: Item, left: Any, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
    one, other = _operand(item, left), _operand(item, right)
    if one is None or other is None or one.keys() != other.keys():
        return False
    ((kind, content),) = one.items()
    return (
        compare(Decimal(content), Decimal(other[kind]))
        if kind == "N"
        else compare(content, other[kind])
    )


_TESTS: Mapping[str, Callable[..., bool]] = {
    "AND": lambda item, left, right: holds(left, item) and holds(right, item),
    "OR": lambda item, left, right: holds(left, item) or holds(right, item),
    "NOT": lambda item, negated: not holds(negated, item),
    "attribute_exists": lambda item, path: _operand(item, path) is not None,
    "attribute_not_exists": lambda item, path: _operand(item, path) is None,
    "=": _same,
    "<>": lambda item, left, right: not _same(item, left, right),
    "IN": lambda item, left, *among: any(_same(item, left, each) for each in among),
    "BETWEEN": lambda item, one, low, high: (
        _ordered(item, one, low, operator.ge) and _ordered(item, one, high, operator.le)
    ),
    **{
        sign: functools.partial(_ordered, compare=compare)
        for sign, compare in (
            ("<", operator.lt),
            ("<=", operator.le),
            (">", operator.gt),
            (">=", operator.ge),
        )
    },
}


# --- actions


def updated(item: Item, actions: Sequence[Action]) -> Item:
    """Return the item after PynamoDB's actions. Every action sees the item as
    it was before all of them."""
    names = [_name(action.values[0]) for action in actions]
    if len(set(names)) < len(names):
        raise invalid("Invalid UpdateExpression: Two document paths overlap with each other")
    if _KEY_NAMES.intersection(names):
        raise invalid(
            "One or more parameter values were invalid: Cannot update attribute. This attribute is "
            "part of the key"
        )
    made = dict(item)
    for name, action in zip(names, actions, strict=True):
        if isinstance(action, RemoveAction):
            made.pop(name, None)
        elif isinstance(action, SetAction):
            made[name] = _there(_operand(item, action.values[1]))
        elif isinstance(action, AddAction):
            made[name] = _sum(item.get(name, {"N": "0"}), _there(_operand(item, action.values[1])))
        else:
            raise NotImplementedError(f"action {action} (infra/emulators/memory_table.py)")
    return made


def _there(value: dict[str, Any] | None) -> dict[str, Any]:
    if value is None:
        raise invalid(
            "The provided expression refers to an attribute that does not exist in the item"
        )
    return value


def _sum(old: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    if old.keys() != {"N"} or added.keys() != {"N"}:
        raise invalid("An operand in the update expression has an incorrect data type")
    return {"N": _number(str(_SUMS.add(Decimal(old["N"]), Decimal(added["N"]))))}


LARGEST_PAGE = 1024 * 1024  # bytes that one Query or Scan reads
LARGEST_BATCH = 16 * 1024 * 1024  # bytes of a BatchGetItem response
# bytes of what a transaction sends: items, keys, values (without expressions)
LARGEST_TRANSACTION = 4 * 1024 * 1024
LONGEST_KEYS = (2048, 1024)  # bytes: partition key, sort key
_FAILED = "The conditional request failed"
_KEYS = (PARTITION_KEY, SORT_KEY)
_LAST = chr(0x10FFFF)

Key = tuple[str, str]
Change = tuple["_Rows", Key, Kept | None, Kept | None]  # before, after

_BOUNDS: Mapping[str, Callable[[Item], tuple[str, str]]] = {
    "#cluster = :cluster": lambda _: ("", _LAST),
    "#cluster = :cluster AND begins_with(#item, :prefix)": lambda given: (
        given[":prefix"]["S"],
        given[":prefix"]["S"] + _LAST,
    ),
    "#cluster = :cluster AND #item BETWEEN :prefix AND :below": lambda given: (
        given[":prefix"]["S"],
        given[":below"]["S"],
    ),
}
"""The store's key conditions: the first and the last sort key. Any other one is a KeyError."""


class MemoryTable(Table):
    """The store's table with a MemoryAccount as its client."""

    def arguments(self, cluster: str, item: str, **given: Any) -> Json:
        """See Table; conditions and actions stay objects."""
        keys = {PARTITION_KEY: {"S": cluster}, SORT_KEY: {"S": item}}
        made: Json = {
            "TableName": self.name,
            given.pop("key", "Key"): keys | given.pop("attributes", {}),
        }
        named = {"condition": "ConditionExpression", "actions": "UpdateExpression"}
        return made | {named[name]: value for name, value in given.items() if value is not None}


class _Rows:
    """Items of one table by partition key; a partition is in the order of the sort key."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Kept]] = {}
        self._order: dict[str, list[str]] = {}

    def get(self, key: Key) -> Kept | None:
        return self._items.get(key[0], {}).get(key[1])

    def set(self, key: Key, item: Kept | None) -> None:
        items, order = self._items.setdefault(key[0], {}), self._order.setdefault(key[0], [])
        if item is not None:
            if key[1] not in items:
                insort(order, key[1])
            items[key[1]] = item
        elif items.pop(key[1], None) is not None:
            del order[bisect_left(order, key[1])]

    def between(self, partition: str, low: str, high: str) -> list[Key]:
        order = self._order.get(partition, [])
        return [
            (partition, each) for each in order[bisect_left(order, low) : bisect_right(order, high)]
        ]

    def all(self) -> list[Key]:
        return [
            (partition, item)
            for partition in sorted(self._items)
            for item in self._order[partition]
        ]


class _Operation(NamedTuple):
    """The argument `model` of listeners."""

    name: str


class Listeners:
    """`client.meta.events`: handlers are called before a request is carried
    out, and with its response."""

    def __init__(self) -> None:
        self._emitter, self.any = HierarchicalEmitter(), False

    def register(self, event: str, handler: Callable[..., Any]) -> None:
        """Register a handler as in botocore, with `*` and prefixes."""
        self._emitter.register(event, handler)
        self.any = True

    def unregister(self, event: str, handler: Callable[..., Any]) -> None:
        self._emitter.unregister(event, handler)

    def emit(self, event: str, operation: str, **facts: Any) -> None:
        self._emitter.emit(f"{event}.dynamodb.{operation}", model=_Operation(operation), **facts)


class _Meta(NamedTuple):
    events: Listeners


class MemoryAccount:
    """The tables of one account, with the client's item methods that the
    store and its observers use.

    Thread-safe: one request at a time. Every read is strongly consistent. Raises ClientError as a
    client does. changes: number of requests so far that may have changed something.
    """

    def __init__(self) -> None:
        self.meta = _Meta(Listeners())
        self.changes = 0
        self._tables: dict[str, _Rows] = {}
        self._lock = threading.RLock()

    def create(self, table: str) -> None:
        """Create both tables of a store, unless they exist."""
        for name in (table, policy_table_of(table)):
            self._tables.setdefault(name, _Rows())

    def drop(self, table: str) -> None:
        for name in (table, policy_table_of(table)):
            del self._tables[name]

    def store(self, table: str, **settings: Any) -> Store:
        """Return a store on these tables, which are created if missing. settings: the
        other arguments of Store."""
        self.create(table)
        return Store(table, client=self, region="us-east-1", table=MemoryTable, **settings)

    def size_of(self, table: str, values: Item) -> int:
        """Return the bytes of the item with these keys, 0 if there is none. values:
        the keys, or a whole item."""
        with self._lock:
            found = self._rows(table).get(_key(values))
            return found.size if found else 0

    # --- the client's methods

    def get_item(self, **request: Any) -> Json:
        return self._answer("GetItem", self._get, request)

    def batch_get_item(self, **request: Any) -> Json:
        return self._answer("BatchGetItem", self._batch_get, request)

    def query(self, **request: Any) -> Json:
        return self._answer("Query", self._query, request)

    def scan(self, **request: Any) -> Json:
        return self._answer("Scan", self._scan, request)

    def put_item(self, **request: Any) -> Json:
        return self._answer(
            "PutItem", lambda given: self._write("Put", given), request, changes=True
        )

    def update_item(self, **request: Any) -> Json:
        return self._answer(
            "UpdateItem", lambda given: self._write("Update", given), request, changes=True
        )

    def delete_item(self, **request: Any) -> Json:
        return self._answer(
            "DeleteItem", lambda given: self._write("Delete", given), request, changes=True
        )

    def transact_write_items(self, **request: Any) -> Json:
        return self._answer("TransactWriteItems", self._transact, request, changes=True)

    def _answer(
        self,
        operation: str,
        carry_out: Callable[[Json], Json],
        request: Json,
        *,
        changes: bool = False,
    ) -> Json:
        events = self.meta.events
        if events.any:
            events.emit("provide-client-params", operation, params=request)
            events.emit("before-parameter-build", operation, params=request)
        with self._lock:
            self.changes += changes
            answer = carry_out(request)
        if events.any:
            events.emit("after-call", operation, parsed=answer)
        return answer

    # --- reading

    def _rows(self, table: str) -> _Rows:
        if table not in self._tables:
            raise refusal(
                "ResourceNotFoundException",
                f"Requested resource not found: Table: {table} not found",
            )
        return self._tables[table]

    def _get(self, request: Json) -> Json:
        found = self._rows(request["TableName"]).get(_key(request["Key"]))
        return {"Item": shown(found.item)} if found else {}

    def _batch_get(self, request: Json) -> Json:
        ((table, asked),) = request["RequestItems"].items()
        rows, keys = self._rows(table), [_key(each) for each in asked["Keys"]]
        if not 1 <= len(keys) <= ITEMS_PER_READ or len(set(keys)) < len(keys):
            raise invalid("Too many or no keys in a BatchGetItem call, or duplicates")
        items: list[Item] = []
        size = 0
        for at, key in enumerate(keys):
            found = rows.get(key)
            size += found.size if found else 0
            if size > LARGEST_BATCH:
                return {
                    "Responses": {table: items},
                    "UnprocessedKeys": {table: asked | {"Keys": asked["Keys"][at:]}},
                }
            items += [shown(found.item)] if found else []
        return {"Responses": {table: items}, "UnprocessedKeys": {}}

    def _query(self, request: Json) -> Json:
        rows, given = self._rows(request["TableName"]), request["ExpressionAttributeValues"]
        low, high = _BOUNDS[request["KeyConditionExpression"]](given)
        if low > high:
            raise invalid(
                "Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be "
                "greater "
                "than or equal to lower bound"
            )
        keys = rows.between(given[":cluster"]["S"], low, high)
        return _page(rows, keys, request, forward=request.get("ScanIndexForward", True))

    def _scan(self, request: Json) -> Json:
        rows = self._rows(request["TableName"])
        return _page(rows, rows.all(), request, forward=True)

    # --- writing

    def _write(self, kind: str, request: Json) -> Json:
        change = self._change(kind, request)
        _apply([change])
        after = change[3]
        return (
            {"Attributes": shown(after.item)}
            if request.get("ReturnValues") == "ALL_NEW" and after
            else {}
        )

    def _change(self, kind: str, arguments: Json) -> Change:
        """Return a write's effect without applying it. Raises ClientError if the condition is false
        or DynamoDB rejects the write."""
        rows, given = self._rows(arguments["TableName"]), arguments.get("Key") or arguments["Item"]
        key = _key(given)
        before = rows.get(key)
        condition = arguments.get("ConditionExpression")
        if condition is not None and not holds(condition, before.item if before else {}):
            shows = before and arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            raise refusal(
                "ConditionalCheckFailedException",
                _FAILED,
                **({"Item": shown(before.item)} if before and shows else {}),
            )
        if kind == "ConditionCheck":
            return rows, key, before, before
        if kind == "Delete":
            return rows, key, before, None
        if kind == "Put":
            return rows, key, before, kept(given)
        base = (
            before.item
            if before
            else {name: {"S": text} for name, text in zip(_KEYS, key, strict=True)}
        )
        return rows, key, before, kept(updated(base, arguments.get("UpdateExpression", ())))

    def _transact(self, request: Json) -> Json:
        parts = [part for action in request["TransactItems"] for part in action.items()]
        keys = [(part["TableName"], *_key(part.get("Key") or part["Item"])) for _, part in parts]
        if not 1 <= len(parts) <= ITEMS_PER_TRANSACTION or len(set(keys)) < len(keys):
            raise invalid(
                "Too many or no actions in a transaction, or multiple operations on one item"
            )
        for table, _, _ in keys:
            self._rows(table)
        if sum(_sent_size(part) for _, part in parts) > LARGEST_TRANSACTION:
            raise invalid("Transaction payload size cannot exceed 4MB")
        changes: list[Change] = []
        reasons: list[Json] = []
        for kind, part in parts:
            try:
                changes.append(self._change(kind, part))
                reasons.append({"Code": "None"})
            except ClientError as error:
                reasons.append(_reason(error.response))
        if len(changes) < len(parts):
            codes = ", ".join(reason["Code"] for reason in reasons)
            raise refusal(
                "TransactionCanceledException",
                (
                    "Transaction cancelled, please refer cancellation reasons for specific "
                    f"reasons [{codes}]"
                ),
                CancellationReasons=reasons,
            )
        _apply(changes)
        return {}


def _key(values: Item) -> Key:
    partition, item = (
        values.get(PARTITION_KEY, {}).get("S", ""),
        values.get(SORT_KEY, {}).get("S", ""),
    )
    for text, longest in zip((partition, item), LONGEST_KEYS, strict=True):
        if not 1 <= len(text if text.isascii() else text.encode()) <= longest:
            raise invalid(
                "One or more parameter values were invalid: a key is missing, empty or too long"
            )
    return partition, item


def _sent_size(part: Json) -> int:
    """Return the bytes that a write of a transaction sends. What an update or a
    deletion finds does not count."""
    size = item_size(part.get("Key") or part["Item"])
    for action in part.get("UpdateExpression", ()):
        size += sum(
            item_size({"": operand.value})
            for operand in action.values
            if isinstance(operand, Value)
        )
    return size


def _page(rows: _Rows, keys: Sequence[Key], request: Json, *, forward: bool) -> Json:
    """Return items of these keys, from ExclusiveStartKey on, up to the limit or a megabyte."""
    ordered = iter(keys if forward else reversed(keys))
    if start := request.get("ExclusiveStartKey"):
        after = _key(start)
        ordered = (key for key in ordered if (key > after if forward else key < after))
    items, last = _taken(rows, ordered, request.get("Limit"))
    made: Json = {
        "Items": [shown(item) for item in items],
        "Count": len(items),
        "ScannedCount": len(items),
    }
    return made | ({"LastEvaluatedKey": {name: dict(last[name]) for name in _KEYS}} if last else {})


def _taken(rows: _Rows, keys: Iterator[Key], limit: int | None) -> tuple[list[Item], Item | None]:
    items: list[Item] = []
    size = 0
    for key in keys:
        found = rows.get(key)
        assert found is not None
        size += found.size
        if items and size > LARGEST_PAGE:
            return items, items[-1]
        items.append(found.item)
        if len(items) == limit:
            return items, items[-1]
    return items, None


def _reason(response: Any) -> Json:
    message = response["Error"]["Message"]
    if response["Error"]["Code"] != "ConditionalCheckFailedException":
        return {"Code": "ValidationError", "Message": message}
    item = {"Item": response["Item"]} if "Item" in response else {}
    return {"Code": "ConditionalCheckFailed", "Message": message, **item}


def _apply(changes: Sequence[Change]) -> None:
    for rows, key, before, after in changes:
        if after is not before:
            rows.set(key, after)
