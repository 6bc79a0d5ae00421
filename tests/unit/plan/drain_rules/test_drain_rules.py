"""Drain rules: which pods may be evicted, which block their node, and by which rule. Other files of this folder test
disruption budgets and explanations."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.pod import Owner, Volume
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Budget, Controller
from chalicelib.plan.scale_down import drain_rules
from chalicelib.plan.scale_down.drain_rules.verdict import Action
from tests.builders import NOW
from tests.unit.plan.drain_rules.assess import APP, BLOCK, EVICT, MOVE, SKIP, SYSTEM, WAIT, YOUNG, assess

_DIR = Volume("scratch-1", "emptyDir"), Volume("scratch-2", "emptyDir"), Volume("scratch-3", "hostPath")
_GAME = {"owner": Owner("Game", "g", "u")}


@pytest.mark.parametrize(
    ("cls", "action", "code"),
    [
        pytest.param({"owner": None}, BLOCK, ReasonCode.NOT_REPLICATED, id="bare"),
        pytest.param({}, MOVE, None, id="replicaset"),
        pytest.param({**SYSTEM, "mirror": True, "owner": None}, SKIP, None, id="mirror-in-kube-system"),
        pytest.param({"owner": Owner("StatefulSet", "s", "u")}, MOVE, None, id="statefulset"),
        pytest.param({"owner": Owner("Job", "j", "u")}, MOVE, None, id="job"),
        pytest.param({"owner": Owner("ReplicationController", "r", "u")}, MOVE, None, id="replication-controller"),
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
        {"owner": Owner("DaemonSet", "gone", "u")}, controllers=other, skip_nodes_with_custom_controller_pods=False
    ) == (EVICT, None)


def test_daemonset_pod_never_blocks_its_node_whatever_its_other_fields() -> None:
    hard = {"owner": Owner("DaemonSet", "d", "u"), "safe_to_evict": "false", "volumes": _DIR, **SYSTEM}
    assert assess(hard, YOUNG, budgets=(Budget("kube-system", "b", APP, 0),)) == (EVICT, None)


@pytest.mark.parametrize("days", [0, 1, 365, 5 * 365])
def test_system_pod_without_a_budget_blocks_its_node_at_any_age(days: int) -> None:
    assert assess(SYSTEM, {"created": NOW - days * 86400}) == (BLOCK, ReasonCode.KUBE_SYSTEM)


@pytest.mark.parametrize(
    ("minutes", "action", "code"),
    [(59, BLOCK, ReasonCode.KUBE_SYSTEM), (60, BLOCK, ReasonCode.KUBE_SYSTEM), (61, MOVE, None)],
)
def test_system_pod_moves_after_the_timeout_that_is_set(minutes: int, action: Action, code: ReasonCode | None) -> None:
    found = assess(SYSTEM, {"created": NOW - minutes * 60}, blocking_system_pod_disruption_timeout=3600.0)
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
    assert assess({"volumes": (volume,)}) == (action, ReasonCode.LOCAL_STORAGE if action is BLOCK else None)


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
def test_safe_to_evict_annotation_unblocks_the_node(cls: dict[str, Any], pod: dict[str, Any]) -> None:
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
def test_safe_to_evict_accepts_only_exact_values(value: str, action: Action, code: ReasonCode | None) -> None:
    assert assess({"safe_to_evict": value}) == (action, code)


def test_safe_to_evict_does_not_replace_a_missing_controller() -> None:
    other = (Controller("ReplicaSet", "default", "other"),)
    assert assess({"safe_to_evict": "true"}, controllers=other) == (BLOCK, ReasonCode.CONTROLLER_NOT_FOUND)


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
def test_finished_bare_pod_does_not_block_its_node(restart: str, phase: str, action: Action) -> None:
    assert assess({"owner": None, "restart_policy": restart}, {"phase": phase})[0] is action


def test_option_allows_drain_of_custom_controller_pods() -> None:
    assert assess(_GAME) == (BLOCK, ReasonCode.NOT_REPLICATED)
    assert assess(_GAME, skip_nodes_with_custom_controller_pods=False) == (MOVE, None)
    assert assess({"owner": None}, skip_nodes_with_custom_controller_pods=False) == (BLOCK, ReasonCode.NOT_REPLICATED)


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_pod_with_too_few_replicas_blocks_its_node(kind: str) -> None:
    one, owner = (Controller(kind, "default", "rs", replicas=1),), {"owner": Owner(kind, "rs", "u")}
    assert assess(owner, controllers=one, min_replica_count=2) == (BLOCK, ReasonCode.MIN_REPLICAS)
    assert assess(owner, controllers=one, min_replica_count=1) == (MOVE, None)
    assert assess(owner, controllers=one, min_replica_count=2, skip_nodes_with_custom_controller_pods=False) == (
        MOVE,
        None,
    )


def test_min_replica_count_does_not_apply_to_statefulsets() -> None:
    one = (Controller("StatefulSet", "default", "s", replicas=1),)
    assert assess({"owner": Owner("StatefulSet", "s", "u")}, controllers=one, min_replica_count=2) == (MOVE, None)


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
