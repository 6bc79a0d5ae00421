"""TransactWriteItems: all or nothing, with a reason per item where it is nothing.

No two requests run at once in here, so nothing ever conflicts; a test that wants TransactionConflict injects it
(infra/emulators/aws_faults.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from infra.emulators.dynamodb.errors import REFUSED, Refusal, bad_value, invalid
from infra.emulators.dynamodb.partitions import Partitions
from infra.emulators.dynamodb.values import item_size
from infra.emulators.dynamodb.writes import Outcome, Prepared, carry_out, keep, prepare

MOST_ACTIONS = 100
LARGEST = 4 * 1024 * 1024  # bytes of all rows together

Named = Callable[[str], Partitions]


def transact(actions: Sequence[dict[str, Any]], named: Named) -> None:
    """All of them or none. TransactionCanceledException, ValidationException."""
    if not 1 <= len(actions) <= MOST_ACTIONS:
        bound = f"less than or equal to {MOST_ACTIONS}" if actions else "greater than or equal to 1"
        raise invalid(
            "1 validation error detected: Value at 'transactItems' failed to satisfy constraint: "
            f"Member must have length {bound}"
        )
    todo = [_prepared(action, named) for action in actions]
    keys = [(prepared.arguments["TableName"], *prepared.key) for prepared, _ in todo]
    if len(set(keys)) < len(keys):
        raise invalid("Transaction request cannot include multiple operations on one item")
    outcomes: list[Outcome] = []
    reasons: list[dict[str, Any]] = []
    for prepared, rows in todo:
        try:
            outcomes.append(carry_out(prepared, rows))
            reasons.append({"Code": "None"})
        except Refusal as refusal:
            reasons.append(_reason(refusal))
    if len(outcomes) < len(todo):
        codes = ", ".join(reason["Code"] for reason in reasons)
        raise Refusal(
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
            CancellationReasons=reasons,
        )
    if sum(_written(prepared, outcome) for (prepared, _), outcome in zip(todo, outcomes, strict=True)) > LARGEST:
        raise invalid("Transaction request size has exceeded the maximum allowed size of 4 MB")
    for (prepared, rows), outcome in zip(todo, outcomes, strict=True):
        keep(prepared, outcome, rows)


def _prepared(action: dict[str, Any], named: Named) -> tuple[Prepared, Partitions]:
    if len(action) != 1:
        raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
    ((kind, arguments),) = action.items()
    if kind == "ConditionCheck" and not arguments.get("ConditionExpression"):
        raise bad_value("ConditionCheck needs a ConditionExpression")
    rows = named(arguments["TableName"])
    return prepare(kind, arguments, rows), rows


def _reason(refusal: Refusal) -> dict[str, Any]:
    if refusal.code == "ConditionalCheckFailedException":
        return {"Code": "ConditionalCheckFailed", "Message": REFUSED, **refusal.more}
    return {"Code": "ValidationError", "Message": refusal.message}


def _written(prepared: Prepared, outcome: Outcome) -> int:
    if prepared.kind in ("ConditionCheck", "Delete") or outcome.new is None:
        return 0
    return item_size(outcome.new)
