"""TODO"""

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
_TELLING = (
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


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error with which some of the servers were refused."""

    cls: str
    message: str
    code: str = ""
    retry_after: float = 0.0


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

    def open(self, count: int) -> tuple[int, ...]:
        """Return the servers that are still to be ordered."""
        closed = {*self.made, *self.unsure, *self.refused}
        return tuple(number for number in range(count) if number not in closed)

    def seen(self, found: Mapping[int, int]) -> Progress:
        """Return the progress with these servers (number -> id) known to exist."""
        return msgspec.structs.replace(
            self,
            made={**self.made, **found},
            unsure=tuple(each for each in self.unsure if each not in found),
            refused=tuple(each for each in self.refused if each not in found),
        )

    def refuse(self, numbers: Iterable[int], error: ProviderError) -> Progress:
        """Return the progress with these servers given up for this reason."""
        new = [number for number in numbers if number not in self.made]
        if not new:
            return self
        why = Why(error.error_class, error.message[:_LONGEST], error.code, error.retry_after)
        if self.why is not None and _rank(self.why) <= _rank(why):
            why = self.why
        return msgspec.structs.replace(
            self,
            refused=tuple(sorted({*self.refused, *new})),
            why=why,
            unsure=tuple(each for each in self.unsure if each not in new),
        )

    def interrupted(self, operation: Operation) -> bool:
        """Whether another attempt was made since this was recorded."""
        return operation.status.attempt not in (self.attempt, self.attempt + 1)

    def written(self, operation: Operation) -> dict[str, str]:
        """Return the progress as the operation's data."""
        return {KEY: msgspec.json.encode(msgspec.structs.replace(self, attempt=operation.status.attempt)).decode()}


def read(operation: Operation, count: int) -> Progress | None:
    """Return the recorded progress; None if nothing was started. If it cannot be decoded, all servers count as ordered,
    which is the safe assumption."""
    text = operation.status.data.get(KEY)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=Progress)
    except (msgspec.MsgspecError, UnicodeError):
        return Progress(unsure=tuple(range(count)))
    valid = frozenset(range(count))
    return msgspec.structs.replace(
        found,
        made={number: server for number, server in found.made.items() if number in valid},
        again={number: times for number, times in found.again.items() if number in valid},
        **{name: tuple(sorted(valid.intersection(getattr(found, name)))) for name in ("lot", "unsure", "refused")},
        looks=max(0, found.looks),
        tries=max(0, found.tries),
    )


def _rank(why: Why) -> int:
    return _TELLING.index(why.cls) if why.cls in _TELLING else _TELLING.index("Unknown")


class Order:
    """Servers 0 … count-1 of an operation."""

    def __init__(self, definition: Definition, operation: Operation) -> None:
        self.definition, self._operation = definition, operation
        self.count = operation.spec.to_size - operation.spec.from_size

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The servers' host names."""
        return tuple(
            hostname(self.definition, letters_for(f"{self._operation.spec.id}/{number}"))
            for number in range(self.count)
        )

    @property
    def tags(self) -> dict[str, str]:
        """The tags of each server."""
        return {
            CLUSTER_TAG: self.definition.cluster_name,
            POOL_TAG: self.definition.pool,
            OPERATION_TAG: self._operation.spec.id,
        }

    def bodies(self, numbers: Iterable[int], user_data: str) -> tuple[CreateServer, ...]:
        """Return the requests for these servers."""
        of = self.definition
        return tuple(
            CreateServer(
                project_id=of.project_id,
                plan=of.plan,
                hostname=self.names[number],
                image=of.os,
                region=of.region,
                ssh_keys=of.ssh_key_ids or None,
                user_data=user_data,
                tags=self.tags,
                os_partition_size=of.os_partition_size,
                spot_market=of.spot,
            )
            for number in numbers
        )

    def found(self, roll: ServerList, made: dict[int, int]) -> dict[int, CherryServer]:
        """Return the existing servers by number, including leaving ones, because they were bought. Servers are found by
        name (of two, one that is not leaving, then the elder), by id, and renamed ones by their tag. made: the ids that
        the vendor has reported so far."""
        ours = self._ours(roll)
        listed = {server.id: server for servers in ours.values() for server in servers}
        found = {number: listed[server] for number, server in made.items() if server in listed}
        for number, name in enumerate(self.names):
            if bearing := ours.get(name.casefold()):
                found[number] = min(bearing, key=lambda each: (roll.leaves(each), each.id))
        taken = {server.id for server in found.values()} | set(made.values())
        renamed = [
            server
            for name, servers in sorted(ours.items())
            for server in servers
            if server.id not in taken and name not in self._known
        ]
        free = [number for number in range(self.count) if number not in found and number not in made]
        return found | dict(zip(free, renamed, strict=False))

    def surplus(self, roll: ServerList, found: dict[int, CherryServer]) -> tuple[CherryServer, ...]:
        """Return second servers of one name that are still being deployed. They exist if an order that seemed lost was
        executed after all. Two servers of one name cannot both become nodes."""
        kept = {server.id for server in found.values()}
        ours = [server for name, servers in self._ours(roll).items() if name in self._known for server in servers]
        return tuple(
            server
            for server in sorted(ours, key=lambda each: each.id)
            if server.id not in kept
            and not roll.leaves(server)
            and self._is_marked(server)
            and roll.standing(server).state is InstanceState.CREATING
        )

    def untagged(self, servers: ServerList, found: dict[int, CherryServer]) -> tuple[CherryServer, ...]:
        """Return the found servers that no pool would count."""
        return tuple(
            server
            for _, server in sorted(found.items())
            if not belongs(server, self.definition) and not servers.leaves(server)
        )

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in self.names)

    def _is_marked(self, server: CherryServer) -> bool:
        return server.tags.get(OPERATION_TAG) == self._operation.spec.id

    def _ours(self, servers: ServerList) -> dict[str, list[CherryServer]]:
        """Return the operation's servers by host name, the elder first."""
        ours: dict[str, list[CherryServer]] = {}
        for _, server in sorted(servers.by_id.items()):
            name = server.hostname.casefold()
            if name in self._known or self._is_marked(server):
                ours.setdefault(name, []).append(server)
        return ours


_ENDS_IT = (Transient, Throttled, Conflict, Unauthorized)
_NOT_NOW = (Throttled, Conflict, Transient)

Result = CherryServer | ProviderError | None


class Script:
    """User data that contains a token. It is written only into an order."""

    def __init__(self, text: str, token: Token | None) -> None:
        self.text, self._token = text, token

    def hidden_in(self, message: str) -> str:
        """Return the message without the script and token, because an error may quote the request."""
        message = message.replace(self.text, "***") if self.text else message
        return message if self._token is None else self._token.secret.hidden_in(message)


class Bought(msgspec.Struct, frozen=True):
    """pause: seconds before the next order. held: why the lot was not sent completely, None if it was."""

    progress: Progress
    pause: float = 0.0
    held: ProviderError | None = None


def on_stock(context: CherryContext, order: Order, progress: Progress) -> Progress:
    """Refuse the servers that are not in stock now. Raises ProviderError if the plan cannot be read."""
    wanted, of = progress.open(order.count), order.definition
    try:
        plan = context.api.plan(of.plan, fresh=True)
        if plan is None:
            raise OutOfStock(f"the vendor has no plan {of.plan!r}", code="Plan")
        there = stock_of(plan, of.region, spot=of.spot)
    except OutOfStock as error:
        return progress.refuse(wanted, error)
    if there >= len(wanted):
        return progress
    kind = " on the spot market" if of.spot else ""
    short = OutOfStock(
        f"{there} of plan {of.plan} are in stock in {of.region}{kind}, {len(wanted)} are wanted", code="Stock"
    )
    return progress.refuse(wanted[there:], short)


def script_for(context: CherryContext, order: Order) -> Script:
    """Return the user data of servers that are ordered now. Raises ProviderError. The token is read only if the script
    uses it."""
    token = context.tokens.current() if needs_token(order.definition) else None
    return Script(user_data(order.definition, token), token)


def send(context: CherryContext, order: Order, progress: Progress, lot: Sequence[int], script: Script) -> Bought:
    """Order these servers; raises nothing."""
    bodies = order.bodies(lot, script.text)
    first = not (progress.made or progress.refused) and len(bodies) > 1
    results: list[Result] = list(context.api.create(bodies[:1] if first else bodies))
    if first and results and not isinstance(results[0], _ENDS_IT) and results[0] is not None:
        results += context.api.create(bodies[1:])
    results = [_clean(each, script) for each in results]
    results += [None] * (len(lot) - len(results))
    return _sorted(order, progress, dict(zip(lot, results, strict=True)))


def _sorted(order: Order, progress: Progress, results: dict[int, Result]) -> Bought:
    progress = progress.seen({number: each.id for number, each in results.items() if isinstance(each, CherryServer)})
    unsure = [number for number, each in results.items() if isinstance(each, Transient)]
    progress = msgspec.structs.replace(progress, unsure=tuple(sorted({*progress.unsure, *unsure})))
    errors = {number: each for number, each in results.items() if isinstance(each, ProviderError)}
    for number, error in errors.items():
        if isinstance(error, Unauthorized):
            progress = progress.refuse((number, *progress.open(order.count)), error)
        elif not isinstance(error, _NOT_NOW):
            progress = progress.refuse((number,), error)
    held = [error for error in errors.values() if isinstance(error, _NOT_NOW)]
    return Bought(progress, max([0.0, *(each.retry_after for each in held)]), held[0] if held else None)


def _clean(result: Result, script: Script) -> Result:
    if not isinstance(result, ProviderError):
        return result
    return type(result)(
        script.hidden_in(result.message), code=result.code, request_id=result.request_id, retry_after=result.retry_after
    )
