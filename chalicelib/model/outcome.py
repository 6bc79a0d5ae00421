"""The result of one step of an operation. A step never sleeps: it returns when
it should be called again.
"""

from __future__ import annotations

import msgspec

ABANDONED = "Abandoned"
"""Error class of an operation that Outscaler cancelled."""
NOTICE_TAKEN_BACK = "NoticeTakenBack"
"""Error class of an interrupted removal whose node stays: the vendor has not taken it. It is no
failure of anything, and the operation ends as abandoned."""
NODE_RECOVERED = "NodeRecovered"
"""Error class of a repair whose node's kubelet answered again before the vendor was asked. The
operation ends as abandoned, and the node's next repair waits."""
NOT_FAILED = frozenset({ABANDONED, NOTICE_TAKEN_BACK, NODE_RECOVERED})
"""Error classes of operations that end as abandoned."""
SIGNAL_GONE = "SignalGone"
"""Code of a NOTICE_TAKEN_BACK whose signals ended before the node was to leave."""


class Succeeded(msgspec.Struct, frozen=True, tag=True):
    """The whole operation has succeeded. facts: results for the journal (sizes,
    instance and request ids)."""

    facts: dict[str, str | int] = {}


class InProgress(msgspec.Struct, frozen=True, tag=True):
    """Not finished: call again after this many seconds. data replaces the operation's stored
    data; step: the next step."""

    after: float
    step: str
    data: dict[str, str] = {}
    note: str = ""
    evicted: tuple[str, ...] = ()  # pods (namespace/name) whose eviction was granted in this step
    refused: tuple[str, ...] = ()  # pods whose eviction was refused in this step


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The operation has failed. error_class: the provider error class that determines the back-off;
    code and message are the vendor's, without secrets. retry_after: seconds that the vendor asked
    us to wait, 0 if unspecified."""

    error_class: str
    message: str
    code: str = ""
    retry_after: float = 0.0
    facts: dict[str, str | int] = {}


Outcome = Succeeded | InProgress | Failed
