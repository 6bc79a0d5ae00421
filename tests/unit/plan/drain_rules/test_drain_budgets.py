"""PodDisruptionBudgets in a plan: which pods they select, and how moved pods use them up."""

from __future__ import annotations

import pytest

from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Budget
from tests.builders import ClusterBuilder, cluster, having, stays
from tests.unit.plan.drain_rules.assess import APP, BLOCK, MOVE, OTHER, SYSTEM, YOUNG, assess

_BOTH = (having(app="a"), Selector((Requirement("app", "In", ("a", "b")),)))


def _nodes(*pods: int) -> ClusterBuilder:
    """A full node that stays, one node with that many pods of app `a` for each number given, and one node with room for
    all."""
    build = cluster().node("home", "8", "64Gi")
    for at, count in enumerate(pods):
        build.node(f"n{at}", group="g").running(f"n{at}", count, "100m", owner="a")
    return build.group("g")


@pytest.mark.parametrize(
    ("allowed", "annotation", "action", "code"),
    [
        (0, "", BLOCK, ReasonCode.NOT_ENOUGH_PDB),
        (1, "", MOVE, None),
        (0, "true", MOVE, None),
        (-1, "", BLOCK, ReasonCode.NOT_ENOUGH_PDB),
    ],
)
def test_pdb_of_a_pod_decides_whether_its_node_can_be_drained(
    allowed: int, annotation: str, action: str, code: ReasonCode | None
) -> None:
    assert assess({"safe_to_evict": annotation}, budgets=(Budget("default", "b", APP, allowed),)) == (action, code)


@pytest.mark.parametrize(
    ("namespace", "selector", "moves"),
    [
        ("kube-system", APP, True),
        ("kube-system", OTHER, False),
        ("default", APP, False),
        ("kube-system", None, False),
        ("kube-system", Selector(), True),
    ],
)
def test_pdb_in_its_own_namespace_unblocks_a_system_pod(namespace: str, selector: Selector | None, moves: bool) -> None:
    got = assess(SYSTEM, YOUNG, budgets=(Budget(namespace, "b", selector, 1),))
    assert got == ((MOVE, None) if moves else (BLOCK, ReasonCode.KUBE_SYSTEM))


def test_pdb_that_allows_no_disruption_blocks_a_system_pod() -> None:
    assert assess(SYSTEM, YOUNG, budgets=(Budget("kube-system", "b", APP, 0),)) == (BLOCK, ReasonCode.NOT_ENOUGH_PDB)


@pytest.mark.parametrize(
    ("selector", "held"),
    [(Selector(), True), (None, False), (OTHER, False)],
    ids=["empty selects all", "null selects none", "another app"],
)
def test_pdb_selector_and_namespace_decide_which_pods_it_covers(selector: Selector | None, held: bool) -> None:
    assert (assess({}, budgets=(Budget("default", "b", selector, 0),))[0] is BLOCK) is held
    assert assess({}, budgets=(Budget("elsewhere", "b", selector, 0),)) == (MOVE, None), "budgets have a namespace"


def test_drain_of_more_pods_than_a_pdb_allows_at_once_is_marked_risky() -> None:
    build = _nodes(1, 2).budget("b", 1, having(app="a"))
    assert build.plan(unneeded=7200).unneeded in {("n0",), ("n1",)}, "the budget is used up by the first"
    alone = _nodes(2).budget("b", 1, having(app="a")).plan(unneeded=7200)
    assert [removal.node for removal in alone.removals] == ["n0"], "two pods, one disruption left: the first may go"


def test_risky_drain_is_ordered_after_safe_drains() -> None:
    build = _nodes(2).node("n9", group="g").running("n9", 1, "100m", owner="b")
    build.groups.clear()
    plan = build.group("g").budget("b", 1, having(app="a")).plan(unneeded=7200, max_drain_parallelism=1)
    assert plan.unneeded == ("n0", "n9")
    assert [removal.node for removal in plan.removals] == ["n9"]


@pytest.mark.parametrize(("first", "second", "goes"), [(2, 1, True), (1, 2, True), (1, 0, False), (0, 1, False)])
def test_every_pdb_that_selects_a_pod_is_checked(first: int, second: int, goes: bool) -> None:
    build = _nodes(2).budget("one", first, _BOTH[0]).budget("two", second, _BOTH[1])
    assert build.plan(unneeded=7200).unneeded == (("n0",) if goes else ())


def test_pod_under_two_pdbs_uses_one_disruption_of_each() -> None:
    build = _nodes(1).budget("narrow", 5, _BOTH[0]).budget("wide", 1, _BOTH[1])
    build.groups.clear()
    build.node("n1", group="g").running("n1", 1, "100m", owner="b").group("g")
    plan = build.plan(unneeded=7200)
    assert len(plan.unneeded) == 1, "both pods are under `wide`, which allows one"
    held = next(verdict for verdict in plan.unremovable if verdict.node not in plan.unneeded and verdict.node != "home")
    assert (held.reason.code, held.reason.params["budget"]) == (ReasonCode.BLOCKED_BY_POD, "default/wide")


def test_pdb_is_not_checked_for_a_safe_to_evict_pod() -> None:
    build = cluster().node("home", "8", "64Gi").node("n0", group="g").node("n1", group="g").group("g")
    build.running("n0", 1, "100m", owner="a", safe_to_evict="true").running("n1", 1, "100m", owner="a")
    plan = build.budget("b", 0, having(app="a")).plan(unneeded=7200)
    assert plan.unneeded == ("n0",)
    assert stays(plan)["n1"] == "BlockedByPod"


@pytest.mark.parametrize(
    ("policy", "whole", "goes"),
    [
        ("", False, False),
        ("", True, True),
        ("IfHealthyBudget", False, False),
        ("IfHealthyBudget", True, True),
        ("AlwaysAllow", False, True),
        ("AlwaysAllow", True, True),
    ],
)
def test_eviction_of_an_unready_pod_follows_unhealthy_pod_eviction_policy(policy: str, whole: bool, goes: bool) -> None:
    """unhealthyPodEvictionPolicy; whole: the budget has its desired number of healthy pods (policy/v1, eviction of
    unhealthy pods)."""
    budget = Budget("default", "b", having(app="a"), 0, unhealthy_policy=policy, whole=whole)
    build = cluster().node("home", "8", "64Gi").node("n0", group="g").group("g")
    build.running("n0", 1, "100m", owner="a", pod={"unready": True})
    build.budgets.append(budget)
    assert build.plan(unneeded=7200).unneeded == (("n0",) if goes else ())
    ready = _nodes(1)
    ready.budgets.append(budget)
    assert stays(ready.plan(unneeded=7200))["n0"] == "BlockedByPod", "a ready pod is a disruption under any policy"


def test_unready_pod_uses_no_disruption_of_an_always_allow_pdb() -> None:
    build = _nodes(1).node("sick", group="g").running("sick", 1, "100m", owner="a", pod={"unready": True})
    build.groups.clear()
    build.group("g").budgets.append(Budget("default", "b", having(app="a"), 1, unhealthy_policy="AlwaysAllow"))
    assert build.plan(unneeded=7200).unneeded == ("n0", "sick")
