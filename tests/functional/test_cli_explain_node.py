"""`outscaler explain node`: for every reason the code, the blocking pod, the text and the remedy. Each row is a small
saved cluster; states that files cannot express are built in code."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.cli import explain_node
from chalicelib.cli.explain_view import ExplainContext, as_document
from chalicelib.cli.main import main
from chalicelib.cli.node_advice import remedy
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import Memory
from chalicelib.model.policy import Options, Policy
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from tests.builders import NOW as BUILT
from tests.builders import ClusterBuilder, cluster
from tests.functional.saved_cluster import NOW, node, pod, save, workload

AT = 1_795_245_654.0  # NOW
LONG = ("--assume-unneeded-for", "11m")
Said = pytest.CaptureFixture[str]


class CliExplainNodeEntry(msgspec.Struct, frozen=True):
    """code: of node n-0; says: words in the answer, including the remedy; nodes, pods: in addition to n-0 and n-1."""

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
    name: str, group: str = "g", *, ready: bool = True, created: str = "", taints: Any = (), **marks: str
) -> dict[str, Any]:
    made = node(name, group)
    made["metadata"] |= {"annotations": marks, **({"creationTimestamp": created} if created else {})}
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
    return tuple(_node(f"{group}-{'r' if ready else 'u'}{at}", group, ready=ready) for at in range(count))


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
LEAVING = {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]}
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
        ReasonCode.GROUP_MIN_SIZE, ("size 2, min 2", "lower the group's minimum"), groups=(_group(least=2),)
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
        ReasonCode.BEING_DELETED, ("currently being deleted", "taken off by the next pass"), first=LEAVING
    ),
    CliExplainNodeEntry(
        ReasonCode.IDENTITY_CONTESTED, ("which machine it is cannot be known", "n-0, n-9"), nodes=(_twin("n-9", "n-0"),)
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_UNDERUTILIZED,
        ("cpu 75%, threshold 50%", "raise scaleDownUtilizationThreshold"),
        pods=(pod("big", "1500m", on="n-0"),),
    ),
    CliExplainNodeEntry(
        ReasonCode.RECENTLY_UNREMOVABLE,
        ("no place to move its pods (shop/move: Insufficient cpu)", "07:25:00Z", "make room for the pod"),
        until="2026-11-21T07:25:00Z",
        holds="shop/move",
        memory={
            "nodes": {
                "n-0": {
                    "unremovable_until": AT + 246,
                    "why": {"code": "NoPlaceToMovePods", "params": {"pod": "shop/move", "what": "Insufficient cpu"}},
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
        ("nodes per hour reached (limit 1, more at", "outscaler release edge lifts it"),
        args=LONG,
        policy={"maxDisruption": {"nodesPerHour": 1}},
        until="2026-11-21T07:50:54Z",
        verdict="unneeded",
        memory={"brake": {"taken": [[AT - 1800, 1, 0]]}},
    ),
    CliExplainNodeEntry(
        ReasonCode.DISRUPTION_BRAKE,
        ("the brake is on until somebody releases it", "then: outscaler release edge"),
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
            "groups": {"g": {"failed_removals": {"n-0": {"until": AT + 300, "why": "pod shop/x cannot be evicted"}}}}
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.GROUP_GROWING,
        ("being grown just now", "nothing but a moment"),
        args=LONG,
        verdict="unneeded",
        memory={
            "operations": [{**OPERATION, "id": "grow-1", "kind": "grow", "targets": [], "from_size": 3, "to_size": 4}]
        },
    ),
    CliExplainNodeEntry(
        ReasonCode.NOT_STARTED, ("has not started yet", "maxNodeStartupTime"), first={"ready": False, "created": NOW}
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
        policy={"rules": [{"name": "busy", "groups": ["g"], "metric": "cpu", "above": "60%", "add": 1}]},
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
        ("ControllerNotFound", "its controller does not exist", "delete the pod, or create its controller"),
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


def _saved(row: CliExplainNodeEntry, folder: Path) -> list[str]:
    """The arguments of a question about n-0."""
    made = save(
        folder / "edge",
        [_node("n-0", **row.first), _node("n-1"), *row.nodes],
        [pod("big-1", "1500m", on="n-1"), *row.pods],
        row.groups or (_group(),),
        [workload("ReplicaSet", "rs", 3), workload("ReplicaSet", "dns", 2, namespace="kube-system")],
    )
    (made / "pdbs.json").write_text(json.dumps({"kind": "List", "items": list(row.budgets)}))
    args = ["explain", "node", "n-0", "--snapshot", str(made), "--now", NOW, *row.args]
    if row.memory:
        (folder / "memory.json").write_text(json.dumps(row.memory))
        args += ["--memory", str(folder / "memory.json")]
    if row.policy:
        (folder / "policy.json").write_text(
            json.dumps(
                {
                    "apiVersion": "outscaler.dev/v1",
                    "kind": "Cluster",
                    "metadata": {"name": "edge"},
                    "spec": {
                        "mode": "active",
                        "providers": {"clusterapi": {}},
                        "kubernetes": {"kubeconfigSecret": "outscaler/edge/kubeconfig"},
                        **row.policy,
                    },
                }
            )
        )
        args += ["--policy", str(folder / "policy.json")]
    return args


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.code.value}-{at}" for at, row in enumerate(ROWS)])
def test_explain_node_shows_the_rule_the_pod_and_the_remedy(
    row: CliExplainNodeEntry, tmp_path: Path, capsys: Said
) -> None:
    args = _saved(row, tmp_path)
    assert main([*args, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["reason"]["code"] == row.code.value, answer["says"]
    assert (answer["verdict"], answer.get("holds", ""), answer.get("until", "")) == (row.verdict, row.holds, row.until)
    said = " ".join(answer["says"])
    assert [words for words in row.says if words not in said] == [], said
    assert main(args) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("\n".join(answer["says"]))
    assert "in use" in shown
    assert row.holds in shown
    assert row.until in shown
    assert ("nodes removed in the last hour" in shown) is (
        row.code in (ReasonCode.DISRUPTION_BRAKE, ReasonCode.DISRUPTION_LIMIT)
    )


def _built(build: ClusterBuilder, **how: Any) -> dict[str, Any]:
    policy = Policy(name="test", options=Options())
    plan, memory = plan_cluster(build.snapshot(), policy, Memory(), BUILT, 0, **how)
    case = PlanInputs(build.snapshot(), policy, Memory(), BUILT, 0, None, (), 0.0)
    scene = ExplainContext(case, PlannedCase(plan, memory, {"decode": 0.0, "plan": 0.0}))
    return as_document(explain_node.answer(scene, "n-0"), scene)


def test_explain_node_not_simulated_for_lack_of_time_says_so() -> None:
    ticks = itertools.count(step=20.0)  # each clock reading costs more than a pass may take
    build = cluster().node("n-0", group="g").node("n-1", group="g").running("n-0", 1, "100m").group("g")
    build.controllers = []
    answer = _built(build, clock=lambda: next(ticks))
    assert answer["reason"]["code"] == ReasonCode.NOT_EVALUATED.value
    assert "raise scaleDownSimulationTimeout" in answer["says"][1]


def test_explain_node_protected_by_its_groups_cooldown_shows_the_end() -> None:
    build = (
        cluster()
        .node("n-0", group="g", created=BUILT - 60)
        .node("n-1", group="g")
        .group("g", options=GroupOptions(scale_down_cooldown=300.0))
    )
    answer = _built(build, assume_unneeded_for=700.0)
    assert answer["reason"]["code"] == ReasonCode.NODE_COOLDOWN.value
    assert answer["until"] == "2027-01-15T08:04:00Z"
    assert "the group's own cooldown" in answer["says"][1]


def test_CCE_A6_1_explain_names_the_pool_whose_minimum_keeps_a_node() -> None:
    build = cluster().node("n-0", group="p/a").node("n-1", group="p/b")
    for name in ("p/a", "p/b"):
        build.group(name, pool=Pool("p", "workers", min=2))
    answer = _built(build, assume_unneeded_for=700.0)
    assert answer["reason"]["code"] == ReasonCode.POOL_MIN_SIZE.value
    assert "pool workers, min 2" in answer["says"][0]
    assert "lower the minimum of the pool" in answer["says"][1]


def test_every_reason_for_a_node_to_stay_is_in_the_table() -> None:
    lines = Path(Reason.__module__.replace(".", "/") + ".py")
    text = (Path(__file__).resolve().parents[2] / lines).read_text("utf-8")
    named = text.partition("why a node is not removed")[2].partition("# ---")[0]
    codes = {code for code in ReasonCode if f" {code.name} = " in named} | {ReasonCode.CLUSTER_UNHEALTHY}
    assert len(codes) > 20
    built = {ReasonCode.NOT_EVALUATED, ReasonCode.NODE_COOLDOWN, ReasonCode.POOL_MIN_SIZE}
    assert {row.code for row in ROWS} | built == codes
    silent = {code for code in codes if not remedy(Reason.of(code), "shop")}
    assert silent == {ReasonCode.BLOCKED_BY_POD}, "a drain rule's sentence has its own advice"


def test_explain_node_with_an_open_removal_shows_the_operation(tmp_path: Path, capsys: Said) -> None:
    row = next(row for row in ROWS if row.memory.get("operations"))
    args = _saved(row, tmp_path)
    assert main([*args, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["operation"] == {
        "id": "remove-1",
        "kind": "remove",
        "state": "waiting",
        "step": "gone",
        "attempt": 0,
        "plan": "p",
        "createdAt": "2026-11-21T07:19:54Z",
        "deadline": "2026-11-21T07:35:54Z",
    }
    assert main(args) == 0
    shown = capsys.readouterr().out
    assert "remove-1, since 2026-11-21T07:19:54Z" in shown
    assert "given up after" in shown


def test_explain_node_shows_utilization_and_timer_with_their_thresholds(tmp_path: Path, capsys: Said) -> None:
    row = next(row for row in ROWS if row.code is ReasonCode.NOT_UNNEEDED_LONG_ENOUGH)
    more = msgspec.structs.replace(row, pods=(pod("some", "500m", on="n-0"),))
    args = _saved(more, tmp_path)
    assert main([*args, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["utilization"] == {"resource": "cpu", "share": 0.25, "threshold": 0.5}
    assert main(args) == 0
    shown = capsys.readouterr().out
    assert "cpu 25%, threshold 50%" in shown
    assert "2026-11-21T07:10:54Z, for 10m" in shown
