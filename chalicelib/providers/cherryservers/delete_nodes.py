"""Removes and restarts servers by number, never by name.

Every call lists first and continues from that state, so it may be repeated or
interrupted at any point:

    a target that is not a member, or is unknown    refused, nothing is deleted
    gone, leaving, or deleted by us in the hour     removed
    alive                                           deleted, if the pool stays at or above its
                                                    minimum
    deleted as unregistered, but it has joined      conflict, nothing is deleted

One call deletes up to twenty servers. A server that the vendor refuses to delete does not stop the
others and is reported at the end. After a lost response the request is repeated, which is safe for
a server that is already gone.

A target is resolved to a server, and all of them are verified to belong to the
pool before any deletion:

    the target names           it resolves to
    a handle, or a provider id the server of that number
    a name only                the one server of the project with that name
    neither, or another cloud  nothing: the whole removal is refused

A server that is not listed is read by its number: it is gone, or it belongs to another project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cherryservers.decoding import MANAGED_TAG, POOL_TAG, CherryServer
from chalicelib.providers.cherryservers.instances import (
    CherryContext,
    ServerList,
    alike,
    belongs,
    control_plane,
    id_of,
    is_leaving,
    refuse_changed_servers,
    refuse_joined_servers,
)
from chalicelib.providers.cherryservers.managed_groups import choice_of_server, mark_of
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.kit.removal_guard import check_minimum
from chalicelib.providers.kit.services import UNANSWERED

LOT = 20
STEP = "delete"
KEY = "removal"
NAMES = "names"
_LOOK_AGAIN = 5.0
_SHOWN = 10  # servers that a failure lists
_NOT_NOW = (Throttled, Transient, Conflict)


class Removed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of earlier calls. refused: id -> the vendor's reason; cls,
    code: of the first refusal."""

    gone: tuple[int, ...] = ()
    refused: dict[int, str] = {}
    cls: str = ""
    code: str = ""


def delete_nodes(context: CherryContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Deletes nothing if a target
    does not belong to the pool."""
    minimum = context.bounds(operation.spec.group).min
    definition, removed = context.definition(operation.spec.group), _read(operation)
    servers = context.servers(definition)
    context.refuse_foreign(definition, servers)
    targets = _resolve(operation, servers, definition)
    state = _find(context, operation, targets, servers, definition, frozenset(removed.gone), LOT)
    removed = msgspec.structs.replace(removed, gone=(*removed.gone, *state.absent))
    removal = _Removal(context, operation, targets, state.living, removed)
    if not state.all_checked:
        return InProgress(0.0, STEP, removal.data)
    if not removal.to_delete:
        return removal.end()
    if targets.is_new:
        # store what a name resolved to, because it cannot be resolved once its server is gone
        return InProgress(0.0, STEP, removal.data)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES:
        refuse_joined_servers(context.nodes, removal.to_delete)
        return removal.run()
    # the list may still contain servers that are gone
    counted = [server for server in servers.counted(definition) if server.id not in removed.gone]
    controllers = control_plane(context.nodes, context.settings.controller_labels, counted)
    if protected := sorted(controllers & set(state.living)):
        raise InvalidRequest(f"server {protected[0]} is a node of the control plane")
    size = len(counted) - len(controllers) - len(state.living)
    check_minimum(operation.spec.group, size, minimum)
    refuse_changed_servers(
        context.nodes, operation, servers, {server.id: server for server in removal.to_delete}
    )
    return removal.run()


def cancel_delete(context: CherryContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError. There is
    nothing to undo, because the vendor is not modified before a deletion. A target that names no
    server of the pool was never modified, and is InvalidRequest."""
    definition = context.definition(operation.spec.group)
    servers = context.servers(definition)
    targets = _resolve(operation, servers, definition)
    return bool(_find(context, operation, targets, servers, definition).living)


def remove_group(context: CherryContext, operation: Operation) -> Outcome:
    """Return that a group without servers is gone: the vendor has no groups. Raises
    ProviderError."""
    context.bounds(operation.spec.group)
    definition = context.definition(operation.spec.group)
    if context.servers(definition).counted(definition):
        return Failed(Conflict.__name__, f"pool {operation.spec.group} has servers")
    return Succeeded({"deleted": operation.spec.group})


def own_marks(context: CherryContext) -> dict[str, Callable[[], None]]:
    """See PoolMaker. Raises ProviderError."""
    marks: dict[str, Callable[[], None]] = {}
    for server in context.servers().by_id.values():
        name, mark = server.tags.get(POOL_TAG, ""), mark_of(server)
        if mark and not is_leaving(server) and context.managed.is_own(name, mark):
            tags = {key: text for key, text in server.tags.items() if key != MANAGED_TAG}
            # a definition of the group needs plan, region and market
            title = f"server {server.id} of {name} ({choice_of_server(server).machine})"
            marks[title] = partial(context.api.tag, server.id, tags)
    return marks


def restart(context: CherryContext, operation: Operation) -> Outcome:
    """Reboot the one target, once; raises ProviderError. The vendor says no more than
    that it has taken the request, so one whose answer was lost counts as taken: a node
    that stays sick is replaced."""
    group, targets = operation.spec.group, operation.spec.targets
    context.bounds(group)
    number = id_of(targets[0]) if len(targets) == 1 else None
    if number is None:
        raise InvalidRequest(f"{group}: a restart is of one server, by its id")
    definition = context.definition(group)
    servers = context.servers(definition)
    context.refuse_foreign(definition, servers)
    living = _find(context, operation, CherryTargets((number,)), servers, definition).living
    if number not in living:
        raise NotFound(f"server {number} is gone or being deleted")
    if control_plane(context.nodes, context.settings.controller_labels, living.values()):
        raise InvalidRequest(f"server {number} is a node of the control plane")
    refuse_changed_servers(context.nodes, operation, servers, living)
    answer = context.requests.send(operation.spec.id, lambda: context.api.reboot(number))
    return Succeeded(
        {"restarted": number, "group": group, **({} if answer else {"note": UNANSWERED})}
    )


class _Removal:
    """The deletions of one call. living: the targets that are alive, by id."""

    def __init__(
        self,
        context: CherryContext,
        operation: Operation,
        targets: CherryTargets,
        living: Mapping[int, CherryServer],
        removed: Removed,
    ) -> None:
        self._context, self._operation, self._targets = context, operation, targets
        self._living, self._removed = dict(living), removed
        self._deleted: list[int] = []

    @property
    def to_delete(self) -> list[CherryServer]:
        """The servers whose deletion the vendor has not refused."""
        return [
            server for number, server in self._living.items() if number not in self._removed.refused
        ]

    @property
    def data(self) -> dict[str, str]:
        """The data that the next call needs."""
        removed = msgspec.structs.replace(self._removed, gone=(*self._removed.gone, *self._deleted))
        names = (
            {NAMES: msgspec.json.encode(self._targets.by_name).decode()}
            if self._targets.by_name
            else {}
        )
        return {**names, KEY: msgspec.json.encode(removed).decode()}

    def run(self) -> Outcome:
        """Delete as many servers as one call may; raises a temporary error if
        it met the first of them."""
        interruption: ProviderError | None = None
        for server in self.to_delete[:LOT]:
            if server.id in self._removed.refused:
                break  # refused together with all the others
            try:
                self._delete(server)
            except _NOT_NOW as error:
                interruption = error
                break
        self._context.gone.add(self._deleted)
        if not self.to_delete:
            return self.end()
        if interruption is None:
            return InProgress(0.0, STEP, self.data)
        if not self._deleted and not self._removed.refused:
            raise interruption
        note = interruption.described
        return InProgress(max(_LOOK_AGAIN, interruption.retry_after), STEP, self.data, note)

    def end(self) -> Outcome:
        """Return the outcome once every target is gone or refused by the vendor."""
        group, refused = self._operation.spec.group, sorted(self._living.items())
        facts: dict[str, str | int] = {
            "removed": len(self._targets.ids) - len(refused),
            "group": group,
        }
        if not refused:
            return Succeeded(facts)
        reasons = [
            f"{server.hostname} ({number}): {self._removed.refused[number]}"
            for number, server in refused
        ]
        more = [f"and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else []
        text = "; ".join([*reasons[:_SHOWN], *more])
        return Failed(self._removed.cls, f"{group}: {text}", self._removed.code, facts=facts)

    def _delete(self, server: CherryServer) -> None:
        """Delete one server; raises the errors of _NOT_NOW. A refused token applies to
        all servers. After any other refusal the server is read once, because it may have
        been deleted concurrently."""
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
            if not self._is_gone(server):
                self._refuse([server], error)
                return
        self._deleted.append(server.id)
        del self._living[server.id]

    def _is_gone(self, server: CherryServer) -> bool:
        try:
            return is_leaving(self._context.api.server(server.id))
        except NotFound:
            return True
        except _NOT_NOW:
            raise
        except ProviderError:
            return False

    def _refuse(self, servers: Sequence[CherryServer], error: ProviderError) -> None:
        removed = self._removed
        self._removed = msgspec.structs.replace(
            removed,
            refused={**removed.refused, **{server.id: error.message for server in servers}},
            cls=removed.cls or error.error_class,
            code=removed.code or error.code,
        )


def _read(operation: Operation) -> Removed:
    """Return the recorded results. If they cannot be decoded, the removal starts again,
    because deleting twice is safe."""
    try:
        return msgspec.json.decode(operation.status.data.get(KEY) or "{}", type=Removed)
    except (msgspec.MsgspecError, UnicodeError):
        return Removed()


# -- targets


class CherryTargets(msgspec.Struct, frozen=True):
    """ids: the servers, each once. by_name: node -> id, for servers found only by name; is_new: an
    earlier call has not resolved one of these."""

    ids: tuple[int, ...]
    by_name: dict[str, int] = {}
    is_new: bool = False


def _resolve(operation: Operation, servers: ServerList, definition: Definition) -> CherryTargets:
    """Return the servers of the targets; raises InvalidRequest if a target matches no server
    or is ambiguous. A name keeps the server that an earlier call resolved, because the
    server may be gone by now."""
    try:
        earlier = msgspec.json.decode(operation.status.data.get(NAMES) or "{}", type=dict[str, int])
    except (msgspec.MsgspecError, UnicodeError):
        earlier = {}
    ids: dict[int, None] = {}
    by_name: dict[str, int] = {}
    for target in operation.spec.targets:
        number = id_of(target)
        if number is None:
            number = (
                earlier[target.node]
                if target.node in earlier
                else _find_name(target, servers, definition)
            )
            by_name[target.node] = number
        ids[number] = None
    return CherryTargets(tuple(ids), by_name, is_new=not by_name.keys() <= earlier.keys())


def _find_name(target: RemovalTarget, servers: ServerList, definition: Definition) -> int:
    name = target.node or target.instance
    if target.instance or target.handle:
        raise InvalidRequest(
            f"{name}: {target.instance or target.handle} names no server of this provider"
        )
    bearers = [
        each
        for each in servers.by_id.values()
        if alike(each.hostname, name) and not servers.leaves(each)
    ]
    if len(bearers) != 1:
        what = (
            f"servers {', '.join(str(server.id) for server in bearers)} bear"
            if bearers
            else "no server bears"
        )
        raise InvalidRequest(f"{name or 'a target without a name'}: {what} that name")
    if not belongs(bearers[0], definition):
        raise InvalidRequest(
            f"server {bearers[0].id} ({name}) does not belong to {definition.pool}"
        )
    return bearers[0].id


class _TargetState(msgspec.Struct, frozen=True):
    """living: the targets that exist and are not leaving. absent: those found to be gone."""

    living: dict[int, CherryServer]
    absent: tuple[int, ...]
    all_checked: bool


def _find(
    context: CherryContext,
    operation: Operation,
    targets: CherryTargets,
    servers: ServerList,
    definition: Definition,
    gone: frozenset[int] = frozenset(),
    most: int = 1000,
) -> _TargetState:
    """Return which targets are alive. gone: known to be gone; most: maximum servers that
    may be read one by one. Raises InvalidRequest if a target is not a member of the
    pool, and ProviderError."""
    gone |= context.gone.among(targets.ids)
    remaining = [number for number in targets.ids if number not in gone]
    listed = {number: servers.by_id[number] for number in remaining if servers.lives(number)}
    _check_pool(operation, listed, definition)
    unlisted = [number for number in remaining if number not in servers.by_id]
    living, absent = dict[int, CherryServer](), []
    for number in unlisted[:most]:
        try:
            server = context.api.server(number)
        except NotFound:
            absent.append(number)
        except Unauthorized as error:
            # the list was readable with this token, so the refusal concerns this server
            text = f"server {number} does not belong to {operation.spec.group}: {error.message}"
            raise InvalidRequest(text) from None
        else:
            if is_leaving(server):
                absent.append(number)
            else:
                living[number] = server
    _check_pool(operation, living, definition)
    return _TargetState({**listed, **living}, tuple(absent), len(unlisted) <= most)


def _check_pool(
    operation: Operation, servers: Mapping[int, CherryServer], definition: Definition
) -> None:
    for number, server in servers.items():
        if not belongs(server, definition):
            raise InvalidRequest(
                f"server {number} ({server.hostname}) does not belong to {operation.spec.group}"
            )
