"""Removal: exactly the named servers, by their numbers, or none."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.cluster.errors import Unavailable
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from chalicelib.providers.kit.services import NullCache
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, scripted
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    POOL,
    ROW,
    EmulatedCloud,
    claimed,
    continued,
    drive,
    operation,
    refusal,
    remove,
)

TWO = f"2:5:{POOL}"  # at least two


def refused(cloud: EmulatedCloud, *targets: int | RemovalTarget, least: int = 0) -> Failed:
    """Returns the failure of a removal that deleted nothing."""
    outcome = cloud.build(f"{least}:5:{POOL}").delete_nodes(claimed(remove(3, *targets)))
    assert isinstance(outcome, Failed)
    assert cloud.changes() == []
    return outcome


def test_cherry_remove_deletes_a_server_by_its_number_in_one_call() -> None:
    cloud = EmulatedCloud(3)
    outcome = cloud.build().delete_nodes(claimed(remove(3, 1001)))
    assert outcome == Succeeded({"removed": 1, "group": POOL})
    assert cloud.requests == ["servers", "delete 1001"]


@each_row("instance", ["cherryservers://1001", "1001"])
def test_cherry_remove_uses_the_provider_id_where_there_is_no_handle(instance: str) -> None:
    cloud = EmulatedCloud(3)
    assert isinstance(
        cloud.build().delete_nodes(claimed(remove(3, RemovalTarget("n", instance)))), Succeeded
    )
    assert cloud.deleted == [1001]


def test_cherry_remove_ignores_an_invalid_provider_id_if_the_handle_is_known() -> None:
    cloud = EmulatedCloud(3)
    assert isinstance(
        cloud.build().delete_nodes(claimed(remove(3, RemovalTarget("n", "aws://1", "1001")))),
        Succeeded,
    )
    assert cloud.deleted == [1001]


def test_cherry_remove_by_name_finds_the_only_server_with_it() -> None:
    cloud = EmulatedCloud(3)
    asked = remove(3, RemovalTarget(cloud.all[1001].hostname.upper(), ""))
    assert isinstance(drive(cloud, asked), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_remembers_the_server_of_a_name_after_its_deletion() -> None:
    cloud = EmulatedCloud(3)
    asked = claimed(remove(3, RemovalTarget(cloud.all[1001].hostname, "")))
    known = continued(cloud, asked, cloud.build().delete_nodes(asked))
    assert cloud.deleted == []
    for _ in range(3):  # dead before it was recorded, twice
        assert isinstance(cloud.build().poll(known), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_by_a_name_of_two_servers_deletes_none() -> None:
    cloud = EmulatedCloud(3)
    cloud.change(1000, hostname="twin")
    cloud.change(1001, hostname="twin")
    outcome = refused(cloud, RemovalTarget("twin", ""))
    assert outcome.error_class == "InvalidRequest"
    assert "1000, 1001" in outcome.message


def test_cherry_remove_node_without_a_server_is_not_reported_as_deleted() -> None:
    assert (
        "no server bears that name"
        in refused(EmulatedCloud(3), RemovalTarget("unknown-server", ""), 1000).message
    )


@each_row(
    "target", [RemovalTarget("n", "aws://1"), RemovalTarget("n", "", "x-7"), RemovalTarget("", "")]
)
def test_cherry_remove_target_that_names_no_server_of_ours_is_refused(
    target: RemovalTarget,
) -> None:
    assert refused(EmulatedCloud(3), 1000, target).error_class == "InvalidRequest"


def test_cherry_remove_counts_404_and_a_vanished_server_as_removed() -> None:
    cloud = EmulatedCloud(3)
    cloud.cloud.vanish(1002)
    assert isinstance(cloud.build().delete_nodes(claimed(remove(3, 1002))), Succeeded)
    assert cloud.requests == ["servers", "server 1002"]
    assert isinstance(drive(cloud, remove(2, 1000)), Succeeded)
    cloud.settle()
    assert isinstance(drive(cloud, remove(2, 1000)), Succeeded)
    assert cloud.deleted == [1000]


def test_cherry_remove_with_one_foreign_server_is_refused_as_a_whole() -> None:
    cloud = EmulatedCloud(3)
    (other,) = cloud.add(1, "pool2")
    foreign, bare = cloud.add(2)
    cloud.change(foreign, tags={"k8s-cluster": "theirs", "k8s-nodepool": POOL})
    cloud.change(bare, tags={})
    for number in (other, foreign, bare):
        assert "does not belong" in refused(cloud, 1000, number).message


@each_row("answer", ["unlisted", "forbidden"])
def test_cherry_remove_with_a_server_of_another_project_is_refused(answer: str) -> None:
    cloud = EmulatedCloud(3)
    (number,) = cloud.add(1, "stranger")
    cloud.all[number].listed = float("inf")
    if answer == "forbidden":
        cloud.fail(f"GET /v1/servers/{number}", 403)
    outcome = cloud.build().delete_nodes(claimed(remove(3, 1000, number)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.changes() == []


def test_cherry_remove_deletes_a_member_not_yet_listed() -> None:
    cloud = EmulatedCloud(3)
    cloud.all[1001].listed = float("inf")
    assert isinstance(cloud.build().delete_nodes(claimed(remove(3, 1001))), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_below_the_minimum_is_refused() -> None:
    cloud = EmulatedCloud(3)
    assert "below the minimum 2" in refused(cloud, 1000, 1001, least=2).message
    assert isinstance(cloud.build(TWO).delete_nodes(claimed(remove(3, 1000))), Succeeded)


def test_cherry_delete_instances_ignores_the_minimum() -> None:
    cloud = EmulatedCloud(3)
    outcome = cloud.build(f"3:5:{POOL}").delete_nodes(
        claimed(remove(3, 1000, kind=OperationKind.DELETE_INSTANCES))
    )
    assert isinstance(outcome, Succeeded)


def test_cherry_remove_twice_in_quick_succession_respects_the_minimum() -> None:
    """The list still shows the deleted server as active."""
    cloud = EmulatedCloud(3, delete_lag=3600.0)
    assert isinstance(cloud.build(TWO).delete_nodes(claimed(remove(3, 1000))), Succeeded)
    outcome = cloud.build(TWO).delete_nodes(claimed(remove(3, 1001)))
    assert isinstance(outcome, Failed)
    assert "minimum" in outcome.message
    assert cloud.deleted == [1000]


def test_cherry_remove_does_not_count_servers_it_deleted_even_without_a_cache() -> None:
    """The list is late, and the shared cache has lost the entry."""
    cloud = EmulatedCloud()
    ghost, second, _ = cloud.add(3)
    asked = remove(3, ghost, second).with_status(
        data={"removal": msgspec.json.encode({"gone": [ghost]}).decode()}
    )
    outcome = cloud.build(f"2:10:{POOL}").poll(asked)
    assert isinstance(outcome, Failed)
    assert "1 would be below the minimum 2" in outcome.message
    assert cloud.changes() == []


def test_cherry_remove_does_not_count_a_terminating_server_as_remaining() -> None:
    cloud = EmulatedCloud(2)
    cloud.add(1, state="terminating")
    assert "1 would be below" in refused(cloud, 1000, least=2).message


def test_cherry_remove_never_deletes_or_counts_a_control_plane() -> None:
    cloud = EmulatedCloud(3)
    kube = [("m", "cherryservers://1002", {"node-role.kubernetes.io/control-plane": ""})]
    outcome = cloud.build(kube=kube).delete_nodes(claimed(remove(3, 1002)))
    assert isinstance(outcome, Failed)
    assert "control plane" in outcome.message
    outcome = cloud.build(TWO, kube=kube).delete_nodes(claimed(remove(3, 1000)))
    assert isinstance(outcome, Failed)
    assert "1 would be below the minimum 2" in outcome.message
    assert cloud.changes() == []
    assert "" not in cloud.selectors  # without listing the whole cluster


@each_row(
    "seen",
    [
        ("n", "cherryservers://1001"),
        ("n", "1001"),
        ("pool3-1001", ""),
        ("POOL3-1001", ""),
        ("pool3-1001", "aws://1"),
    ],
)
def test_cherry_delete_instances_with_a_joined_server_deletes_none(seen: tuple[str, str]) -> None:
    cloud = EmulatedCloud(3)
    outcome = cloud.build(kube=[(*seen, {})]).delete_nodes(
        claimed(remove(3, 1000, 1001, kind=OperationKind.DELETE_INSTANCES))
    )
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert cloud.changes() == []


@each_row(
    "seen", [("n", "cherryservers://1002"), ("pool3-1001", "cherryservers://1002"), ("other", "")]
)
def test_cherry_delete_instances_is_not_blocked_by_other_nodes(seen: tuple[str, str]) -> None:
    cloud = EmulatedCloud(3)
    outcome = cloud.build(kube=[(*seen, {})]).delete_nodes(
        claimed(remove(3, 1001, kind=OperationKind.DELETE_INSTANCES))
    )
    assert isinstance(outcome, Succeeded)


@each_row("kind", [OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES])
def test_cherry_delete_instances_deletes_nothing_while_the_cluster_is_silent(
    kind: OperationKind,
) -> None:
    cloud = EmulatedCloud(3)
    with pytest.raises(Transient):
        cloud.build(kube=Unavailable("no answer")).delete_nodes(claimed(remove(3, 1001, kind=kind)))
    assert cloud.changes() == []


def test_cherry_remove_names_an_undeletable_server_and_deletes_the_others() -> None:
    cloud = EmulatedCloud(4)
    cloud.server.reply("DELETE", refusal(400, "it is locked"))
    outcome = drive(cloud, remove(4, 1000, 1001, 1002))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("InvalidRequest", "400")
    assert "pool3-1000 (1000): DELETE " in outcome.message
    assert "it is locked" in outcome.message
    assert outcome.facts["removed"] == 2
    assert cloud.deleted == [1001, 1002]


def test_cherry_remove_refused_because_another_writer_was_first_is_not_a_failure() -> None:
    cloud = EmulatedCloud(3)
    cloud.server.reply("DELETE", refusal(400, "it is being deleted"))
    cloud.server.reply("GET /v1/servers/1000", scripted(200, {**ROW, "state": "terminating"}))
    assert isinstance(cloud.build().delete_nodes(claimed(remove(3, 1000))), Succeeded)


@each_row(
    ("error", "cls"),
    [(NO_ANSWER, Transient), (refusal(429, Retry_After="9"), Throttled), (refusal(409), Conflict)],
)
def test_cherry_remove_raises_temporary_errors_before_any_effect(
    error: Answer, cls: type[ProviderError]
) -> None:
    cloud = EmulatedCloud(3)
    cloud.server.reply("DELETE", error)
    with pytest.raises(cls):
        cloud.build().delete_nodes(claimed(remove(3, 1000, 1001)))
    cloud.settle()
    assert isinstance(cloud.build().delete_nodes(claimed(remove(3, 1000, 1001))), Succeeded)


def test_cherry_remove_waits_on_temporary_errors_after_an_effect() -> None:
    cloud = EmulatedCloud(4)
    asked = claimed(remove(4, 1000, 1001, 1002))
    cloud.server.reply("DELETE", None, refusal(429, Retry_After="9"))
    outcome = cloud.build().delete_nodes(asked)
    assert isinstance(outcome, InProgress)
    assert outcome.after == 9.0
    assert isinstance(cloud.build().poll(continued(cloud, asked, outcome)), Succeeded)
    assert cloud.deleted == [1000, 1001, 1002]


def test_cherry_remove_tries_a_refused_token_once() -> None:
    cloud = EmulatedCloud(5)
    cloud.fail("DELETE", 403, 5)
    outcome = cloud.build().delete_nodes(claimed(remove(5, 1000, 1001, 1002)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert len(cloud.changes()) == 1


def test_cherry_remove_deletes_in_batches_of_twenty() -> None:
    cloud = EmulatedCloud(50)
    asked = claimed(remove(50, *range(1000, 1045)))
    current, outcome, sizes = asked, cloud.build().delete_nodes(asked), [20]
    while isinstance(outcome, InProgress):
        before, current = len(cloud.deleted), continued(cloud, current, outcome)
        outcome = cloud.build().poll(current)
        sizes.append(len(cloud.deleted) - before)
    assert isinstance(outcome, Succeeded)
    assert sizes == [20, 20, 5]
    assert outcome.facts["removed"] == 45


def test_cherry_remove_looks_up_vanished_servers_in_batches_of_twenty() -> None:
    cloud = EmulatedCloud(45)
    asked = claimed(remove(45, *range(1000, 1045)))
    for number in range(1000, 1044):
        cloud.cloud.vanish(number)
    current, outcome, asks = asked, cloud.build().delete_nodes(asked), []
    while isinstance(outcome, InProgress):
        asks.append(sum(request.startswith("server ") for request in cloud.requests))
        current = continued(cloud, current, outcome)
        outcome = cloud.build().poll(current)
    assert outcome == Succeeded({"removed": 45, "group": POOL})
    assert asks == [20, 40]
    assert cloud.deleted == [1044]


def test_cherry_remove_failure_of_many_names_ten() -> None:
    cloud = EmulatedCloud(15)
    cloud.fail("DELETE", 400, 15, "no")
    outcome = drive(cloud, remove(15, *range(1000, 1015)))
    assert isinstance(outcome, Failed)
    assert "pool3-1009 (1009): DELETE" in outcome.message
    assert "1010" not in outcome.message
    assert outcome.message.endswith("no; and 5 more")


def test_cherry_remove_without_a_cache_may_repeat_but_deletes_no_other_server() -> None:
    cloud = EmulatedCloud(3, delete_lag=3600.0)
    cloud.shared_cache = NullCache()  # type: ignore[assignment]
    assert isinstance(drive(cloud, remove(3, 1000)), Succeeded)
    assert isinstance(drive(cloud, remove(3, 1000)), Succeeded)
    assert set(cloud.deleted) == {1000}
    assert cloud.alive() == [1001, 1002]


def test_cherry_decrease_target_is_refused_independently_of_machines() -> None:
    cloud = EmulatedCloud(3)
    outcome = cloud.build().decrease_target(operation(OperationKind.DECREASE_TARGET, POOL, 3, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "its size is the 3 servers it has" in outcome.message
    assert cloud.build().observe([]).groups[0].target == 3
    assert cloud.changes() == []


def test_cherry_decrease_target_already_reached_is_done() -> None:
    assert isinstance(
        EmulatedCloud(2)
        .build()
        .decrease_target(operation(OperationKind.DECREASE_TARGET, POOL, 3, 2)),
        Succeeded,
    )
    assert isinstance(
        EmulatedCloud(2).build().poll(operation(OperationKind.DECREASE_TARGET, POOL, 3, 2)),
        Succeeded,
    )


@each_row(("from_size", "to_size"), [(2, 3), (3, 3), (3, -1)])
def test_cherry_decrease_target_needs_a_smaller_size(from_size: int, to_size: int) -> None:
    asked = operation(OperationKind.DECREASE_TARGET, POOL, from_size, to_size)
    outcome = EmulatedCloud(2).build().decrease_target(asked)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_cherry_release_reports_whether_anything_can_still_be_saved() -> None:
    cloud = EmulatedCloud(3)
    asked = remove(3, 1000, 1001)
    assert cloud.build().cancel_delete(asked) is True
    drive(cloud, remove(3, 1000))
    assert cloud.build().cancel_delete(asked) is True
    drive(cloud, remove(2, 1001))
    assert cloud.build().cancel_delete(asked) is False
    assert cloud.deleted == [1000, 1001]
