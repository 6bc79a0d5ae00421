"""Scales up a pool: every server is bought by its own request, and none of them twice.

    first call: list                          later calls: list
    all there            done                 announced, no attempt since     check stock, order
    another size         conflict             announced, an attempt since     unsure
    above the maximum    refused              unsure                          wait, list again,
                                                                              finally order again
    otherwise            announce the first   some still to order             announce
                         lot; no order yet    the rest bought and listed      done, or failed for
                                                                              those refused

An order is sent only after it is recorded in the table, and it is repeated only after a search for
its result. Bought servers are kept when others are refused. A scale-up ends when the list contains
what was bought. Until then its servers are counted through the operation, and from then on through
the list, so the pool never seems smaller than it is.

The servers that may be ordered next (`lot`) are recorded with the number of the recording attempt.
If the current attempt is the very next one, none of them has been ordered. Any later attempt must
treat them as ordered, because an attempt in between has failed while processing them. The vendor
supports no idempotency key. Therefore server n of an operation has the same host name in every
attempt, and a tag with the operation's id. A repeated operation finds its servers in the list, even
if a user has renamed one or removed its tags.

The vendor keeps no size, so a decrease of the target is only the check that nothing has to go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cherryservers.decoding import (
    CLUSTER_TAG,
    DEFINITION_TAG,
    MANAGED_TAG,
    OPERATION_TAG,
    POOL_TAG,
    CherryServer,
    CreateServer,
)
from chalicelib.providers.cherryservers.instances import (
    CherryContext,
    ServerList,
    belongs,
    control_plane,
)
from chalicelib.providers.cherryservers.node_template import stock_of
from chalicelib.providers.cherryservers.pool_definition import (
    Definition,
    fingerprint,
    hostname,
    letters_for,
    needs_token,
    user_data,
)
from chalicelib.providers.cherryservers.tokens import Token
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.kit.node_identity import PermanentConflict
from chalicelib.providers.kit.rate_limit import OWN_PACE

UNTOLD, STEP = "announce", "create"  # step before the first order is sent, and step from then on
LOT = 20
MOST = 1000  # maximum servers of one scale-up; each has a name that must be found again
WAITS = (5.0, 10.0, 20.0, 25.0)  # seconds before each check for servers that are not listed yet
SENT_AGAIN = 3  # maximum repeated orders, each after the checks of WAITS
_TRIES = 8


def scale_up(context: CherryContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError. The
    first call only announces."""
    group, from_size, to_size = (
        operation.spec.group,
        operation.spec.from_size,
        operation.spec.to_size,
    )
    maximum = context.bounds(group, operation.spec.choice).max
    order = _order(context, operation)
    progress = read_progress(operation, order.count)
    if progress is not None:
        step = _ScaleUp(context, operation, order, maximum, progress)
        try:
            lot, script = step.prepare()
        except (Throttled, Transient) as error:
            return step.retry_later(error)
        return step.send(lot, script) if script is not None else step.follow()
    servers = context.servers(order.definition)
    context.refuse_foreign(order.definition, servers)
    existing = order.existing(servers, {})
    if len(existing) == order.count:
        return Succeeded(_facts(operation, order.count))
    context.check_managed(operation, servers)
    size = _size(
        context, order, servers, frozenset(server.id for server in existing.values()), from_size
    )
    if size != from_size:
        raise PermanentConflict(
            f"{group} has the size {size}, but from {from_size} to {to_size} was planned"
        )
    if to_size > maximum:
        raise InvalidRequest(f"{group}: {to_size} is above the policy's maximum {maximum}")
    return _announce(operation, Progress().with_made(existing), order.count)


def has_requested(context: CherryContext, operation: Operation) -> bool:
    """Return whether a server was bought, or is still searched for after an order without an
    answer. Raises ProviderError."""
    order = _order(context, operation)
    progress = read_progress(operation, order.count) or Progress()
    if progress.made or progress.unsure or (progress.lot and progress.interrupted(operation)):
        return True
    return bool(order.existing(context.servers(order.definition), progress.made))


def decrease_target(context: CherryContext, operation: Operation) -> Outcome:
    """A pool has no size apart from its machines: it is no larger than to_size, or it cannot be
    made so without deleting one (D18). Machines that never joined are discarded by name."""
    group, from_size, to_size = (
        operation.spec.group,
        operation.spec.from_size,
        operation.spec.to_size,
    )
    if not 0 <= to_size < from_size:
        raise InvalidRequest(f"{group}: from {from_size} to {to_size} does not decrease the size")
    context.bounds(group)
    definition = context.definition(group)
    size = len(context.servers(definition).counted(definition))
    if size <= to_size:
        return Succeeded({"from": from_size, "to": to_size})
    raise InvalidRequest(
        f"{group}: its size is the {size} servers it has, so for {to_size} one would have to be "
        "deleted"
    )


def _order(context: CherryContext, operation: Operation) -> Order:
    sizes = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"{sizes} does not increase the size")
    spec = operation.spec
    order = Order(context.definition(spec.group, spec.choice), operation)
    if operation.spec.from_size < 0 or order.count > MOST:
        raise InvalidRequest(f"{sizes} is more than {MOST} machines at once")
    return order


def _size(
    context: CherryContext, order: Order, servers: ServerList, excluded: frozenset[int], most: int
) -> int:
    """Return the size of the pool without the excluded servers. A control plane node
    with the pool's tags does not count. The cluster is read for it only if the pool has
    more than `most` servers."""
    counted = [server for server in servers.counted(order.definition) if server.id not in excluded]
    if len(counted) <= most:
        return len(counted)
    return len(counted) - len(
        control_plane(context.nodes, context.settings.controller_labels, counted)
    )


class _ScaleUp:
    """One call of a scale-up that was announced, according to the table above."""

    def __init__(
        self,
        context: CherryContext,
        operation: Operation,
        order: Order,
        maximum: int,
        progress: Progress,
    ) -> None:
        self._context, self._operation, self._order, self._maximum = (
            context,
            operation,
            order,
            maximum,
        )
        self._progress = progress
        self._fresh = not progress.interrupted(operation)

    def prepare(self) -> tuple[list[int], Script | None]:
        """List the servers, update the progress with those found, and return the servers to order
        now and their script; None if there are none. An error that prevents further orders does not
        end a scale-up that has bought something: its servers are searched for first."""
        self._servers = self._context.servers(self._order.definition)
        self._existing = self._order.existing(self._servers, self._progress.made)
        progress = self._progress.with_made(self._existing)
        if not self._fresh:
            unsure = {
                *progress.unsure,
                *(number for number in progress.lot if number not in progress.made),
            }
            progress = msgspec.structs.replace(progress, lot=(), unsure=tuple(sorted(unsure)))
        self._progress = progress
        self._correct_servers()
        try:
            lot = self._available_lot()
            return lot, script_for(self._context, self._order) if lot else None
        except (Throttled, Transient):
            raise
        except ProviderError as error:
            if not (self._progress.made or self._progress.unsure):
                raise
            self._progress = self._progress.with_refused(
                self._progress.open(self._order.count), error
            )
            return [], None

    def follow(self) -> Outcome:
        """Return the next step without an order now."""
        if self._progress.unsure:
            return self._search_unsure()
        if self._progress.open(self._order.count):
            return _announce(self._operation, self._progress, self._order.count)
        return self._end()

    def _correct_servers(self) -> None:
        """Restore lost tags, and delete second servers of one name that are still being
        deployed."""
        api = self._context.api
        for server in self._order.untagged(self._servers, self._existing):
            self._is_executed(partial(api.tag, server.id, {**server.tags, **self._order.tags}))
        for server in self._order.surplus(self._servers, self._existing):
            if self._is_executed(partial(api.delete, server.id)):
                self._context.gone.add([server.id])

    @staticmethod
    def _is_executed(call: Callable[[], None]) -> bool:
        """Return whether the vendor executed the call, or its server was already gone; raises
        temporary errors. A refusal shows in the next lists and is reported at the end."""
        try:
            call()
        except NotFound:
            return True
        except (Throttled, Transient):
            raise
        except ProviderError:
            return False
        return True

    def _available_lot(self) -> list[int]:
        """Return the announced servers that are available; the others are refused."""
        still_open = frozenset(self._progress.open(self._order.count))
        lot = [number for number in self._progress.lot if number in still_open]
        if not lot:
            return lot
        # the announced progress is data of the operation, so it does not show that it was checked
        self._context.check_managed(self._operation, self._servers)
        spec, most = self._operation.spec, self._maximum
        if spec.choice is not None:
            most = min(most, spec.to_size)  # another pass may have opened the same group
        size = _size(self._context, self._order, self._servers, frozenset(), most - len(lot))
        if size + len(lot) > most:
            grown = Conflict(f"the pool has grown meanwhile, and its maximum is {most}")
            self._progress = self._progress.with_refused(still_open, grown)
        else:
            self._progress = refuse_out_of_stock(self._context, self._order, self._progress)
        return [number for number in lot if number not in self._progress.refused]

    def retry_later(self, error: ProviderError) -> InProgress:
        """Return InProgress with the announced lot, because this call has sent nothing. Raises the
        error after the last retry."""
        if not self._fresh or self._progress.tries >= _TRIES:
            raise error
        progress = msgspec.structs.replace(self._progress, tries=self._progress.tries + 1)
        note = error.described
        return InProgress(
            max(WAITS[0], error.retry_after), _step(progress), progress.data(self._operation), note
        )

    def send(self, lot: list[int], script: Script) -> Outcome:
        """Order these servers. The first server of a scale-up is ordered alone, so an error that
        applies to every order (a refused token, no response) is met only once. A refusal of only
        that server does not prevent the other orders."""
        before = msgspec.structs.replace(self._progress, lot=(), looks=0, tries=0)
        bodies = self._order.bodies(lot, script.text)
        alone = not (before.made or before.refused) and len(bodies) > 1
        answers: list[Result] = list(self._context.api.create(bodies[:1] if alone else bodies))
        if (
            alone
            and answers
            and answers[0] is not None
            and not isinstance(answers[0], _APPLIES_TO_ALL)
        ):
            answers += self._context.api.create(bodies[1:])
        results = dict(zip(lot, answers, strict=False))
        progress, errors = before.with_answers(results, self._order.count, script)
        error = errors[0] if errors else None
        if error is not None and not (progress.made or progress.refused or progress.again):
            if error.code == OWN_PACE and not progress.unsure:
                return self.retry_later(error)  # not even the very first order was sent
            raise error  # the very first order: the next call searches for it before anything else
        self._progress = progress
        if progress.open(self._order.count):
            pause = max((error.retry_after for error in errors), default=0.0)
            return _announce(self._operation, progress, self._order.count, max(0.0, pause), error)
        return self.follow()

    def _search_unsure(self) -> Outcome:
        """Wait for servers that were ordered and are not listed; after the last check order them
        again, up to SENT_AGAIN times."""
        if wait := self._wait_for(self._progress.unsure):
            return wait
        again = self._progress.again
        lost = [number for number in self._progress.unsure if again.get(number, 0) >= SENT_AGAIN]
        error = Transient(
            f"the vendor gave no answer to an order, {SENT_AGAIN + 1} times, and lists no such "
            "server"
        )
        progress = self._progress.with_refused(lost, error)
        again = {**again, **{number: again.get(number, 0) + 1 for number in progress.unsure}}
        self._progress = msgspec.structs.replace(progress, again=again, unsure=(), looks=0)
        return self.follow()

    def _wait_for(self, numbers: tuple[int, ...]) -> InProgress | None:
        """Return InProgress for another check, or None after the last one. Checks are counted
        because clocks of different functions may differ."""
        looks = self._progress.looks
        if looks >= len(WAITS):
            return None
        data = msgspec.structs.replace(self._progress, looks=looks + 1, lot=()).data(
            self._operation
        )
        return InProgress(
            WAITS[looks], STEP, data, f"{len(numbers)} of {self._order.count} are not listed yet"
        )

    def _end(self) -> Outcome:
        """End the scale-up once all servers are bought or refused, and the bought ones are listed
        as members or not found in time."""
        progress, why, group = self._progress, self._progress.why, self._operation.spec.group
        listed = {
            number: server for number, server in self._existing.items() if number in progress.made
        }
        stray = [server.id for server in self._order.untagged(ServerList(listed.values()), listed)]
        # Without our name or tag the server is only reported: an id alone may
        # be an error of the vendor.
        unlisted = {
            number: server for number, server in progress.made.items() if number not in listed
        }
        stray += [server for server in unlisted.values() if self._servers.lives(server)]
        missing = tuple(
            number for number in progress.made if number in unlisted or listed[number].id in stray
        )
        if missing and (wait := self._wait_for(missing)):
            return wait
        facts = _facts(self._operation, len(progress.made))
        if stray:
            text = (
                f"servers {', '.join(map(str, stray))} do not keep their tags, so no pool counts "
                "them"
            )
            return Failed("Unknown", f"{group}: {text}; delete them", facts=facts)
        if missing:
            facts["unlisted"] = len(missing)
        if why is None:
            return Succeeded(facts)
        created = f" ({len(progress.made)} of {self._order.count} were created)"
        return Failed(why.cls, f"{group}: {why.message}{created}", why.code, why.retry_after, facts)


def _announce(
    operation: Operation,
    progress: Progress,
    count: int,
    pause: float = 0.0,
    error: ProviderError | None = None,
) -> InProgress:
    """Record what the next call may order."""
    announced = msgspec.structs.replace(progress, lot=progress.open(count)[:LOT])
    note = "" if error is None else error.described
    return InProgress(pause, _step(announced), announced.data(operation), note)


def _step(progress: Progress) -> str:
    return STEP if progress.has_ordered else UNTOLD


def _facts(operation: Operation, created: int) -> dict[str, str | int]:
    from_size, to_size = operation.spec.from_size, operation.spec.to_size
    return {"from": from_size, "to": to_size, "created": created, "asked": to_size - from_size}


KEY = "growth"
_LONGEST = 600  # maximum characters of a stored error
# Which of several refusals is reported: first those that the operator must correct, then those
# that select the backoff.
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


# -- progress


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
    """The state of each server, by number. lot: may be ordered by the next call. made: bought, with
    their ids. unsure: ordered, result unknown. again: how often each was ordered again. refused:
    will not be bought; why: the most important reason. looks: consecutive checks without a result;
    tries: consecutive failures to reach the vendor before anything was ordered."""

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

    def with_answers(
        self, results: Mapping[int, Result], count: int, script: Script
    ) -> tuple[Progress, list[ProviderError]]:
        """Return the progress with the results of orders, and why not all of them were
        sent, None if they were: the first temporary error, with the longest pause. Errors
        do not contain the script."""
        errors = {
            number: script.cleaned(error)
            for number, error in results.items()
            if isinstance(error, ProviderError)
        }
        progress = self.with_made(
            {number: row for number, row in results.items() if isinstance(row, CherryServer)}
        )
        unsure = [number for number, error in errors.items() if isinstance(error, Transient)]
        progress = msgspec.structs.replace(
            progress, unsure=tuple(sorted({*progress.unsure, *unsure}))
        )
        for number, error in errors.items():
            if isinstance(error, Unauthorized):
                progress = progress.with_refused((number, *progress.open(count)), error)
            elif not isinstance(error, _NOT_NOW):
                progress = progress.with_refused((number,), error)
        return progress, [error for error in errors.values() if isinstance(error, _NOT_NOW)]

    def interrupted(self, operation: Operation) -> bool:
        """Whether another attempt was made since this was recorded."""
        return operation.status.attempt not in (self.attempt, self.attempt + 1)

    def data(self, operation: Operation) -> dict[str, str]:
        """Return the progress as the operation's data."""
        return {
            KEY: msgspec.json.encode(
                msgspec.structs.replace(self, attempt=operation.status.attempt)
            ).decode()
        }


def read_progress(operation: Operation, count: int) -> Progress | None:
    """Return the recorded progress; None if nothing was started. If it cannot be decoded, all
    servers count as ordered, which is the safe assumption."""
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
        **{
            name: tuple(sorted(valid.intersection(getattr(progress, name))))
            for name in ("lot", "unsure", "refused")
        },
        looks=max(0, progress.looks),
        tries=max(0, progress.tries),
    )


# -- the servers of an operation


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
        """The tags by which each server is found. That of the definition is not among them: if a
        server has lost its tags, the definition may have changed since it was ordered."""
        definition = self.definition
        tags = {
            CLUSTER_TAG: definition.cluster_name,
            POOL_TAG: definition.pool,
            OPERATION_TAG: self._operation.spec.id,
        }
        return {**tags, MANAGED_TAG: definition.mark} if definition.mark else tags

    def bodies(self, numbers: Iterable[int], user_data: str) -> tuple[CreateServer, ...]:
        """Return the requests for these servers."""
        definition = self.definition
        tags = {**self.tags, DEFINITION_TAG: fingerprint(definition)}
        return tuple(
            CreateServer(
                project_id=definition.project_id,
                plan=definition.plan,
                hostname=self.names[number],
                image=definition.os,
                region=definition.region,
                ssh_keys=definition.ssh_key_ids or None,
                user_data=user_data,
                tags=tags,
                os_partition_size=definition.os_partition_size,
                spot_market=definition.spot,
            )
            for number in numbers
        )

    def existing(self, servers: ServerList, made: dict[int, int]) -> dict[int, CherryServer]:
        """Return the existing servers by number, including leaving ones, because they were bought.
        Servers are found by name (of two, one that is not leaving, then the elder), by id, and
        renamed ones by their tag. made: the ids that the vendor has reported so far."""
        own = self._own(servers)
        listed = {server.id: server for same_name in own.values() for server in same_name}
        existing = {
            number: listed[server_id] for number, server_id in made.items() if server_id in listed
        }
        for number, name in enumerate(self.names):
            if bearers := own.get(name.casefold()):
                existing[number] = min(
                    bearers, key=lambda server: (servers.leaves(server), server.id)
                )
        assigned = {server.id for server in existing.values()} | set(made.values())
        renamed = [
            server
            for name, same_name in sorted(own.items())
            for server in same_name
            if server.id not in assigned and name not in self._own_names
        ]
        free = [
            number for number in range(self.count) if number not in existing and number not in made
        ]
        return existing | dict(zip(free, renamed, strict=False))

    def surplus(
        self, servers: ServerList, existing: dict[int, CherryServer]
    ) -> tuple[CherryServer, ...]:
        """Return second servers of one name that are still being deployed. They exist
        if an order that seemed lost was executed after all. Two servers of one name
        cannot both become nodes."""
        counted = {server.id for server in existing.values()}
        own = [
            server
            for name, same in self._own(servers).items()
            if name in self._own_names
            for server in same
        ]
        return tuple(
            server
            for server in sorted(own, key=lambda server: server.id)
            if server.id not in counted
            and not servers.leaves(server)
            and self._has_tag(server)
            and servers.state(server).state is InstanceState.CREATING
        )

    def untagged(
        self, servers: ServerList, existing: dict[int, CherryServer]
    ) -> tuple[CherryServer, ...]:
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

    def cleaned(self, error: ProviderError) -> ProviderError:
        """Return the same error without the script and token, because it may quote the request."""
        message = error.message.replace(self.text, "***") if self.text else error.message
        message = message if self._token is None else self._token.secret.hidden_in(message)
        return type(error)(
            message, code=error.code, request_id=error.request_id, retry_after=error.retry_after
        )


def refuse_out_of_stock(context: CherryContext, order: Order, progress: Progress) -> Progress:
    """Refuse the servers that are not in stock now. Raises ProviderError if
    the plan cannot be read."""
    numbers, definition = progress.open(order.count), order.definition
    try:
        plan = context.api.plan(definition.plan, fresh=True)
        if plan is None:
            raise OutOfStock(f"the vendor has no plan {definition.plan!r}", code="Plan")
        stock = stock_of(plan, definition.region, spot=definition.spot)
    except OutOfStock as error:
        return progress.with_refused(numbers, error)
    market = " on the spot market" if definition.spot else ""
    text = (
        f"{stock} of plan {definition.plan} are in stock in {definition.region}{market}, "
        f"{len(numbers)} are wanted"
    )
    return progress.with_refused(numbers[stock:], OutOfStock(text, code="Stock"))


def script_for(context: CherryContext, order: Order) -> Script:
    """Return the user data of servers that are ordered now. Raises ProviderError. The token is read
    only if the script uses it."""
    token = context.tokens.current() if needs_token(order.definition) else None
    return Script(user_data(order.definition, token), token)
