"""Removes servers by number, never by name.

Every call lists first and continues from that state, so it may be repeated or interrupted at any point:

    a target that is not a member, or is unknown    refused, nothing is deleted
    gone, leaving, or deleted by us in the hour     removed
    alive                                           deleted, if the pool stays at or above its minimum
    deleted as unregistered, but it has joined      conflict, nothing is deleted

One call deletes up to twenty servers. A server that the vendor refuses to delete does not stop the others and is
reported at the end. After a lost response the request is repeated, which is safe for a server that is already gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.instances import (
    ServerList,
    alike,
    belongs,
    check_nodes,
    controllers,
    id_of,
    is_leaving,
    spare_the_joined,
)
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.pool_definition import Definition
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
_NAMED = 10  # servers that a failure lists
_NOT_NOW = (Throttled, Transient, Conflict)


class Removed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of earlier calls. refused: id -> the vendor's reason; cls, code: of the first refusal."""

    gone: tuple[int, ...] = ()
    refused: dict[int, str] = {}
    cls: str = ""
    code: str = ""


def delete_nodes(context: CherryContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Deletes nothing if a target does not belong to the pool."""
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
        # store what a name resolved to, because it cannot be resolved once its server is gone
        return InProgress(0.0, STEP, removal.data)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES:
        spare_the_joined(context.nodes, removal.to_delete)
    else:
        # the list may still contain servers that are gone
        crew = [each for each in roll.crew(definition) if each.id not in known.gone]
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
    """Raise InvalidRequest if the pool would fall below its minimum, or if a target is a control plane node."""
    apart = controllers(context.nodes, context.settings.controller_labels, crew)
    if held := sorted(apart & set(there)):
        raise InvalidRequest(f"server {held[0]} is a node of the control plane")
    left = len(crew) - len(apart) - len(there)
    if left < least:
        raise InvalidRequest(f"{operation.spec.group}: {left} would be below the minimum {least}")


def cancel_delete(context: CherryContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError. There is nothing to undo, because
    the vendor is not modified before a deletion. A target that names no server of the pool was never modified, and is
    InvalidRequest."""
    definition = context.definition(operation.spec.group)
    roll = context.roll(definition)
    targets = resolve(operation, roll, definition)
    return bool(look(context, operation, targets, roll, definition).living)


class _Removal:
    """The deletions of one call. there: the targets that are alive, by id."""

    def __init__(
        self,
        context: CherryContext,
        operation: Operation,
        targets: CherryTargets,
        there: Mapping[int, CherryServer],
        removed: Removed,
    ) -> None:
        self._context, self._operation, self._targets = context, operation, targets
        self._there, self._known = dict(there), removed
        self._gone: list[int] = []

    @property
    def to_delete(self) -> list[CherryServer]:
        """The servers whose deletion the vendor has not refused."""
        return [server for number, server in self._there.items() if number not in self._known.refused]

    @property
    def data(self) -> dict[str, str]:
        """The data that the next call needs."""
        known = msgspec.structs.replace(self._known, gone=(*self._known.gone, *self._gone))
        return {**remembered(self._targets), KEY: msgspec.json.encode(known).decode()}

    def run(self) -> Outcome:
        """Delete as many servers as one call may; raises a temporary error if it met the first of them."""
        held: ProviderError | None = None
        for server in self.to_delete[:LOT]:
            if server.id in self._known.refused:
                break  # refused together with all the others
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
        """Return the outcome once every target is gone or refused by the vendor."""
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
        """Delete one server; raises the errors of _NOT_NOW. A refused token applies to all servers. After any other
        refusal the server is read once, because it may have been deleted concurrently."""
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
    """Return the recorded results. If they cannot be decoded, the removal starts again, because deleting twice is
    safe."""
    try:
        return msgspec.json.decode(operation.status.data.get(KEY) or "{}", type=Removed)
    except (msgspec.MsgspecError, UnicodeError):
        return Removed()


NAMES = "names"


class CherryTargets(msgspec.Struct, frozen=True):
    """ids: the servers, each once. by_name: node -> id, for servers found only by name; is_new: an earlier call has not
    resolved one of these."""

    ids: tuple[int, ...]
    by_name: dict[str, int] = {}
    is_new: bool = False


def resolve(operation: Operation, servers: ServerList, definition: Definition) -> CherryTargets:
    """Return the servers of the targets; raises InvalidRequest if a target matches no server or is ambiguous. A name
    keeps the server that an earlier call resolved, because the server may be gone by now."""
    before = _earlier(operation)
    ids: dict[int, None] = {}
    by_name: dict[str, int] = {}
    for target in operation.spec.targets:
        number = id_of(target)
        if number is None:
            number = before[target.node] if target.node in before else _named(target, servers, definition)
            by_name[target.node] = number
        ids[number] = None
    return CherryTargets(tuple(ids), by_name, is_new=not by_name.keys() <= before.keys())


def remembered(targets: CherryTargets) -> dict[str, str]:
    """Return the resolved names as data of the operation."""
    return {NAMES: msgspec.json.encode(targets.by_name).decode()} if targets.by_name else {}


class Looked(msgspec.Struct, frozen=True):
    """living: the targets that exist and are not leaving. absent: those found to be gone. whole: all targets were
    checked."""

    living: dict[int, CherryServer]
    absent: tuple[int, ...]
    whole: bool


def look(
    context: CherryContext,
    operation: Operation,
    targets: CherryTargets,
    servers: ServerList,
    definition: Definition,
    gone: frozenset[int] = frozenset(),
    most: int = 1000,
) -> Looked:
    """Return which targets are alive. gone: known to be gone; most: maximum servers that may be read one by one. Raises
    InvalidRequest if a target is not a member of the pool, and ProviderError."""
    gone |= context.gone.among(targets.ids)
    listed = {number: servers.by_id[number] for number in targets.ids if number in servers.by_id and number not in gone}
    living = {number: server for number, server in listed.items() if servers.lives(number)}
    _check(operation, living, definition)
    unlisted = [number for number in targets.ids if number not in servers.by_id and number not in gone]
    asked = {number: _unlisted(context, operation, number) for number in unlisted[:most]}
    more = {number: server for number, server in asked.items() if server is not None}
    _check(operation, more, definition)
    absent = tuple(number for number in asked if number not in more)
    return Looked({**living, **more}, absent, len(unlisted) <= most)


def _check(operation: Operation, servers: Mapping[int, CherryServer], definition: Definition) -> None:
    for number, server in servers.items():
        if not belongs(server, definition):
            raise InvalidRequest(f"server {number} ({server.hostname}) does not belong to {operation.spec.group}")


def _named(target: RemovalTarget, servers: ServerList, definition: Definition) -> int:
    name = target.node or target.instance
    if target.instance or target.handle:
        raise InvalidRequest(f"{name}: {target.instance or target.handle} names no server of this provider")
    bearing = [each for each in servers.by_id.values() if alike(each.hostname, name) and not servers.leaves(each)]
    if len(bearing) != 1:
        what = f"servers {', '.join(str(each.id) for each in bearing)} bear" if bearing else "no server bears"
        raise InvalidRequest(f"{name or 'a target without a name'}: {what} that name")
    if not belongs(bearing[0], definition):
        raise InvalidRequest(f"server {bearing[0].id} ({name}) does not belong to {definition.pool}")
    return bearing[0].id


def _unlisted(context: CherryContext, operation: Operation, number: int) -> CherryServer | None:
    """Return a server that the project does not list; None if it is gone. The list was readable with this token, so a
    refusal concerns this server."""
    try:
        server = context.api.server(number)
    except NotFound:
        return None
    except Unauthorized as error:
        raise InvalidRequest(f"server {number} does not belong to {operation.spec.group}: {error.message}") from None
    return None if is_leaving(server) else server


def _earlier(operation: Operation) -> Mapping[str, int]:
    try:
        return msgspec.json.decode(operation.status.data.get(NAMES) or "{}", type=dict[str, int])
    except (msgspec.MsgspecError, UnicodeError):
        return {}
