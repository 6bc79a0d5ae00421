"""Resolves the servers that an operation removes, and verifies before any deletion that all belong to the pool.

    the target names           it resolves to
    a handle, or a provider id the server of that number
    a name only                the one server of the project with that name
    neither, or another cloud  nothing: the whole removal is refused

A server that is not listed is read by its number: it is gone, or it belongs to another project.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.instance_states import is_leaving
from chalicelib.providers.cherryservers.instances import ServerList, belongs
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.provider_ids import alike, id_of
from chalicelib.providers.errors import InvalidRequest, NotFound, Unauthorized

NAMES = "names"


class CherryTargets(msgspec.Struct, frozen=True):
    """ids: the servers, each once. by_name: node -> id, for servers found only by name; is_new: an earlier call has not
    resolved one of these."""

    ids: tuple[int, ...]
    by_name: dict[str, int] = {}
    is_new: bool = False


def resolve(operation: Operation, servers: ServerList, definition: Definition) -> CherryTargets:
    """Return the servers of the targets; raises InvalidRequest if a target matches no server or is ambiguous.

    A name keeps the server that an earlier call resolved, because the server may be gone by now."""
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
    """Return which targets are alive.

    gone: known to be gone; most: maximum servers that may be read one by one. Raises InvalidRequest if a target is not
    a member of the pool, and ProviderError."""
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
    """Return a server that the project does not list; None if it is gone.

    The list was readable with this token, so a refusal concerns this server."""
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
