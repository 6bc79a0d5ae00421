"""The only module that calls DynamoDB: builds requests from PynamoDB's models, sends them,
retries, converts errors.

PynamoDB provides the rows and the conditions. A botocore client sends them, because only botocore
can request the old item when a condition fails; that item shows which writer caused the refusal.

Throttling and conflicting transactions are retried a bounded number of times with full jitter. A
failed condition is a result and is never retried here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.connection.base import MetaTable
from pynamodb.connection.table import TableConnection
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from chalicelib.aws import session
from chalicelib.store.codec import NOT_DECODED
from chalicelib.store.errors import RowUnreadable, StoreError, StoreThrottled, StoreUnavailable
from chalicelib.store.tables import PARTITION_KEY, SORT_KEY, RowKey, definition

R = TypeVar("R", bound=RowKey)
T = TypeVar("T")
Raw = dict[str, Any]  # an item as DynamoDB sends it: {"owner": {"S": "…"}}

CONNECT_SECONDS, READ_SECONDS = 2, 5
ATTEMPTS = 6  # attempts; botocore repeats each once on a network error
LONGEST_ATTEMPT = 2 * (CONNECT_SECONDS + READ_SECONDS)  # seconds, with botocore's repetition
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0  # seconds; the wait is uniform between 0 and the bound
ITEMS_PER_READ = 100  # BatchGetItem's limit
ITEMS_PER_TRANSACTION = 100
BYTES_PER_TRANSACTION = 3_500_000  # DynamoDB's limit is 4 MB

_BUSY = frozenset(
    {
        "TransactionConflictException",
        "TransactionInProgressException",
        "ThrottlingException",
        "Throttling",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "LimitExceededException",
    }
)
_CONFLICTS = frozenset({"TransactionConflictException", "TransactionInProgressException"})
_CONFLICT_REASON = "TransactionConflict"
_BUSY_REASONS = frozenset({_CONFLICT_REASON, "ThrottlingError", "ProvisionedThroughputExceeded"})
_METHODS = {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}


class ConditionFailed(StoreError):
    """A condition failed. old: the row that was found, empty if there was
    none. Never leaves the store."""

    published_name = "Refused"

    def __init__(self, old: Raw) -> None:
        super().__init__("condition failed")
        self.old = old


class TransactionCancelled(StoreError):
    """Conditions of a transaction failed. refused: position in the transaction -> row
    found there, empty if none.

    Never leaves the store.
    """

    published_name = "Cancelled"

    def __init__(self, refused: dict[int, Raw]) -> None:
        super().__init__("transaction cancelled")
        self.refused = refused


class TransactionConflict(StoreError):
    """Another request was writing one of the rows at the same time; nothing was
    written. Never leaves the store."""

    def __init__(self) -> None:
        super().__init__("transaction in conflict with another request")


@contextmanager
def readable(cluster: str, item: str) -> Iterator[None]:
    """Convert every error of decoding a row into RowUnreadable, whatever the row contains."""
    try:
        yield
    except NOT_DECODED as error:
        why = f"{type(error).__name__}: {error}"
        raise RowUnreadable(
            f"{cluster}: the row {item[:60]} cannot be read ({why[:100]})"
        ) from error


def value_or_error(read: Callable[[], T]) -> T | StoreError:
    """Return what `read` returns, or the StoreError that it raises: a row that cannot be read
    concerns its own cluster only."""
    try:
        return read()
    except StoreError as error:
        return error


def row_of(model: type[R], raw: Raw) -> R:
    """Return the row in an item. Raises RowUnreadable for attributes of other types."""
    with readable(*(raw.get(key, {}).get("S", "") for key in (PARTITION_KEY, SORT_KEY))):
        return model.from_raw_data(raw)


class Write(NamedTuple):
    """One write, single or in a transaction. kind: Put, Update, Delete or ConditionCheck."""

    kind: str
    arguments: dict[str, Any]

    @property
    def item(self) -> str:
        """Return the item of the row."""
        key: str = (self.arguments.get("Key") or self.arguments["Item"])[SORT_KEY]["S"]
        return key

    @property
    def size(self) -> int:
        """Return its approximate size in bytes."""
        return 500 + sum(
            len(part)
            for value in self.arguments.get("Item", {}).values()
            for part in value.values()
        )


class Table:
    """One DynamoDB table.

    sleep, chance: how retries wait, and their jitter (0 ≤ chance() < 1). client: a botocore client
    for DynamoDB to be used instead of a new one. wrap: wraps the client, for injecting faults.
    """

    def __init__(
        self,
        name: str,
        *,
        region: str | None,
        endpoint: str | None,
        sleep: Callable[[float], None],
        chance: Callable[[], float],
        client: Any = None,
        wrap: Callable[[Any], Any] = lambda client: client,
    ) -> None:
        self.name = name
        self._connection = TableConnection(name, meta_table=MetaTable(definition(name)))
        try:
            self.client = client or session.client(
                "dynamodb",
                region=region,
                endpoint=endpoint,
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"mode": "standard", "total_max_attempts": 2},
                # PynamoDB builds the requests; validation would cost time
                parameter_validation=False,
            )
        except BotoCoreError as error:
            raise StoreUnavailable(str(error)) from error
        self._client, self._sleep, self._chance = wrap(self.client), sleep, chance

    # --- reading, strongly consistent unless a caller requests less

    def get(self, model: type[R], cluster: str, item: str, *, consistent: bool = True) -> R | None:
        """Return one row, or None. Raises RowUnreadable."""
        raw = self.find(cluster, item, consistent=consistent)
        return row_of(model, raw) if raw else None

    def find(self, cluster: str, item: str, *, consistent: bool = True) -> Raw | None:
        """Return one row as it is stored, or None."""
        key = {PARTITION_KEY: {"S": cluster}, SORT_KEY: {"S": item}}
        return self._send(
            "get_item", {"TableName": self.name, "Key": key, "ConsistentRead": consistent}
        ).get("Item")

    def get_many(
        self, keys: Sequence[tuple[str, str]], *, consistent: bool = True
    ) -> dict[tuple[str, str], Raw]:
        """Return rows by (cluster, item); those that do not exist are omitted."""
        rows: dict[tuple[str, str], Raw] = {}
        todo = [
            {PARTITION_KEY: {"S": cluster}, SORT_KEY: {"S": item}}
            for cluster, item in dict.fromkeys(keys)
        ]
        empty_answers = 0
        while todo:
            page, todo = todo[:ITEMS_PER_READ], todo[ITEMS_PER_READ:]
            request = {self.name: {"Keys": page, "ConsistentRead": consistent}}
            answer = self._send("batch_get_item", {"RequestItems": request})
            page_rows = answer.get("Responses", {}).get(self.name, [])
            rows |= {(raw[PARTITION_KEY]["S"], raw[SORT_KEY]["S"]): raw for raw in page_rows}
            unprocessed = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
            empty_answers = empty_answers + 1 if unprocessed and not page_rows else 0
            if empty_answers:
                self._wait(empty_answers, "reading rows")
            todo += unprocessed
        return rows

    def query(
        self,
        cluster: str,
        prefix: str,
        *,
        newest_first: bool = False,
        limit: int | None = None,
        below: str = "",
        consistent: bool = True,
    ) -> Iterator[Raw]:
        """Return rows of the cluster whose item begins with prefix, in the order of items.

        below: an upper bound that begins with prefix, too; items after it are
        neither read nor paid for.
        """
        request: dict[str, Any] = {
            "TableName": self.name,
            "ConsistentRead": consistent,
            "ScanIndexForward": not newest_first,
            **_key_condition(cluster, prefix, below),
        }
        while True:
            answer = self._send("query", request | ({"Limit": limit} if limit else {}))
            rows = answer.get("Items", [])
            yield from rows
            limit = limit and limit - len(rows)
            last = answer.get("LastEvaluatedKey")
            if not last or limit == 0:
                return
            request["ExclusiveStartKey"] = last

    # --- building writes

    def put(self, row: RowKey, condition: Condition | None = None) -> Write:
        """Build a write of the whole row."""
        values = row.serialize()
        cluster, item = values.pop(PARTITION_KEY)["S"], values.pop(SORT_KEY)["S"]
        return Write(
            "Put", self.arguments(cluster, item, key="Item", attributes=values, condition=condition)
        )

    def update(
        self, cluster: str, item: str, actions: Sequence[Action], condition: Condition | None = None
    ) -> Write:
        """Build a write of some attributes of a row, which is created if it does not exist."""
        return Write(
            "Update", self.arguments(cluster, item, actions=list(actions), condition=condition)
        )

    def delete(self, cluster: str, item: str, condition: Condition | None = None) -> Write:
        """Build the deletion of a row."""
        return Write("Delete", self.arguments(cluster, item, condition=condition))

    def check(self, cluster: str, item: str, condition: Condition) -> Write:
        """Build a condition check: it writes nothing, but the transaction fails if the
        condition does not hold."""
        return Write("ConditionCheck", self.arguments(cluster, item, condition=condition))

    def arguments(self, cluster: str, item: str, **parts: Any) -> dict[str, Any]:
        """Arguments of one write, with conditions and actions as DynamoDB's expressions. The
        in-memory table of infra/emulators overrides this method, because it applies conditions and
        actions without expressions."""
        arguments: dict[str, Any] = self._connection.get_operation_kwargs(cluster, item, **parts)
        return arguments

    # --- sending writes

    def write(self, write: Write, attempts: int = ATTEMPTS) -> Raw:
        """Send one write; an Update returns the new row. attempts: while the table is busy. Raises
        ConditionFailed with the row that was found."""
        extra = {"ReturnValues": "ALL_NEW"} if write.kind == "Update" else {}
        answer = self._send(_METHODS[write.kind], _with_old_row(write) | extra, attempts)
        attributes: Raw = answer.get("Attributes", {})
        return attributes

    def transact(self, writes: Sequence[Write], *, repeat_conflicts: bool = True) -> None:
        """Write all of them or none. repeat_conflicts: False for a caller that reads again after a
        conflict, because another process may be doing the same. Raises TransactionCancelled with
        the rows that were found, and TransactionConflict if conflicts are not repeated."""
        items = [{write.kind: _with_old_row(write)} for write in writes]
        self._send(
            "transact_write_items", {"TransactItems": items}, repeat_conflicts=repeat_conflicts
        )

    def fits(self, writes: Sequence[Write]) -> bool:
        """Return whether they fit into one transaction."""
        return (
            len(writes) <= ITEMS_PER_TRANSACTION
            and sum(write.size for write in writes) <= BYTES_PER_TRANSACTION
        )

    # --- the wire

    def wait_for_others(self, attempts: int) -> None:
        """Wait as before the next attempt of a request, after that many. Raises
        StoreThrottled after too many."""
        self._wait(attempts, "conflicting transactions")

    def _send(
        self,
        method: str,
        arguments: dict[str, Any],
        most: int = ATTEMPTS,
        *,
        repeat_conflicts: bool = True,
    ) -> dict[str, Any]:
        attempts = 0
        while True:
            try:
                answer: dict[str, Any] = getattr(self._client, method)(**arguments)
            except ClientError as error:
                if not repeat_conflicts and _is_conflict(error):
                    raise TransactionConflict from error
                if not _is_busy(error):
                    raise _store_error(error) from error
                attempts += 1
                self._wait(attempts, f"{method}: {error.response['Error'].get('Code', '')}", most)
            except BotoCoreError as error:
                raise StoreUnavailable(str(error)) from error
            else:
                return answer

    def _wait(self, attempts: int, what: str, most: int = ATTEMPTS) -> None:
        if attempts >= most:
            raise StoreThrottled(f"{what}, {attempts} times")
        self._sleep(self._chance() * min(LONGEST_WAIT, FIRST_WAIT * 2**attempts))


def _with_old_row(write: Write) -> dict[str, Any]:
    """Return its arguments; where it has a condition, they request the row that a
    failed condition has found."""
    if "ConditionExpression" not in write.arguments:
        return write.arguments
    return write.arguments | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def _key_condition(cluster: str, prefix: str, below: str) -> dict[str, Any]:
    names, values = {"#cluster": PARTITION_KEY}, {":cluster": {"S": cluster}}
    condition = "#cluster = :cluster"
    if prefix:
        names["#item"], values[":prefix"] = SORT_KEY, {"S": prefix}
        condition += (
            " AND #item BETWEEN :prefix AND :below" if below else " AND begins_with(#item, :prefix)"
        )
    if below:
        values[":below"] = {"S": below}
    return {
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def _is_busy(error: ClientError) -> bool:
    """Return whether a retry can help. A cancelled transaction in which a condition failed
    as well will fail again."""
    code = error.response["Error"].get("Code", "")
    if code != "TransactionCanceledException":
        return code in _BUSY
    reasons = _cancellation_reasons(error)
    return bool(reasons) and reasons <= _BUSY_REASONS


def _is_conflict(error: ClientError) -> bool:
    """Return whether another request was writing a row at the same time,
    and no condition failed."""
    code = error.response["Error"].get("Code", "")
    if code != "TransactionCanceledException":
        return code in _CONFLICTS
    return _CONFLICT_REASON in _cancellation_reasons(error) and _is_busy(error)


def _cancellation_reasons(error: ClientError) -> set[str]:
    response: Any = error.response
    return {reason.get("Code", "None") for reason in response.get("CancellationReasons", [])} - {
        "None"
    }


def _store_error(error: ClientError) -> StoreError:
    response: Any = error.response
    code, message = response["Error"].get("Code", ""), response["Error"].get("Message", "")
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item", {}))
    if code == "TransactionCanceledException":
        refused = {
            at: reason.get("Item", {})
            for at, reason in enumerate(response.get("CancellationReasons", []))
            if reason.get("Code") == "ConditionalCheckFailed"
        }
        if refused:
            return TransactionCancelled(refused)
    # A malformed request is a bug of ours; any other error means that the service is
    # temporarily unavailable.
    kind = StoreError if code == "ValidationException" else StoreUnavailable
    return kind(f"{code}: {message}")
