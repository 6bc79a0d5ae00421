"""Drain rules: which pods may be evicted, which block their node and by which rule, how a plan uses
up PodDisruptionBudgets, and the explanation of a blocked removal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.pod import Owner, Pod, PodClass, Volume
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Controller, PodDisruptionBudget
from chalicelib.plan.removal import drain_rules
from chalicelib.plan.removal.drain_rules import MOVABLE, Action, DrainContext
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, cluster, having, stays

MOVE, SKIP, EVICT, WAIT, BLOCK = Action.MOVE, Action.SKIP, Action.EVICT, Action.WAIT, Action.BLOCK
SYSTEM: dict[str, Any] = {"namespace": "kube-system"}
YOUNG = {"created": NOW - 59 * 60}
APP = Selector((Requirement("app", "In", ("x",)),))
OTHER = Selector((Requirement("app", "In", ("y",)),))


def assess(
    cls: dict[str, Any],
    pod: dict[str, Any] | None = None,
    budgets: tuple[PodDisruptionBudget, ...] = (),
    controllers: tuple[Controller, ...] = (),
    **options: Any,
) -> tuple[Action, ReasonCode | None]:
    """Returns the drain verdict on a running ReplicaSet pod, two hours old, with
    these class and pod fields."""
    made = PodClass(
        **{
            "namespace": "default",
            "labels": {"app": "x"},
            "requests": {},
            "owner": Owner("ReplicaSet", "rs", "u"),
            **cls,
        }
    )
    fields: dict[str, Any] = {"created": NOW - 7200, "node": "n", "phase": "Running", **(pod or {})}
    context = DrainContext(
        now=NOW,
        options=Options(**options),
        budgets=PodDisruptionBudgets(budgets, [made]),
        controllers={(c.kind, c.namespace, c.name): c for c in controllers},
        controller_kinds=frozenset(c.kind for c in controllers),
    )
    pod_state = Pod(made.namespace, "p", "u", 0, **fields)
    verdict = drain_rules.first_verdict(pod_state, made, context) or MOVABLE
    return verdict.action, verdict.reason.code if verdict.reason else None


# -- pods and rules


_DIR = (
    Volume("scratch-1", "emptyDir"),
    Volume("scratch-2", "emptyDir"),
    Volume("scratch-3", "hostPath"),
)
_GAME = {"owner": Owner("Game", "g", "u")}


@pytest.mark.parametrize(
    ("cls", "action", "code"),
    [
        pytest.param({"owner": None}, BLOCK, ReasonCode.NOT_REPLICATED, id="bare"),
        pytest.param({}, MOVE, None, id="replicaset"),
        pytest.param(
            {**SYSTEM, "mirror": True, "owner": None}, SKIP, None, id="mirror-in-kube-system"
        ),
        pytest.param({"owner": Owner("StatefulSet", "s", "u")}, MOVE, None, id="statefulset"),
        pytest.param({"owner": Owner("Job", "j", "u")}, MOVE, None, id="job"),
        pytest.param(
            {"owner": Owner("ReplicationController", "r", "u")},
            MOVE,
            None,
            id="replication-controller",
        ),
    ],
)
def test_drain_verdict_depends_on_the_pods_controller(
    cls: dict[str, Any], action: Action, code: ReasonCode | None
) -> None:
    assert assess(cls) == (action, code)


def test_daemonset_pod_does_not_block_its_node() -> None:
    here = (Controller("DaemonSet", "default", "d"),)
    assert assess({"owner": Owner("DaemonSet", "d", "u")}) == (EVICT, None)
    assert assess({"owner": Owner("DaemonSet", "d", "u")}, controllers=here) == (EVICT, None)


def test_missing_daemonset_blocks_the_node_where_daemonsets_can_be_read() -> None:
    other = (Controller("DaemonSet", "default", "other"),)
    assert assess({"owner": Owner("DaemonSet", "gone", "u")}, controllers=other) == (
        BLOCK,
        ReasonCode.CONTROLLER_NOT_FOUND,
    )
    assert assess(
        {"owner": Owner("DaemonSet", "gone", "u")},
        controllers=other,
        skip_nodes_with_custom_controller_pods=False,
    ) == (EVICT, None)


def test_daemonset_pod_never_blocks_its_node_whatever_its_other_fields() -> None:
    hard = {
        "owner": Owner("DaemonSet", "d", "u"),
        "safe_to_evict": "false",
        "volumes": _DIR,
        **SYSTEM,
    }
    assert assess(hard, YOUNG, budgets=(PodDisruptionBudget("kube-system", "b", APP, 0),)) == (
        EVICT,
        None,
    )


@pytest.mark.parametrize("days", [0, 1, 365, 5 * 365])
def test_system_pod_without_a_budget_blocks_its_node_at_any_age(days: int) -> None:
    assert assess(SYSTEM, {"created": NOW - days * 86400}) == (BLOCK, ReasonCode.KUBE_SYSTEM)


@pytest.mark.parametrize(
    ("minutes", "action", "code"),
    [(59, BLOCK, ReasonCode.KUBE_SYSTEM), (60, BLOCK, ReasonCode.KUBE_SYSTEM), (61, MOVE, None)],
)
def test_system_pod_moves_after_the_timeout_that_is_set(
    minutes: int, action: Action, code: ReasonCode | None
) -> None:
    found = assess(
        SYSTEM, {"created": NOW - minutes * 60}, blocking_system_pod_disruption_timeout=3600.0
    )
    assert found == (action, code)


def test_option_allows_drain_of_system_pods() -> None:
    assert assess(SYSTEM, YOUNG, skip_nodes_with_system_pods=False) == (MOVE, None)


def test_old_system_pod_skips_all_later_drain_rules() -> None:
    hard = {**SYSTEM, "safe_to_evict": "false", "volumes": _DIR}
    assert assess(hard, blocking_system_pod_disruption_timeout=3600.0) == (MOVE, None)


@pytest.mark.parametrize(
    ("volume", "action"),
    [
        (Volume("v", "emptyDir"), BLOCK),
        (Volume("v", "hostPath"), BLOCK),
        (Volume("v", "emptyDirMemory"), MOVE),
        (Volume("v", "gitRepo"), MOVE),
        (Volume("v", "configMap"), MOVE),
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_volumes_that_count_as_local_storage(volume: Volume, action: Action) -> None:
    assert assess({"volumes": (volume,)}) == (
        action,
        ReasonCode.LOCAL_STORAGE if action is BLOCK else None,
    )


def test_option_allows_drain_of_local_storage() -> None:
    assert assess({"volumes": _DIR}, skip_nodes_with_local_storage=False) == (MOVE, None)


@pytest.mark.parametrize(
    ("volumes", "named", "action"),
    [
        pytest.param(_DIR, "scratch-1,scratch-2,scratch-3", MOVE, id="all-named"),
        pytest.param(_DIR, "scratch-1,scratch-2", BLOCK, id="two-named"),
        pytest.param(_DIR[:1], ",", BLOCK, id="comma"),
        pytest.param(_DIR[:2], "scratch-1, scratch-2", BLOCK, id="a-space-is-part-of-the-name"),
        pytest.param(_DIR[:1], "Scratch-1", BLOCK, id="case-counts"),
    ],
)
def test_annotation_lists_local_volumes_that_may_be_lost(
    volumes: tuple[Volume, ...], named: str, action: Action
) -> None:
    assert assess({"volumes": volumes, "safe_local_volumes": named})[0] is action


@pytest.mark.parametrize(
    ("cls", "pod"),
    [
        pytest.param({"owner": None}, {}, id="bare"),
        pytest.param(SYSTEM, YOUNG, id="kube-system"),
        pytest.param({"volumes": _DIR}, {}, id="local-storage"),
    ],
)
def test_safe_to_evict_annotation_unblocks_the_node(
    cls: dict[str, Any], pod: dict[str, Any]
) -> None:
    assert assess(cls, pod)[0] is BLOCK
    assert assess({**cls, "safe_to_evict": "true"}, pod) == (MOVE, None)


@pytest.mark.parametrize(
    ("value", "action", "code"),
    [
        ("false", BLOCK, ReasonCode.NOT_SAFE_TO_EVICT),
        ("on-completion", WAIT, None),
        ("no", MOVE, None),
        ("False", MOVE, None),
        (" false", MOVE, None),
    ],
)
def test_safe_to_evict_accepts_only_exact_values(
    value: str, action: Action, code: ReasonCode | None
) -> None:
    assert assess({"safe_to_evict": value}) == (action, code)


def test_safe_to_evict_does_not_replace_a_missing_controller() -> None:
    other = (Controller("ReplicaSet", "default", "other"),)
    assert assess({"safe_to_evict": "true"}, controllers=other) == (
        BLOCK,
        ReasonCode.CONTROLLER_NOT_FOUND,
    )


@pytest.mark.parametrize(
    ("pod", "action"),
    [
        pytest.param({"deleted": NOW - 60, "deletion_grace": 0.0}, SKIP, id="long-gone"),
        pytest.param({"deleted": NOW - 20, "deletion_grace": 0.0}, MOVE, id="just-going"),
        pytest.param({"deleted": NOW - 61}, SKIP, id="default-grace"),
        pytest.param({"deleted": NOW - 60}, MOVE, id="default-grace-just-over"),
        pytest.param({"deleted": NOW - 180, "deletion_grace": 360.0}, MOVE, id="long-grace"),
        pytest.param({"deleted": NOW + 3600}, MOVE, id="a-clock-that-is-ahead"),
    ],
)
def test_long_terminating_pod_does_not_block_its_node(pod: dict[str, Any], action: Action) -> None:
    assert assess({}, pod) == (action, None)


@pytest.mark.parametrize(
    ("restart", "phase", "action"),
    [
        ("Always", "Failed", EVICT),
        ("Never", "Failed", EVICT),
        ("OnFailure", "Succeeded", EVICT),
        ("Never", "Succeeded", EVICT),
        ("Always", "Succeeded", BLOCK),
        ("Never", "Running", BLOCK),
    ],
)
def test_finished_bare_pod_does_not_block_its_node(
    restart: str, phase: str, action: Action
) -> None:
    assert assess({"owner": None, "restart_policy": restart}, {"phase": phase})[0] is action


def test_option_allows_drain_of_custom_controller_pods() -> None:
    assert assess(_GAME) == (BLOCK, ReasonCode.NOT_REPLICATED)
    assert assess(_GAME, skip_nodes_with_custom_controller_pods=False) == (MOVE, None)
    assert assess({"owner": None}, skip_nodes_with_custom_controller_pods=False) == (
        BLOCK,
        ReasonCode.NOT_REPLICATED,
    )


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_pod_with_too_few_replicas_blocks_its_node(kind: str) -> None:
    one, owner = (Controller(kind, "default", "rs", replicas=1),), {"owner": Owner(kind, "rs", "u")}
    assert assess(owner, controllers=one, min_replica_count=2) == (BLOCK, ReasonCode.MIN_REPLICAS)
    assert assess(owner, controllers=one, min_replica_count=1) == (MOVE, None)
    assert assess(
        owner, controllers=one, min_replica_count=2, skip_nodes_with_custom_controller_pods=False
    ) == (
        MOVE,
        None,
    )


def test_min_replica_count_does_not_apply_to_statefulsets() -> None:
    one = (Controller("StatefulSet", "default", "s", replicas=1),)
    assert assess(
        {"owner": Owner("StatefulSet", "s", "u")}, controllers=one, min_replica_count=2
    ) == (MOVE, None)


def test_drain_rules_are_in_upstreams_order() -> None:
    assert [name for name, _ in drain_rules.RULES] == [
        "Mirror",
        "LongTerminating",
        "ReplicaCount",
        "DaemonSet",
        "SafeToEvict",
        "Terminal",
        "OnCompletion",
        "Replicated",
        "System",
        "NotSafeToEvict",
        "LocalStorage",
        "PDB",
    ]


# -- controllers of other API groups: their objects are never read, so the rules do
# not check that they exist


KINDS = ("DaemonSet", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
OTHERS = tuple(Controller(kind, "default", "other", replicas=1) for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "version", "action", "code"),
    [
        ("StatefulSet", "apps.kruise.io/v1beta1", MOVE, None),
        ("DaemonSet", "apps.kruise.io/v1alpha1", EVICT, None),
        ("Job", "batch.volcano.sh/v1alpha1", MOVE, None),
        ("ReplicaSet", "example.com/v1", MOVE, None),
        ("ReplicationController", "example.com/v1", MOVE, None),
        ("StatefulSet", "v1", MOVE, None),
        ("StatefulSet", "appsx/v1", MOVE, None),
        ("StatefulSet", "apps/v1beta2", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("StatefulSet", "apps/v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("StatefulSet", "", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("DaemonSet", "apps/v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("Job", "batch/v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("ReplicationController", "v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
    ],
)
def test_existence_is_checked_only_for_built_in_controllers(
    kind: str, version: str, action: Action, code: ReasonCode | None
) -> None:
    assert assess({"owner": Owner(kind, "gone", "u", version)}, controllers=OTHERS) == (
        action,
        code,
    )


def test_foreign_controller_does_not_use_replicas_of_its_built_in_namesake() -> None:
    built_in = Owner("ReplicaSet", "other", "u", "apps/v1")
    foreign = Owner("ReplicaSet", "other", "u", "example.com/v1")
    assert assess({"owner": built_in}, controllers=OTHERS, min_replica_count=2) == (
        BLOCK,
        ReasonCode.MIN_REPLICAS,
    )
    assert assess({"owner": foreign}, controllers=OTHERS, min_replica_count=2) == (MOVE, None)


def test_foreign_daemonset_does_not_replace_its_built_in_namesake_on_new_nodes() -> None:
    """The copied node runs OpenKruise's DaemonSet `agent`; the built-in `agent` does not run on
    it and counts as missing."""
    kruise = Owner("DaemonSet", "agent", "u", "apps.kruise.io/v1alpha1")
    build = cluster().node("n", "2", group="g").daemonset("agent", "200m")
    build.running("n", 1, "1900m").group("g", max=9).pending(2, "900m")
    at = build.cls("100m", owner="agent", kind="DaemonSet", namespace="kube-system")
    build.running("n", 1, "100m", owner="agent", kind="DaemonSet", namespace="kube-system")
    build.classes[at] = msgspec.structs.replace(build.classes[at], owner=kruise)
    [up] = build.plan(force_ds=True).scale_ups
    assert up.to_size - up.from_size == 2, (
        "200m + 100m + 900m leave no room for a second pod of 900m"
    )


# -- PodDisruptionBudgets


_BOTH = (having(app="a"), Selector((Requirement("app", "In", ("a", "b")),)))


def _nodes(*pods: int) -> ClusterBuilder:
    """A full node that stays, one node with that many pods of app `a` for each number given, and
    one node with room for all."""
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
    assert assess(
        {"safe_to_evict": annotation}, budgets=(PodDisruptionBudget("default", "b", APP, allowed),)
    ) == (action, code)


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
def test_pdb_in_its_own_namespace_unblocks_a_system_pod(
    namespace: str, selector: Selector | None, moves: bool
) -> None:
    got = assess(SYSTEM, YOUNG, budgets=(PodDisruptionBudget(namespace, "b", selector, 1),))
    assert got == ((MOVE, None) if moves else (BLOCK, ReasonCode.KUBE_SYSTEM))


def test_pdb_that_allows_no_disruption_blocks_a_system_pod() -> None:
    assert assess(SYSTEM, YOUNG, budgets=(PodDisruptionBudget("kube-system", "b", APP, 0),)) == (
        BLOCK,
        ReasonCode.NOT_ENOUGH_PDB,
    )


@pytest.mark.parametrize(
    ("selector", "held"),
    [(Selector(), True), (None, False), (OTHER, False)],
    ids=["empty selects all", "null selects none", "another app"],
)
def test_pdb_selector_and_namespace_decide_which_pods_it_covers(
    selector: Selector | None, held: bool
) -> None:
    assert (
        assess({}, budgets=(PodDisruptionBudget("default", "b", selector, 0),))[0] is BLOCK
    ) is held
    assert assess({}, budgets=(PodDisruptionBudget("elsewhere", "b", selector, 0),)) == (
        MOVE,
        None,
    ), "budgets have a namespace"


def test_drain_of_more_pods_than_a_pdb_allows_at_once_is_marked_risky() -> None:
    build = _nodes(1, 2).budget("b", 1, having(app="a"))
    assert build.plan(unneeded=7200).unneeded in {("n0",), ("n1",)}, (
        "the budget is used up by the first"
    )
    alone = _nodes(2).budget("b", 1, having(app="a")).plan(unneeded=7200)
    assert [removal.node for removal in alone.removals] == ["n0"], (
        "two pods, one disruption left: the first may go"
    )


def test_risky_drain_is_ordered_after_safe_drains() -> None:
    build = _nodes(2).node("n9", group="g").running("n9", 1, "100m", owner="b")
    build.groups.clear()
    plan = (
        build.group("g")
        .budget("b", 1, having(app="a"))
        .plan(unneeded=7200, max_drain_parallelism=1)
    )
    assert plan.unneeded == ("n0", "n9")
    assert [removal.node for removal in plan.removals] == ["n9"]


@pytest.mark.parametrize(
    ("first", "second", "goes"), [(2, 1, True), (1, 2, True), (1, 0, False), (0, 1, False)]
)
def test_every_pdb_that_selects_a_pod_is_checked(first: int, second: int, goes: bool) -> None:
    build = _nodes(2).budget("one", first, _BOTH[0]).budget("two", second, _BOTH[1])
    assert build.plan(unneeded=7200).unneeded == (("n0",) if goes else ())


def test_pod_under_two_pdbs_uses_one_disruption_of_each() -> None:
    build = _nodes(1).budget("narrow", 5, _BOTH[0]).budget("wide", 1, _BOTH[1])
    build.groups.clear()
    build.node("n1", group="g").running("n1", 1, "100m", owner="b").group("g")
    plan = build.plan(unneeded=7200)
    assert len(plan.unneeded) == 1, "both pods are under `wide`, which allows one"
    held = next(
        verdict
        for verdict in plan.unremovable
        if verdict.node not in plan.unneeded and verdict.node != "home"
    )
    assert (held.reason.code, held.reason.params["budget"]) == (
        ReasonCode.BLOCKED_BY_POD,
        "default/wide",
    )


def test_pdb_is_not_checked_for_a_safe_to_evict_pod() -> None:
    build = (
        cluster().node("home", "8", "64Gi").node("n0", group="g").node("n1", group="g").group("g")
    )
    build.running("n0", 1, "100m", owner="a", safe_to_evict="true").running(
        "n1", 1, "100m", owner="a"
    )
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
def test_eviction_of_an_unready_pod_follows_unhealthy_pod_eviction_policy(
    policy: str, whole: bool, goes: bool
) -> None:
    """unhealthyPodEvictionPolicy; whole: the budget has its desired number of healthy pods
    (policy/v1, eviction of unhealthy pods)."""
    budget = PodDisruptionBudget(
        "default", "b", having(app="a"), 0, unhealthy_policy=policy, whole=whole
    )
    build = cluster().node("home", "8", "64Gi").node("n0", group="g").group("g")
    build.running("n0", 1, "100m", owner="a", pod={"unready": True})
    build.budgets.append(budget)
    assert build.plan(unneeded=7200).unneeded == (("n0",) if goes else ())
    ready = _nodes(1)
    ready.budgets.append(budget)
    assert stays(ready.plan(unneeded=7200))["n0"] == "BlockedByPod", (
        "a ready pod is a disruption under any policy"
    )


def test_strict_budget_is_not_waited_for() -> None:
    build = _nodes(1, 1)
    strict = PodDisruptionBudget("default", "b", having(app="a"), 0, required=2)
    build.budgets.append(strict)
    text = _sentence_of(build, "n0")
    assert "(default/b: it needs all 2 of its pods, so it never will)" in text
    assert "; add replicas, or let the budget allow a disruption" in text
    build.budgets[-1] = msgspec.structs.replace(strict, required=0)
    assert "(default/b); wait until its pods are healthy" in _sentence_of(build, "n0")


def _sentence_of(build: ClusterBuilder, node: str) -> str:
    plan = build.plan(unneeded=7200)
    return next(sentence(verdict.reason) for verdict in plan.unremovable if verdict.node == node)


def test_unready_pod_uses_no_disruption_of_an_always_allow_pdb() -> None:
    build = (
        _nodes(1)
        .node("sick", group="g")
        .running("sick", 1, "100m", owner="a", pod={"unready": True})
    )
    build.groups.clear()
    build.group("g").budgets.append(
        PodDisruptionBudget("default", "b", having(app="a"), 1, unhealthy_policy="AlwaysAllow")
    )
    assert build.plan(unneeded=7200).unneeded == ("n0", "sick")


# -- explanations


#: : rule, what makes the pod break it, options, text of the remedy
_HELD: tuple[tuple[ReasonCode, dict[str, Any], dict[str, Any], str], ...] = (
    (ReasonCode.CONTROLLER_NOT_FOUND, {"owner": "gone"}, {}, "delete the pod"),
    (ReasonCode.MIN_REPLICAS, {"owner": "few"}, {"min_replica_count": 2}, "minReplicaCount"),
    (ReasonCode.NOT_REPLICATED, {"owner": None}, {}, 'safe-to-evict: "true"'),
    (ReasonCode.NOT_REPLICATED, {"owner": "game", "kind": "Game"}, {}, 'safe-to-evict: "true"'),
    (
        ReasonCode.KUBE_SYSTEM,
        {"owner": "few", "namespace": "kube-system"},
        {},
        "PodDisruptionBudget in kube-system",
    ),
    (
        ReasonCode.NOT_SAFE_TO_EVICT,
        {"owner": "few", "safe_to_evict": "false"},
        {},
        "remove the annotation",
    ),
    (
        ReasonCode.LOCAL_STORAGE,
        {"owner": "few", "volumes": (Volume("scratch", "emptyDir"),)},
        {},
        "safe-to-evict-local-volumes",
    ),
    (ReasonCode.NOT_ENOUGH_PDB, {"owner": "kept"}, {}, "add replicas"),
)


def _why(pod: dict[str, Any], options: dict[str, Any]) -> tuple[str, str]:
    """Returns the explanation for a node with one such young pod, and the
    pod that the verdict names."""
    build = cluster().node("home", "8", "64Gi").node("n", group="g").group("g")
    build.running("n", 1, "100m", name="web", created=NOW - 60, **pod).budget(
        "strict", 0, having(app="kept")
    )
    build.controllers = [
        Controller("ReplicaSet", space, name, replicas=1)
        for space in ("default", "kube-system")
        for name in ("few", "kept")
    ]
    verdict = next(
        each for each in build.plan(unneeded=7200, **options).unremovable if each.node == "n"
    )
    assert verdict.reason.code is ReasonCode.BLOCKED_BY_POD
    return sentence(verdict.reason), verdict.pod


@pytest.mark.parametrize(
    ("code", "pod", "options", "remedy"),
    _HELD,
    ids=[f"{row[0]}-{row[1]['owner']}" for row in _HELD],
)
def test_each_drain_rule_explanation_names_rule_pod_and_remedy(
    code: ReasonCode, pod: dict[str, Any], options: dict[str, Any], remedy: str
) -> None:
    said, named = _why(pod, options)
    assert named == f"{pod.get('namespace', 'default')}/web-00000"
    assert [word for word in (code.value, named, remedy) if word not in said] == [], said


def test_drain_rule_explanation_includes_its_numbers() -> None:
    assert "volume scratch" in _why(_HELD[6][1], {})[0]
    assert "default/strict" in _why(_HELD[7][1], {})[0]
    assert "ReplicaSet/gone" in _why(_HELD[0][1], {})[0]
    assert "Game/game" in _why(_HELD[3][1], {})[0]


def test_node_waiting_for_a_pod_to_complete_names_that_pod() -> None:
    build = (
        cluster()
        .node("n", group="g")
        .group("g")
        .running("n", 1, "100m", name="job", owner="j", kind="Job", safe_to_evict="on-completion")
    )
    plan = build.plan(unneeded=7200)
    verdict = next(each for each in plan.unremovable if each.node == "n")
    assert (plan.unneeded, plan.removals) == (("n",), ())
    assert verdict.reason.code is ReasonCode.BLOCKED_BY_ON_COMPLETION_POD
    assert "default/job-00000" in sentence(verdict.reason)


def test_every_blocking_drain_rule_has_an_expected_explanation() -> None:
    assert {code.value for code, *_ in _HELD} == {
        "ControllerNotFound",
        "MinReplicasReached",
        "NotReplicated",
        "LocalStorageRequested",
        "NotSafeToEvictAnnotation",
        "UnmovableKubeSystemPod",
        "NotEnoughPdb",
    }, "every rule that blocks a drain"
