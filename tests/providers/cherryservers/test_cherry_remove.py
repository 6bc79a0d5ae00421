"""Tests of removal over HTTP: by server number, all or none, without trusting lists and
names beyond their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, Outcome, Succeeded
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.cherryservers.fixture import CherryBench, answer, drive, order, seen, target


@pytest.fixture
def bench() -> Iterator[CherryBench]:
    with CherryBench() as made:
        yield made


def removal(
    bench: CherryBench,
    group: str,
    *targets: RemovalTarget,
    kind: OperationKind = OperationKind.DELETE_NODES,
    op: str = "one",
) -> Operation:
    size = bench.target(group)
    return order(bench, kind, group, size, size - len(targets), *targets, op=f"{op}-0123456789ab")


def refused(bench: CherryBench, operation: Operation) -> Failed:
    """Returns the outcome, which must be a refusal, and checks that nothing was deleted."""
    before, _ = list(bench.cloud.servers), bench.look()
    outcome: Outcome = drive(bench, operation)
    assert isinstance(outcome, Failed)
    assert not [call for call in bench.look() if call.writes]
    assert list(bench.cloud.servers) == before
    return outcome


def test_cherry_removal_by_number_or_by_hostname_of_a_node_without_id(bench: CherryBench) -> None:
    group = bench.add_group("g", size=4)
    first, second, third, fourth = seen(bench, group).instances
    targets = (
        RemovalTarget(first.node, first.id, first.handle),
        RemovalTarget(second.node, second.id),
        RemovalTarget(third.node, ""),
    )
    assert isinstance(drive(bench, removal(bench, group, *targets)), Succeeded)
    assert bench.machines(group) == [fourth.handle]
    assert [call.path for call in bench.look() if call.writes] == [
        f"/servers/{each.handle}" for each in (first, second, third)
    ]


def test_cherry_server_already_gone_counts_as_removed(bench: CherryBench) -> None:
    group = bench.add_group("g", size=3)
    first, second, third = seen(bench, group).instances
    bench.cloud.vanish(int(first.handle))
    assert isinstance(drive(bench, removal(bench, group, target(first), target(second))), Succeeded)
    assert bench.machines(group) == [third.handle]


def test_cherry_server_vanishing_between_list_and_deletion_counts_as_removed(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=2)
    first, _ = seen(bench, group).instances
    bench.server.faults.next(VendorFault.NOT_FOUND, on="delete_server")
    assert isinstance(drive(bench, removal(bench, group, target(first))), Succeeded)


def test_cherry_node_without_a_server_makes_the_whole_removal_refused(bench: CherryBench) -> None:
    group = bench.add_group("g", size=3)
    first, *_ = seen(bench, group).instances
    for stranger in (
        RemovalTarget("unknown-server", ""),
        RemovalTarget("a", "aws:///eu/i-1"),
        RemovalTarget("", ""),
    ):
        outcome = refused(bench, removal(bench, group, target(first), stranger))
        assert outcome.error_class == "InvalidRequest"


@pytest.mark.parametrize("whose", ["pool", "cluster", "project", "nobody"])
def test_cherry_removal_of_a_foreign_server_is_refused(bench: CherryBench, whose: str) -> None:
    group = bench.add_group("g", size=2)
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "pool": ("h", {}),
        "cluster": ("g", {"cluster": "b"}),
        "project": ("g", {"project": 20002}),
        "nobody": ("", {}),
    }
    pool, reported = made[whose]
    other = bench.cloud.add_server(pool, **reported)
    ours = seen(bench, group).instances[0]
    stranger = RemovalTarget(other.hostname, f"cherryservers://{other.id}", str(other.id))
    outcome = refused(bench, removal(bench, group, target(ours), stranger))
    assert outcome.error_class == "InvalidRequest"
    assert str(other.id) in outcome.message


def test_cherry_duplicate_hostname_prevents_removal_by_name(bench: CherryBench) -> None:
    group = bench.add_group("g", size=1)
    twins = [bench.cloud.add_server("g", hostname="twin").id for _ in range(2)]
    refused(bench, removal(bench, group, RemovalTarget("twin", "")))
    node = next(each for each in bench.nodes() if each.name == "twin")
    assert isinstance(
        drive(
            bench, removal(bench, group, RemovalTarget(node.name, node.provider_id), op="second")
        ),
        Succeeded,
    )
    assert [id_ for id_ in twins if not bench.cloud.servers[id_].leaving] == [twins[1]]


def test_cherry_removal_below_the_minimum_is_refused_even_when_repeated_fast(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=4, least=2)
    first, second, third, _ = seen(bench, group).instances
    assert refused(
        bench, removal(bench, group, *(target(each) for each in (first, second, third)))
    ).error_class == ("InvalidRequest")
    assert isinstance(
        drive(bench, removal(bench, group, target(first), target(second), op="second")), Succeeded
    )
    refused(bench, removal(bench, group, target(third), op="third"))


def test_cherry_deleted_server_still_listed_as_active_is_not_counted(bench: CherryBench) -> None:
    bench.cloud.delete_lag = 600.0
    group = bench.add_group("g", size=3, least=2)
    first, second, _ = seen(bench, group).instances
    assert isinstance(drive(bench, removal(bench, group, target(first))), Succeeded)
    assert seen(bench, group).target == 2
    refused(bench, removal(bench, group, target(second), op="second"))


def test_cherry_server_being_deleted_by_others_counts_for_no_bound(bench: CherryBench) -> None:
    group = bench.add_group("g", size=3, least=2, most=3)
    bench.cloud.terminate(bench.cloud.members(group)[0])
    _, second, _ = seen(bench, group).instances
    assert refused(bench, removal(bench, group, target(second))).error_class == "InvalidRequest"
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3)), Succeeded)
    assert len(bench.machines(group)) == 3


def test_cherry_invalid_provider_id_does_not_block_removal_by_handle(bench: CherryBench) -> None:
    group = bench.add_group("g", size=2)
    first, second = seen(bench, group).instances
    assert isinstance(
        drive(bench, removal(bench, group, RemovalTarget(first.node, "", first.handle))), Succeeded
    )
    assert bench.machines(group) == [second.handle]


def test_cherry_undeletable_server_is_named_and_other_removals_proceed(bench: CherryBench) -> None:
    group = bench.add_group("g", size=3)
    first, second, third = seen(bench, group).instances
    bench.server.faults.next(VendorFault.OLD_TIME, on="delete_server")
    outcome = drive(bench, removal(bench, group, target(first), target(second)))
    assert isinstance(outcome, Failed)
    assert first.node in outcome.message
    assert second.node not in outcome.message
    assert bench.machines(group) == [first.handle, third.handle]


def test_cherry_control_plane_server_is_never_removed(bench: CherryBench) -> None:
    group = bench.add_group("g", size=2)
    first, _ = seen(bench, group).instances
    # The pool's script turns its machines into control planes; the label is on the Node.
    server = bench.cloud.servers[int(first.handle)]
    bench.cloud.servers[server.id].order = bench.cloud.add_server(
        "x",
        user_data=("LS1ub2RlLWxhYmVscz1ub2RlLXJvbGUua3ViZXJuZXRlcy5pby9jb250cm9sLXBsYW5lPXRydWU="),
    ).order
    assert len(seen(bench, group).instances) == 1
    refused(bench, removal(bench, group, target(first)))


def test_cherry_only_servers_that_never_joined_are_deleted_as_unregistered(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=2, least=2)
    joined, _ = seen(bench, group).instances
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3)), Succeeded)
    new = next(each for each in seen(bench, group).instances if each.handle not in {"1000", "1001"})
    assert (
        refused(
            bench, removal(bench, group, target(joined), kind=OperationKind.DELETE_INSTANCES)
        ).error_class
        == "Conflict"
    )
    assert isinstance(
        drive(
            bench,
            removal(bench, group, target(new), kind=OperationKind.DELETE_INSTANCES, op="second"),
        ),
        Succeeded,
    )
    assert bench.machines(group) == ["1000", "1001"]


def test_cherry_removal_of_thirty_stays_within_four_calls_a_second(bench: CherryBench) -> None:
    group = bench.add_group("g", size=30, most=40)
    victims = [target(each) for each in seen(bench, group).instances]
    assert isinstance(drive(bench, removal(bench, group, *victims)), Succeeded)
    assert not bench.machines(group)
    times = [call.at for call in bench.server.log]
    assert max(sum(begin <= at < begin + 1.0 for at in times) for begin in times) <= 4


def test_cherry_decrease_target_that_would_remove_a_server_is_refused(bench: CherryBench) -> None:
    group = bench.add_group("g", size=2)
    assert isinstance(
        answer(bench, order(bench, OperationKind.DECREASE_TARGET, group, 2, 1)), Failed
    )
    assert isinstance(
        answer(
            bench, order(bench, OperationKind.DECREASE_TARGET, group, 3, 2, op="second-0123456789")
        ),
        Succeeded,
    )
    assert len(bench.machines(group)) == 2
