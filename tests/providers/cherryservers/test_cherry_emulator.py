"""What the emulated Cherry Servers API refuses, limits and hides. Were it more generous than the
vendor, the provider's tests would show nothing; all that it grants is shown by them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.emulators.cherryservers.server import LIMIT, RETRY_AFTER, Token
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.cherryservers.emulator_client import (
    ORDER,
    SERVERS,
    TOKEN,
    EmulatorClient,
)


@pytest.fixture
def bed() -> EmulatorClient:
    return EmulatorClient()


def buy(bed: EmulatorClient, **changed: Any) -> int:
    return int(bed.json("POST", SERVERS, {**ORDER, **changed})["id"])


def in_list(bed: EmulatorClient) -> dict[int, str]:
    return {row["id"]: row["state"] for row in bed.json("GET", SERVERS)}


# -- timing


# -- stock and credit


def test_cherry_emulator_sold_out_plan_is_refused_on_both_markets(bed: EmulatorClient) -> None:
    bed.cloud.sell_out("e5_1620v4")
    for spot in (True, False):
        status, text = bed.refusal("POST", SERVERS, {**ORDER, "spot_market": spot})
        assert (status, "stock" in text) == (400, True)
    buy(bed, region="eu_west_1")


def test_cherry_emulator_reboots_only_deployed_servers(bed: EmulatorClient) -> None:
    server = buy(bed)
    actions, reboot = f"/servers/{server}/actions", {"type": "reboot"}
    assert bed.refusal("POST", actions, reboot)[0] == 400
    bed.after(200.0)
    assert bed.ask("POST", actions, reboot).status == 201
    for body in ({"type": "explode"}, {"type": 1}, {}):
        assert bed.refusal("POST", actions, body)[0] == 400
    assert bed.refusal("POST", "/servers/9/actions", reboot)[0] == 404
    assert bed.cloud.servers[server].reboots == [bed.clock()]


def test_cherry_emulator_credit_and_quota_can_be_exhausted(bed: EmulatorClient) -> None:
    bed.cloud.credit = 1
    buy(bed)
    status, text = bed.refusal("POST", SERVERS, ORDER)
    assert (status, "credit" in text) == (402, True)
    bed.cloud.credit, bed.cloud.quota = None, 1
    assert "limit" in bed.refusal("POST", SERVERS, ORDER)[1]


@pytest.mark.parametrize(
    ("changed", "status", "word"),
    [
        ({"plan": "e9_none"}, 400, "Plan e9_none"),
        ({"plan": ""}, 400, "plan"),
        ({"region": "mars"}, 400, "Region mars"),
        ({"plan": "amd-ryzen-9950x"}, 400, "not available in region"),
        ({"image": "beos"}, 400, "Image beos"),
        ({"ssh_keys": [101, 999]}, 404, "SSH key 999"),
        ({"ssh_keys": ["a1"]}, 400, "ssh_keys"),
        ({"tags": {"a": 1}}, 400, "tags"),
        ({"tags": ["a"]}, 400, "tags"),
        ({"user_data": "not base64!"}, 400, "user_data"),
        ({"hostname": "-x_"}, 400, "hostname"),
        ({"project_id": 10002}, 400, "project"),
        ({"os_partition_size": "big"}, 400, "os_partition_size"),
    ],
)
def test_cherry_emulator_refuses_invalid_orders_without_charge(
    bed: EmulatorClient, changed: dict[str, Any], status: int, word: str
) -> None:
    found = bed.refusal("POST", SERVERS, {**ORDER, **changed})
    assert found[0] == status
    assert word in found[1]
    assert not bed.cloud.servers
    assert set(bed.cloud.stock.values()) == {500}


def test_cherry_emulator_refuses_a_body_that_is_not_json(bed: EmulatorClient) -> None:
    for body in (b"{", b"[]", b"\xff"):
        assert bed.refusal("POST", SERVERS, body)[0] == 400


def test_cherry_emulator_exposes_user_data_to_tests_only(bed: EmulatorClient) -> None:
    text = base64.b64encode(b"#!/bin/bash\necho example-bootstrap\n").decode()
    server = buy(bed, user_data=text, os_partition_size=60)
    order = bed.cloud.servers[server].order
    assert base64.b64decode(order.user_data) == b"#!/bin/bash\necho example-bootstrap\n"
    assert order.os_partition_size == 60
    assert json.loads(bed.front.bodies[-1])["user_data"] == text
    assert text not in bed.ask("GET", f"/servers/{server}").body.decode()


# -- pages


def test_cherry_emulator_limit_and_offset_cut_a_list_and_total_is_reported(
    bed: EmulatorClient,
) -> None:
    made = [bed.cloud.add_server("workers").id for _ in range(7)]
    found: list[int] = []
    for offset in (0, 3, 6, 9):
        answer = bed.ask("GET", f"{SERVERS}?limit=3&offset={offset}")
        assert answer.headers["X-Total-Count"] == "7"
        found += [row["id"] for row in json.loads(answer.body)]
    assert found == made
    assert len(bed.json("GET", f"{SERVERS}?limit=0&offset=0")) == 7
    assert bed.refusal("GET", f"{SERVERS}?limit=many")[0] == 400


def test_cherry_emulator_page_cap_applies_with_and_without_a_limit(bed: EmulatorClient) -> None:
    made = [bed.cloud.add_server("workers").id for _ in range(5)]
    bed.front.actions.cap = 2
    for query in ("", "?limit=100"):
        answer = bed.ask("GET", SERVERS + query)
        assert [row["id"] for row in json.loads(answer.body)] == made[:2]
        assert answer.headers["X-Total-Count"] == "5"
    bed.front.counts = False
    assert bed.ask("GET", SERVERS).headers == {}


def test_cherry_emulator_fields_and_status_filter_an_answer(bed: EmulatorClient) -> None:
    buy(bed)
    bed.cloud.add_server("workers")
    assert bed.json("GET", f"{SERVERS}?fields=id,state") == [
        {"id": 1000, "state": "pending"},
        {"id": 1001, "state": "active"},
    ]
    assert bed.json("GET", "/servers/1001?fields=state") == {"state": "active"}
    assert [row["id"] for row in bed.json("GET", f"{SERVERS}?status[]=deployed")] == [1001]


# -- authorization and rate limits


def test_cherry_emulator_accepts_only_a_token_of_the_account(bed: EmulatorClient) -> None:
    for token in ("", "CHERRY-EXAMPLE-OTHER"):
        assert bed.refusal("GET", SERVERS, token=token)[0] == 401
    bed.front.tokens["reader"] = Token(writes=False)
    assert bed.ask("GET", SERVERS, token="reader").status == 200
    assert bed.refusal("POST", SERVERS, ORDER, token="reader")[0] == 403
    bed.front.tokens[TOKEN].active = False
    assert bed.refusal("GET", SERVERS)[0] == 401


def test_cherry_emulator_foreign_objects_are_forbidden_absent_ones_not_found(
    bed: EmulatorClient,
) -> None:
    foreign = bed.cloud.add_server("workers", project=20002).id
    assert bed.refusal("GET", "/projects/20002/servers")[0] == 403
    assert [bed.refusal(method, f"/servers/{foreign}")[0] for method in ("GET", "DELETE")] == [
        403,
        403,
    ]
    for path in (
        "/projects/7/servers",
        "/servers/7",
        "/plans/none",
        "/regions/none",
        "/nowhere",
        "/ssh-keys/7",
    ):
        assert bed.refusal("GET", path)[0] == 404
    assert bed.refusal("PATCH", SERVERS)[0] == 404
    assert in_list(bed) == {}


def test_cherry_emulator_throttles_the_fifth_request_within_a_second(bed: EmulatorClient) -> None:
    bed.front.throttle.limits[""] = LIMIT
    answers = []
    for _ in range(5):
        answers.append(bed.ask("GET", "/regions"))
        bed.clock.advance(0.1)
    assert [answer.status for answer in answers] == [200] * 4 + [429]
    assert answers[-1].headers["Retry-After"] == "1"
    bed.clock.advance(0.6)
    assert bed.ask("GET", "/regions").status == 200
    # refused requests are not counted
    assert bed.refusal("GET", SERVERS, token="another")[0] == 401


def test_cherry_emulator_can_send_errors_in_the_older_form(bed: EmulatorClient) -> None:
    bed.front.wordy = True
    assert json.loads(bed.ask("GET", "/servers/7").body) == {
        "errors": ["Server not found."],
        "error": "Server not found.",
    }


# -- faults and HTTP


def test_cherry_emulator_faults_happen_before_or_after_the_effect(bed: EmulatorClient) -> None:
    bed.front.faults.next(VendorFault.THROTTLED_FOR, on="write")
    assert bed.ask("POST", SERVERS, ORDER).headers["Retry-After"] == str(RETRY_AFTER)
    bed.front.faults.next(VendorFault.HANGS_UP, on="create_server")
    assert bed.ask("POST", SERVERS, ORDER).hang_up
    assert not bed.cloud.servers
    bed.front.faults.next(VendorFault.LOST_ANSWER, on="create_server")
    assert bed.ask("POST", SERVERS, ORDER).hang_up
    assert list(bed.cloud.servers) == [1000]
    bed.front.faults.next(VendorFault.CUT_OFF, on="delete_server")
    # an answer without a body cannot be truncated
    assert bed.ask("DELETE", "/servers/1000").hang_up
    assert in_list(bed) == {1000: "terminating"}


def test_cherry_emulator_log_shows_requests_and_never_the_token(bed: EmulatorClient) -> None:
    buy(bed)
    bed.ask("GET", f"{SERVERS}?limit=5")
    bed.front.faults.next(VendorFault.SERVER_ERROR)
    bed.ask("DELETE", "/servers/1000")
    assert [call.line for call in bed.front.log] == [
        f"POST {SERVERS} hostname=k8s-ours-workers-gndxdmmw k8s-cluster=ours k8s-nodepool=workers",
        f"GET {SERVERS}?limit=5",
        "DELETE /servers/1000 hostname=k8s-ours-workers-gndxdmmw",
    ]
    assert [(call.status, call.writes) for call in bed.front.log] == [
        (201, True),
        (200, False),
        (500, True),
    ]
    assert TOKEN not in repr(bed.front.log)
