"""What the emulated zone refuses. If it granted more than the vendor does, the provider's tests
would show nothing; all that it grants is shown by them."""

from __future__ import annotations

import json

import pytest

from infra.emulators.exoscale.models import Nodepool
from tests.providers.exoscale.wire import ZoneClient

UNKNOWN_ID = "e5000000-0000-4000-8000-000000009999"


def _web(desk: ZoneClient, size: int = 2) -> tuple[Nodepool, str]:
    """Returns a Nodepool and its address."""
    cluster = desk.zone.add_cluster("prod")
    made = desk.zone.add_nodepool(cluster.id, "web", size=size)
    return made, f"/sks-cluster/{cluster.id}/nodepool/{made.id}"


def test_exoscale_emulator_refuses_invalid_changes_and_unknown_objects() -> None:
    desk = ZoneClient()
    web, _ = _web(desk)
    own = f"/instance-pool/{desk.zone.add_pool('own', size=2).id}"
    hidden = f"/instance-pool/{web.pool.id}"  # changes only through its Nodepool
    member = list(web.pool.members)[:1]
    sizes = [-1, "3", True, None, 0]
    evictions: list[object] = [[], [UNKNOWN_ID], ["../x"], "text", None]
    refused: list[tuple[str, str, object, int]] = [
        *(("PUT", f"{own}:scale", {"size": size}, 400) for size in sizes),
        ("PUT", f"{own}:scale", [1], 400),
        *(("PUT", f"{own}:evict", {"instances": ids}, 400) for ids in evictions),
        ("PUT", f"{hidden}:scale", {"size": 3}, 400),
        ("PUT", f"{hidden}:evict", {"instances": member}, 400),
        ("PUT", f"/instance/{UNKNOWN_ID}:reboot", None, 404),
        ("GET", f"/instance/{UNKNOWN_ID}", None, 404),
        ("GET", f"/instance-pool/{UNKNOWN_ID}", None, 404),
        ("GET", f"/sks-cluster/{UNKNOWN_ID}", None, 404),
        ("GET", f"/sks-cluster/{UNKNOWN_ID}/nodepool/{UNKNOWN_ID}", None, 404),
        ("GET", f"/operation/{UNKNOWN_ID}", None, 404),
        ("GET", f"/instance-type/{UNKNOWN_ID}", None, 404),
        ("GET", "/quota/nothing", None, 404),
        ("GET", "/instance/x", None, 400),
        ("GET", "/nothing", None, 404),
        ("PUT", "/instance-pool", {}, 404),
    ]
    for method, target, body, status in refused:
        assert "message" in desk.ask(method, target, body, status=status), (target, body)
    assert [call for call in desk.front.log if call.status == 200] == []
    assert (len(web.pool.staying), desk.ask("GET", own)["size"]) == (2, 2)


@pytest.mark.parametrize("state", ["creating", "updating", "suspended", "destroying"])
def test_exoscale_emulator_pool_that_is_not_running_refuses_orders(
    desk: ZoneClient, state: str
) -> None:
    web, path = _web(desk)
    desk.zone.set_state(web.pool.id, state)
    desk.ask("PUT", f"{path}:scale", {"size": 3}, status=409)
    desk.zone.set_state(web.pool.id, "")
    desk.ask("PUT", f"{path}:scale", {"size": 3})


def test_exoscale_emulator_second_order_during_a_first_is_a_conflict(desk: ZoneClient) -> None:
    web, path = _web(desk)
    desk.ask("PUT", f"{path}:scale", {"size": 3})
    desk.ask("PUT", f"{path}:scale", {"size": 4}, status=409)
    desk.ask("PUT", f"{path}:evict", {"instances": list(web.pool.members)[:1]}, status=409)
    desk.after(60.0)
    desk.ask("PUT", f"{path}:scale", {"size": 4})


def test_exoscale_emulator_quota_refuses_what_exceeds_it(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=2)
    desk.zone.add_lonely()
    desk.zone.other_usage, desk.zone.limit = 4, 8
    assert desk.ask("GET", "/quota/instance") == {"resource": "instance", "usage": 7, "limit": 8}
    refused = desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 4}, status=412)
    assert "Quota" in refused["message"]
    assert pool.size == 2


@pytest.mark.parametrize("form", ["message", "error", "problem", "text"])
def test_exoscale_emulator_error_bodies_have_all_vendor_forms(desk: ZoneClient, form: str) -> None:
    desk.front.form = form
    answer = desk.send("GET", f"/instance/{UNKNOWN_ID}")
    assert answer.status == 404
    reported = {
        "message": lambda body: json.loads(body)["message"],
        "error": lambda body: json.loads(body)["error"],
        "problem": lambda body: json.loads(body)["detail"],
        "text": lambda body: body.decode(),
    }[form](answer.body)
    assert UNKNOWN_ID in reported


def test_exoscale_emulator_log_shows_requests_and_no_secret(desk: ZoneClient) -> None:
    pool = desk.zone.add_pool("own", size=1)
    desk.send("PUT", f"/instance-pool/{pool.id}:scale", {"size": 2})
    (call,) = desk.front.log
    assert (call.operation, call.key, call.status, call.writes) == (
        "scale-instance-pool",
        "EXO-EXAMPLE-KEY-0001",
        200,
        True,
    )
    assert call.line == f'PUT scale-instance-pool /v2/instance-pool/{pool.id}:scale {{"size": 2}}'
    assert not any(signature in repr(call) for signature in desk.front.seen)
