"""Spot instances, interrupted removals, drift, work of CCE on nodes, and restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Instance
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.base import NodeRestarter
from chalicelib.providers.kit.errors import Conflict, Transient
from infra.emulators.huaweicloud.models import REPAIRING
from infra.emulators.huaweicloud.simulation import give_notice, repair
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import (
    AZ1,
    AZ2,
    FLAVOR,
    A,
    B,
    EmulatedCce,
    node,
    remove,
    uid,
)
from tests.providers.huaweicloud.fixture import carried, drive, order, tried

SPOT = {"marketType": "spot", "spotPrice": "0.12"}


def interrupted(cce: EmulatedCce, *handles: str, group: str = A) -> Operation:
    operation = remove(cce, 3, *handles, group=group)
    return msgspec.structs.replace(
        operation, spec=msgspec.structs.replace(operation.spec, reason=DisruptionReason.INTERRUPTED)
    )


def restarting(cce: EmulatedCce, *handles: str, group: str = A) -> Operation:
    return order(cce, OperationKind.RESTART_NODE, group, 3, 3, *handles)


def instances(cce: EmulatedCce, group: str = A) -> Mapping[str, Instance]:
    return {instance.handle: instance for instance in cce.groups()[group].instances}


# -- spot


def test_huawei_pool_of_spot_instances_is_one_of_spot_groups_and_has_no_price() -> None:
    cce = EmulatedCce(3, 2, extend=SPOT)
    groups = cce.groups(bssEndpoint=cce.server.url)
    assert [(groups[name].spot, groups[name].price) for name in (A, B)] == [
        (True, 0.0),
        (True, 0.0),
    ]
    assert "spotPrice" in groups[A].price_error
    assert "spec.prices.spot" in groups[A].price_error
    template = groups[A].template
    assert template is not None
    assert template.labels["cce.io/is-spot"] == "true"


def test_huawei_pool_on_demand_is_no_spot_group_and_its_template_has_no_label() -> None:
    group = EmulatedCce(3).groups()[A]
    assert not group.spot
    assert group.template is not None
    assert "cce.io/is-spot" not in group.template.labels


@each_row("known_by", ["the cluster's label", "CCE's node"])
def test_huawei_group_with_an_old_spot_node_is_a_spot_group(known_by: str) -> None:
    cce = EmulatedCce(3, 2)
    if known_by == "CCE's node":
        cce.answers[uid(1)] = {"spec.extendParam": {"marketType": "Spot"}}
    else:
        cce.joined = (node(cce.node(uid(1)), **{"cce.io/is-spot": "true"}),)
    groups = cce.groups()
    assert (groups[A].spot, groups[B].spot) == (True, False)


def test_SPOT_1_interrupted_removal_deletes_nothing_and_waits_until_the_node_is_gone() -> None:
    cce = EmulatedCce(3, extend=SPOT)
    give_notice(cce.cloud, uid(1))
    outcome = cce.step(interrupted(cce, uid(1)))
    assert isinstance(outcome, InProgress)
    assert isinstance(drive(cce, interrupted(cce, uid(1))), Succeeded)
    assert (cce.changes(), cce.cloud.node(uid(1))) == ([], None)


def test_huawei_interrupted_removal_ends_as_soon_as_the_node_is_leaving() -> None:
    cce = EmulatedCce(3, extend=SPOT)
    cce.node(uid(1)).phase = "Deleting"
    assert isinstance(cce.step(interrupted(cce, uid(1))), Succeeded)


def test_huawei_interrupted_removal_goes_below_the_minimum() -> None:
    cce = EmulatedCce(3, least=3, extend=SPOT)
    assert isinstance(cce.step(interrupted(cce, uid(1))), InProgress)


def test_huawei_interrupted_removal_of_a_foreign_node_is_refused() -> None:
    cce = EmulatedCce(3, 2, extend=SPOT)
    outcome = cce.step(interrupted(cce, cce.machines(B)[0]))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.changes()) == ("InvalidRequest", [])


def test_huawei_interrupted_removal_knows_a_spot_node_of_a_pool_that_has_changed() -> None:
    cce = EmulatedCce(3)
    cce.joined = (node(cce.node(uid(1)), **{"cce.io/is-spot": "true"}),)
    assert isinstance(cce.step(interrupted(cce, uid(1))), InProgress)
    assert cce.changes() == []


def test_huawei_interrupted_removal_of_a_node_on_demand_deletes_it() -> None:
    cce = EmulatedCce(3)
    assert isinstance(drive(cce, interrupted(cce, uid(1))), Succeeded)
    assert cce.changes() == [f"delete {uid(1)}"]


def test_huawei_ordinary_removal_of_a_spot_node_deletes_it() -> None:
    cce = EmulatedCce(3, extend=SPOT)
    assert isinstance(drive(cce, remove(cce, 3, uid(1))), Succeeded)
    assert cce.changes() == [f"delete {uid(1)}"]


def test_huawei_cancelled_interrupted_removal_says_that_the_node_is_there() -> None:
    cce = EmulatedCce(3, extend=SPOT)
    assert cce.build().cancel_delete(interrupted(cce, uid(1)))


# -- drift


@each_row(
    ("changes", "difference"),
    [
        ({"flavor": "c7.2xlarge.2"}, f"flavour {FLAVOR}, new nodes have c7.2xlarge.2"),
        ({"az": AZ2}, f"AZ {AZ1}, new nodes have {AZ2}"),
        (
            {"os": "Ubuntu 22.04"},
            "operating system Huawei Cloud EulerOS 2.0, new nodes have Ubuntu 22.04",
        ),
        ({"runtime": "docker"}, "runtime containerd, new nodes have docker"),
    ],
)
def test_huawei_changed_template_makes_nodes_outdated(
    changes: dict[str, str], difference: str
) -> None:
    cce = EmulatedCce(2)
    assert [instance.outdated for instance in instances(cce).values()] == ["", ""]
    cce.cloud.change_template(A.partition("/")[0], **changes)
    cce.resize(A, 3)
    cce.settle()
    new = uid(3)
    assert {name: instance.outdated for name, instance in instances(cce).items()} == {
        uid(1): difference,
        uid(2): difference,
        new: "",
    }


def test_huawei_all_differences_are_named() -> None:
    cce = EmulatedCce(1)
    cce.cloud.change_template(A.partition("/")[0], flavor="m7.xlarge.8", runtime="docker")
    outdated = instances(cce)[uid(1)].outdated
    assert outdated == (
        f"flavour {FLAVOR}, new nodes have m7.xlarge.8, runtime containerd, new nodes have docker"
    )


@each_row("unstated", ["spec.os", "spec.runtime"])
def test_huawei_field_that_a_node_does_not_state_is_no_difference(unstated: str) -> None:
    cce = EmulatedCce(1)
    cce.answers[uid(1)] = {unstated: ...}
    cce.cloud.change_template(A.partition("/")[0], os="Ubuntu 22.04", runtime="docker")
    assert (("operating" in instances(cce)[uid(1)].outdated), unstated) in {
        (False, "spec.os"),
        (True, "spec.runtime"),
    }


def test_huawei_random_az_and_other_spelling_are_no_differences() -> None:
    cce = EmulatedCce(1, az="random")
    cce.node(uid(1)).az = AZ2
    cce.cloud.change_template(A.partition("/")[0], os="huawei cloud euleros 2.0")
    assert instances(cce)[uid(1)].outdated == ""


def test_huawei_node_of_another_scale_group_is_compared_with_that_group() -> None:
    cce = EmulatedCce(1, 1)
    cce.cloud.change_template(A.partition("/")[0], flavor="c7.2xlarge.2")
    assert [instance.outdated for instance in instances(cce, B).values()] == [""]


# -- work of CCE


@each_row(
    ("phase", "busy"),
    [
        ("Active", False),
        ("Installing", True),
        ("Upgrading", True),
        (REPAIRING, True),
        ("RepairFailed", False),
        ("Abnormal", False),
        ("Error", False),
        ("Dreaming", False),
    ],
)
def test_LIFE_16_node_is_busy_while_cce_works_on_it(phase: str, busy: bool) -> None:
    cce = EmulatedCce(2)
    cce.joined = cce.nodes()
    cce.node(uid(1)).phase = phase
    found = instances(cce)
    assert found[uid(1)].busy == (f"CCE: node phase {phase}" if busy else "")
    assert found[uid(2)].busy == ""


def test_huawei_node_on_its_way_is_not_busy() -> None:
    cce = EmulatedCce(1)
    cce.joined = ()
    cce.node(uid(1)).phase = "Installing"
    assert instances(cce)[uid(1)].busy == ""


def test_huawei_repair_of_cce_ends() -> None:
    cce = EmulatedCce(1)
    repair(cce.cloud, uid(1), 600.0)
    assert instances(cce)[uid(1)].busy
    cce.settle(601.0)
    assert instances(cce)[uid(1)].busy == ""


@each_row(
    ("phase", "busy"),
    [
        ("", ""),
        ("Synchronizing", "CCE: node pool phase Synchronizing"),
        ("Synchronized", ""),
        ("SoldOut", ""),
    ],
)
def test_huawei_group_is_busy_while_its_pool_is_changed(phase: str, busy: str) -> None:
    cce = EmulatedCce(1, 1)
    cce.pool(A).phase = phase
    groups = cce.groups()
    assert [groups[name].busy for name in (A, B)] == [busy, busy]


# -- restart


def test_huawei_restart_is_one_hard_reboot_of_the_server_followed_by_its_job() -> None:
    cce = EmulatedCce(3)
    assert isinstance(cce.build(), NodeRestarter)
    assert cce.groups()[A].restarts
    outcome = drive(cce, restarting(cce, uid(2)))
    assert isinstance(outcome, Succeeded)
    (request,) = [request for request in cce.server.requests if request.method == "POST"]
    assert json.loads(request.body) == {
        "reboot": {"type": "HARD", "servers": [{"id": cce.node(uid(2)).server}]}
    }
    assert [cce.node(uid(number)).reboots for number in (1, 2, 3)] == [0, 1, 0]
    assert cce.target(A) == 3


def test_huawei_repeated_restart_only_follows_the_job() -> None:
    cce = EmulatedCce(3)
    operation = carried(restarting(cce, uid(1)), cce.build().restart(restarting(cce, uid(1))))
    assert isinstance(cce.build().restart(operation), InProgress)
    assert isinstance(cce.build().poll(operation), InProgress)
    cce.settle(60.0)
    assert isinstance(cce.build().poll(operation), Succeeded)
    assert cce.node(uid(1)).reboots == 1


def test_huawei_restart_whose_server_does_not_start_fails_with_the_vendors_words() -> None:
    cce = EmulatedCce(3)
    cce.cloud.unbootable.add(uid(1))
    outcome = drive(cce, restarting(cce, uid(1)))
    assert isinstance(outcome, Failed)
    assert "the server does not start" in outcome.message


@each_row("code", [403, 404])
def test_huawei_restart_is_over_when_its_job_cannot_be_read(code: int) -> None:
    cce = EmulatedCce(3)
    operation = carried(restarting(cce, uid(1)), cce.build().restart(restarting(cce, uid(1))))
    cce.fail(r"GET /v1/.*/jobs/", code, times=2)
    assert isinstance(cce.build().poll(operation), Succeeded)


def test_huawei_restart_whose_job_is_not_told_is_over_when_it_is_taken() -> None:
    cce = EmulatedCce(3)
    operation = restarting(cce, uid(1)).with_status(
        step="restart", data={"sent": "yes", "jobs": ""}
    )
    assert isinstance(cce.build().poll(operation), Succeeded)
    assert cce.changes() == []


def test_huawei_restart_that_never_ends_is_given_up() -> None:
    cce = EmulatedCce(3)
    operation = carried(restarting(cce, uid(1)), cce.build().restart(restarting(cce, uid(1))))
    operation = operation.with_status(
        step="restart", data={**operation.status.data, "polls": "900"}
    )
    outcome = cce.build().poll(operation)
    assert isinstance(outcome, Failed)
    assert "RUNNING" in outcome.message


def test_huawei_restart_refuses_what_it_must_not_touch() -> None:
    cce = EmulatedCce(3, 2)
    refusals = {
        "another group": (restarting(cce, cce.machines(B)[0]), "InvalidRequest"),
        "two nodes": (restarting(cce, uid(1), uid(2)), "InvalidRequest"),
        "a placeholder": (restarting(cce, f"{A}/placeholder-0"), "InvalidRequest"),
        "gone": (restarting(cce, uid(900)), "NotFound"),
    }
    for what, (operation, error_class) in refusals.items():
        outcome = tried(cce, operation)
        assert isinstance(outcome, Failed), what
        assert outcome.error_class == error_class, what
    assert [request.method for request in cce.server.requests if request.method != "GET"] == []


def test_huawei_restart_of_a_machine_that_is_another_node_now_is_refused() -> None:
    cce = EmulatedCce(3)
    operation = restarting(cce, uid(1))
    cce.joined = (node(cce.node(uid(1)), name="another"),)
    outcome = tried(cce, operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, cce.node(uid(1)).reboots) == ("Conflict", 0)


def test_huawei_restart_waits_while_cce_works_on_the_node() -> None:
    cce = EmulatedCce(3)
    cce.node(uid(1)).phase = REPAIRING
    assert isinstance(tried(cce, restarting(cce, uid(1))), Conflict)
    assert cce.node(uid(1)).reboots == 0


def test_huawei_leaving_node_is_not_restarted() -> None:
    cce = EmulatedCce(3)
    cce.node(uid(1)).phase = "Deleting"
    assert isinstance(tried(cce, restarting(cce, uid(1))), Failed)


def test_huawei_nodes_that_are_no_servers_of_ecs_are_not_restarted() -> None:
    cce = EmulatedCce(3)
    cce.answers[A.partition("/")[0]] = {"spec.type": "ElasticBMS"}
    assert not cce.groups()[A].restarts
    assert isinstance(tried(cce, restarting(cce, uid(1))), Failed)
    assert cce.node(uid(1)).reboots == 0


def test_huawei_restart_whose_answer_is_lost_is_requested_once_and_counts_as_done() -> None:
    cce = EmulatedCce(3)
    cce.server.faults.next(VendorFault.LOST_ANSWER, on="write")
    with pytest.raises(Transient):
        cce.build().restart(restarting(cce, uid(1)))
    assert isinstance(drive(cce, restarting(cce, uid(1))), Succeeded)
    assert cce.node(uid(1)).reboots == 1


def test_huawei_refused_restart_is_requested_again() -> None:
    cce = EmulatedCce(3)
    cce.fail(r"POST /v1/", 400, times=1)
    assert isinstance(tried(cce, restarting(cce, uid(1))), Failed)
    assert isinstance(drive(cce, restarting(cce, uid(1))), Succeeded)
    assert cce.node(uid(1)).reboots == 1
