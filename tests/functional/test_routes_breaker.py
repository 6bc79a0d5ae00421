"""GET /clusters/{name} shows the circuit breaker and the end of its release."""

from __future__ import annotations

import pytest

from chalicelib.model.memory import BreakerState, Memory
from chalicelib.model.timestamps import format_time
from tests.functional.app_client import AppClient

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")


def test_cluster_route_shows_the_circuit_breaker(desk: AppClient) -> None:
    name, now = desk.cluster(), desk.clock()
    assert desk.get(f"/clusters/{name}").json_body["brake"] == {
        "on": False,
        "pulledAt": None,
        "wanted": 0,
        "releasedUntil": None,
        "lastHour": {"nodes": 0, "pods": 0},
    }
    breaker = BreakerState(
        ((now - 4000, 9, 9), (now - 60, 2, 30), (now, 1, 0)), tripped_at=now - 60, wanted=12
    )
    lease = desk.store.leases.acquire(name, f"pass-{now}", 60)
    desk.store.memory.save(name, Memory(), Memory(breaker=breaker), (), lease)
    desk.store.leases.release(lease)
    shown = {
        "on": True,
        "pulledAt": format_time(now - 60),
        "wanted": 12,
        "releasedUntil": None,
        "lastHour": {"nodes": 3, "pods": 30},
    }
    assert desk.get(f"/clusters/{name}").json_body["brake"] == shown
    desk.store.breaker_overrides.release(name, now + 600)
    released = {**shown, "on": False, "releasedUntil": format_time(now + 600)}
    assert desk.get(f"/clusters/{name}").json_body["brake"] == released
    desk.clock.advance(601)
    assert desk.get(f"/clusters/{name}").json_body["brake"]["on"] is True
