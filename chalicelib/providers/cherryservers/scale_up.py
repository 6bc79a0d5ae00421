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

The vendor keeps no size, so a decrease of the target is only the check that nothing has to go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.instances import ServerList, control_plane
from chalicelib.providers.cherryservers.orders import (
    Order,
    Progress,
    Script,
    read_progress,
    refuse_out_of_stock,
    script_for,
    send,
)
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
    group, from_size, to_size = operation.spec.group, operation.spec.from_size, operation.spec.to_size
    maximum = context.bounds(group).max
    order = _order(context, operation)
    progress = read_progress(operation, order.count)
    if progress is not None:
        return _ScaleUp(context, operation, order, maximum, progress).run()
    servers = context.servers(context.definition(group))
    existing = order.existing(servers, {})
    if len(existing) == order.count:
        return Succeeded(_facts(operation, order.count))
    size = _size(context, order, servers, frozenset(server.id for server in existing.values()), from_size)
    if size != from_size:
        raise PermanentConflict(f"{group} has the size {size}, but from {from_size} to {to_size} was planned")
    if to_size > maximum:
        raise InvalidRequest(f"{group}: {to_size} is above the policy's maximum {maximum}")
    return _announce(operation, Progress().with_made(existing), order.count)


def has_requested(context: CherryContext, operation: Operation) -> bool:
    """Return whether a server was bought, or is still searched for after an order without an answer. Raises
    ProviderError."""
    order = _order(context, operation)
    progress = read_progress(operation, order.count) or Progress()
    if progress.made or progress.unsure or (progress.lot and progress.interrupted(operation)):
        return True
    return bool(order.existing(context.servers(context.definition(operation.spec.group)), progress.made))


def decrease_target(context: CherryContext, operation: Operation) -> Outcome:
    """A pool has no size apart from its machines: it is no larger than to_size, or it cannot be made so without
    deleting one (D18). Machines that never joined are discarded by name."""
    group, from_size, to_size = operation.spec.group, operation.spec.from_size, operation.spec.to_size
    if not 0 <= to_size < from_size:
        raise InvalidRequest(f"{group}: from {from_size} to {to_size} does not decrease the size")
    context.bounds(group)
    definition = context.definition(group)
    size = len(context.servers(definition).counted(definition))
    if size <= to_size:
        return Succeeded({"from": from_size, "to": to_size})
    raise InvalidRequest(
        f"{group}: its size is the {size} servers it has, so for {to_size} one would have to be deleted"
    )


def _order(context: CherryContext, operation: Operation) -> Order:
    sizes = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"{sizes} does not increase the size")
    order = Order(context.definition(operation.spec.group), operation)
    if operation.spec.from_size < 0 or order.count > MOST:
        raise InvalidRequest(f"{sizes} is more than {MOST} machines at once")
    return order


def _size(context: CherryContext, order: Order, servers: ServerList, excluded: frozenset[int], most: int) -> int:
    """Return the size of the pool without the excluded servers. A control plane node with the pool's tags does not
    count. The cluster is read for it only if the pool has more than `most` servers."""
    counted = [server for server in servers.counted(order.definition) if server.id not in excluded]
    if len(counted) <= most:
        return len(counted)
    return len(counted) - len(control_plane(context.nodes, context.settings.controller_labels, counted))


class _ScaleUp:
    """One call of a scale-up that was announced, according to the table above."""

    def __init__(
        self, context: CherryContext, operation: Operation, order: Order, maximum: int, progress: Progress
    ) -> None:
        self._context, self._operation, self._order, self._maximum = context, operation, order, maximum
        self._progress = progress
        self._fresh = not progress.interrupted(operation)

    def run(self) -> Outcome:
        """Execute the next step."""
        try:
            self._list()
            self._correct_servers()
            lot, script = self._prepare()
        except (Throttled, Transient) as error:
            return self._retry_later(error)
        if script is not None:
            return self._send(lot, script)
        if self._progress.unsure:
            return self._search_unsure()
        if self._progress.open(self._order.count):
            return _announce(self._operation, self._progress, self._order.count)
        return self._end()

    def _list(self) -> None:
        """List the servers and update the progress with those found."""
        self._servers = self._context.servers(self._context.definition(self._operation.spec.group))
        self._existing = self._order.existing(self._servers, self._progress.made)
        progress = self._progress.with_made(self._existing)
        if not self._fresh:
            unsure = {*progress.unsure, *(number for number in progress.lot if number not in progress.made)}
            progress = msgspec.structs.replace(progress, lot=(), unsure=tuple(sorted(unsure)))
        self._progress = progress

    def _correct_servers(self) -> None:
        """Restore lost tags, and delete second servers of one name that are still being deployed."""
        api = self._context.api
        for server in self._order.untagged(self._servers, self._existing):
            self._is_executed(partial(api.tag, server.id, {**server.tags, **self._order.tags}))
        for server in self._order.surplus(self._servers, self._existing):
            if self._is_executed(partial(api.delete, server.id)):
                self._context.gone.add([server.id])

    @staticmethod
    def _is_executed(call: Callable[[], None]) -> bool:
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

    def _prepare(self) -> tuple[list[int], Script | None]:
        """Return the servers to order now and their script; None if there are none. An error that prevents further
        orders does not end a scale-up that has bought something: its servers are searched for first."""
        try:
            lot = self._available_lot()
            return lot, script_for(self._context, self._order) if lot else None
        except (Throttled, Transient):
            raise
        except ProviderError as error:
            if not (self._progress.made or self._progress.unsure):
                raise
            self._progress = self._progress.with_refused(self._progress.open(self._order.count), error)
            return [], None

    def _available_lot(self) -> list[int]:
        """Return the announced servers that are available; the others are refused."""
        still_open = frozenset(self._progress.open(self._order.count))
        lot = [number for number in self._progress.lot if number in still_open]
        if not lot:
            return lot
        size = _size(self._context, self._order, self._servers, frozenset(), self._maximum - len(lot))
        if size + len(lot) > self._maximum:
            grown = Conflict(f"the pool has grown meanwhile, and its maximum is {self._maximum}")
            self._progress = self._progress.with_refused(still_open, grown)
        else:
            self._progress = refuse_out_of_stock(self._context, self._order, self._progress)
        return [number for number in lot if number not in self._progress.refused]

    def _retry_later(self, error: ProviderError) -> InProgress:
        """Return InProgress with the announced lot, because this call has sent nothing. Raises the error after the last
        retry."""
        if not self._fresh or self._progress.tries >= _TRIES:
            raise error
        progress = msgspec.structs.replace(self._progress, tries=self._progress.tries + 1)
        note = f"{error.error_class}: {error.message}"
        return InProgress(max(WAITS[0], error.retry_after), _step(progress), progress.data(self._operation), note)

    def _send(self, lot: list[int], script: Script) -> Outcome:
        before = msgspec.structs.replace(self._progress, lot=(), looks=0, tries=0)
        bought = send(self._context, self._order, before, lot, script)
        progress, error = bought.progress, bought.error
        if error is not None and not (progress.made or progress.refused or progress.again):
            if error.code == OWN_PACE and not progress.unsure:
                return self._retry_later(error)  # not even the very first order was sent
            raise error  # the very first order: the next call searches for it before anything else
        self._progress = progress
        if progress.open(self._order.count):
            return _announce(self._operation, progress, self._order.count, bought.pause, error)
        return self._search_unsure() if progress.unsure else self._end()

    def _search_unsure(self) -> Outcome:
        """Wait for servers that were ordered and are not listed; after the last check order them again, up to
        SENT_AGAIN times."""
        if wait := self._wait_for(self._progress.unsure):
            return wait
        again = self._progress.again
        lost = [number for number in self._progress.unsure if again.get(number, 0) >= SENT_AGAIN]
        error = Transient(f"the vendor gave no answer to an order, {SENT_AGAIN + 1} times, and lists no such server")
        progress = self._progress.with_refused(lost, error)
        again = {**again, **{number: again.get(number, 0) + 1 for number in progress.unsure}}
        self._progress = progress = msgspec.structs.replace(progress, again=again, unsure=(), looks=0)
        if progress.open(self._order.count):
            return _announce(self._operation, progress, self._order.count)
        return self._end()

    def _wait_for(self, numbers: tuple[int, ...]) -> InProgress | None:
        """Return InProgress for another check, or None after the last one. Checks are counted because clocks of
        different functions may differ."""
        looks = self._progress.looks
        if looks >= len(WAITS):
            return None
        data = msgspec.structs.replace(self._progress, looks=looks + 1, lot=()).data(self._operation)
        return InProgress(WAITS[looks], STEP, data, f"{len(numbers)} of {self._order.count} are not listed yet")

    def _end(self) -> Outcome:
        """End the scale-up once all servers are bought or refused, and the bought ones are listed as members or not
        found in time."""
        progress, why, group = self._progress, self._progress.why, self._operation.spec.group
        listed = {number: server for number, server in self._existing.items() if number in progress.made}
        stray = [server.id for server in self._order.untagged(ServerList(listed.values()), listed)]
        # Without our name or tag the server is only reported: an id alone may be an error of the vendor.
        unlisted = {number: server for number, server in progress.made.items() if number not in listed}
        stray += [server for server in unlisted.values() if self._servers.lives(server)]
        missing = tuple(number for number in progress.made if number in unlisted or listed[number].id in stray)
        if missing and (wait := self._wait_for(missing)):
            return wait
        facts = _facts(self._operation, len(progress.made))
        if stray:
            text = f"servers {', '.join(map(str, stray))} do not keep their tags, so no pool counts them"
            return Failed("Unknown", f"{group}: {text}; delete them", facts=facts)
        if missing:
            facts["unlisted"] = len(missing)
        if why is None:
            return Succeeded(facts)
        created = f" ({len(progress.made)} of {self._order.count} were created)"
        return Failed(why.cls, f"{group}: {why.message}{created}", why.code, why.retry_after, facts)


def _announce(
    operation: Operation, progress: Progress, count: int, pause: float = 0.0, error: ProviderError | None = None
) -> InProgress:
    """Record what the next call may order."""
    announced = msgspec.structs.replace(progress, lot=progress.open(count)[:LOT])
    note = "" if error is None else f"{error.error_class}: {error.message}"
    return InProgress(pause, _step(announced), announced.data(operation), note)


def _step(progress: Progress) -> str:
    return STEP if progress.has_ordered else UNTOLD


def _facts(operation: Operation, created: int) -> dict[str, str | int]:
    from_size, to_size = operation.spec.from_size, operation.spec.to_size
    return {"from": from_size, "to": to_size, "created": created, "asked": to_size - from_size}
