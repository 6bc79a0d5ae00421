"""What the vendor says of a server's life, as the core knows it (cherryservers.md §6; D12 and D25).

Upstream knows no states: servers being deleted count as there, and a deployment that failed is noticed when the time to
join is over.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.group import InstanceError, InstanceState
from chalicelib.providers.cherryservers.models import CherryServer

FAILED = "failed deployment"

# state, the status that it must have beside it (any where there is none), what it means. The first row that fits
# counts. The vocabularies were put together from the vendor's clients; what is in none of them is told.
_ROWS: tuple[tuple[str, str, InstanceState], ...] = (
    ("terminating", "", InstanceState.DELETING),
    ("", "terminating", InstanceState.DELETING),
    ("", FAILED, InstanceState.CREATING),
    ("pending", "", InstanceState.CREATING),
    ("provisioning", "", InstanceState.CREATING),
    ("", "deploying", InstanceState.CREATING),
    ("inactive", "", InstanceState.RUNNING),
    ("", "rescue mode", InstanceState.RUNNING),
    ("active", "deployed", InstanceState.RUNNING),
    ("active", "allocated", InstanceState.RUNNING),
)


class ServerState(msgspec.Struct, frozen=True):
    """Where a server stands; doubt: the words that nobody has heard before, empty for the known ones."""

    state: InstanceState
    error: InstanceError | None = None
    doubt: str = ""


def server_state(server: CherryServer) -> ServerState:
    """By state and status. Unheard words are a running machine: nobody gives one up, or buys another, for a word."""
    state, status = _word(server.state), _word(server.status)
    for wanted_state, wanted_status, means in _ROWS:
        if wanted_state in ("", state) and wanted_status in ("", status):
            return ServerState(
                means, _failure(server) if status == FAILED and means is InstanceState.CREATING else None
            )
    if state == "active" and not status:
        return ServerState(InstanceState.RUNNING)  # a row without a status, as older answers are
    return ServerState(InstanceState.RUNNING, doubt=f"state {state[:40]!r} with status {status[:40]!r}")


def is_leaving(server: CherryServer) -> bool:
    """Whether the vendor is deleting it."""
    return server_state(server).state is InstanceState.DELETING


def doubts(servers: Iterable[CherryServer]) -> dict[str, CherryServer]:
    """The unheard words, each once, and the first server that bears them."""
    found: dict[str, CherryServer] = {}
    for server in servers:
        if doubt := server_state(server).doubt:
            found.setdefault(doubt, server)
    return found


def _failure(server: CherryServer) -> InstanceError:
    return InstanceError("Unknown", FAILED, f"server {server.id}: its deployment has failed")


def _word(text: str) -> str:
    return text.strip().casefold()
