"""The operations on the tables of one account, each a request in and an answer out, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from infra.emulators.dynamodb.conditions import KeyCondition, key_condition
from infra.emulators.dynamodb.errors import Refusal, invalid, no_table
from infra.emulators.dynamodb.expressions import check_placeholders
from infra.emulators.dynamodb.partitions import Page, Partitions
from infra.emulators.dynamodb.transactions import transact
from infra.emulators.dynamodb.values import Item, comparable, shown_item, stored
from infra.emulators.dynamodb.writes import carry_out, keep, prepare

MOST_KEYS = 100  # of one BatchGetItem
LARGEST_BATCH = 16 * 1024 * 1024  # bytes of its answer
_READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan", "DescribeTable", "DescribeTimeToLive"})
_LAST = chr(0x10FFFF)

Json = dict[str, Any]


class _Table(msgspec.Struct):
    """One table. definition: as CreateTable had it. time_to_live: the attribute whose instant lets a row go, or ""."""

    definition: Json
    rows: Partitions
    time_to_live: str = ""


class Tables:
    """Thread-safe: requests wait for each other, as if each happened at one instant."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._lock = threading.RLock()
        self.changes = 0  # requests so far that may have changed something
        self._operations: Mapping[str, Callable[[Json], Json]] = {
            "GetItem": self._get,
            "BatchGetItem": self._batch_get,
            "Query": self._query,
            "Scan": self._scan,
            "PutItem": lambda request: self._write("Put", request),
            "UpdateItem": lambda request: self._write("Update", request),
            "DeleteItem": lambda request: self._write("Delete", request),
            "TransactWriteItems": self._transact,
            "CreateTable": self._create,
            "DeleteTable": self._delete,
            "DescribeTable": self._describe,
            "UpdateTimeToLive": self._set_time_to_live,
            "DescribeTimeToLive": self._describe_time_to_live,
        }

    def operate(self, operation: str, request: Json) -> Json:
        """Answer one request. Raises Refusal; NotImplementedError for what this emulation does not know."""
        left = request.keys() - KNOWN[operation]
        if left:
            raise NotImplementedError(
                f"{operation}: {', '.join(sorted(left))} is not emulated (infra/emulators/dynamodb)"
            )
        with self._lock:
            if operation not in _READS:
                self.changes += 1
            return self._operations[operation](request)

    def size_of(self, table: str, values: Json) -> int:
        """Bytes of the row that has these keys, 0 where there is none. values: the keys, or a whole row."""
        with self._lock:
            kept = self._named(table).get(self._named(table).key_of(values))
            return kept.size if kept else 0

    def expire(self, now: float) -> int:
        """Time to live: take away every row whose time was up by now (epoch seconds); how many."""
        with self._lock:
            self.changes += 1
            gone = [
                (table, key)
                for table in self._tables.values()
                for key, item in table.rows.all()
                if "N" in (until := item.get(table.time_to_live, {})) and float(until["N"]) <= now
            ]
            for table, key in gone:
                table.rows.drop(key)
            return len(gone)

    # --- tables

    def _table(self, name: str) -> _Table:
        found = self._tables.get(name)
        if found is None:
            raise no_table(name)
        return found

    def _named(self, name: str) -> Partitions:
        return self._table(name).rows

    def _create(self, request: Json) -> Json:
        name = request["TableName"]
        types = {each["AttributeName"]: each["AttributeType"] for each in request["AttributeDefinitions"]}
        keys = {each["KeyType"]: each["AttributeName"] for each in request["KeySchema"]}
        if name in self._tables:
            raise Refusal("ResourceInUseException", f"Table already exists: {name}")
        if set(keys) != {"HASH", "RANGE"} or any(types.get(key) != "S" for key in keys.values()):
            raise NotImplementedError("only tables with a partition key and a sort key, both strings, are emulated")
        self._tables[name] = _Table(request, Partitions(keys["HASH"], keys["RANGE"]))
        return {"TableDescription": self._described(name)}

    def _delete(self, request: Json) -> Json:
        described = self._described(request["TableName"])
        del self._tables[request["TableName"]]
        return {"TableDescription": described | {"TableStatus": "DELETING"}}

    def _describe(self, request: Json) -> Json:
        return {"Table": self._described(request["TableName"])}

    def _described(self, name: str) -> Json:
        table = self._table(name)
        shown = {key: table.definition[key] for key in ("TableName", "AttributeDefinitions", "KeySchema")}
        billing = {"BillingMode": table.definition.get("BillingMode", "PROVISIONED")}
        return shown | {"TableStatus": "ACTIVE", "BillingModeSummary": billing}

    def _set_time_to_live(self, request: Json) -> Json:
        wanted = request["TimeToLiveSpecification"]
        self._table(request["TableName"]).time_to_live = wanted["AttributeName"] if wanted["Enabled"] else ""
        return {"TimeToLiveSpecification": wanted}

    def _describe_time_to_live(self, request: Json) -> Json:
        name = self._table(request["TableName"]).time_to_live
        told = {"TimeToLiveStatus": "ENABLED", "AttributeName": name} if name else {"TimeToLiveStatus": "DISABLED"}
        return {"TimeToLiveDescription": told}

    # --- reading

    def _get(self, request: Json) -> Json:
        rows = self._named(request["TableName"])
        kept = rows.get(rows.key(request["Key"]))
        return {"Item": shown_item(kept.item)} if kept else {}

    def _batch_get(self, request: Json) -> Json:
        wanted = [(table, key) for table, asked in request["RequestItems"].items() for key in asked["Keys"]]
        if not 1 <= len(wanted) <= MOST_KEYS:
            raise invalid(
                "Too many items requested for the BatchGetItem call"
                if wanted
                else "The list of keys in RequestItems for BatchGetItem is required"
            )
        known = {(table, self._named(table).key(key)) for table, key in wanted}
        if len(known) < len(wanted):
            raise invalid("Provided list of item keys contains duplicates")
        answers: Json = {table: [] for table in request["RequestItems"]}
        left: Json = {}
        total = 0
        for table, key in wanted:
            kept = self._named(table).get(self._named(table).key(key))
            total += kept.size if kept else 0
            if total > LARGEST_BATCH:
                asked = {name: value for name, value in request["RequestItems"][table].items() if name != "Keys"}
                left.setdefault(table, {**asked, "Keys": []})["Keys"].append(key)
            elif kept:
                answers[table].append(shown_item(kept.item))
        return {"Responses": answers, "UnprocessedKeys": left}

    def _query(self, request: Json) -> Json:
        rows = self._named(request["TableName"])
        wanted = key_condition(request["KeyConditionExpression"])
        names = request.get("ExpressionAttributeNames")
        values = request.get("ExpressionAttributeValues")
        check_placeholders(wanted.names, wanted.values, names, values, "KeyConditionExpression")
        given = {name: stored(value) for name, value in (values or {}).items()}
        if (names or {}).get(wanted.partition, wanted.partition) != rows.partition_key:
            raise invalid(f"Query condition missed key schema element: {rows.partition_key}")
        if wanted.sort and (names or {}).get(wanted.sort, wanted.sort) != rows.sort_key:
            raise invalid("Query key condition not supported")
        partition = given[wanted.of].get("S")
        if partition is None:
            raise _wrong_type()
        found = _in_range(rows, partition, wanted, given)
        forward = request.get("ScanIndexForward", True)
        if start := request.get("ExclusiveStartKey"):
            after = rows.key(start)[1]
            found = [sort for sort in found if (sort > after if forward else sort < after)]
        keys = [(partition, sort) for sort in (found if forward else reversed(found))]
        return _answer(rows, rows.page(keys, _limit(request)))

    def _scan(self, request: Json) -> Json:
        rows = self._named(request["TableName"])
        keys = [key for key, _ in rows.all()]
        if start := request.get("ExclusiveStartKey"):
            keys = [key for key in keys if key > rows.key(start)]
        answer = _answer(rows, rows.page(keys, _limit(request)))
        if request.get("Select") == "COUNT":
            del answer["Items"]
        return answer

    # --- writing

    def _write(self, kind: str, request: Json) -> Json:
        rows = self._named(request["TableName"])
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in ("NONE", "ALL_OLD", *(("ALL_NEW",) if kind == "Update" else ())):
            if kind == "Update":
                raise NotImplementedError(f"ReturnValues {wanted} is not emulated (infra/emulators/dynamodb)")
            raise invalid("Return values set to invalid value")
        prepared = prepare(kind, request, rows)
        outcome = carry_out(prepared, rows)
        keep(prepared, outcome, rows)
        shown = {"ALL_OLD": outcome.old, "ALL_NEW": outcome.new}.get(wanted)
        return {"Attributes": shown_item(shown)} if shown is not None else {}

    def _transact(self, request: Json) -> Json:
        transact(request["TransactItems"], self._named)
        return {}


def _wrong_type() -> Exception:
    return invalid("One or more parameter values were invalid: Condition parameter type does not match schema type")


def _in_range(rows: Partitions, partition: str, wanted: KeyCondition, given: Item) -> list[str]:
    if not wanted.how:
        return rows.range(partition, "", _LAST)
    if any("S" not in given[bound] for bound in wanted.bounds):
        raise _wrong_type()
    bounds = [str(comparable(given[bound])) for bound in wanted.bounds]
    if wanted.how == "BETWEEN":
        low, high = bounds
        if low > high:
            raise invalid(
                "Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be greater "
                "than or equal to lower bound"
            )
        return rows.range(partition, low, high)
    (bound,) = bounds
    if wanted.how == "begins_with":
        return rows.beginning(partition, bound)
    if wanted.how in ("<", "<="):
        return rows.range(partition, "", bound, with_high=wanted.how == "<=")
    if wanted.how in (">", ">="):
        return [sort for sort in rows.range(partition, bound, _LAST) if wanted.how == ">=" or sort != bound]
    return rows.range(partition, bound, bound)


def _limit(request: Json) -> int | None:
    limit: int | None = request.get("Limit")
    if limit is not None and limit < 1:
        raise invalid(
            "1 validation error detected: Value at 'limit' failed to satisfy constraint: "
            "Member must have value greater than or equal to 1"
        )
    return limit


def _answer(rows: Partitions, page: Page) -> Json:
    made: Json = {
        "Items": [shown_item(item) for item in page.items],
        "Count": len(page.items),
        "ScannedCount": len(page.items),
    }
    if page.more:
        made["LastEvaluatedKey"] = {key: dict(page.items[-1][key]) for key in (rows.partition_key, rows.sort_key)}
    return made


_WRITE = frozenset(
    {
        "TableName",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValues",
        "ReturnValuesOnConditionCheckFailure",
        "ReturnConsumedCapacity",
    }
)
#: What each operation understands of its request; reads are consistent whether they ask for it or not.
KNOWN: Mapping[str, frozenset[str]] = {
    "GetItem": frozenset({"TableName", "Key", "ConsistentRead"}),
    "BatchGetItem": frozenset({"RequestItems"}),
    "Query": frozenset(
        {
            "TableName",
            "KeyConditionExpression",
            "ExpressionAttributeNames",
            "Limit",
            "ConsistentRead",
            "ExpressionAttributeValues",
            "ScanIndexForward",
            "ExclusiveStartKey",
        }
    ),
    "Scan": frozenset({"TableName", "ConsistentRead", "ExclusiveStartKey", "Limit", "Select"}),
    "PutItem": _WRITE | {"Item"},
    "UpdateItem": _WRITE | {"Key", "UpdateExpression"},
    "DeleteItem": _WRITE | {"Key"},
    "TransactWriteItems": frozenset({"TransactItems"}),
    "CreateTable": frozenset({"TableName", "AttributeDefinitions", "KeySchema", "BillingMode"}),
    "DeleteTable": frozenset({"TableName"}),
    "DescribeTable": frozenset({"TableName"}),
    "UpdateTimeToLive": frozenset({"TableName", "TimeToLiveSpecification"}),
    "DescribeTimeToLive": frozenset({"TableName"}),
}
