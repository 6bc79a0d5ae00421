"""One tenant's objects cannot stop a cluster's autoscaling: each attack ends in bounded time and
memory, and other pods are served.

Every case runs in its own process. The limits of CPU seconds and memory are far below those of the
planning function; a successful attack would cost minutes or gigabytes.
"""

from __future__ import annotations

import pytest

from chalicelib.model.reason import ReasonCode
from tests.property import hostile_objects, hostile_tenants

SECONDS, MIB = 30.0, 600.0  # limit per attack; the planning function has 1,769 MB and 120 s
_QUICK = (
    "host-ports-500",
    "anti-affinity-50",
    "anti-affinity-of-200-expressions",
    "selectors-of-ephemeral-claims",
    "anti-affinity-that-runs",
    "resource-names-100",
    "spread-50",
    "tolerations-1000",
    "volumes-2000",
    "containers-10000",
    "nodes-of-1000-taints",
)


def _check(case: str) -> None:
    found = hostile_tenants.measured(case)
    assert found.served == hostile_objects.VICTIMS, found
    assert found.seconds < SECONDS, found
    assert found.mib < MIB, found


@pytest.mark.parametrize("case", _QUICK)
def test_attack_by_one_tenant_costs_seconds_and_other_pods_are_served(case: str) -> None:
    _check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(hostile_objects.CASES.keys() - set(_QUICK)))
def test_every_attack_by_one_tenant_costs_seconds_and_other_pods_are_served(case: str) -> None:
    _check(case)


def test_pod_beyond_a_tenant_limit_is_reported_with_that_limit() -> None:
    many = [{"ports": [{"hostPort": 1_000 + at} for at in range(500)]}]
    plan = hostile_tenants.planned([hostile_objects.pod("many", containers=many)])
    reported = {
        (reason.code, reason.params["what"])
        for each in plan.unschedulable
        if "tenant/many" in each.pods
        for reasons in each.reasons.values()
        for reason in reasons
    }
    assert reported == {(ReasonCode.NOT_SIMULATED, "500 host ports, at most 100")}


def test_node_with_a_pod_beyond_a_limit_stays_and_gets_no_placements() -> None:
    """Port 1007 may be in use there: the unread part of a pod may exclude other pods."""
    many = [{"ports": [{"hostPort": 1_000 + at} for at in range(500)]}]
    empty = f"n{hostile_objects.NODES - 1}"
    free = {node for each in hostile_tenants.planned([]).promises if (node := each.node)}
    plan = hostile_tenants.planned([hostile_objects.pod("many", node=empty, containers=many)])
    assert empty in free
    assert empty not in {each.node for each in plan.promises}
    assert empty not in {each.node for each in plan.removals}
    assert {each.reason.params["detail"] for each in plan.unremovable if each.node == empty} == {
        "pod tenant/many is not simulated: 500 host ports, at most 100"
    }


def test_pod_beyond_a_limit_without_exclusions_leaves_its_room_to_others() -> None:
    empty = f"n{hostile_objects.NODES - 1}"
    many = [{"key": f"t{at}", "operator": "Exists"} for at in range(1_000)]
    plan = hostile_tenants.planned([hostile_objects.pod("many", node=empty, tolerations=many)])
    assert empty in {each.node for each in plan.promises}
    assert empty not in {each.node for each in plan.removals}


def test_namespace_with_the_highest_use_loses_first() -> None:
    """4,000 rules are shared: the tenant's 16,000 are dropped, a namespace with 20 keeps its
    own."""
    greedy = hostile_objects.CASES["anti-affinity-at-the-limit"]()
    modest = [
        hostile_objects.pod(
            f"m{at}", "modest", **hostile_objects.affinity(hostile_objects.term(at))
        )
        for at in range(20)
    ]
    classes = hostile_tenants.snapshot([*greedy, *modest]).classes
    assert not any(each.excess for each in classes if each.namespace != "tenant")
    lost = [each for each in classes if each.namespace == "tenant" and each.excess]
    assert lost[0].excess == (
        "distinct rules about other pods: the pods of namespace tenant have more than its share of "
        "4000"
    )
    assert 0 < len(lost) < len([each for each in classes if each.namespace == "tenant"])


@pytest.mark.parametrize(("expressions", "lost"), [(1, 0), (200, 1)])
def test_namespace_with_few_rules_loses_none_to_one_with_expensive_rules(
    expressions: int, lost: int
) -> None:
    """4,000,000 comparisons are shared: 400 classes with 200 expressions each need 32 million."""
    dear = [
        {"key": f"k{each}", "operator": "NotIn", "values": ["x"]} for each in range(expressions)
    ]
    tenant = [
        hostile_objects.pod(
            f"p{at}",
            **hostile_objects.affinity(
                {"topologyKey": f"rack-{at}", "labelSelector": {"matchExpressions": dear}}
            ),
        )
        for at in range(400)
    ]
    modest = [
        hostile_objects.pod(
            f"m{at}", "modest", **hostile_objects.affinity(hostile_objects.term(at))
        )
        for at in range(20)
    ]
    classes = hostile_tenants.snapshot([*tenant, *modest]).classes
    assert not any(each.excess for each in classes if each.namespace != "tenant")
    reported = {each.excess for each in classes if each.excess}
    assert len(reported) == lost
    assert all(
        text.startswith("comparisons of rules with distinct pods: the pods of namespace tenant")
        for text in reported
    )


def test_pass_out_of_time_keeps_its_results_and_removes_nothing() -> None:
    """The clock advances by a second at each reading: skipped work is reported, and
    no empty node is removed."""
    ticks = iter(range(1_000_000))
    plan = hostile_tenants.planned(
        hostile_objects.CASES["own-labels"](), clock=lambda: float(next(ticks)), within=60.0
    )
    reported = {
        reason.code
        for each in plan.unschedulable
        for reasons in each.reasons.values()
        for reason in reasons
    }
    assert ReasonCode.TIME_BUDGET in reported
    assert not plan.removals


def test_unused_planning_time_does_not_change_the_plan() -> None:
    objects = list(hostile_objects.CASES["own-labels"]())
    assert hostile_tenants.planned(objects, clock=lambda: 5.0) == hostile_tenants.planned(objects)


@pytest.mark.parametrize("amount", [2**62, 2**63 - 1, 2**56, 2**55])
def test_sums_of_huge_requests_do_not_overflow(amount: int) -> None:
    """A thousand pods on one node with requests above its capacity leave no room
    there, whatever the sum."""
    asked = [{"resources": {"requests": {"cpu": "1m", "memory": str(amount)}}}]
    empty = f"n{hostile_objects.NODES - 1}"
    plan = hostile_tenants.planned(
        [hostile_objects.pod(f"p{at}", node=empty, containers=asked) for at in range(1_000)]
    )
    assert empty not in {each.node for each in plan.promises}
    assert empty not in {each.node for each in plan.removals}
    assert hostile_tenants.served(plan) == hostile_objects.VICTIMS


def test_node_with_huge_capacity_takes_no_more_pods_than_allowed() -> None:
    huge = hostile_objects.node(
        hostile_objects.NODES - 1,
        allocatable={"cpu": str(2**62), "memory": "8Ei", "pods": str(2**62)},
    )
    assert hostile_tenants.served(hostile_tenants.planned([huge])) == hostile_objects.VICTIMS


def test_pass_ends_soon_after_its_time_limit_in_every_phase() -> None:
    """Without a time limit this case takes more than ten seconds of CPU in every phase of a
    pass."""
    assert hostile_tenants.measured("anti-affinity-of-all-zones", within=2.0).seconds < 8.0
