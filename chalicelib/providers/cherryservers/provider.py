"""The Provider protocol over servers with tags: wires the parts. What a person wrote and is wrong is a failure that
names it; for the vendor's errors see settled.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Failed, Outcome
from chalicelib.providers.base import Connection, Observation
from chalicelib.providers.cherryservers import groups
from chalicelib.providers.cherryservers.account import open_api
from chalicelib.providers.cherryservers.bootstrap import open_tokens
from chalicelib.providers.cherryservers.context import Context
from chalicelib.providers.cherryservers.definitions import read_definitions
from chalicelib.providers.cherryservers.final import Final
from chalicelib.providers.cherryservers.gone import Gone
from chalicelib.providers.cherryservers.grow import grow
from chalicelib.providers.cherryservers.joined import lister
from chalicelib.providers.cherryservers.remove import release, remove, shrink
from chalicelib.providers.cherryservers.settings import PROVIDER, read_settings
from chalicelib.providers.kube_api import KubeLists
from chalicelib.providers.settled import settled

Step = Callable[[Context, Operation], Outcome]


class CherryServers:
    """The pools that a policy names, in one project, for one pass."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def name(self) -> str:
        """`cherryservers`."""
        return PROVIDER

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """All pools: one list of servers, and one plan for each kind of machine an hour."""
        return groups.observe(self._context, nodes)

    def grow(self, operation: Operation) -> Outcome:
        """from_size -> to_size, a machine at a time; the first call only announces what it will buy."""
        return self._outcome(grow, operation)

    def remove(self, operation: Operation) -> Outcome:
        """Delete by the servers' numbers; the size goes down with them."""
        return self._outcome(remove, operation)

    def release(self, operation: Operation) -> bool:
        """False where every target is gone or going."""
        return release(self._context, operation)

    def shrink_target(self, operation: Operation) -> Outcome:
        """Nothing to be lowered: a pool's size is the servers it has."""
        return self._outcome(shrink, operation)

    def poll(self, operation: Operation) -> Outcome:
        """The next step of a change."""
        return self._outcome(_STEPS[operation.kind], operation)

    def _outcome(self, step: Step, operation: Operation) -> Outcome:
        try:
            return settled(step, self._context, operation, final=Final)
        except BadInput as mistake:
            return Failed("InvalidRequest", str(mistake).splitlines()[0])


_STEPS: dict[Kind, Step] = {
    Kind.GROW: grow,
    Kind.REMOVE: remove,
    Kind.DISCARD: remove,
    Kind.SHRINK: shrink,
}


def build(connection: Connection) -> CherryServers:
    """A provider for one pass; raises BadInput for settings that cannot be. Nothing is read or asked yet: not even the
    definitions, which may stand in a secret."""
    settings = read_settings(connection.settings, connection.groups)
    return CherryServers(Context(
        settings,
        read_definitions=lambda: read_definitions(settings, connection.read_secret),
        open_api=lambda project: open_api(connection, settings, project),
        open_gone=lambda project: Gone(connection.means.shelf, project, connection.now),
        open_tokens=lambda: open_tokens(connection, settings),
        nodes=None if connection.kube is None else lister(cast(KubeLists, connection.kube)),
    ))
