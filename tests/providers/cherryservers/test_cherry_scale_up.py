"""Tests of scale-up over HTTP: requests, rate, partial failures, lost answers and crashes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import Throttled
from infra.emulators.cherryservers.attached_account import TOKEN_ID, TOKEN_SECRET
from infra.emulators.cherryservers.models import (
    NO_STOCK,
    NOT_DEPLOYED,
    QUOTA,
    CherryProvisioningFate,
)
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask
from tests.providers.cherryservers.fixture import (
    CherryBench,
    answer,
    claimed,
    drive,
    follows,
    order,
    orders,
    seen,
)


@pytest.fixture
def bench() -> Iterator[CherryBench]:
    with CherryBench() as made:
        yield made


def bodies(bench: CherryBench) -> list[dict[str, object]]:
    return [json.loads(each) for each in bench.server.front.bodies]


def test_cherry_order_contains_exactly_the_fields_of_the_definition(bench: CherryBench) -> None:
    bench.default |= {"ssh-key-ids": [101, 102], "os-partition-size": 60}
    group = bench.add_group("pool3", size=0)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 1)), Succeeded)
    (sent,) = bodies(bench)
    (made,) = bench.cloud.servers.values()
    script = (
        "#!/bin/bash\nkubeadm join --token nf8atf.kwfs1t15pjmhk7n4 203.0.113.10:6443\n# "
        "--node-labels=pool=pool3\n"
    )
    assert sent == {
        "project_id": 10001,
        "plan": "e5_1620v4",
        "hostname": made.hostname,
        "image": "ubuntu_18_04",
        "region": "eu_nord_1",
        "ssh_keys": [101, 102],
        "ip_addresses": None,
        "os_partition_size": 60,
        "user_data": base64.b64encode(script.encode()).decode(),
        "tags": {
            "k8s-cluster": "ours",
            "k8s-nodepool": "pool3",
            "outscaler-operation": "op-0123456789abcdef",
            "outscaler-definition": made.tags["outscaler-definition"],
        },
    }
    assert made.hostname.startswith("k8s-ours-pool3-")


def test_cherry_order_omits_unset_fields_and_sends_no_nulls(bench: CherryBench) -> None:
    group = bench.add_group("pool3", size=0)
    drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 1))
    (sent,) = bodies(bench)
    assert "os_partition_size" not in sent
    assert "spot_market" not in sent
    assert (sent["ssh_keys"], sent["ip_addresses"]) == (None, None)


def test_cherry_spot_pool_orders_spot_servers(bench: CherryBench) -> None:
    bench.pools["cheap"] = {"spot-market": "true"}
    group = bench.add_group("cheap", size=0)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 1)), Succeeded)
    assert [server.order.spot for server in bench.cloud.servers.values()] == [True]


def test_cherry_one_refusal_of_three_orders_buys_two_and_reports_the_text(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=1)
    bench.cloud.spoil("g", CherryProvisioningFate())
    bench.cloud.spoil("g", NO_STOCK)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"], outcome.facts["asked"]) == (
        "OutOfStock",
        2,
        3,
    )
    assert "Not enough stock for the requested plan" in outcome.message
    assert seen(bench, group).target == 3
    assert len(orders(bench)) == len(set(orders(bench))) == 3


@pytest.mark.parametrize("lag", [0.0, 15.0, 45.0])
def test_cherry_server_bought_with_a_lost_answer_is_found_and_not_rebought(
    bench: CherryBench, lag: float
) -> None:
    group = bench.add_group("g", size=1)
    bench.cloud.lag = lag
    bench.server.faults.next(VendorFault.LOST_ANSWER, on="create_server", times=2)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 4))
    assert isinstance(outcome, Succeeded)
    assert len(orders(bench)) == len(set(orders(bench))) == 3
    assert len(bench.machines(group)) == 4


def test_cherry_order_that_never_appears_is_repeated_under_the_same_name(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=0)
    bench.server.faults.next(VendorFault.HANGS_UP, on="create_server")
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 1))
    assert isinstance(outcome, Succeeded)
    assert len(orders(bench)) == 2
    assert len(set(orders(bench))) == 1
    assert len(bench.machines(group)) == 1


def test_cherry_scale_up_past_the_maximum_is_refused_after_one_list(bench: CherryBench) -> None:
    group = bench.add_group("g", size=9, most=10)
    bench.look()
    outcome = answer(bench, order(bench, OperationKind.SCALE_UP, group, 9, 11))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert [call.action for call in bench.look()] in (["list_servers"], [])


def test_cherry_throttled_list_is_retried_after_the_vendors_delay(bench: CherryBench) -> None:
    bench.add_group("g", size=1)
    bench.server.faults.retry_after = 2
    bench.server.faults.next(VendorFault.THROTTLED_FOR, on="list_servers")
    before = bench.now()
    assert seen(bench, "g").target == 1
    lists = [call for call in bench.look() if call.action == "list_servers"]
    assert [call.status for call in lists] == [429, 200]
    assert lists[1].at - before >= 2.0


def test_cherry_throttled_order_is_not_retried_at_once_and_is_reported(bench: CherryBench) -> None:
    group = bench.add_group("g", size=0)
    first = ask(bench.provider(), order(bench, OperationKind.SCALE_UP, group, 0, 1))
    assert isinstance(first, InProgress)
    operation = claimed(follows(order(bench, OperationKind.SCALE_UP, group, 0, 1), first))
    bench.server.faults.retry_after = 2
    bench.server.faults.next(VendorFault.THROTTLED_FOR, on="create_server")
    reported = answer(bench, operation)
    assert isinstance(reported, Throttled | InProgress)
    assert (reported.retry_after if isinstance(reported, Throttled) else reported.after) >= 2.0
    assert len(orders(bench)) == 1
    assert isinstance(drive(bench, operation), Succeeded)
    assert len(bench.machines(group)) == 1


def test_cherry_stock_of_one_buys_one_of_three_and_reports_out_of_stock(bench: CherryBench) -> None:
    group = bench.add_group("g", size=0)
    bench.cloud.stock["e5_1620v4", "eu_nord_1"] = 1
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 3))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"]) == ("OutOfStock", 1)
    assert "1 of plan e5_1620v4" in outcome.message
    assert len(orders(bench)) == 1
    assert seen(bench, group).target == 1


def test_cherry_empty_stock_sends_no_order(bench: CherryBench) -> None:
    group = bench.add_group("g", size=2)
    bench.cloud.stock["e5_1620v4", "eu_nord_1"] = 0
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert not orders(bench)


def test_cherry_spot_stock_is_separate(bench: CherryBench) -> None:
    bench.pools["cheap"] = {"spot-market": "true"}
    group = bench.add_group("cheap", size=0)
    bench.cloud.stock["e5_1620v4", "eu_nord_1"] = 0
    bench.cloud.spot_stock["e5_1620v4", "eu_nord_1"] = 1
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 2))
    assert isinstance(outcome, Failed)
    assert len(bench.machines(group)) == 1


@pytest.mark.parametrize("how", ["credit", "quota", "limit text"])
def test_cherry_missing_credit_and_quota_need_an_operator(bench: CherryBench, how: str) -> None:
    group = bench.add_group("g", size=0)
    if how == "credit":
        bench.cloud.credit = 1
    elif how == "quota":
        bench.cloud.quota = 1
    else:
        bench.cloud.spoil("g", CherryProvisioningFate())
        bench.cloud.spoil("g", QUOTA, 9)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 2))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"]) == ("QuotaExceeded", 1)
    assert len(bench.machines(group)) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_cherry_refused_token_stops_the_remaining_orders(bench: CherryBench, status: int) -> None:
    group = bench.add_group("g", size=0)
    fault = VendorFault.UNAUTHORIZED if status == 401 else VendorFault.FORBIDDEN
    bench.server.faults.next(fault, on="create_server", times=-1)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 8))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert len(orders(bench)) <= 4
    assert not bench.machines(group)


def test_cherry_project_deleted_before_the_order_is_not_found(bench: CherryBench) -> None:
    group = bench.add_group("g", size=1)
    bench.server.faults.next(VendorFault.NOT_FOUND, on="create_server", times=-1)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"
    assert "Project not found" in outcome.message
    assert len(bench.machines(group)) == 1


def test_cherry_twelve_orders_stay_within_four_calls_a_second(bench: CherryBench) -> None:
    group = bench.add_group("g", size=0, most=20)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 12)), Succeeded)
    times = [call.at for call in bench.server.log]
    assert len(orders(bench)) == 12
    assert max(sum(begin <= at < begin + 1.0 for at in times) for begin in times) <= 4
    assert not [call for call in bench.server.log if call.status == 429]


def test_cherry_server_with_failed_deployment_counts_as_bought_and_failed(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=1)
    bench.cloud.spoil("g", NOT_DEPLOYED)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 3)), Succeeded)
    bench.settle(120.0)
    found = seen(bench, group)
    assert (found.target, [each.error is not None for each in found.instances].count(True)) == (
        3,
        1,
    )


def test_cherry_duplicate_message_buys_once(bench: CherryBench) -> None:
    group = bench.add_group("g", size=0)
    operation = order(bench, OperationKind.SCALE_UP, group, 0, 3)
    for _ in range(2):
        assert not isinstance(answer(bench, operation), Failed)
    assert isinstance(drive(bench, operation), Succeeded)
    assert isinstance(drive(bench, operation), Succeeded)
    assert len(orders(bench)) == len(bench.machines(group)) == 3


@pytest.mark.parametrize("lag", [0.0, 25.0])
@pytest.mark.parametrize("dies", range(1, 4))
def test_cherry_process_dying_after_its_orders_buys_nothing_twice(
    bench: CherryBench, dies: int, lag: float
) -> None:
    """The table does not learn the outcome of the step, and the next attempt
    begins with the previous data."""
    group = bench.add_group("g", size=1)
    bench.cloud.lag = lag
    operation = order(bench, OperationKind.SCALE_UP, group, 1, 5)
    for number in range(1, 4):
        operation = claimed(operation)
        outcome = answer(bench, operation)
        if number != dies and isinstance(outcome, InProgress):
            operation = follows(operation, outcome)
        bench.settle(5.0)
    assert isinstance(drive(bench, operation), Succeeded)
    assert len(orders(bench)) == len(set(orders(bench))) == 4
    assert len(bench.machines(group)) == 5


def test_cherry_user_data_contain_the_token_and_outcomes_and_errors_do_not(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=0)
    operation, said = order(bench, OperationKind.SCALE_UP, group, 0, 1), []
    while True:
        outcome = answer(bench, claimed(operation))
        said.append(repr(outcome))
        if not isinstance(outcome, InProgress):
            break
        operation = follows(operation, outcome)
        said.append(repr(operation))
        bench.settle(outcome.after)
    (made,) = bench.cloud.servers.values()
    assert f"{TOKEN_ID}.{TOKEN_SECRET}" in base64.b64decode(made.order.user_data).decode()
    echo = f"refused: token {bench.token} may not use {made.order.user_data}, nor {TOKEN_SECRET}"
    bench.cloud.spoil("g", CherryProvisioningFate((400, echo)), 9)
    failed = drive(
        bench, order(bench, OperationKind.SCALE_UP, group, 1, 2, op="op-2-0123456789abc")
    )
    assert isinstance(failed, Failed)
    assert "refused" in failed.message
    said.append(repr(failed))
    said += [
        repr(seen(bench, group)),
        *(
            repr(vars(call)) if hasattr(call, "__dict__") else repr(call)
            for call in bench.server.log
        ),
    ]
    assert not [secret for secret in bench.secrets() if secret in "\n".join(said)]
