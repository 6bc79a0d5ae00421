"""Recognition of Machines that will not join, from their conditions and messages."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.group import InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.timestamps import format_time
from chalicelib.providers.clusterapi.instances import (
    Match,
    Nodes,
    Patience,
    classify,
    failure_class,
)
from chalicelib.providers.clusterapi.models import CapiAnnotations
from tests.cases import each_row
from tests.providers.clusterapi.objects import Json, as_machine, in_v1beta1, leaving, machine, node

NOW = 1_800_000_000.0
VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def condition(
    kind: str, status: str, *, reason: str = "R", message: str = "m", ago: float = 600.0
) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(NOW - ago),
    }


def error(
    obj: Json, *, stuck_after: float = 300.0, nodes: tuple[Node, ...] = ()
) -> InstanceError | None:
    parsed = as_machine(obj)
    found = classify(
        parsed, Nodes(nodes, CapiAnnotations()).match(parsed), Patience(NOW, stuck_after)
    )
    assert found is not None
    assert found.error is None or found.state is InstanceState.CREATING
    return found.error


def waiting(version: str, *conditions: Json, **more: Any) -> Json:
    made = machine("m", "ms", conditions=list(conditions), **more)
    return in_v1beta1(made) if version == "v1beta1" else made


@VERSIONS
def test_capi_infrastructure_not_ready_for_long_is_a_failed_creation(version: str) -> None:
    sold_out = condition(
        "InfrastructureReady", "False", reason="InsufficientInstanceCapacity", message="none left"
    )
    assert error(waiting(version, sold_out)) == InstanceError(
        "OutOfStock", "InsufficientInstanceCapacity", "none left"
    )
    assert error(
        waiting(version, {**sold_out, "message": "quota of 64 vCPUs exceeded", "reason": "X"})
    ) == (InstanceError("QuotaExceeded", "X", "quota of 64 vCPUs exceeded"))


@VERSIONS
@pytest.mark.parametrize(("ago", "reported"), [(120.0, True), (119.0, False)])
def test_capi_plain_stock_and_quota_messages_need_no_setting(
    version: str, ago: float, reported: bool
) -> None:
    for reason in ("InsufficientInstanceCapacity", "QuotaExceeded"):
        said = condition("InfrastructureReady", "False", reason=reason, ago=ago)
        found = error(waiting(version, said), stuck_after=0.0)
        assert (found is not None) is reported
    starting = condition(
        "InfrastructureReady",
        "False",
        reason="NotReady",
        message="the server is booting",
        ago=9000.0,
    )
    assert error(waiting(version, starting), stuck_after=0.0) is None, (
        "what is only slow is waited for"
    )


@VERSIONS
def test_capi_machine_failed_by_a_health_check_is_a_failed_creation(version: str) -> None:
    given_up = condition(
        "HealthCheckSucceeded", "False", reason="NodeStartupTimeout", message="no node", ago=1.0
    )
    assert error(waiting(version, given_up)) == InstanceError(
        "Unknown", "NodeStartupTimeout", "no node"
    )
    assert error(waiting(version, {**given_up, "reason": "UnhealthyNode"})) is None


@each_row(
    ("reported", "stuck_after"),
    [
        (condition("InfrastructureReady", "False", ago=299.0), 300.0),  # not long enough
        (condition("InfrastructureReady", "False"), 0.0),  # the setting is disabled
        (condition("InfrastructureReady", "True"), 300.0),
        (condition("InfrastructureReady", "Unknown"), 300.0),
        (condition("BootstrapConfigReady", "False"), 300.0),
        # from a clock that is ahead
        (condition("InfrastructureReady", "False", ago=-3600.0), 300.0),
        ({**condition("InfrastructureReady", "False"), "lastTransitionTime": "long ago"}, 300.0),
        ({"type": "InfrastructureReady", "status": "False"}, 300.0),
    ],
)
def test_capi_machine_in_doubt_is_still_being_created(reported: Json, stuck_after: float) -> None:
    assert error(waiting("v1beta2", reported), stuck_after=stuck_after) is None


def test_capi_machine_with_a_node_or_in_deletion_did_not_fail_to_join() -> None:
    broken = condition("InfrastructureReady", "False")
    known = node("n", "c:///i")
    assert error(waiting("v1beta2", broken, provider_id="c:///i"), nodes=(known,)) is None
    assert error(waiting("v1beta2", broken, node="n"), nodes=(known,)) is None
    found = classify(as_machine(leaving(waiting("v1beta2", broken))), Match(), Patience(NOW, 300.0))
    assert found is not None
    assert (found.state, found.error) == (InstanceState.DELETING, None)


def test_capi_newer_of_two_condition_lists_counts() -> None:
    old = waiting("v1beta1", condition("InfrastructureReady", "True"))
    old["status"]["conditions"] = [condition("InfrastructureReady", "False")]
    assert error(old) is None


@VERSIONS
def test_capi_failure_message_keeps_its_class(version: str) -> None:
    failed = machine(
        "m",
        "ms",
        phase="Failed",
        deprecated={
            "v1beta1": {
                "failureMessage": "VcpuLimitExceeded: you have requested more",
                "failureReason": "CreateError",
            }
        },
    )
    found = error(in_v1beta1(failed) if version == "v1beta1" else failed, stuck_after=0.0)
    assert found == InstanceError(
        "QuotaExceeded", "ProvisioningFailed", "VcpuLimitExceeded: you have requested more"
    )


@each_row(
    ("reason", "message", "cls"),
    [
        ("", "Insufficient capacity in zone a", "OutOfStock"),
        ("InsufficientInstanceCapacity", "", "OutOfStock"),
        ("", "ZONE_RESOURCE_POOL_EXHAUSTED", "OutOfStock"),
        ("SkuNotAvailable", "", "OutOfStock"),
        ("", "OperationDenied.NoStock", "OutOfStock"),
        ("", "limited availability of this size", "OutOfStock"),
        ("InsufficientResources", "", "OutOfStock"),
        ("", "No valid host was found", "OutOfStock"),
        ("", "Quota 'CPUS' exceeded. Limit: 24.0 in region", "QuotaExceeded"),
        ("", "capacity is within your quota no more", "QuotaExceeded"),
        ("InstanceLimitExceeded", "", "QuotaExceeded"),
        ("", "the limit of 10 servers is reached", "QuotaExceeded"),
        ("RequestLimitExceeded", "", "Throttled"),
        ("", "Rate limit exceeded", "Throttled"),
        ("Throttling", "calls", "Throttled"),
        ("CreateError", "image not found", "Unknown"),
        ("", "unlimited plan required", "Unknown"),
        ("", "", "Unknown"),
    ],
)
def test_capi_messages_about_stock_and_quota_are_recognized(
    reason: str, message: str, cls: str
) -> None:
    assert failure_class(reason, message) == cls
