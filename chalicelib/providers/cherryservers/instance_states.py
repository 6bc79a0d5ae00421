"""Maps the vendor's server states to instance states.

Upstream ignores states: servers being deleted count as existing, and a failed deployment is noticed only when the
provision time is over.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.group import InstanceError, InstanceState
from chalicelib.providers.cherryservers.models import CherryServer

FAILED = "failed deployment"

# State, the required status (empty for any), and the instance state. The first matching row applies. The
# vocabularies were collected from the vendor's clients; words that occur in none of them are reported.
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
    """The state of a server; doubt: the unknown words, empty if all are known."""

    state: InstanceState
    error: InstanceError | None = None
    doubt: str = ""


def server_state(server: CherryServer) -> ServerState:
    """Return the state for a state and status.

    Unknown words count as running: a word alone must not cause a deletion or a purchase."""
    state, status = _word(server.state), _word(server.status)
    for wanted_state, wanted_status, means in _ROWS:
        if wanted_state in ("", state) and wanted_status in ("", status):
            return ServerState(
                means, _failure(server) if status == FAILED and means is InstanceState.CREATING else None
            )
    if state == "active" and not status:
        return ServerState(InstanceState.RUNNING)  # a row without a status, as in older responses
    return ServerState(InstanceState.RUNNING, doubt=f"state {state[:40]!r} with status {status[:40]!r}")


def is_leaving(server: CherryServer) -> bool:
    """Whether the vendor is deleting the server."""
    return server_state(server).state is InstanceState.DELETING


def doubts(servers: Iterable[CherryServer]) -> dict[str, CherryServer]:
    """Return each unknown word once, with the first server that has it."""
    found: dict[str, CherryServer] = {}
    for server in servers:
        if doubt := server_state(server).doubt:
            found.setdefault(doubt, server)
    return found


def _failure(server: CherryServer) -> InstanceError:
    return InstanceError("Unknown", FAILED, f"server {server.id}: its deployment has failed")


def _word(text: str) -> str:
    return text.strip().casefold()
