"""A webhook call, the pass that it requests and the operation of that pass are one trace."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.tracing import CURRENT, Tracing
from infra.emulators.controllers import objects
from infra.emulators.invocation import Invocation
from infra.emulators.lambda_events import Json
from infra.emulators.local_world import LocalWorld
from tests.scenario.policies import WEBHOOK, document


class TracedQueues:
    """A Sender that keeps the trace of each message, as SQS does. headers: by body."""

    def __init__(self, world: TracedWorld) -> None:
        self._world, self.headers = world, dict[str, str]()

    def send(self, queue: str, body: bytes, delay: int) -> None:
        header = self._world.tracing.header()
        if header:
            self.headers[body.decode()] = header
        self._world.queues.send(queue, body, delay)


class TracedWorld(LocalWorld):
    """A world whose functions are traced. sent: documents for X-Ray."""

    def __init__(self, *, on: bool) -> None:
        self.sent: list[dict[str, Any]] = []
        self.environment: dict[str, str] = {}
        self._on, self._ids = on, itertools.count(1)
        super().__init__(quick=True, grain=60.0, webhook=False)
        self.tracing = Tracing(
            self.environment,
            self.clock,
            lambda: f"{next(self._ids):016x}",
            lambda segment: self.sent.append(json.loads(segment)),
        )
        self.sender = TracedQueues(self)

    def new_runtime(self) -> Runtime:
        return dataclasses.replace(super().new_runtime(), tracing=self.tracing, sender=self.sender)

    def invoke(self, function: str, event: Json) -> Invocation:
        """With the trace that Lambda gives each invocation, and the headers of the messages."""
        self._begin(function)
        for record in event.get("Records", ()):
            header = self.sender.headers.get(record["body"], "")
            record["attributes"] |= {"AWSTraceHeader": header} if header else {}
        return super().invoke(function, event)

    def call(self, events: object) -> None:
        self._begin("api_handler")
        assert self.post(events)["statusCode"] < 300

    def _begin(self, function: str) -> None:
        number = next(self._ids)
        sampled = f"Root=1-67a4d9d0-{number:024x};Parent={number:016x};Sampled={int(self._on)}"
        self.environment |= {CURRENT: sampled, "AWS_LAMBDA_FUNCTION_NAME": function}


@pytest.fixture(params=[True, False], ids=["on", "off"])
def world(request: pytest.FixtureRequest) -> Iterator[TracedWorld]:
    with TracedWorld(on=request.param) as made:
        made.seed(objects.machine_deployment("workers", 1, 1, 4))
        made.apply_policy(document(scan="30m", webhook=WEBHOOK))
        made.step(150.0)
        yield made


def test_one_trace_shows_webhook_pass_and_operation(
    world: TracedWorld, request: pytest.FixtureRequest
) -> None:
    world.seed(objects.deployment("web", replicas=2, cpu="2500m"))
    [pod, *_] = world.pending()
    before = len(world.sent)
    world.call(_unschedulable(pod))
    called = world.environment[CURRENT].partition(";")[0].removeprefix("Root=")
    world.step(50.0)
    assert world.size("workers") > 1
    if request.node.callspec.params["world"] is False:
        assert world.sent == []
        return
    mine = [segment for segment in world.sent[before:] if segment["trace_id"] == called]
    assert {"reconcile", "act_clusterapi"} <= {segment["name"] for segment in mine}
    [reconcile] = [segment for segment in mine if segment["name"] == "reconcile"][:1]
    # the pass waits for further pods, and reads again
    assert [part["name"] for part in reconcile["subsegments"]] == [
        "read",
        "plan",
        "read",
        "plan",
        "save",
        "publish",
    ]
    act = [segment for segment in mine if segment["name"] == "act_clusterapi"]
    assert act[0]["parent_id"] == reconcile["id"]
    parts = [part for segment in act for part in segment.get("subsegments", ())]  # a watch has none
    [operation] = {part["annotations"]["operation"] for part in parts}
    assert operation.startswith("grow-")
    assert {part["annotations"]["kind"] for part in parts} == {"grow"}


def _unschedulable(pod: str) -> list[dict[str, Any]]:
    namespace, name = pod.split("/")
    return [
        {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{name}.1", "namespace": namespace, "uid": "e-1"},
            "reason": "FailedScheduling",
            "type": "Warning",
            "message": "0/1 nodes are available",
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name},
        }
    ]
