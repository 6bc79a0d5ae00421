"""Traces: one document per message in the sender's trace, and nothing at all
where Lambda does not trace.
"""

from __future__ import annotations

import itertools
import json
import socket
from typing import Any

import pytest

from chalicelib.net import xray_daemon
from chalicelib.runtime.tracing import CURRENT, MOST_PARTS, Tracing, parsed
from infra.emulators.controllers.clock import ManualClock
from tests.cases import each_row

ROOT, PARENT, OTHER = (
    "1-67a4d9d0-0123456789abcdef01234567",
    "00f067aa0ba902b7",
    "1-67a4d9d1-0123456789abcdef01234567",
)
HEADER = f"Root={ROOT};Parent={PARENT};Sampled=1"


class TracedProcess:
    """A process whose documents are kept. sent: decoded."""

    def __init__(self, **environment: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.environment = {"AWS_LAMBDA_FUNCTION_NAME": "reconcile", **environment}
        self.clock, ids = ManualClock(100.0), itertools.count(1)
        self.tracing = Tracing(
            self.environment,
            self.clock,
            lambda: f"{next(ids):016x}",
            lambda document: self.sent.append(json.loads(document)),
        )


@each_row(
    "text",
    [
        "",
        "Sampled=1",
        f"Root={ROOT};Parent={PARENT};Sampled=0",
        f"Root={ROOT};Parent={PARENT}",
        f"Root={ROOT};Sampled=1",
        f"Root=1-xyz;Parent={PARENT};Sampled=1",
        f"Root={ROOT}0;Parent={PARENT};Sampled=1",
        f"Root={ROOT};Parent={PARENT};Sampled=10",
        HEADER + ";x=" + "y" * 1000,
    ],
)
def test_header_that_is_not_sampled_or_malformed_is_not_traced(text: str) -> None:
    assert parsed(text) is None


def test_header_with_further_fields_is_read() -> None:
    found = parsed(f"Root={ROOT};Parent={PARENT};Sampled=1;Lineage=a87bd80c:1|68fd508a:5")
    assert found is not None
    assert found.text() == HEADER


def test_work_on_a_message_is_one_segment_of_the_senders_trace() -> None:
    process = TracedProcess(**{CURRENT: f"Root={OTHER};Parent={PARENT};Sampled=1"})
    with process.tracing.message(HEADER):
        forwarded = process.tracing.header()
        process.clock.advance(2.0)
        with process.tracing.part("plan", cluster="shop"):
            process.clock.advance(3.0)
    assert process.sent == [
        {
            "id": "0000000000000001",
            "name": "reconcile",
            "trace_id": ROOT,
            "parent_id": PARENT,
            "start_time": 100.0,
            "end_time": 105.0,
            "subsegments": [
                {
                    "id": "0000000000000002",
                    "name": "plan",
                    "start_time": 102.0,
                    "end_time": 105.0,
                    "annotations": {"cluster": "shop"},
                }
            ],
        }
    ]
    assert forwarded == f"Root={ROOT};Parent=0000000000000001;Sampled=1"


def test_message_without_a_trace_continues_that_of_the_invocation() -> None:
    process = TracedProcess(**{CURRENT: HEADER})
    assert process.tracing.header() == HEADER
    with process.tracing.message(""):
        pass
    assert process.sent[0]["trace_id"] == ROOT
    process.environment[CURRENT] = ""
    assert process.tracing.header() == ""


def test_failure_is_marked_and_raised() -> None:
    process = TracedProcess()
    with (
        pytest.raises(ValueError, match="broken"),
        process.tracing.message(HEADER),
        process.tracing.part("read"),
    ):
        raise ValueError("broken")
    assert (process.sent[0]["fault"], process.sent[0]["subsegments"][0]["fault"]) == (True, True)
    assert process.tracing.header() == ""


def test_nothing_is_measured_or_sent_without_a_trace() -> None:
    process = TracedProcess(**{CURRENT: f"Root={ROOT};Parent={PARENT};Sampled=0"})
    with process.tracing.message(""), process.tracing.part("read"):
        assert process.tracing.header() == ""
    assert process.sent == []


def test_parts_of_a_segment_are_limited() -> None:
    process = TracedProcess()
    with process.tracing.message(HEADER):
        for _ in range(MOST_PARTS + 5):
            with process.tracing.part("step", operation="x" * 100):
                pass
    assert len(process.sent[0]["subsegments"]) == MOST_PARTS
    assert len(json.dumps(process.sent[0])) < xray_daemon.LONGEST


def test_daemon_receives_a_document_with_its_header() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.settimeout(600)
        xray_daemon.send(f"127.0.0.1:{daemon.getsockname()[1]}", b"{}")
        header, document = daemon.recv(1000).split(b"\n")
    assert (json.loads(header), document) == ({"format": "json", "version": 1}, b"{}")


@each_row(
    "address",
    [
        "",
        "localhost:2000",
        "127.0.0.1",
        "127.0.0.1:99999",
        "999.0.0.1:2000",
        "127.0.0.1:1;rm",
        "::1:2000",
    ],
)
def test_daemon_that_cannot_be_reached_raises_nothing(address: str) -> None:
    xray_daemon.send(address, b"{}")
    xray_daemon.send("127.0.0.1:1", b"x" * (xray_daemon.LONGEST + 1))
