"""The saved clusters in which `outscaler explain node` shows each reason."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.reason import ReasonCode
from tests.functional.saved_cluster import NOW, node, pod

AT = 1_795_245_654.0  # NOW


LONG = ("--assume-unneeded-for", "11m")


class CliExplainNodeEntry(msgspec.Struct, frozen=True):
    """code: of node n-0; says: words in the answer, including the remedy; nodes, pods: in
    addition to n-0 and n-1."""

    code: ReasonCode
    says: tuple[str, ...]
    nodes: tuple[dict[str, Any], ...] = ()
    pods: tuple[dict[str, Any], ...] = ()
    args: tuple[str, ...] = ()
    first: dict[str, Any] = {}  # fields of n-0
    groups: tuple[dict[str, Any], ...] = ()  # in place of g
    memory: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    budgets: tuple[dict[str, Any], ...] = ()
    holds: str = ""
    until: str = ""
    verdict: str = "stays"


def _node(
    name: str,
    group: str = "g",
    *,
    ready: bool = True,
    created: str = "",
    taints: Any = (),
    **marks: str,
) -> dict[str, Any]:
    made = node(name, group)
    made["metadata"] |= {
        "annotations": marks,
        **({"creationTimestamp": created} if created else {}),
    }
    made["spec"] |= {"taints": list(taints)} if taints else {}
    made["status"]["conditions"][0]["status"] = "True" if ready else "False"
    return made


def _group(name: str = "g", least: int = 0, size: int = 2, **more: Any) -> dict[str, Any]:
    return {"id": name, "min": least, "max": 20, "size": size, "template": node("t", name), **more}


def _budget(name: str, allowed: int) -> dict[str, Any]:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "api"}}},
        "status": {"disruptionsAllowed": allowed},
    }


def _many(group: str, count: int, *, ready: bool = True) -> tuple[dict[str, Any], ...]:
    return tuple(
        _node(f"{group}-{'r' if ready else 'u'}{at}", group, ready=ready) for at in range(count)
    )


def _twin(name: str, other: str) -> dict[str, Any]:
    """A Node that claims the instance of another Node."""
    made = _node(name)
    made["spec"]["providerID"] = f"example://g/{other}"
    return made


MOVES = pod("move", "100m", on="n-0")


BARE = pod("bare", "100m", on="n-0", owner="")


DISABLED = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}


EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


OPERATION = {
    "id": "remove-1",
    "cluster": "x",
    "provider": "file",
    "group": "g",
    "kind": "remove",
    "plan": "p",
    "created_at": AT - 60,
    "deadline": AT + 900,
    "state": "waiting",
    "step": "gone",
    "targets": [{"node": "n-0", "instance": "example://g/n-0"}],
}


LEAVING = {
    "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]
}


BLOCKED = ReasonCode.BLOCKED_BY_POD


ROWS = (
    CliExplainNodeEntry(
        ReasonCode.SCALE_DOWN_DISABLED,
        ("scale-down is disabled", "set scaleDownEnabled to true"),
        args=(*LONG, "--option", "scaleDownEnabled=false"),
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.SCALE_DOWN_DISABLED_ANNOTATION,
        ("is annotated", "take the annotation cluster-autoscaler.kubernetes.io"),
        first=DISABLED,
    ),
    CliExplainNodeEntry(
        ReasonCode.SCALE_DOWN_UNREADY_DISABLED,
        ("node is unready", "set scaleDownUnreadyEnabled to true"),
        first={"ready": False},
        args=("--option", "scaleDownUnreadyEnabled=false"),
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_AUTOSCALED,
        ("in no autoscaled group", "nodeGroups of the policy"),
        groups=(_group("other", size=0),),
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_UNNEEDED_LONG_ENOUGH,
        ("since 2026-11-21T07:10:54Z, needs 12m", "scaleDownUnneededTime"),
        memory={"nodes": {"n-0": {"unneeded_since": AT - 600, "confirmed_at": AT - 60}}},
        verdict="unneeded",
        args=("--option", "scaleDownUnneededTime=12m"),
        until="2026-11-21T07:22:54Z",
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_UNREADY_LONG_ENOUGH,
        ("not unready long enough", "scaleDownUnreadyTime"),
        first={"ready": False},
        verdict="unneeded",
        until="2026-11-21T07:40:54Z",
    ),
    CliExplainNodeEntry(
        ReasonCode.GROUP_MIN_SIZE,
        ("size 2, min 2", "lower the group's minimum"),
        groups=(_group(least=2),),
    ),
    CliExplainNodeEntry(
        ReasonCode.MINIMAL_RESOURCE_LIMIT,
        ("minimal resource limit", "coresTotal"),
        verdict="unneeded",
        args=(*LONG, "--option", "coresTotal=4:100"),
    ),
    CliExplainNodeEntry(
        ReasonCode.BEING_DELETED,
        ("operation remove-1 is at step gone, waiting",),
        first=LEAVING,
        verdict="leaving",
        memory={"operations": [OPERATION]},
    ),
    CliExplainNodeEntry(
        ReasonCode.BEING_DELETED,
        ("currently being deleted", "taken off by the next pass"),
        first=LEAVING,
    ),
    CliExplainNodeEntry(
        ReasonCode.IDENTITY_CONTESTED,
        ("which machine it is cannot be known", "n-0, n-9"),
        nodes=(_twin("n-9", "n-0"),),
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_UNDERUTILIZED,
        ("cpu 75%, threshold 50%", "raise scaleDownUtilizationThreshold"),
        pods=(pod("big", "1500m", on="n-0"),),
    ),
    CliExplainNodeEntry(
        ReasonCode.RECENTLY_UNREMOVABLE,
        (
            "no place to move its pods (shop/move: Insufficient cpu)",
            "07:25:00Z",
            "make room for the pod",
        ),
        until="2026-11-21T07:25:00Z",
        holds="shop/move",
        memory={
            "nodes": {
                "n-0": {
                    "unremovable_until": AT + 246,
                    "why": {
                        "code": "NoPlaceToMovePods",
                        "params": {"pod": "shop/move", "what": "Insufficient cpu"},
                    },
                }
            }
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.RECENTLY_UNREMOVABLE,
        ("looked at again after", "unremovableNodeRecheckTimeout"),
        memory={"nodes": {"n-0": {"unremovable_until": AT + 246}}},
        until="2026-11-21T07:25:00Z",
    ),
    CliExplainNodeEntry(
        ReasonCode.NO_PLACE_TO_MOVE_PODS,
        ("no place to move its pods (shop/here", "let it ask for less"),
        pods=(pod("here", "100m", on="n-0", nodeSelector={"kubernetes.io/hostname": "n-0"}),),
        holds="shop/here",
    ),
    CliExplainNodeEntry(
        ReasonCode.BLOCKED_BY_ON_COMPLETION_POD,
        ("waits for a pod to complete (shop/job)", "wait for the pod"),
        args=LONG,
        pods=(pod("job", "100m", on="n-0", annotations={EVICT: "on-completion"}),),
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.IN_COOLDOWN,
        ("scaleDownDelayAfterAdd, until 2026-11-21T07:29:54Z", "scaleDownDelayAfterAdd says how"),
        args=LONG,
        memory={"last_scale_up": AT - 60},
        until="2026-11-21T07:29:54Z",
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.PARALLELISM,
        ("limit 1", "maxDrainParallelism and maxScaleDownParallelism"),
        verdict="unneeded",
        args=(*LONG, "--option", "maxScaleDownParallelism=1"),
        nodes=(_node("m-0"),),
        pods=(MOVES,),
        groups=(_group(size=3),),
    ),
    CliExplainNodeEntry(
        ReasonCode.ATOMIC_FAILED,
        ("goes as a whole or not at all (1 of 2", "why the group's other nodes stay"),
        args=LONG,
        groups=(_group(zeroOrMax=True),),
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.GROUP_FROZEN,
        ("its node group is unhealthy", "mend its unready nodes"),
        groups=(_group(size=7), _group("h", size=12)),
        nodes=(*_many("g", 5, ready=False), *_many("h", 12)),
    ),
    CliExplainNodeEntry(
        ReasonCode.DISRUPTION_LIMIT,
        ("nodes per hour reached (limit 1, more at", "outscaler release edge --yes lifts it"),
        args=LONG,
        policy={"maxDisruption": {"nodesPerHour": 1}},
        until="2026-11-21T07:50:54Z",
        verdict="unneeded",
        memory={"brake": {"taken": [[AT - 1800, 1, 0]]}},
    ),
    CliExplainNodeEntry(
        ReasonCode.DISRUPTION_BUDGET,
        (
            "disruption budget freeze is used up (limit 0, until",
            "spec.disruptionBudgets says how many at once",
        ),
        args=LONG,
        policy={
            "disruptionBudgets": [
                {
                    "name": "freeze",
                    "nodes": 0,
                    "reasons": ["unneeded"],
                    "cron": "0 0 * * *",
                    "duration": "24h",
                }
            ]
        },
        until="2026-11-22T00:00:00Z",
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.DISRUPTION_BRAKE,
        (
            "the circuit breaker is tripped until somebody releases it",
            "then: outscaler release edge",
        ),
        args=LONG,
        policy={"maxDisruption": {"share": 0.3}},
        nodes=_many("g", 3),
        groups=(_group(size=5),),
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.OUTSIDE_WINDOW,
        ("forbid removals now (night, until 2026-11-21T22:00:00Z", "spec.maintenanceWindows"),
        args=LONG,
        policy={"maintenanceWindows": [{"name": "night", "cron": "0 22 * * *", "duration": "6h"}]},
        until="2026-11-21T22:00:00Z",
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.REMOVAL_FAILED,
        ("removal failed (pod shop/x cannot be evicted; tried again after", "mend what is named"),
        args=LONG,
        verdict="unneeded",
        until="2026-11-21T07:25:54Z",
        memory={
            "groups": {
                "g": {
                    "failed_removals": {
                        "n-0": {"until": AT + 300, "why": "pod shop/x cannot be evicted"}
                    }
                }
            }
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.BOUGHT_BACK,
        (
            "nodes were bought back (for pods of shop/ReplicaSet/rs, tried again after",
            "removals wait",
        ),
        args=LONG,
        pods=(MOVES,),
        verdict="unneeded",
        until="2026-11-21T08:20:54Z",
        memory={
            "groups": {"g": {"drained": {"shop/ReplicaSet/rs": {"until": AT + 3600, "times": 1}}}}
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.GROUP_GROWING,
        ("being grown just now", "nothing but a moment"),
        args=LONG,
        verdict="unneeded",
        memory={
            "operations": [
                {
                    **OPERATION,
                    "id": "grow-1",
                    "kind": "grow",
                    "targets": [],
                    "from_size": 3,
                    "to_size": 4,
                }
            ]
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_STARTED,
        ("has not started yet", "maxNodeStartupTime"),
        first={"ready": False, "created": NOW},
    ),
    CliExplainNodeEntry(
        ReasonCode.PROMISED,
        ("pending pods are expected on it (shop/wants)", "needed for that pod"),
        pods=(pod("wants", "1500m"),),
        holds="shop/wants",
    ),
    CliExplainNodeEntry(
        ReasonCode.RULE_NEEDS_NODE,
        ("rule busy needs it (without it cpu would be at 75%, above 60%)", "raise the rule's"),
        args=LONG,
        verdict="unneeded",
        policy={
            "rules": [{"name": "busy", "groups": ["g"], "metric": "cpu", "above": "60%", "add": 1}]
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.HEADROOM,
        ("its free capacity is headroom (spare)", "lower spec.headroom"),
        policy={"headroom": [{"name": "spare", "groups": ["g"], "pods": 1, "cpu": "1"}]},
    ),
    CliExplainNodeEntry(
        ReasonCode.CLUSTER_UNHEALTHY,
        ("6 of 9 nodes are unready", "maxTotalUnreadyPercentage"),
        args=LONG,
        nodes=(*_many("g", 3, ready=False), *_many("h", 1), *_many("h", 3, ready=False)),
        groups=(_group(size=5), _group("h", size=4)),
        verdict="unneeded",
    ),
    CliExplainNodeEntry(
        ReasonCode.UNEXPECTED,
        ("pod shop/odd could not be read", "look at what it names"),
        pods=(pod("odd", "lots", on="n-0"),),
        holds="shop/odd",
    ),
    CliExplainNodeEntry(
        BLOCKED,
        (
            "ControllerNotFound",
            "its controller does not exist",
            "delete the pod, or create its controller",
        ),
        pods=(pod("orphan", "100m", on="n-0", owner="ReplicaSet/gone"),),
        holds="shop/orphan",
    ),
    CliExplainNodeEntry(
        BLOCKED,
        ("MinReplicasReached", "minReplicaCount 5", "raise its replicas"),
        pods=(MOVES,),
        holds="shop/move",
        args=("--option", "minReplicaCount=5"),
    ),
    CliExplainNodeEntry(
        BLOCKED,
        ("NotReplicated", "nothing would recreate it", 'safe-to-evict: "true"'),
        pods=(BARE,),
        holds="shop/bare",
    ),
    CliExplainNodeEntry(
        BLOCKED,
        ("LocalStorageRequested", "volume scratch", "safe-to-evict-local-volumes"),
        holds="shop/disk",
        pods=(pod("disk", "100m", on="n-0", volumes=[{"name": "scratch", "emptyDir": {}}]),),
    ),
    CliExplainNodeEntry(
        BLOCKED,
        ("NotSafeToEvictAnnotation", "remove the annotation"),
        holds="shop/held",
        pods=(pod("held", "100m", on="n-0", annotations={EVICT: "false"}),),
    ),
    CliExplainNodeEntry(
        BLOCKED,
        ("UnmovableKubeSystemPod", "PodDisruptionBudget in kube-system"),
        holds="kube-system/dns",
        pods=(pod("dns", "100m", on="n-0", namespace="kube-system", owner="ReplicaSet/dns"),),
        args=("--option", "blockingSystemPodDistruptionTimeout=48h"),
    ),
    CliExplainNodeEntry(
        BLOCKED,
        ("NotEnoughPdb", "api-budget", "let the budget allow a disruption"),
        holds="shop/api",
        pods=(pod("api", "100m", on="n-0", labels={"app": "api"}),),
        budgets=(_budget("api-budget", 0),),
    ),
)
