"""What one step of an operation came to. A step never sleeps: it says when to come back (architecture §5, §6)."""

from __future__ import annotations

import msgspec


class Succeeded(msgspec.Struct, frozen=True, tag=True):
    """The whole operation is finished. facts: what was achieved, for the journal (sizes, instance and request ids)."""

    facts: dict[str, str | int] = {}


class InProgress(msgspec.Struct, frozen=True, tag=True):
    """Not finished: call again after so many seconds. data replaces the operation's stored data; step: what is next."""

    after: float
    step: str
    data: dict[str, str] = {}
    note: str = ""
    evicted: tuple[str, ...] = ()  # pods (namespace/name) whose eviction was granted in this step
    refused: tuple[str, ...] = ()  # pods whose eviction was refused in this step


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It will not happen. cls: the provider error class that back-off follows; code and message are the vendor's,
    secrets removed. retry_after: seconds the vendor asked us to wait, 0 where it said nothing."""

    error_class: str
    message: str
    code: str = ""
    retry_after: float = 0.0
    facts: dict[str, str | int] = {}


Outcome = Succeeded | InProgress | Failed
