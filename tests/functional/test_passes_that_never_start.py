"""A cluster whose passes never start is late wherever somebody looks, and nothing about it is 0."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functional.app_client import AppClient
from tests.functional.test_routes_metrics import samples

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")


def listed(desk: AppClient) -> dict[str, Any]:
    [row] = json.loads(desk.get("/clusters").body)["clusters"]
    assert isinstance(row, dict)
    return row


def test_routes_say_late_after_the_limit_and_count_nothing(desk: AppClient) -> None:
    name = desk.cluster()
    assert (listed(desk)["health"], listed(desk)["status"]["word"]) == ("waiting", "no pass yet")
    desk.clock.advance(2040)
    row = listed(desk)
    assert (row["health"], row["status"]["word"], row["status"]["person"]) == (
        "late",
        "no passes",
        True,
    )
    assert row["counts"] == {"nodes": None, "coming": None, "waiting": None, "withoutNode": None}
    one = json.loads(desk.get(f"/clusters/{name}").body)
    assert (one["status"], one["cost"]) == (row["status"], None)
    assert samples(desk.get("/metrics"), name) == {
        "outscaler_mode active": 1,
        "outscaler_paused": 0,
        "outscaler_pass_late": 1,
    }
