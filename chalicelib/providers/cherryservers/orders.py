"""The servers that one scale-up buys: what has become of each (Progress), their names and requests (Order), and the
sending of one lot.

The servers that may be ordered next (`lot`) are recorded first, with the number of the recording attempt. If the
current attempt is the very next one, none of them has been ordered. Any later attempt must treat them as ordered,
because an attempt in between has failed while processing them.

The vendor supports no idempotency key. Therefore server n of an operation has the same host name in every attempt, and
a tag with the operation's id. A repeated operation finds its servers in the list, even if a user has renamed one or
removed its tags.

The first server of a scale-up is ordered alone, so an error that applies to every order (a refused token, no response)
is met only once. A refusal of only that server does not prevent the other orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.instances import ServerList, belongs
from chalicelib.providers.cherryservers.models import CLUSTER_TAG, OPERATION_TAG, POOL_TAG, CherryServer, CreateServer
from chalicelib.providers.cherryservers.node_template import stock_of
from chalicelib.providers.cherryservers.pool_definition import Definition, hostname, letters_for, needs_token, user_data
from chalicelib.providers.cherryservers.tokens import Token
from chalicelib.providers.errors import Conflict, OutOfStock, ProviderError, Throttled, Transient, Unauthorized

KEY = "growth"
_LONGEST = 600  # maximum characters of a stored error
# Which of several refusals is reported: first those that the operator must correct, then those that select the backoff.
_RANKS = (
    "Unauthorized",
    "QuotaExceeded",
    "OutOfStock",
    "InvalidRequest",
    "NotFound",
    "Conflict",
    "Unknown",
    "Throttled",
    "Transient",
)
_APPLIES_TO_ALL = (Transient, Throttled, Conflict, Unauthorized)
_NOT_NOW = (Throttled, Conflict, Transient)

Result = CherryServer | ProviderError | None


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error with which some of the servers were refused."""

    cls: str
    message: str
    code: str = ""
    retry_after: float = 0.0

    @property
    def rank(self) -> int:
        """The lower, the more important."""
        return _RANKS.index(self.cls if self.cls in _RANKS else "Unknown")


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of each server, by number. lot: may be ordered by the next call. made: bought, with their ids. unsure:
    ordered, result unknown. again: how often each was ordered again. refused: will not be bought; why: the most
    important reason. looks: consecutive checks without a result; tries: consecutive failures to reach the vendor before
    anything was ordered."""

    attempt: int = 0
    lot: tuple[int, ...] = ()
    made: dict[int, int] = {}
    unsure: tuple[int, ...] = ()
    again: dict[int, int] = {}
    refused: tuple[int, ...] = ()
    why: Why | None = None
    looks: int = 0
    tries: int = 0

    @property
    def has_ordered(self) -> bool:
        """Whether anything was ordered or refused."""
        return bool(self.made or self.unsure or self.refused or self.again)

    def open(self, count: int) -> tuple[int, ...]:
        """Return the servers that are still to be ordered."""
        closed = {*self.made, *self.unsure, *self.refused}
        return tuple(number for number in range(count) if number not in closed)

    def with_made(self, servers: Mapping[int, CherryServer]) -> Progress:
        """Return the progress with these servers, by number, known to exist."""
        return msgspec.structs.replace(
            self,
            made={**self.made, **{number: server.id for number, server in servers.items()}},
            unsure=tuple(number for number in self.unsure if number not in servers),
            refused=tuple(number for number in self.refused if number not in servers),
        )

    def with_refused(self, numbers: Iterable[int], error: ProviderError) -> Progress:
        """Return the progress with these servers given up for this reason."""
        refused = [number for number in numbers if number not in self.made]
        if not refused:
            return self
        why = Why(error.error_class, error.message[:_LONGEST], error.code, error.retry_after)
        return msgspec.structs.replace(
            self,
            refused=tuple(sorted({*self.refused, *refused})),
            why=self.why if self.why is not None and self.why.rank <= why.rank else why,
            unsure=tuple(number for number in self.unsure if number not in refused),
        )

    def interrupted(self, operation: Operation) -> bool:
        """Whether another attempt was made since this was recorded."""
        return operation.status.attempt not in (self.attempt, self.attempt + 1)

    def data(self, operation: Operation) -> dict[str, str]:
        """Return the progress as the operation's data."""
        return {KEY: msgspec.json.encode(msgspec.structs.replace(self, attempt=operation.status.attempt)).decode()}


def read_progress(operation: Operation, count: int) -> Progress | None:
    """Return the recorded progress; None if nothing was started. If it cannot be decoded, all servers count as ordered,
    which is the safe assumption."""
    text = operation.status.data.get(KEY)
    if text is None:
        return None
    try:
        progress = msgspec.json.decode(text, type=Progress)
    except (msgspec.MsgspecError, UnicodeError):
        return Progress(unsure=tuple(range(count)))
    valid = frozenset(range(count))
    return msgspec.structs.replace(
        progress,
        made={number: server for number, server in progress.made.items() if number in valid},
        again={number: times for number, times in progress.again.items() if number in valid},
        **{name: tuple(sorted(valid.intersection(getattr(progress, name)))) for name in ("lot", "unsure", "refused")},
        looks=max(0, progress.looks),
        tries=max(0, progress.tries),
    )


class Order:
    """Servers 0 … count-1 of an operation."""

    def __init__(self, definition: Definition, operation: Operation) -> None:
        self.definition, self._operation = definition, operation
        self.count = operation.spec.to_size - operation.spec.from_size

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The servers' host names."""
        seeds = (f"{self._operation.spec.id}/{number}" for number in range(self.count))
        return tuple(hostname(self.definition, letters_for(seed)) for seed in seeds)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of each server."""
        definition = self.definition
        operation_id = self._operation.spec.id
        return {CLUSTER_TAG: definition.cluster_name, POOL_TAG: definition.pool, OPERATION_TAG: operation_id}

    def bodies(self, numbers: Iterable[int], user_data: str) -> tuple[CreateServer, ...]:
        """Return the requests for these servers."""
        definition = self.definition
        return tuple(
            CreateServer(
                project_id=definition.project_id,
                plan=definition.plan,
                hostname=self.names[number],
                image=definition.os,
                region=definition.region,
                ssh_keys=definition.ssh_key_ids or None,
                user_data=user_data,
                tags=self.tags,
                os_partition_size=definition.os_partition_size,
                spot_market=definition.spot,
            )
            for number in numbers
        )

    def existing(self, servers: ServerList, made: dict[int, int]) -> dict[int, CherryServer]:
        """Return the existing servers by number, including leaving ones, because they were bought. Servers are found by
        name (of two, one that is not leaving, then the elder), by id, and renamed ones by their tag. made: the ids that
        the vendor has reported so far."""
        own = self._own(servers)
        listed = {server.id: server for same_name in own.values() for server in same_name}
        existing = {number: listed[server_id] for number, server_id in made.items() if server_id in listed}
        for number, name in enumerate(self.names):
            if bearers := own.get(name.casefold()):
                existing[number] = min(bearers, key=lambda server: (servers.leaves(server), server.id))
        assigned = {server.id for server in existing.values()} | set(made.values())
        renamed = [
            server
            for name, same_name in sorted(own.items())
            for server in same_name
            if server.id not in assigned and name not in self._own_names
        ]
        free = [number for number in range(self.count) if number not in existing and number not in made]
        return existing | dict(zip(free, renamed, strict=False))

    def surplus(self, servers: ServerList, existing: dict[int, CherryServer]) -> tuple[CherryServer, ...]:
        """Return second servers of one name that are still being deployed. They exist if an order that seemed lost was
        executed after all. Two servers of one name cannot both become nodes."""
        counted = {server.id for server in existing.values()}
        own = [server for name, same in self._own(servers).items() if name in self._own_names for server in same]
        return tuple(
            server
            for server in sorted(own, key=lambda server: server.id)
            if server.id not in counted
            and not servers.leaves(server)
            and self._has_tag(server)
            and servers.state(server).state is InstanceState.CREATING
        )

    def untagged(self, servers: ServerList, existing: dict[int, CherryServer]) -> tuple[CherryServer, ...]:
        """Return the existing servers that no pool would count."""
        return tuple(
            server
            for _, server in sorted(existing.items())
            if not belongs(server, self.definition) and not servers.leaves(server)
        )

    @cached_property
    def _own_names(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in self.names)

    def _has_tag(self, server: CherryServer) -> bool:
        return server.tags.get(OPERATION_TAG) == self._operation.spec.id

    def _own(self, servers: ServerList) -> dict[str, list[CherryServer]]:
        """Return the operation's servers by host name, the elder first."""
        own: dict[str, list[CherryServer]] = {}
        for _, server in sorted(servers.by_id.items()):
            name = server.hostname.casefold()
            if name in self._own_names or self._has_tag(server):
                own.setdefault(name, []).append(server)
        return own


# -- sending


class Script:
    """User data that contains a token. It is written only into an order."""

    def __init__(self, text: str, token: Token | None) -> None:
        self.text, self._token = text, token

    def hidden_in(self, message: str) -> str:
        """Return the message without the script and token, because an error may quote the request."""
        message = message.replace(self.text, "***") if self.text else message
        return message if self._token is None else self._token.secret.hidden_in(message)


class Bought(msgspec.Struct, frozen=True):
    """pause: seconds before the next order. error: why the lot was not sent completely, None if it was."""

    progress: Progress
    pause: float = 0.0
    error: ProviderError | None = None


def refuse_out_of_stock(context: CherryContext, order: Order, progress: Progress) -> Progress:
    """Refuse the servers that are not in stock now. Raises ProviderError if the plan cannot be read."""
    numbers, definition = progress.open(order.count), order.definition
    try:
        plan = context.api.plan(definition.plan, fresh=True)
        if plan is None:
            raise OutOfStock(f"the vendor has no plan {definition.plan!r}", code="Plan")
        stock = stock_of(plan, definition.region, spot=definition.spot)
    except OutOfStock as error:
        return progress.with_refused(numbers, error)
    market = " on the spot market" if definition.spot else ""
    text = f"{stock} of plan {definition.plan} are in stock in {definition.region}{market}, {len(numbers)} are wanted"
    return progress.with_refused(numbers[stock:], OutOfStock(text, code="Stock"))


def script_for(context: CherryContext, order: Order) -> Script:
    """Return the user data of servers that are ordered now. Raises ProviderError. The token is read only if the script
    uses it."""
    token = context.tokens.current() if needs_token(order.definition) else None
    return Script(user_data(order.definition, token), token)


def send(context: CherryContext, order: Order, progress: Progress, lot: Sequence[int], script: Script) -> Bought:
    """Order these servers; raises nothing."""
    bodies = order.bodies(lot, script.text)
    alone = not (progress.made or progress.refused) and len(bodies) > 1
    answers: list[Result] = list(context.api.create(bodies[:1] if alone else bodies))
    if alone and answers and answers[0] is not None and not isinstance(answers[0], _APPLIES_TO_ALL):
        answers += context.api.create(bodies[1:])
    results = dict(zip(lot, answers, strict=False))
    servers = {number: result for number, result in results.items() if isinstance(result, CherryServer)}
    errors = {number: _clean(error, script) for number, error in results.items() if isinstance(error, ProviderError)}
    progress = progress.with_made(servers)
    unsure = [number for number, error in errors.items() if isinstance(error, Transient)]
    progress = msgspec.structs.replace(progress, unsure=tuple(sorted({*progress.unsure, *unsure})))
    for number, error in errors.items():
        if isinstance(error, Unauthorized):
            progress = progress.with_refused((number, *progress.open(order.count)), error)
        elif not isinstance(error, _NOT_NOW):
            progress = progress.with_refused((number,), error)
    temporary = [error for error in errors.values() if isinstance(error, _NOT_NOW)]
    pause = max((error.retry_after for error in temporary), default=0.0)
    return Bought(progress, max(0.0, pause), temporary[0] if temporary else None)


def _clean(error: ProviderError, script: Script) -> ProviderError:
    message = script.hidden_in(error.message)
    return type(error)(message, code=error.code, request_id=error.request_id, retry_after=error.retry_after)
