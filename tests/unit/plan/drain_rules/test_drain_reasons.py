"""The explanation of a blocked removal names the rule, the pod and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.pod import Volume
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Controller
from chalicelib.reasons.text import sentence
from tests.builders import NOW, cluster, having

#: : rule, what makes the pod break it, options, text of the remedy
_HELD: tuple[tuple[ReasonCode, dict[str, Any], dict[str, Any], str], ...] = (
    (ReasonCode.CONTROLLER_NOT_FOUND, {"owner": "gone"}, {}, "delete the pod"),
    (ReasonCode.MIN_REPLICAS, {"owner": "few"}, {"min_replica_count": 2}, "minReplicaCount"),
    (ReasonCode.NOT_REPLICATED, {"owner": None}, {}, 'safe-to-evict: "true"'),
    (ReasonCode.NOT_REPLICATED, {"owner": "game", "kind": "Game"}, {}, 'safe-to-evict: "true"'),
    (ReasonCode.KUBE_SYSTEM, {"owner": "few", "namespace": "kube-system"}, {}, "PodDisruptionBudget in kube-system"),
    (ReasonCode.NOT_SAFE_TO_EVICT, {"owner": "few", "safe_to_evict": "false"}, {}, "remove the annotation"),
    (
        ReasonCode.LOCAL_STORAGE,
        {"owner": "few", "volumes": (Volume("scratch", "emptyDir"),)},
        {},
        "safe-to-evict-local-volumes",
    ),
    (ReasonCode.NOT_ENOUGH_PDB, {"owner": "kept"}, {}, "add replicas"),
)


def _why(pod: dict[str, Any], options: dict[str, Any]) -> tuple[str, str]:
    """Returns the explanation for a node with one such young pod, and the pod that the verdict names."""
    build = cluster().node("home", "8", "64Gi").node("n", group="g").group("g")
    build.running("n", 1, "100m", name="web", created=NOW - 60, **pod).budget("strict", 0, having(app="kept"))
    build.controllers = [
        Controller("ReplicaSet", space, name, replicas=1)
        for space in ("default", "kube-system")
        for name in ("few", "kept")
    ]
    verdict = next(each for each in build.plan(unneeded=7200, **options).unremovable if each.node == "n")
    assert verdict.reason.code is ReasonCode.BLOCKED_BY_POD
    return sentence(verdict.reason), verdict.pod


@pytest.mark.parametrize(
    ("code", "pod", "options", "remedy"), _HELD, ids=[f"{row[0]}-{row[1]['owner']}" for row in _HELD]
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
