"""The emulation reads functions, queues and routes from the deployment, and builds
events in Lambda's form.
"""

from __future__ import annotations

import json

from app import app
from infra.emulators import deployed_functions
from infra.emulators.api_gateway import find, proxy_event
from infra.emulators.lambda_events import schedule_event


def test_emulation_every_function_is_callable_and_every_queue_in_the_template() -> None:
    functions = {function.name: function for function in deployed_functions.functions()}
    assert functions["tick"].schedule == "rate(1 minute)"
    assert functions["act_clusterapi"].queue == "act_clusterapi"
    assert all(callable(deployed_functions.entry(function)) for function in functions.values())
    assert set(deployed_functions.queues()) == set(functions) - {"tick", "reconcile_large"}
    assert set(deployed_functions.invocations()) == {"reconcile_large"}


def test_emulation_only_read_routes_require_the_api_key() -> None:
    read, hook = find(app, "GET", "/clusters"), find(app, "POST", "/clusters/shop/events")
    assert read is not None
    assert hook is not None
    assert hook.allows({}, "key")
    assert read.allows({"X-Api-Key": "key"}, "key")
    assert not read.allows({"X-Api-Key": "other"}, "key")
    assert not read.allows({"X-Api-Key": ""}, "")


def test_emulation_request_becomes_a_proxy_event_that_the_app_answers() -> None:
    route = find(app, "GET", "/healthz?a=1&a=2")
    assert route is not None
    event = proxy_event(route, "GET", "/healthz?a=1&a=2", {"Accept": "*/*"}, b"", "r")
    assert event["multiValueQueryStringParameters"] == {"a": ["1", "2"]}
    answer = app(event, None)
    assert (answer["statusCode"], json.loads(answer["body"])) == (200, {"status": "ok"})


def test_emulation_each_scheduled_event_has_a_time_and_an_id() -> None:
    events = [schedule_event("tick", 1_795_245_654.0, number) for number in range(2)]
    assert events[0]["time"] == "2026-11-21T07:20:54Z"
    assert events[0]["id"] != events[1]["id"]
