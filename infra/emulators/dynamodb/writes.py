"""What a write would make of a row: its condition, its update, its limits. Nothing in here stores anything.

A transaction must know what every one of its writes comes to before any of them happens, and a single write is the
same thing alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infra.emulators.dynamodb.conditions import WHAT, condition
from infra.emulators.dynamodb.errors import bad_value, condition_failed, invalid
from infra.emulators.dynamodb.expressions import Scope, check_placeholders
from infra.emulators.dynamodb.partitions import Partitions
from infra.emulators.dynamodb.updates import apply, update
from infra.emulators.dynamodb.values import LARGEST_ITEM, Item, item_size, shown_item, stored

LONGEST_PARTITION_KEY, LONGEST_SORT_KEY = 2048, 1024  # bytes
_NONE: dict[str, Any] = {}


class Prepared(NamedTuple):
    """kind: Put, Update, Delete or ConditionCheck. arguments: as the API has them, values as they would be kept."""

    kind: str
    arguments: dict[str, Any]
    key: tuple[str, str]
    values: dict[str, Any]


class Outcome(NamedTuple):
    """old, new: the row before and after, None where there is none. A check leaves it as it is."""

    old: Item | None
    new: Item | None


def prepare(kind: str, arguments: dict[str, Any], rows: Partitions) -> Prepared:
    """Read a write; ValidationException where DynamoDB would not even look at the row."""
    if kind == "Put":
        arguments = arguments | {"Item": {name: stored(value) for name, value in arguments["Item"].items()}}
        key = rows.key_of(arguments["Item"])
    else:
        key = rows.key(arguments["Key"])
    for text, longest, which in ((key[0], LONGEST_PARTITION_KEY, "hash"), (key[1], LONGEST_SORT_KEY, "range")):
        if len(text.encode()) > longest:
            raise bad_value(f"Size of {which}key has exceeded the maximum size limit of{longest} bytes")
    _check_expressions(arguments)
    given = arguments.get("ExpressionAttributeValues") or _NONE
    return Prepared(kind, arguments, key, {name: stored(value) for name, value in given.items()})


def _check_expressions(arguments: dict[str, Any]) -> None:
    names: set[str] = set()
    values: set[str] = set()
    used = [
        read(arguments[what])
        for what, read in (("ConditionExpression", condition), ("UpdateExpression", update))
        if what in arguments
    ]
    for each in used:
        names |= each.names
        values |= each.values
    given = {what: arguments.get(what) for what in ("ExpressionAttributeNames", "ExpressionAttributeValues")}
    if not used and any(each is not None for each in given.values()):
        what = "Names" if given["ExpressionAttributeNames"] is not None else "Values"
        raise invalid(f"ExpressionAttribute{what} can only be specified when using expressions")
    check_placeholders(
        names,
        values,
        given["ExpressionAttributeNames"],
        given["ExpressionAttributeValues"],
        WHAT if "UpdateExpression" not in arguments else "UpdateExpression",
    )


def carry_out(prepared: Prepared, rows: Partitions) -> Outcome:
    """What it would come to. ConditionalCheckFailedException, ValidationException."""
    arguments = prepared.arguments
    kept = rows.get(prepared.key)
    old = kept.item if kept else None
    scope = Scope(old if old is not None else {}, arguments.get("ExpressionAttributeNames") or _NONE, prepared.values)
    if "ConditionExpression" in arguments and not condition(arguments["ConditionExpression"]).holds(scope):
        wanted = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and old is not None
        raise condition_failed(shown_item(old) if wanted and old is not None else None)
    if prepared.kind == "ConditionCheck":
        return Outcome(old, old)
    if prepared.kind == "Delete":
        return Outcome(old, None)
    if prepared.kind == "Put":
        return Outcome(old, _fitting(arguments["Item"], "Item size has exceeded the maximum allowed size"))
    new: Item = old if old is not None else {name: stored(value) for name, value in arguments["Key"].items()}
    if "UpdateExpression" in arguments:
        made = update(arguments["UpdateExpression"])
        new = apply(made, scope._replace(item=new), rows.keys)
    return Outcome(old, _fitting(new, "Item size to update has exceeded the maximum allowed size"))


def _fitting(item: Item, message: str) -> Item:
    if item_size(item) > LARGEST_ITEM:
        raise invalid(message)
    return item


def keep(prepared: Prepared, outcome: Outcome, rows: Partitions) -> None:
    """Let it happen."""
    if prepared.kind == "ConditionCheck":
        return
    if outcome.new is None:
        rows.drop(prepared.key)
    else:
        rows.put(prepared.key, outcome.new)
