"""Scale-up: exactly as many servers as requested, none bought twice, whatever is lost."""

from __future__ import annotations

import base64

import msgspec

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from infra.emulators.cherryservers.attached_account import TOKEN_ID, TOKEN_SECRET
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    CONFIG,
    POOL,
    EmulatedCloud,
    claimed,
    continued,
    drive,
    finish,
    grow,
    refusal,
)

JOIN = base64.b64encode(b"join {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}}").decode()


def test_cherry_scale_up_is_announced_before_anything_is_bought() -> None:
    cloud = EmulatedCloud(2)
    asked = claimed(grow(2, 5))
    outcome = cloud.build().scale_up(asked)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (0.0, "announce")
    assert cloud.requests == ["servers"]
    bought = cloud.build().poll(continued(cloud, asked, outcome))
    assert isinstance(bought, InProgress)
    assert bought.step == "create"
    assert len(cloud.posts()) == 3
    assert isinstance(
        cloud.build().poll(continued(cloud, continued(cloud, asked, outcome), bought)), Succeeded
    )


def test_cherry_scale_up_of_a_pool_without_a_definition_uses_its_own_name() -> None:
    cloud = EmulatedCloud()
    assert isinstance(drive(cloud, grow(0, 1, pool="pool9"), "0:10:pool9"), Succeeded)
    (server,) = cloud.all.values()
    assert server.tags["k8s-nodepool"] == "pool9"
    assert server.hostname.startswith("k8s-ours-pool9-")


@each_row(("from_size", "to_size"), [(3, 3), (3, 1), (-2, 1), (0, 5000)])
def test_cherry_scale_up_with_invalid_sizes_is_refused_without_a_call(
    from_size: int, to_size: int
) -> None:
    cloud = EmulatedCloud(3)
    outcome = cloud.build(f"0:100000:{POOL}").scale_up(claimed(grow(from_size, to_size)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.requests == []


def test_cherry_scale_up_repeated_after_its_end_is_done_whatever_the_size() -> None:
    cloud = EmulatedCloud(1)
    drive(cloud, grow(1, 3))
    cloud.cloud.vanish(1000)
    before = len(cloud.posts())
    assert isinstance(cloud.build().scale_up(claimed(grow(1, 3))), Succeeded)
    assert len(cloud.posts()) == before


def test_cherry_scale_up_does_not_count_a_tagged_control_plane() -> None:
    cloud = EmulatedCloud(3)
    kube = [("m", "cherryservers://1002", {"node-role.kubernetes.io/control-plane": ""})]
    assert isinstance(drive(cloud, grow(2, 4), kube=kube), Succeeded)
    assert isinstance(drive(cloud, grow(2, 4, plan="q")), Failed)


def test_cherry_scale_up_of_a_pool_grown_by_others_stops_at_its_maximum() -> None:
    cloud = EmulatedCloud(8)
    asked = claimed(grow(8, 10))
    announced = continued(cloud, asked, cloud.build().scale_up(asked))
    cloud.add(1)
    outcome = cloud.build().poll(announced)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert cloud.posts() == []


def test_cherry_scale_up_plan_or_region_not_sold_is_out_of_stock() -> None:
    for config in (f'{CONFIG}[nodegroupdef "{POOL}"]\nregion=nowhere\n', CONFIG):
        cloud = EmulatedCloud()
        if config is CONFIG:
            del cloud.cloud.plans["e5_1620v4"]
        outcome = drive(cloud, grow(0, 1), config=config)
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "OutOfStock"
        assert cloud.posts() == []


def test_cherry_scale_up_orders_by_the_stock_of_now_and_not_by_an_earlier_pass() -> None:
    cloud = EmulatedCloud(stock=5)
    cloud.build().observe(())
    cloud.cloud.stock["e5_1620v4", "eu_nord_1"] = 1
    outcome = drive(cloud, grow(0, 3))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, len(cloud.posts())) == ("OutOfStock", "Stock", 1)


def test_cherry_scale_up_first_order_alone_tests_for_general_refusals() -> None:
    cloud = EmulatedCloud(0)
    cloud.fail("POST", 403, 9)
    outcome = drive(cloud, grow(0, 5))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("Unauthorized", "403")
    assert len(cloud.posts()) == 1


def test_cherry_scale_up_first_order_refused_individually_stops_no_other() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", refusal(400, "Not enough stock"))
    outcome = drive(cloud, grow(0, 3))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert len(cloud.alive()) == 2


def test_cherry_scale_up_reports_the_most_specific_of_several_refusals() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply(
        "POST", refusal(400, "strange"), refusal(400, "Not enough stock"), refusal(402, "no credit")
    )
    outcome = drive(cloud, grow(0, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("QuotaExceeded", "402")
    assert outcome.facts["created"] == 1


def test_cherry_scale_up_large_one_runs_in_batches() -> None:
    cloud = EmulatedCloud(0)
    asked = claimed(grow(0, 50))
    current, sizes, pauses = asked, [], []
    outcome = cloud.build(f"0:60:{POOL}").scale_up(asked)
    while isinstance(outcome, InProgress):
        pauses.append(outcome.after)
        current = continued(cloud, current, outcome)
        before = len(cloud.posts())
        outcome = cloud.build(f"0:60:{POOL}").poll(current)
        sizes.append(len(cloud.posts()) - before)
    assert isinstance(outcome, Succeeded)
    assert sizes == [20, 20, 10, 0]
    assert pauses[:3] == [0.0, 0.0, 0.0], "nothing failed, so nothing is waited for"


def test_cherry_scale_up_ends_when_the_list_shows_its_machines() -> None:
    cloud = EmulatedCloud(1, lag=30.0)
    asked = claimed(grow(1, 3))
    current, outcome = asked, cloud.build().scale_up(asked)
    outcome = finish(cloud, current, outcome)
    assert outcome == Succeeded({"from": 1, "to": 3, "created": 2, "asked": 2})
    assert cloud.build().observe([]).groups[0].target == 3


def test_cherry_scale_up_reads_the_bootstrap_token_once_per_batch_and_hides_it() -> None:
    cloud, config = EmulatedCloud(0), f"{CONFIG}cloudinit={JOIN}\n"
    asked = claimed(grow(0, 3))
    first = cloud.build(config=config).scale_up(asked)
    assert cloud.token_reads == 0
    token = TOKEN_SECRET
    user_data = base64.b64encode(f"join {TOKEN_ID}.{token}".encode()).decode()
    cloud.server.reply("POST", None, refusal(400, f"bad user_data {user_data} or {token}"))
    second = cloud.build(config=config).poll(continued(cloud, asked, first))
    assert cloud.token_reads == 1
    assert {server.order.user_data for server in cloud.all.values()} == {user_data}
    third = cloud.build(config=config).poll(
        continued(cloud, continued(cloud, asked, first), second)
    )
    assert isinstance(third, Failed)
    for reported in (first, second, third):
        text = repr(reported) + msgspec.json.encode(reported).decode()
        assert user_data not in text
        assert token not in text


def test_cherry_scale_up_without_a_script_requests_no_token() -> None:
    cloud = EmulatedCloud(0)
    assert isinstance(drive(cloud, grow(0, 1)), Succeeded)
    assert cloud.token_reads == 0


def test_cherry_scale_up_of_an_invalid_pool_is_refused_before_any_call() -> None:
    cloud = EmulatedCloud(0)
    outcome = drive(cloud, grow(0, 1), config=f'{CONFIG}[nodegroupdef "{POOL}"]\ncloudinit=%%%\n')
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.requests == []
