"""Traces of passes and operations for AWS X-Ray, where Lambda traces the function;
otherwise nothing happens.

Lambda names the trace of an invocation in a variable of the environment, and a queue message
carries the trace of its sender. The work on a message is one segment of the sender's trace, so that
a webhook call, the pass that it requests and the operations of that pass are one trace. A function
that is not traced loads no code for it, sends nothing, and only looks at the variable.

A trace is for observers: a failure to send it is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec

CURRENT = "_X_AMZN_TRACE_ID"
DAEMON = "AWS_XRAY_DAEMON_ADDRESS"
MOST_PARTS = 100
"""Parts of one segment; a document of X-Ray has at most 64 KB."""
_LONGEST = 500  # characters of a header
_SAMPLED = "Sampled=1"
_ROOT, _PARENT = re.compile(r"1-[0-9a-f]{8}-[0-9a-f]{24}\Z"), re.compile(r"[0-9a-f]{16}\Z")

NewId = Callable[[], str]
"""Returns a new id of 16 hexadecimal digits."""
Send = Callable[[bytes], None]


class TraceHeader(msgspec.Struct, frozen=True):
    """root: the trace. parent: the segment that comes before."""

    root: str
    parent: str

    def text(self) -> str:
        """Return the header in the form of X-Ray."""
        return f"Root={self.root};Parent={self.parent};{_SAMPLED}"


def parsed(text: str) -> TraceHeader | None:
    """Return the header; None for one that is not sampled or has another form."""
    if _SAMPLED not in text or len(text) > _LONGEST:
        return None
    fields = dict(part.strip().partition("=")[::2] for part in text.split(";"))
    root, parent = fields.get("Root", ""), fields.get("Parent", "")
    sampled = fields.get("Sampled") == "1" and _ROOT.match(root) and _PARENT.match(parent)
    return TraceHeader(root, parent) if sampled else None


class TracedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a segment, in the form of X-Ray. Times in epoch seconds."""

    id: str
    name: str
    start_time: float
    end_time: float
    fault: bool = False
    annotations: dict[str, str] = {}


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work on one message, in the form of X-Ray."""

    id: str
    name: str
    trace_id: str
    parent_id: str
    start_time: float
    end_time: float
    fault: bool = False
    subsegments: list[TracedPart] = []


class Tracing:
    """The traces of one process, which works on one message at a time.

    environment: of the process, in which Lambda changes the current trace. clock: epoch seconds.
    new_id: of segments. send: gives a document to X-Ray; never raises.
    """

    def __init__(
        self, environment: Mapping[str, str], clock: Callable[[], float], new_id: NewId, send: Send
    ) -> None:
        self._environment, self._clock, self._new_id, self._send = environment, clock, new_id, send
        self._open: TraceHeader | None = None
        self._parts: list[TracedPart] = []

    def message(self, header: str) -> AbstractContextManager[None]:
        """Trace the work on a message. header: of the message, "" if it has none; then the
        invocation's own trace is continued."""
        sender = parsed(header) or parsed(self._environment.get(CURRENT, ""))
        return nullcontext() if sender is None else self._segment(sender)

    def part(self, name: str, **annotations: str) -> AbstractContextManager[None]:
        """Trace a part of the work on a message; nothing outside of a traced message."""
        return nullcontext() if self._open is None else self._part(name, annotations)

    def header(self) -> str:
        """Return the header for a message that is sent now; "" if nothing is traced."""
        current = self._open or parsed(self._environment.get(CURRENT, ""))
        return current.text() if current else ""

    @contextmanager
    def _segment(self, trace_header: TraceHeader) -> Iterator[None]:
        name = self._environment.get("AWS_LAMBDA_FUNCTION_NAME", "") or "outscaler"
        begun, fault = self._clock(), True
        self._open, self._parts = TraceHeader(trace_header.root, self._new_id()), []
        try:
            yield
            fault = False
        finally:
            segment = Segment(
                id=self._open.parent,
                name=name,
                trace_id=trace_header.root,
                parent_id=trace_header.parent,
                start_time=begun,
                end_time=self._clock(),
                fault=fault,
                subsegments=self._parts[:MOST_PARTS],
            )
            self._open, self._parts = None, []
            self._send(msgspec.json.encode(segment))

    @contextmanager
    def _part(self, name: str, annotations: dict[str, str]) -> Iterator[None]:
        begun, fault = self._clock(), True
        try:
            yield
            fault = False
        finally:
            if len(self._parts) < MOST_PARTS:
                self._parts.append(
                    TracedPart(self._new_id(), name, begun, self._clock(), fault, annotations)
                )


def tracing_of(
    environment: Mapping[str, str], clock: Callable[[], float], new_id: NewId
) -> Tracing:
    """Return the traces of a process that sends to the daemon which Lambda
    names in the environment."""

    def send(document: bytes) -> None:
        from chalicelib.net.xray_daemon import send

        send(environment.get(DAEMON, ""), document)

    return Tracing(environment, clock, new_id, send)
