"""`outscaler explain node` on a running cluster agrees with the functions' decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli import plan_inputs
from chalicelib.cli.main import main
from chalicelib.model.timestamps import format_time
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.kube.objects import clone
from tests.scenario.policies import document
from tests.scenario.scenario_world import ScenarioWorld

Said = pytest.CaptureFixture[str]
OPTIONS = {"scaleDownUnneededTime": "5m", "scaleDownDelayAfterAdd": "1m"}
SLOW = Pace(kubelets=KubeletTimes(stop=600.0))  # pods use their full termination grace period
EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class ScenarioApiClient:
    """An operator at a terminal, with the cluster's kubeconfig, the policy,
    and the functions' memory."""

    def __init__(self, world: ScenarioWorld, folder: Path, text: str, capsys: Said) -> None:
        self._world, self._folder, self._capsys = world, folder, capsys
        (folder / "kubeconfig").write_text(world.server.kubeconfig())
        (folder / "policy.yaml").write_text(text)

    def explain(self, node: str) -> dict[str, Any]:
        """The JSON output at the current instant."""
        memory = self._folder / "memory.json"
        plan_inputs.write_memory(memory, self._world.memory())
        self._capsys.readouterr()
        assert (
            main(
                [
                    "explain",
                    "node",
                    node,
                    "--kubeconfig",
                    str(self._folder / "kubeconfig"),
                    "--policy",
                    str(self._folder / "policy.yaml"),
                    "--memory",
                    str(memory),
                    "--now",
                    format_time(self._world.clock()),
                    "-o",
                    "json",
                ]
            )
            == 0
        )
        answer: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return answer


def _verdicts(world: ScenarioWorld) -> dict[str, str]:
    return {
        each["node"]: each["reason"]["code"] for each in world.last_plan().get("unremovable", ())
    }


def test_explain_agrees_with_the_functions_on_a_running_cluster(
    aws: LocalAws, tmp_path: Path, capsys: Said
) -> None:
    """A pod that must stay, a full node, a node without a group, one whose timer
    runs, and one being drained."""
    text = document(options=OPTIONS)
    with ScenarioWorld(aws, grain=20.0, pace=SLOW) as world:
        world.apply_policy(text)
        world.seed(
            objects.machine_deployment("workers", 4, 1, 6), objects.node("stranger", cpu="1")
        )
        world.minutes(1.5)
        world.seed(objects.deployment("full", replicas=1, cpu="3500m"))
        held = objects.deployment("held", replicas=1, cpu="1200m")
        held["spec"]["template"]["metadata"]["annotations"] = {EVICT: "false"}
        world.seed(held)
        world.seed(
            objects.deployment("web", replicas=1, cpu="1500m", terminationGracePeriodSeconds=120)
        )
        world.minutes(2)
        desk = ScenarioApiClient(world, tmp_path, text, capsys)
        on = {
            pod["metadata"]["labels"]["app"]: pod["spec"]["nodeName"]
            for pod in world.kube.list("pods")
        }
        decided = _verdicts(world)

        answers = {name: desk.explain(name) for name in decided}

        # A recently simulated node has a separate reason, which the journal does not record.
        now = {name: answer["reason"]["code"] for name, answer in answers.items()}
        assert {
            name: decided[name] if code == "RecentlyUnremovable" else code
            for name, code in now.items()
        } == decided
        assert decided["stranger"] == "NotAutoscaled"
        full, kept, waits = answers[on["full"]], answers[on["held"]], answers[on["web"]]
        assert full["utilization"]["share"] > full["utilization"]["threshold"] == 0.5
        assert "let its pods ask for less" in full["says"][1]
        assert kept["holds"].startswith("default/held-")
        assert "NotSafeToEvictAnnotation" in kept["says"][0]
        assert "remove the annotation" in kept["says"][0]
        assert (waits["verdict"], waits["reason"]["code"]) == ("unneeded", "NotUnneededLongEnough")
        known = world.memory().nodes[on["web"]]
        assert waits["until"] == format_time(known.unneeded_since + 300.0)

        world.step_until(
            lambda: any(operation.status.step == "gone" for operation in world.operations()),
            limit=900.0,
        )
        (operation,) = (each for each in world.operations() if each.status.step == "gone")
        leaving = desk.explain(operation.spec.targets[0].node)
        assert (leaving["verdict"], leaving["operation"]["id"]) == ("leaving", operation.spec.id)
        assert f"operation {operation.spec.id} is at step gone" in leaving["says"][0]
        assert any("ToBeDeletedByClusterAutoscaler" in taint for taint in leaving["taints"])


def test_explain_node_with_scale_down_disabled_names_the_remedy(
    aws: LocalAws, tmp_path: Path, capsys: Said
) -> None:
    text = document(options={**OPTIONS, "scaleDownUnneededTime": "1m"})
    with ScenarioWorld(aws, grain=20.0) as world:
        world.apply_policy(text)
        world.seed(objects.machine_deployment("workers", 2, 1, 5))
        world.step(100)
        stays = world.nodes()[0]
        node = clone(world.node(stays))
        node["metadata"].setdefault("annotations", {})[
            "cluster-autoscaler.kubernetes.io/scale-down-disabled"
        ] = "true"
        world.kube.update("nodes", node)
        world.minutes(6)
        assert world.nodes() == (stays,)

        answer = ScenarioApiClient(world, tmp_path, text, capsys).explain(stays)

        assert answer["reason"]["code"] in {
            "ScaleDownDisabledAnnotation",
            "NodeGroupMinSizeReached",
        }
        assert answer["says"][1].startswith("What helps: take the annotation")
