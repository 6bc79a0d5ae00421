"""Removal by the server's number, never by its name (cherryservers.md §5; D14 to D18).

Every call lists first and goes on from there, so it may be repeated and cut off anywhere:

    a target that is no member, or nobody knows    refused, nothing is deleted
    gone, leaving, or deleted by us in the hour    removed
    living                                         deleted, if the pool stays at or above its minimum
    discarded, and it has joined                   conflict, nothing is deleted

Twenty are deleted in one call. One that the vendor will not delete stops no other, and is named at the end. An answer
that got lost is followed by the same question: who is gone has nothing against being deleted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.instance_states import is_leaving
from chalicelib.providers.cherryservers.joined import check_nodes, controllers, spare_the_joined
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.targets import CherryTargets, look, remembered, resolve
from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)

LOT = 20
STEP = "delete"
KEY = "removal"
_LOOK_AGAIN = 5.0
_NAMED = 10  # servers that a failure names
_NOT_NOW = (Throttled, Transient, Conflict)


class Removed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What earlier calls came to. refused: id -> the vendor's reason; cls, code: of the first of them."""

    gone: tuple[int, ...] = ()
    refused: dict[int, str] = {}
    cls: str = ""
    code: str = ""


def remove(context: CherryContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Nothing was deleted if a target is not the pool's."""
    least = context.bounds(operation.spec.group).min
    definition, known = context.definition(operation.spec.group), _read(operation)
    roll = context.roll(definition)
    targets = resolve(operation, roll, definition)
    looked = look(context, operation, targets, roll, definition, frozenset(known.gone), LOT)
    there, known = looked.living, msgspec.structs.replace(known, gone=(*known.gone, *looked.absent))
    removal = _Removal(context, operation, targets, there, known)
    if not looked.whole:
        return InProgress(0.0, STEP, removal.data)
    if not removal.to_delete:
        return removal.end()
    if targets.is_new:
        return InProgress(0.0, STEP, removal.data)  # what a name means cannot be seen any more once its server is gone
    if operation.spec.kind is OperationKind.DELETE_INSTANCES:
        spare_the_joined(context.nodes, removal.to_delete)
    else:
        crew = [each for each in roll.crew(definition) if each.id not in known.gone]  # listed as they may be
        _permitted(context, operation, there, crew, least)
        check_nodes(context.nodes, operation, roll, {each.id: each for each in removal.to_delete})
    return removal.run()


def _permitted(
    context: CherryContext,
    operation: Operation,
    there: Mapping[int, CherryServer],
    crew: Sequence[CherryServer],
    least: int,
) -> None:
    """Raises InvalidRequest where the pool would fall below its minimum, or a target controls the cluster."""
    apart = controllers(context.nodes, context.settings.controller_labels, crew)
    if held := sorted(apart & set(there)):
        raise InvalidRequest(f"server {held[0]} is a node of the control plane")
    left = len(crew) - len(apart) - len(there)
    if left < least:
        raise InvalidRequest(f"{operation.spec.group}: {left} would be below the minimum {least}")


def release(context: CherryContext, operation: Operation) -> bool:
    """Nothing is prepared at the vendor before a deletion, so this only says whether any target is still there and not
    leaving. Raises ProviderError; a target that means no server of the pool was never touched, and is InvalidRequest.
    """
    definition = context.definition(operation.spec.group)
    roll = context.roll(definition)
    targets = resolve(operation, roll, definition)
    return bool(look(context, operation, targets, roll, definition).living)


def shrink(context: CherryContext, operation: Operation) -> Outcome:
    """A pool has no size apart from its machines: it is no larger than to_size, or it cannot be made so without
    deleting one (D18). Machines that never joined are discarded by name."""
    if not 0 <= operation.spec.to_size < operation.spec.from_size:
        raise InvalidRequest(
            f"{operation.spec.group}: from {operation.spec.from_size} to {operation.spec.to_size} is no shrinking"
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


class _Removal:
    """One call's deletions. there: the targets that live, by id."""

    def __init__(
        self,
        context: CherryContext,
        operation: Operation,
        targets: CherryTargets,
        there: Mapping[int, CherryServer],
        known: Removed,
    ) -> None:
        self._context, self._operation, self._targets = context, operation, targets
        self._there, self._known = dict(there), known
        self._gone: list[int] = []

    @property
    def to_delete(self) -> list[CherryServer]:
        """Those that the vendor has not refused to delete."""
        return [server for number, server in self._there.items() if number not in self._known.refused]

    @property
    def data(self) -> dict[str, str]:
        """What the next call has to know."""
        known = msgspec.structs.replace(self._known, gone=(*self._known.gone, *self._gone))
        return {**remembered(self._targets), KEY: msgspec.json.encode(known).decode()}

    def run(self) -> Outcome:
        """Delete, as many as one call may; raises what the first of them met where it says `not now`."""
        held: ProviderError | None = None
        for server in self.to_delete[:LOT]:
            if server.id in self._known.refused:
                break  # with all the others
            try:
                self._delete(server)
            except _NOT_NOW as error:
                held = error
                break
        self._context.gone.add(self._gone)
        if not self.to_delete:
            return self.end()
        if held is None:
            return InProgress(0.0, STEP, self.data)
        if not self._gone and not self._known.refused:
            raise held
        return InProgress(max(_LOOK_AGAIN, held.retry_after), STEP, self.data, f"{held.error_class}: {held.message}")

    def end(self) -> Outcome:
        """Every target is gone, or the vendor will not delete it."""
        left = sorted(self._there.items())
        facts: dict[str, str | int] = {
            "removed": len(self._targets.ids) - len(left),
            "group": self._operation.spec.group,
        }
        if not left:
            return Succeeded(facts)
        said = [f"{server.hostname} ({number}): {self._known.refused[number]}" for number, server in left]
        text = "; ".join([*said[:_NAMED], *([f"and {len(said) - _NAMED} more"] if len(said) > _NAMED else [])])
        return Failed(self._known.cls, f"{self._operation.spec.group}: {text}", self._known.code, facts=facts)

    def _delete(self, server: CherryServer) -> None:
        """Raises _NOT_NOW. A token that is refused is refused for all; another refusal may mean that somebody was
        faster, so one looks before it counts."""
        try:
            self._context.api.delete(server.id)
        except NotFound:
            pass
        except _NOT_NOW:
            raise
        except Unauthorized as error:
            self._refuse(self.to_delete, error)
            return
        except ProviderError as error:
            if not self._has_gone(server):
                self._refuse([server], error)
                return
        self._gone.append(server.id)
        del self._there[server.id]

    def _has_gone(self, server: CherryServer) -> bool:
        try:
            return is_leaving(self._context.api.server(server.id))
        except NotFound:
            return True
        except _NOT_NOW:
            raise
        except ProviderError:
            return False

    def _refuse(self, servers: Sequence[CherryServer], error: ProviderError) -> None:
        known = self._known
        self._known = msgspec.structs.replace(
            known,
            refused={**known.refused, **{each.id: error.message for each in servers}},
            cls=known.cls or error.error_class,
            code=known.code or error.code,
        )


def _read(operation: Operation) -> Removed:
    """What cannot be read is asked anew: deleting again does no harm."""
    try:
        return msgspec.json.decode(operation.status.data.get(KEY) or "{}", type=Removed)
    except (msgspec.MsgspecError, UnicodeError):
        return Removed()
