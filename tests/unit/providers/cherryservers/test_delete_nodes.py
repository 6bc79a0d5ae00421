"""Removal: exactly the named servers, by their numbers, or none."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.kube.errors import Unavailable
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from tests.cases import each_row
from tests.unit.providers.cherryservers.fake_api import (
    POOL,
    FakeCloud,
    FakeKube,
    claimed,
    continued,
    drive,
    operation,
    provider,
    remove,
)

TWO = f"2:5:{POOL}"  # at least two


def world(size: int = 3, **more: int) -> FakeCloud:
    cloud = FakeCloud(**more)
    cloud.add(size)
    return cloud


def refused(cloud: FakeCloud, *targets: int | RemovalTarget, least: int = 0) -> Failed:
    """Returns the failure of a removal that deleted nothing."""
    outcome = provider(cloud, f"{least}:5:{POOL}").delete_nodes(claimed(remove(3, *targets)))
    assert isinstance(outcome, Failed)
    assert cloud.writes() == []
    return outcome


def test_cherry_remove_deletes_a_server_by_its_number_in_one_call() -> None:
    cloud = world()
    outcome = provider(cloud).delete_nodes(claimed(remove(3, 1001)))
    assert outcome == Succeeded({"removed": 1, "group": POOL})
    assert cloud.calls == ["servers", "delete 1001"]


@each_row("instance", ["cherryservers://1001", "1001"])
def test_cherry_remove_uses_the_provider_id_where_there_is_no_handle(instance: str) -> None:
    cloud = world()
    assert isinstance(provider(cloud).delete_nodes(claimed(remove(3, RemovalTarget("n", instance)))), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_ignores_an_invalid_provider_id_if_the_handle_is_known() -> None:
    cloud = world()
    assert isinstance(
        provider(cloud).delete_nodes(claimed(remove(3, RemovalTarget("n", "aws://1", "1001")))), Succeeded
    )
    assert cloud.deleted == [1001]


def test_cherry_remove_by_name_finds_the_only_server_with_it() -> None:
    cloud = world()
    asked = remove(3, RemovalTarget(cloud.all[1001].hostname.upper(), ""))
    assert isinstance(drive(cloud, asked), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_remembers_the_server_of_a_name_after_its_deletion() -> None:
    cloud = world()
    asked = claimed(remove(3, RemovalTarget(cloud.all[1001].hostname, "")))
    known = continued(asked, provider(cloud).delete_nodes(asked))
    assert cloud.deleted == []
    for _ in range(3):  # dead before it was recorded, twice
        assert isinstance(provider(cloud).poll(known), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_by_a_name_of_two_servers_deletes_none() -> None:
    cloud = world()
    cloud.change(1000, hostname="twin")
    cloud.change(1001, hostname="twin")
    outcome = refused(cloud, RemovalTarget("twin", ""))
    assert outcome.error_class == "InvalidRequest"
    assert "1000, 1001" in outcome.message


def test_cherry_remove_node_without_a_server_is_not_reported_as_deleted() -> None:
    assert "no server bears that name" in refused(world(), RemovalTarget("nobody", ""), 1000).message


@each_row("target", [RemovalTarget("n", "aws://1"), RemovalTarget("n", "", "x-7"), RemovalTarget("", "")])
def test_cherry_remove_target_that_names_no_server_of_ours_is_refused(target: RemovalTarget) -> None:
    assert refused(world(), 1000, target).error_class == "InvalidRequest"


def test_cherry_remove_counts_404_and_a_vanished_server_as_removed() -> None:
    cloud = world(stale=5)
    del cloud.all[1002]
    assert isinstance(provider(cloud).delete_nodes(claimed(remove(3, 1002))), Succeeded)
    assert cloud.calls == ["servers", "server 1002"]
    other = world()
    other.trouble["delete"] = []
    drive(other, remove(3, 1000))
    assert isinstance(drive(other, remove(3, 1000)), Succeeded)
    assert other.deleted == [1000]


def test_cherry_remove_counts_a_leaving_server_as_removed() -> None:
    cloud = world()
    cloud.change(1000, state="terminating")
    assert isinstance(provider(cloud).delete_nodes(claimed(remove(3, 1000))), Succeeded)
    assert cloud.writes() == []


def test_cherry_remove_with_one_foreign_server_is_refused_as_a_whole() -> None:
    cloud = world()
    (other,) = cloud.add(1, "pool2")
    foreign, bare = cloud.add(2)
    cloud.change(foreign, tags={"k8s-cluster": "theirs", "k8s-nodepool": POOL})
    cloud.change(bare, tags={})
    for number in (other, foreign, bare):
        assert "does not belong" in refused(cloud, 1000, number).message


@each_row("answer", ["unlisted", "forbidden"])
def test_cherry_remove_with_a_server_of_another_project_is_refused(answer: str) -> None:
    cloud = world()
    if answer == "forbidden":
        cloud.trouble["server"] = [Unauthorized("403", code="403")]
        outcome = provider(cloud).delete_nodes(claimed(remove(3, 1000, 77)))
    else:
        (number,) = cloud.add(1, "stranger")
        hidden = cloud.all.pop(number)
        cloud.server = lambda number: {number: hidden}[number]  # type: ignore[method-assign]
        outcome = provider(cloud).delete_nodes(claimed(remove(3, 1000, number)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert cloud.writes() == []


def test_cherry_remove_deletes_a_member_not_yet_listed() -> None:
    cloud = world()
    cloud._hidden[1001] = 5
    assert isinstance(provider(cloud).delete_nodes(claimed(remove(3, 1001))), Succeeded)
    assert cloud.deleted == [1001]


def test_cherry_remove_below_the_minimum_is_refused() -> None:
    cloud = world()
    assert "below the minimum 2" in refused(cloud, 1000, 1001, least=2).message
    assert isinstance(provider(cloud, TWO).delete_nodes(claimed(remove(3, 1000))), Succeeded)


def test_cherry_delete_instances_ignores_the_minimum() -> None:
    cloud = world()
    outcome = provider(cloud, f"3:5:{POOL}").delete_nodes(claimed(remove(3, 1000, kind=OperationKind.DELETE_INSTANCES)))
    assert isinstance(outcome, Succeeded)


def test_cherry_remove_twice_in_quick_succession_respects_the_minimum() -> None:
    """The list still shows the deleted server as active."""
    cloud = world(stale=50)
    assert isinstance(provider(cloud, TWO).delete_nodes(claimed(remove(3, 1000))), Succeeded)
    outcome = provider(cloud, TWO).delete_nodes(claimed(remove(3, 1001)))
    assert isinstance(outcome, Failed)
    assert "minimum" in outcome.message
    assert cloud.deleted == [1000]


def test_cherry_remove_does_not_count_servers_it_deleted_even_without_a_cache() -> None:
    """The list is late, and the shared cache has lost the entry."""
    cloud = FakeCloud()
    ghost, second, _ = cloud.add(3)
    asked = remove(3, ghost, second).with_status(data={"removal": msgspec.json.encode({"gone": [ghost]}).decode()})
    outcome = provider(cloud, f"2:10:{POOL}").poll(asked)
    assert isinstance(outcome, Failed)
    assert "1 would be below the minimum 2" in outcome.message
    assert cloud.writes() == []


def test_cherry_remove_does_not_count_a_terminating_server_as_remaining() -> None:
    cloud = world(2)
    cloud.add(1, state="terminating")
    assert "1 would be below" in refused(cloud, 1000, least=2).message


def test_cherry_remove_never_deletes_or_counts_a_control_plane() -> None:
    cloud = world()
    kube = FakeKube(("m", "cherryservers://1002", {"node-role.kubernetes.io/control-plane": ""}))
    outcome = provider(cloud, kube=kube).delete_nodes(claimed(remove(3, 1002)))
    assert isinstance(outcome, Failed)
    assert "control plane" in outcome.message
    outcome = provider(cloud, TWO, kube=kube).delete_nodes(claimed(remove(3, 1000)))
    assert isinstance(outcome, Failed)
    assert "1 would be below the minimum 2" in outcome.message
    assert cloud.writes() == []
    assert "" not in kube.selectors  # without listing the whole cluster


@each_row(
    "seen",
    [("n", "cherryservers://1001"), ("n", "1001"), ("pool3-1001", ""), ("POOL3-1001", ""), ("pool3-1001", "aws://1")],
)
def test_cherry_delete_instances_with_a_joined_server_deletes_none(seen: tuple[str, str]) -> None:
    cloud = world()
    outcome = provider(cloud, kube=FakeKube((*seen, {}))).delete_nodes(
        claimed(remove(3, 1000, 1001, kind=OperationKind.DELETE_INSTANCES))
    )
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert cloud.writes() == []


@each_row("seen", [("n", "cherryservers://1002"), ("pool3-1001", "cherryservers://1002"), ("other", "")])
def test_cherry_delete_instances_is_not_blocked_by_other_nodes(seen: tuple[str, str]) -> None:
    cloud = world()
    outcome = provider(cloud, kube=FakeKube((*seen, {}))).delete_nodes(
        claimed(remove(3, 1001, kind=OperationKind.DELETE_INSTANCES))
    )
    assert isinstance(outcome, Succeeded)


@each_row("kind", [OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES])
def test_cherry_delete_instances_deletes_nothing_while_the_cluster_is_silent(kind: OperationKind) -> None:
    cloud, kube = world(), FakeKube()
    kube.error = Unavailable("no answer")
    with pytest.raises(Transient):
        provider(cloud, kube=kube).delete_nodes(claimed(remove(3, 1001, kind=kind)))
    assert cloud.writes() == []


def test_cherry_remove_names_an_undeletable_server_and_deletes_the_others() -> None:
    cloud = world(4)
    cloud.trouble["delete"] = [InvalidRequest("DELETE: 400 it is locked", code="400")]
    outcome = drive(cloud, remove(4, 1000, 1001, 1002))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == ("InvalidRequest", "400")
    assert "pool3-1000 (1000): DELETE: 400 it is locked" in outcome.message
    assert outcome.facts["removed"] == 2
    assert cloud.deleted == [1001, 1002]


def test_cherry_remove_refused_because_another_writer_was_first_is_not_a_failure() -> None:
    cloud = world()
    cloud.trouble["delete"] = [InvalidRequest("DELETE: 400 it is being deleted")]
    cloud.server = lambda number: cloud.all[number].__class__(number, state="terminating")  # type: ignore[method-assign]
    assert isinstance(provider(cloud).delete_nodes(claimed(remove(3, 1000))), Succeeded)


@each_row("error", [Transient("no answer"), Throttled("429", retry_after=9.0), Conflict("409")])
def test_cherry_remove_raises_temporary_errors_before_any_effect(error: ProviderError) -> None:
    cloud = world()
    cloud.trouble["delete"] = [error]
    with pytest.raises(type(error)):
        provider(cloud).delete_nodes(claimed(remove(3, 1000, 1001)))
    assert isinstance(provider(cloud).delete_nodes(claimed(remove(3, 1000, 1001))), Succeeded)


def test_cherry_remove_waits_on_temporary_errors_after_an_effect() -> None:
    cloud = world(4)
    asked = claimed(remove(4, 1000, 1001, 1002))
    found = provider(cloud)
    delete = cloud.delete

    def stop(number: int) -> None:
        if number == 1001:
            raise Throttled("429", retry_after=9.0)
        delete(number)

    cloud.delete = stop  # type: ignore[method-assign]
    outcome = found.delete_nodes(asked)
    assert isinstance(outcome, InProgress)
    assert outcome.after == 9.0
    cloud.delete = delete  # type: ignore[method-assign]
    assert isinstance(provider(cloud).poll(continued(asked, outcome)), Succeeded)
    assert cloud.deleted == [1000, 1001, 1002]


def test_cherry_remove_tries_a_refused_token_once() -> None:
    cloud = world(5)
    cloud.trouble["delete"] = [Unauthorized("403", code="403")] * 5
    outcome = provider(cloud).delete_nodes(claimed(remove(5, 1000, 1001, 1002)))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert len(cloud.writes()) == 1


def test_cherry_remove_deletes_in_batches_of_twenty() -> None:
    cloud = world(50)
    asked = claimed(remove(50, *range(1000, 1045)))
    current, outcome, sizes = asked, provider(cloud).delete_nodes(asked), [20]
    while isinstance(outcome, InProgress):
        before, current = len(cloud.deleted), continued(current, outcome)
        outcome = provider(cloud).poll(current)
        sizes.append(len(cloud.deleted) - before)
    assert isinstance(outcome, Succeeded)
    assert sizes == [20, 20, 5]
    assert outcome.facts["removed"] == 45


def test_cherry_remove_looks_up_vanished_servers_in_batches_of_twenty() -> None:
    cloud = world(45)
    asked = claimed(remove(45, *range(1000, 1045)))
    kept = {1044: cloud.all[1044]}
    cloud.all = dict(kept)
    current, outcome, asks = asked, provider(cloud).delete_nodes(asked), []
    while isinstance(outcome, InProgress):
        asks.append(sum(call.startswith("server ") for call in cloud.calls))
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert outcome == Succeeded({"removed": 45, "group": POOL})
    assert asks == [20, 40]
    assert cloud.deleted == [1044]


def test_cherry_remove_failure_of_many_names_ten() -> None:
    cloud = world(15)
    cloud.trouble["delete"] = [InvalidRequest("no")] * 15
    outcome = drive(cloud, remove(15, *range(1000, 1015)))
    assert isinstance(outcome, Failed)
    assert outcome.message.endswith("pool3-1009 (1009): no; and 5 more")


def test_cherry_remove_without_a_cache_may_repeat_but_deletes_no_other_server() -> None:
    cloud = world(stale=50)
    cloud.shared_cache.put = lambda *_: None  # type: ignore[method-assign]
    assert isinstance(drive(cloud, remove(3, 1000)), Succeeded)
    assert isinstance(drive(cloud, remove(3, 1000)), Succeeded)
    assert cloud.deleted == [1000]
    assert cloud.alive() == [1001, 1002]


def test_cherry_decrease_target_is_refused_independently_of_machines() -> None:
    cloud = world()
    outcome = provider(cloud).decrease_target(operation(OperationKind.DECREASE_TARGET, POOL, 3, 2))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert "its size is the 3 servers it has" in outcome.message
    assert provider(cloud).observe([]).groups[0].target == 3
    assert cloud.writes() == []


def test_cherry_decrease_target_already_reached_is_done() -> None:
    assert isinstance(
        provider(world(2)).decrease_target(operation(OperationKind.DECREASE_TARGET, POOL, 3, 2)), Succeeded
    )
    assert isinstance(provider(world(2)).poll(operation(OperationKind.DECREASE_TARGET, POOL, 3, 2)), Succeeded)


@each_row(("from_size", "to_size"), [(2, 3), (3, 3), (3, -1)])
def test_cherry_decrease_target_needs_a_smaller_size(from_size: int, to_size: int) -> None:
    outcome = provider(world(2)).decrease_target(operation(OperationKind.DECREASE_TARGET, POOL, from_size, to_size))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_cherry_release_reports_whether_anything_can_still_be_saved() -> None:
    cloud = world()
    asked = remove(3, 1000, 1001)
    assert provider(cloud).cancel_delete(asked) is True
    drive(cloud, remove(3, 1000))
    assert provider(cloud).cancel_delete(asked) is True
    drive(cloud, remove(2, 1001))
    assert provider(cloud).cancel_delete(asked) is False
    assert cloud.deleted == [1000, 1001]
