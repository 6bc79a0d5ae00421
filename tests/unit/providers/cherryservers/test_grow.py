"""Growth: as many servers as were asked for, none bought twice, whatever gets lost (cherryservers.md §4)."""

from __future__ import annotations

import base64

import msgspec

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import (
    InvalidRequest,
    OutOfStock,
    QuotaExceeded,
    Unauthorized,
)
from tests.cases import each_row
from tests.unit.providers.cherryservers.fake_api import (
    CLUSTER,
    CONFIG,
    POOL,
    FakeCloud,
    FakeKube,
    FixedTokens,
    claimed,
    continued,
    drive,
    grow,
    names,
    provider,
)

JOIN = base64.b64encode(b"join {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}}").decode()


def world(size: int = 0, **more: int) -> FakeCloud:
    cloud = FakeCloud(**more)
    cloud.add(size)
    return cloud


def test_a_growth_is_announced_before_anything_is_bought() -> None:
    cloud = world(2)
    asked = claimed(grow(2, 5))
    outcome = provider(cloud).grow(asked)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (0.0, "announce")
    assert cloud.calls == ["servers"]
    bought = provider(cloud).poll(continued(asked, outcome))
    assert isinstance(bought, InProgress)
    assert bought.step == "create"
    assert len(cloud.posts()) == 3
    assert isinstance(provider(cloud).poll(continued(continued(asked, outcome), bought)), Succeeded)


def test_what_is_bought_bears_the_tags_and_names_of_its_operation() -> None:
    cloud = world(1)
    asked = grow(1, 4)
    assert isinstance(drive(cloud, asked), Succeeded)
    assert {tuple(sorted(each.tags.items())) for each in cloud.orders} == {
        (("k8s-cluster", CLUSTER), ("k8s-nodepool", POOL), ("outscaler-operation", asked.spec.id))
    }
    assert len(set(names(cloud.orders))) == 3
    assert all(name.startswith("k8s-cluster2-pool3-") for name in names(cloud.orders))
    again = world(1)
    drive(again, asked)
    assert names(again.orders) == names(cloud.orders)
    first = cloud.orders[0]
    assert (first.project_id, first.plan, first.image, first.region) == (
        10001,
        "e5_1620v4",
        "ubuntu_18_04",
        "eu_nord_1",
    )
    assert (first.ssh_keys, first.user_data, first.os_partition_size, first.spot_market) == (None, "", 0, False)


def test_CHERRY_3_a_pool_without_a_definition_gets_its_own_tags_and_names() -> None:
    cloud = FakeCloud()
    assert isinstance(drive(cloud, grow(0, 1, pool="pool9"), "0:10:pool9"), Succeeded)
    assert cloud.orders[0].tags["k8s-nodepool"] == "pool9"
    assert cloud.orders[0].hostname.startswith("k8s-cluster2-pool9-")


def test_CHERRY_7_CHERRY_D13_a_refused_order_takes_nothing_from_the_others() -> None:
    cloud = world(1)
    cloud.fates = ["", InvalidRequest("POST: 400 the disk is too small", code="400")]
    outcome = drive(cloud, grow(1, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("InvalidRequest", "400")
    assert "the disk is too small" in outcome.message
    assert (outcome.facts["created"], outcome.facts["asked"]) == (2, 3)
    assert provider(cloud).observe([]).groups[0].target == 3
    assert len(cloud.posts()) == 3


def test_CHERRY_9_above_the_maximum_is_refused_with_one_list_and_no_order() -> None:
    cloud = world(9)
    outcome = provider(cloud).grow(claimed(grow(9, 11)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.calls == ["servers"]


@each_row(("from_size", "to_size"), [(3, 3), (3, 1), (-2, 1), (0, 5000)])
def test_sizes_that_are_no_growth_are_refused_without_a_call(from_size: int, to_size: int) -> None:
    cloud = world(3)
    outcome = provider(cloud, f"0:100000:{POOL}").grow(claimed(grow(from_size, to_size)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.calls == []


def test_CHERRY_D11_a_size_that_is_another_than_planned_is_a_conflict() -> None:
    cloud = world(2)
    for asked in (grow(1, 4), grow(3, 4)):
        outcome = provider(cloud).grow(claimed(asked))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Conflict"
    assert cloud.writes() == []


def test_CHERRY_D12_a_terminating_server_is_no_part_of_the_size() -> None:
    cloud = world(2)
    cloud.add(1, state="terminating")
    assert isinstance(drive(cloud, grow(2, 3)), Succeeded)
    assert len(cloud.alive()) == 3


def test_asked_again_when_all_are_there_it_is_done_though_the_pool_has_changed_since() -> None:
    cloud = world(1)
    drive(cloud, grow(1, 3))
    del cloud.all[1000]
    before = len(cloud.posts())
    assert isinstance(provider(cloud).grow(claimed(grow(1, 3))), Succeeded)
    assert len(cloud.posts()) == before


def test_a_control_plane_that_bears_the_tags_is_no_part_of_the_size() -> None:
    cloud = world(3)
    kube = FakeKube(("m", "cherryservers://1002", {"node-role.kubernetes.io/control-plane": ""}))
    assert isinstance(drive(cloud, grow(2, 4), kube=kube), Succeeded)
    assert isinstance(drive(cloud, grow(2, 4, plan="q")), Failed)


def test_a_pool_that_grew_meanwhile_is_not_grown_past_its_maximum() -> None:
    cloud = world(8)
    asked = claimed(grow(8, 10))
    announced = continued(asked, provider(cloud).grow(asked))
    cloud.add(1)
    outcome = provider(cloud).poll(announced)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert cloud.posts() == []


def test_CHERRY_11_one_on_stock_of_three_wanted_is_bought_and_the_rest_is_out_of_stock() -> None:
    cloud = world(1, stock=1)
    outcome = drive(cloud, grow(1, 4))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert "1 of plan e5_1620v4" in outcome.message
    assert len(cloud.posts()) == 1
    assert outcome.facts["created"] == 1
    assert cloud.calls.count("plan e5_1620v4 fresh") == 1


def test_CHERRY_11_nothing_on_stock_is_told_without_an_order() -> None:
    cloud = world(1, stock=0)
    outcome = drive(cloud, grow(1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert cloud.posts() == []


def test_a_plan_or_a_region_that_is_not_sold_is_out_of_stock() -> None:
    for config in (f'{CONFIG}[nodegroupdef "{POOL}"]\nregion=nowhere\n', CONFIG):
        cloud = FakeCloud()
        if config is CONFIG:
            cloud.plans = {"other": cloud.plan("other")}  # type: ignore[dict-item]
        outcome = drive(cloud, grow(0, 1), config=config)
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "OutOfStock"
        assert cloud.posts() == []


def test_the_first_order_alone_meets_what_would_meet_all() -> None:
    cloud = world(0)
    cloud.fates = [Unauthorized("403 no", code="403")] * 9
    outcome = drive(cloud, grow(0, 5))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("Unauthorized", "403")
    assert len(cloud.posts()) == 1


def test_a_first_order_refused_for_itself_keeps_no_other_from_being_sent() -> None:
    cloud = world(0)
    cloud.fates = [OutOfStock("400 no stock")]
    outcome = drive(cloud, grow(0, 3))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert len(cloud.alive()) == 2


def test_of_several_refusals_the_most_telling_is_told() -> None:
    cloud = world(0)
    cloud.fates = [InvalidRequest("strange"), OutOfStock("no stock"), QuotaExceeded("no credit", code="402"), ""]
    outcome = drive(cloud, grow(0, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("QuotaExceeded", "402")
    assert outcome.facts["created"] == 1


def test_a_large_growth_goes_in_lots() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 50))
    current, sizes = asked, []
    outcome = provider(cloud, f"0:60:{POOL}").grow(asked)
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        before = len(cloud.posts())
        outcome = provider(cloud, f"0:60:{POOL}").poll(current)
        sizes.append(len(cloud.posts()) - before)
    assert isinstance(outcome, Succeeded)
    assert sizes == [20, 20, 10, 0]


def test_the_growth_is_over_when_the_list_shows_its_machines() -> None:
    cloud = world(1, lag=3)
    asked = claimed(grow(1, 3))
    current, outcome = asked, provider(cloud).grow(asked)
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert outcome == Succeeded({"from": 1, "to": 3, "created": 2, "asked": 2})
    assert provider(cloud).observe([]).groups[0].target == 3


def test_a_machine_whose_deployment_failed_at_once_was_bought() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).grow(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.change(1000, status="failed deployment")
    assert isinstance(provider(cloud).poll(bought), Succeeded)


def test_the_bootstrap_token_is_asked_for_once_a_lot_and_is_nowhere_else() -> None:
    cloud, tokens = world(0), FixedTokens()
    config = f"{CONFIG}cloudinit={JOIN}\n"
    asked = claimed(grow(0, 3))
    first = provider(cloud, config=config, tokens=tokens).grow(asked)
    assert tokens.asked == 0
    token = "examplesecret000"
    user_data = base64.b64encode(f"join exampl.{token}".encode()).decode()
    cloud.fates = ["", InvalidRequest(f"bad user_data {user_data} or {token}")]
    second = provider(cloud, config=config, tokens=tokens).poll(continued(asked, first))
    assert tokens.asked == 1
    assert {each.user_data for each in cloud.orders} == {user_data}
    third = provider(cloud, config=config, tokens=tokens).poll(continued(continued(asked, first), second))
    assert isinstance(third, Failed)
    for told in (first, second, third):
        text = repr(told) + msgspec.json.encode(told).decode()
        assert user_data not in text
        assert token not in text


def test_without_a_script_no_token_is_asked_for() -> None:
    cloud, tokens = world(0), FixedTokens()
    drive(cloud, grow(0, 1), tokens=tokens)
    assert tokens.asked == 0


def test_a_pool_defined_wrongly_is_refused_before_any_call() -> None:
    cloud = world(0)
    outcome = drive(cloud, grow(0, 1), config=f'{CONFIG}[nodegroupdef "{POOL}"]\ncloudinit=%%%\n')
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.calls == []
