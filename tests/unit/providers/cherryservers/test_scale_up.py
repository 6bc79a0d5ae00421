"""Scale-up: exactly as many servers as requested, none bought twice, whatever is lost."""

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


def test_cherry_scale_up_is_announced_before_anything_is_bought() -> None:
    cloud = world(2)
    asked = claimed(grow(2, 5))
    outcome = provider(cloud).scale_up(asked)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (0.0, "announce")
    assert cloud.calls == ["servers"]
    bought = provider(cloud).poll(continued(asked, outcome))
    assert isinstance(bought, InProgress)
    assert bought.step == "create"
    assert len(cloud.posts()) == 3
    assert isinstance(provider(cloud).poll(continued(continued(asked, outcome), bought)), Succeeded)


def test_cherry_scale_up_servers_have_the_tags_and_names_of_their_operation() -> None:
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


def test_cherry_scale_up_of_a_pool_without_a_definition_uses_its_own_name() -> None:
    cloud = FakeCloud()
    assert isinstance(drive(cloud, grow(0, 1, pool="pool9"), "0:10:pool9"), Succeeded)
    assert cloud.orders[0].tags["k8s-nodepool"] == "pool9"
    assert cloud.orders[0].hostname.startswith("k8s-cluster2-pool9-")


def test_cherry_scale_up_refused_order_does_not_affect_the_others() -> None:
    cloud = world(1)
    cloud.fates = ["", InvalidRequest("POST: 400 the disk is too small", code="400")]
    outcome = drive(cloud, grow(1, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("InvalidRequest", "400")
    assert "the disk is too small" in outcome.message
    assert (outcome.facts["created"], outcome.facts["asked"]) == (2, 3)
    assert provider(cloud).observe([]).groups[0].target == 3
    assert len(cloud.posts()) == 3


def test_cherry_scale_up_above_the_maximum_is_refused_after_one_list() -> None:
    cloud = world(9)
    outcome = provider(cloud).scale_up(claimed(grow(9, 11)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.calls == ["servers"]


@each_row(("from_size", "to_size"), [(3, 3), (3, 1), (-2, 1), (0, 5000)])
def test_cherry_scale_up_with_invalid_sizes_is_refused_without_a_call(from_size: int, to_size: int) -> None:
    cloud = world(3)
    outcome = provider(cloud, f"0:100000:{POOL}").scale_up(claimed(grow(from_size, to_size)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.calls == []


def test_cherry_scale_up_from_an_unexpected_size_is_a_conflict() -> None:
    cloud = world(2)
    for asked in (grow(1, 4), grow(3, 4)):
        outcome = provider(cloud).scale_up(claimed(asked))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Conflict"
    assert cloud.writes() == []


def test_cherry_scale_up_does_not_count_a_terminating_server() -> None:
    cloud = world(2)
    cloud.add(1, state="terminating")
    assert isinstance(drive(cloud, grow(2, 3)), Succeeded)
    assert len(cloud.alive()) == 3


def test_cherry_scale_up_repeated_after_its_end_is_done_whatever_the_size() -> None:
    cloud = world(1)
    drive(cloud, grow(1, 3))
    del cloud.all[1000]
    before = len(cloud.posts())
    assert isinstance(provider(cloud).scale_up(claimed(grow(1, 3))), Succeeded)
    assert len(cloud.posts()) == before


def test_cherry_scale_up_does_not_count_a_tagged_control_plane() -> None:
    cloud = world(3)
    kube = FakeKube(("m", "cherryservers://1002", {"node-role.kubernetes.io/control-plane": ""}))
    assert isinstance(drive(cloud, grow(2, 4), kube=kube), Succeeded)
    assert isinstance(drive(cloud, grow(2, 4, plan="q")), Failed)


def test_cherry_scale_up_of_a_pool_grown_by_others_stops_at_its_maximum() -> None:
    cloud = world(8)
    asked = claimed(grow(8, 10))
    announced = continued(asked, provider(cloud).scale_up(asked))
    cloud.add(1)
    outcome = provider(cloud).poll(announced)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert cloud.posts() == []


def test_cherry_scale_up_with_stock_of_one_buys_one_and_reports_out_of_stock() -> None:
    cloud = world(1, stock=1)
    outcome = drive(cloud, grow(1, 4))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert "1 of plan e5_1620v4" in outcome.message
    assert len(cloud.posts()) == 1
    assert outcome.facts["created"] == 1
    assert cloud.calls.count("plan e5_1620v4 fresh") == 1


def test_cherry_scale_up_without_stock_is_reported_without_an_order() -> None:
    cloud = world(1, stock=0)
    outcome = drive(cloud, grow(1, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert cloud.posts() == []


def test_cherry_scale_up_plan_or_region_not_sold_is_out_of_stock() -> None:
    for config in (f'{CONFIG}[nodegroupdef "{POOL}"]\nregion=nowhere\n', CONFIG):
        cloud = FakeCloud()
        if config is CONFIG:
            cloud.plans = {"other": cloud.plan("other")}  # type: ignore[dict-item]
        outcome = drive(cloud, grow(0, 1), config=config)
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "OutOfStock"
        assert cloud.posts() == []


def test_cherry_scale_up_first_order_alone_tests_for_general_refusals() -> None:
    cloud = world(0)
    cloud.fates = [Unauthorized("403 no", code="403")] * 9
    outcome = drive(cloud, grow(0, 5))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("Unauthorized", "403")
    assert len(cloud.posts()) == 1


def test_cherry_scale_up_first_order_refused_individually_stops_no_other() -> None:
    cloud = world(0)
    cloud.fates = [OutOfStock("400 no stock")]
    outcome = drive(cloud, grow(0, 3))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"
    assert len(cloud.alive()) == 2


def test_cherry_scale_up_reports_the_most_specific_of_several_refusals() -> None:
    cloud = world(0)
    cloud.fates = [InvalidRequest("strange"), OutOfStock("no stock"), QuotaExceeded("no credit", code="402"), ""]
    outcome = drive(cloud, grow(0, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("QuotaExceeded", "402")
    assert outcome.facts["created"] == 1


def test_cherry_scale_up_large_one_runs_in_batches() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 50))
    current, sizes = asked, []
    outcome = provider(cloud, f"0:60:{POOL}").scale_up(asked)
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        before = len(cloud.posts())
        outcome = provider(cloud, f"0:60:{POOL}").poll(current)
        sizes.append(len(cloud.posts()) - before)
    assert isinstance(outcome, Succeeded)
    assert sizes == [20, 20, 10, 0]


def test_cherry_scale_up_ends_when_the_list_shows_its_machines() -> None:
    cloud = world(1, lag=3)
    asked = claimed(grow(1, 3))
    current, outcome = asked, provider(cloud).scale_up(asked)
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert outcome == Succeeded({"from": 1, "to": 3, "created": 2, "asked": 2})
    assert provider(cloud).observe([]).groups[0].target == 3


def test_cherry_scale_up_machine_with_a_failed_deployment_counts_as_bought() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).scale_up(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.change(1000, status="failed deployment")
    assert isinstance(provider(cloud).poll(bought), Succeeded)


def test_cherry_scale_up_reads_the_bootstrap_token_once_per_batch_and_hides_it() -> None:
    cloud, tokens = world(0), FixedTokens()
    config = f"{CONFIG}cloudinit={JOIN}\n"
    asked = claimed(grow(0, 3))
    first = provider(cloud, config=config, tokens=tokens).scale_up(asked)
    assert tokens.asked == 0
    token = "examplesecret000"
    user_data = base64.b64encode(f"join exampl.{token}".encode()).decode()
    cloud.fates = ["", InvalidRequest(f"bad user_data {user_data} or {token}")]
    second = provider(cloud, config=config, tokens=tokens).poll(continued(asked, first))
    assert tokens.asked == 1
    assert {each.user_data for each in cloud.orders} == {user_data}
    third = provider(cloud, config=config, tokens=tokens).poll(continued(continued(asked, first), second))
    assert isinstance(third, Failed)
    for reported in (first, second, third):
        text = repr(reported) + msgspec.json.encode(reported).decode()
        assert user_data not in text
        assert token not in text


def test_cherry_scale_up_without_a_script_requests_no_token() -> None:
    cloud, tokens = world(0), FixedTokens()
    drive(cloud, grow(0, 1), tokens=tokens)
    assert tokens.asked == 0


def test_cherry_scale_up_of_an_invalid_pool_is_refused_before_any_call() -> None:
    cloud = world(0)
    outcome = drive(cloud, grow(0, 1), config=f'{CONFIG}[nodegroupdef "{POOL}"]\ncloudinit=%%%\n')
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.calls == []
