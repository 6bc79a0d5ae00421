"""`outscaler explain node`: for every reason the code, the blocking pod, the text and the remedy.
Each row is a small saved cluster; states that files cannot express are built in code."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.cli import explain_node
from chalicelib.cli.explain_node import remedy
from chalicelib.cli.explain_view import ExplainContext, as_document
from chalicelib.cli.main import main
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import Memory
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW as BUILT
from tests.builders import ClusterBuilder, cluster
from tests.functional.explain_node_cases import ROWS, CliExplainNodeEntry, _group, _node
from tests.functional.saved_cluster import NOW, pod, save, workload

Said = pytest.CaptureFixture[str]


def _saved(row: CliExplainNodeEntry, folder: Path) -> list[str]:
    """The arguments of a question about n-0."""
    made = save(
        folder / "edge",
        [_node("n-0", **row.first), _node("n-1"), *row.nodes],
        [pod("big-1", "1500m", on="n-1"), *row.pods],
        row.groups or (_group(),),
        [
            workload("ReplicaSet", "rs", 3),
            workload("ReplicaSet", "dns", 2, namespace="kube-system"),
        ],
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
    assert (answer["verdict"], answer.get("holds", ""), answer.get("until", "")) == (
        row.verdict,
        row.holds,
        row.until,
    )
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
    build = (
        cluster().node("n-0", group="g").node("n-1", group="g").running("n-0", 1, "100m").group("g")
    )
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
    codes = {code for code in ReasonCode if f" {code.name} = " in named} | {
        ReasonCode.CLUSTER_UNHEALTHY
    }
    assert len(codes) > 20
    # No document has a pause; tests/unit/plan/test_paused_parts.py and
    # test_cli_operate.py have its words.
    built = {
        ReasonCode.NOT_EVALUATED,
        ReasonCode.NODE_COOLDOWN,
        ReasonCode.POOL_MIN_SIZE,
        ReasonCode.PAUSED,
    }
    assert {row.code for row in ROWS} | built == codes
    silent = {code for code in codes if not remedy(Reason.of(code), "shop")}
    assert silent == {ReasonCode.BLOCKED_BY_POD}, "a drain rule's sentence has its own advice"


def test_explain_node_with_an_open_removal_shows_the_operation(
    tmp_path: Path, capsys: Said
) -> None:
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


def test_explain_node_shows_utilization_and_timer_with_their_thresholds(
    tmp_path: Path, capsys: Said
) -> None:
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
