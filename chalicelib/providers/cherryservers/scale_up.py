"""Scales up a pool: every server is bought by its own request, and none of them twice.

    first call: list                          later calls: list
    all there            done                 announced, no attempt since     check stock, order
    another size         conflict             announced, an attempt since     unsure
    above the maximum    refused              unsure                          wait, list again, finally order again
    otherwise            announce the first   some still to order             announce
                         lot; no order yet    the rest bought and listed      done, or failed for those refused

An order is sent only after it is recorded in the table, and it is repeated only after a search for its result. Bought
servers are kept when others are refused. A scale-up ends when the list contains what was bought. Until then its servers
are counted through the operation, and from then on through the list, so the pool never seems smaller than it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.instances import ServerList, controllers
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.orders import Order, Progress, Script, on_stock, read, script_for, send
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, Throttled, Transient
from chalicelib.providers.node_identity import PermanentConflict
from chalicelib.providers.rate_limit import OWN_PACE

UNTOLD, STEP = "announce", "create"  # step before the first order is sent, and step from then on
LOT = 20
MOST = 1000  # maximum servers of one scale-up; each has a name that must be found again
WAITS = (5.0, 10.0, 20.0, 25.0)  # seconds before each check for servers that are not listed yet
SENT_AGAIN = 3  # maximum repeated orders, each after the checks of WAITS
_TRIES = 8


def scale_up(context: CherryContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError. The first call only announces."""
    most = context.bounds(operation.spec.group).max
    order = _order(context, operation)
    progress = read(operation, order.count)
    if progress is not None:
        return _Growth(context, operation, order, most, progress).go_on()
    roll = context.roll(context.definition(operation.spec.group))
    found = order.found(roll, {})
    if len(found) == order.count:
        return Succeeded(_facts(operation, order.count))
    _check_size(context, operation, order, roll, found)
    if operation.spec.to_size > most:
        raise InvalidRequest(f"{operation.spec.group}: {operation.spec.to_size} is above the policy's maximum {most}")
    begun = Progress().seen({number: each.id for number, each in found.items()})
    return _announce(operation, begun, order.count)


def has_requested(context: CherryContext, operation: Operation) -> bool:
    """Return whether a server was bought, or is still searched for after an order without an answer. Raises
    ProviderError."""
    order = _order(context, operation)
    progress = read(operation, order.count) or Progress()
    searching = progress.unsure or (progress.lot and progress.interrupted(operation))
    if progress.made or searching:
        return True
    return bool(order.found(context.roll(context.definition(operation.spec.group)), progress.made))


def _order(context: CherryContext, operation: Operation) -> Order:
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not increase the size")
    order = Order(context.definition(operation.spec.group), operation)
    if operation.spec.from_size < 0 or order.count > MOST:
        raise InvalidRequest(
            f"from {operation.spec.from_size} to {operation.spec.to_size} is more than {MOST} machines at once"
        )
    return order


def _check_size(
    context: CherryContext, operation: Operation, order: Order, servers: ServerList, found: dict[int, CherryServer]
) -> None:
    """Raise Final unless the pool, without this operation's own servers, has the planned size."""
    own = frozenset(each.id for each in found.values())
    size = _size(context, order, servers, own, operation.spec.from_size)
    if size != operation.spec.from_size:
        raise PermanentConflict(
            f"{operation.spec.group} has the size {size}, but from {operation.spec.from_size} to "
            f"{operation.spec.to_size} was planned"
        )


def _size(context: CherryContext, order: Order, servers: ServerList, but: frozenset[int], most: int) -> int:
    """Return the size of the pool without the servers `but`. A control plane node with the pool's tags does not count.
    The cluster is read for it only if the pool has more than `most` servers."""
    crew = [each for each in servers.crew(order.definition) if each.id not in but]
    if len(crew) <= most:
        return len(crew)
    return len(crew) - len(controllers(context.nodes, context.settings.controller_labels, crew))


class _Growth:
    """One call of a scale-up that was announced, according to the table above."""

    def __init__(
        self, context: CherryContext, operation: Operation, order: Order, most: int, progress: Progress
    ) -> None:
        self._context, self._operation, self._order, self._most = context, operation, order, most
        self._progress = progress
        self._fresh = not progress.interrupted(operation)

    def go_on(self) -> Outcome:
        """Execute the next step."""
        try:
            roll = self._look()
            self._put_right(roll)
            lot, script = self._ready(roll)
        except (Throttled, Transient) as error:
            return self._later(error)
        if script is not None:
            return self._send(lot, script)
        if self._progress.unsure:
            return self._unsure()
        if self._progress.open(self._order.count):
            return _announce(self._operation, self._progress, self._order.count)
        return self._end()

    def _look(self) -> ServerList:
        """List the servers and update the progress with those found."""
        self._roll = roll = self._context.roll(self._context.definition(self._operation.spec.group))
        self._found = self._order.found(roll, self._progress.made)
        progress = self._progress.seen({number: each.id for number, each in self._found.items()})
        if not self._fresh:
            unsure = {*progress.unsure, *(each for each in progress.lot if each not in progress.made)}
            progress = msgspec.structs.replace(progress, lot=(), unsure=tuple(sorted(unsure)))
        self._progress = progress
        return roll

    def _ready(self, servers: ServerList) -> tuple[list[int], Script | None]:
        """Return the servers to order now and their script; None if there are none. An error that prevents further
        orders does not end a scale-up that has bought something: its servers are searched for first."""
        try:
            lot = self._to_send(servers)
            return lot, script_for(self._context, self._order) if lot else None
        except (Throttled, Transient):
            raise
        except ProviderError as error:
            if not (self._progress.made or self._progress.unsure):
                raise
            self._progress = self._progress.refuse(self._progress.open(self._order.count), error)
            return [], None

    def _to_send(self, servers: ServerList) -> list[int]:
        """Return the announced servers that are available; the others are refused."""
        still_open = frozenset(self._progress.open(self._order.count))
        lot = [each for each in self._progress.lot if each in still_open]
        if not lot:
            return lot
        if _size(self._context, self._order, servers, frozenset(), self._most - len(lot)) + len(lot) > self._most:
            grown = Conflict(f"the pool has grown meanwhile, and its maximum is {self._most}")
            self._progress = self._progress.refuse(still_open, grown)
        else:
            self._progress = on_stock(self._context, self._order, self._progress)
        return [each for each in lot if each not in self._progress.refused]

    def _put_right(self, servers: ServerList) -> None:
        """Restore lost tags, and delete second servers of one name that are still being deployed."""
        for server in self._order.untagged(servers, self._found):
            self._done(partial(self._context.api.tag, server.id, {**server.tags, **self._order.tags}))
        for server in self._order.surplus(servers, self._found):
            if self._done(partial(self._context.api.delete, server.id)):
                self._context.gone.add([server.id])

    @staticmethod
    def _done(call: Callable[[], None]) -> bool:
        """Return whether the vendor executed the call, or its server was already gone; raises temporary errors. A
        refusal shows in the next lists and is reported at the end."""
        try:
            call()
        except NotFound:
            return True
        except (Throttled, Transient):
            raise
        except ProviderError:
            return False
        return True

    def _later(self, error: ProviderError) -> InProgress:
        """Return Pending with the announced lot, because this call has sent nothing. Raises the error after the last
        retry."""
        if not self._fresh or self._progress.tries >= _TRIES:
            raise error
        kept = msgspec.structs.replace(self._progress, tries=self._progress.tries + 1)
        return InProgress(
            max(WAITS[0], error.retry_after),
            _step(kept),
            kept.written(self._operation),
            f"{error.error_class}: {error.message}",
        )

    def _send(self, lot: list[int], script: Script) -> Outcome:
        count = self._order.count
        bought = send(
            self._context, self._order, msgspec.structs.replace(self._progress, lot=(), looks=0, tries=0), lot, script
        )
        progress = bought.progress
        if bought.held is not None and not (progress.made or progress.refused or progress.again):
            if bought.held.code == OWN_PACE and not progress.unsure:
                return self._later(bought.held)  # not even the very first order was sent
            raise bought.held  # the very first order: the next call searches for it before anything else
        self._progress = progress
        if progress.open(count):
            return _announce(self._operation, progress, count, bought.pause, bought.held)
        return self._unsure() if progress.unsure else self._end()

    def _unsure(self) -> Outcome:
        return self._wait_for(self._progress.unsure) or self._once_more()

    def _wait_for(self, numbers: tuple[int, ...]) -> InProgress | None:
        """Return Pending for another check, or None after the last one. Checks are counted because clocks of different
        functions may differ."""
        looks = self._progress.looks
        if looks >= len(WAITS):
            return None
        waiting = msgspec.structs.replace(self._progress, looks=looks + 1, lot=())
        return InProgress(
            WAITS[looks],
            STEP,
            waiting.written(self._operation),
            f"{len(numbers)} of {self._order.count} are not listed yet",
        )

    def _once_more(self) -> Outcome:
        """Order servers again that were ordered and never appeared, up to SENT_AGAIN times."""
        again = self._progress.again
        lost = [each for each in self._progress.unsure if again.get(each, 0) >= SENT_AGAIN]
        error = Transient(f"the vendor gave no answer to an order, {SENT_AGAIN + 1} times, and lists no such server")
        progress = self._progress.refuse(lost, error)
        sent = {each: again.get(each, 0) + 1 for each in progress.unsure}
        progress = msgspec.structs.replace(progress, again={**again, **sent}, unsure=(), looks=0)
        if progress.open(self._order.count):
            return _announce(self._operation, progress, self._order.count)
        self._progress = progress
        return self._end()

    def _end(self) -> Outcome:
        """End the scale-up once all servers are bought or refused, and the bought ones are listed as members or not
        found in time."""
        progress, why = self._progress, self._progress.why
        listed = {number: each for number, each in self._found.items() if number in progress.made}
        stray = [each.id for each in self._order.untagged(ServerList(listed.values()), listed)]
        # Without our name or tag the server is only reported: an id alone may be an error of the vendor.
        stray += [each for number, each in progress.made.items() if number not in listed and self._roll.lives(each)]
        missing = tuple(number for number in progress.made if number not in listed or listed[number].id in stray)
        if missing and (wait := self._wait_for(missing)):
            return wait
        facts = _facts(self._operation, len(progress.made))
        if stray:
            text = f"servers {', '.join(map(str, stray))} do not keep their tags, so no pool counts them"
            return Failed("Unknown", f"{self._operation.spec.group}: {text}; delete them", facts=facts)
        if missing:
            facts["unlisted"] = len(missing)
        if why is None:
            return Succeeded(facts)
        some = f" ({len(progress.made)} of {self._order.count} were created)"
        return Failed(why.cls, f"{self._operation.spec.group}: {why.message}{some}", why.code, why.retry_after, facts)


def _announce(
    operation: Operation, progress: Progress, count: int, pause: float = 0.0, error: ProviderError | None = None
) -> InProgress:
    """Record what the next call may order."""
    announced = msgspec.structs.replace(progress, lot=progress.open(count)[:LOT])
    note = "" if error is None else f"{error.error_class}: {error.message}"
    return InProgress(pause, _step(announced), announced.written(operation), note)


def _step(progress: Progress) -> str:
    return STEP if progress.made or progress.unsure or progress.refused or progress.again else UNTOLD


def _facts(operation: Operation, created: int) -> dict[str, str | int]:
    return {
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "created": created,
        "asked": operation.spec.to_size - operation.spec.from_size,
    }


def decrease_target(context: CherryContext, operation: Operation) -> Outcome:
    """A pool has no size apart from its machines: it is no larger than to_size, or it cannot be made so without
    deleting one (D18). Machines that never joined are discarded by name."""
    if not 0 <= operation.spec.to_size < operation.spec.from_size:
        raise InvalidRequest(
            f"{operation.spec.group}: from {operation.spec.from_size} to {operation.spec.to_size} "
            "does not decrease the size"
        )
    context.bounds(operation.spec.group)
    definition = context.definition(operation.spec.group)
    size = len(context.roll(definition).crew(definition))
    if size <= operation.spec.to_size:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})
    raise InvalidRequest(
        f"{operation.spec.group}: its size is the {size} servers it has, so for {operation.spec.to_size} one "
        "would have to be deleted"
    )
