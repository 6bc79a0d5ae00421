"""Functions are killed while a node is repaired whose kubelet does not answer: each pod is evicted once, the machine
goes at its vendor before its Node, and nothing is deleted by force (docs/reference/node-lifecycle.md "Dead kubelets").
"""

from __future__ import annotations

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from tests.faults import cluster
from tests.faults.fault_schedule import KILL, Strike
from tests.faults.final_checks import restless
from tests.faults.run_state import FaultRun

QUIET = {"scaleDownUnneededTime": "3h", "scaleDownUnreadyTime": "3h"}
LIFECYCLE = {
    "maxNodeAge": "720h",
    "jitter": "10%",
    "drift": "off",
    "repair": [{"condition": "Ready", "status": ["False", "Unknown"], "after": "1m"}],
    "maxUnhealthy": "100%",
}


def is_there(run: FaultRun, kind: str, name: str) -> bool:
    if kind == "machines":
        return run.world.kube.peek("machines", name, "default", fields.GROUP) is not None
    return run.world.kube.peek(kind, name) is not None


def repaired(*strikes: Strike, revived_at: int = 0) -> tuple[float, FaultRun]:
    """Plays the repair of a young node with a large pod. Returns the seconds until its machine was gone, 0 if it stays.
    revived_at: after so many steps of 10 s its kubelet answers again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "CONSOLIDATION", {**cluster.CONSOLIDATION, "mode": "off"})
        patch.setattr(cluster, "LIFECYCLE", LIFECYCLE)
        with FaultRun(1, consolidates=True, age=0.0, **QUIET) as run:
            run.world.seed(objects.deployment("huge", replicas=1, cpu="3500m", memory="128Mi"))
            run.world.step(240.0)
            (pod,) = [each for each in run.world.kube.list("pods", "default") if "huge" in each["metadata"]["name"]]
            node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
            run.world.weather.strikes.extend(strikes)
            run.world.cluster.kubelets.silence(node)
            began, gone_at = run.world.clock(), 0.0
            for step in range(1, 120):
                run.world.step(10.0)
                run.check()
                if step == revived_at:
                    run.world.cluster.kubelets.revive(node)
                if is_there(run, "machines", node):
                    assert is_there(run, "nodes", node), "its machine is there"
                    left = run.world.kube.peek("pods", name, "default")
                    assert left is not None or revived_at, "a partitioned node still runs it"
                else:
                    gone_at = gone_at or run.world.clock()
            assert run.world.audit.counts.get("evicted", 0) <= 1
            assert run.world.operations() == ()
            assert list(restless(run)) == []
            assert [made for made in run.world.pending() if "huge" in made] == []
            return (gone_at - began if gone_at else 0.0), run


def test_a_young_node_whose_kubelet_died_is_repaired_in_minutes() -> None:
    seconds, _ = repaired()
    assert 60.0 < seconds <= 480.0


@pytest.mark.parametrize("after", [False, True], ids=["at", "after"])
@pytest.mark.parametrize("number", [3, 9, 15, 22, 30, 40])
def test_a_repair_of_a_dead_node_killed_twice_evicts_and_deletes_once(number: int, *, after: bool) -> None:
    kills = (Strike(KILL, at, writing=True, after=after) for at in (number, number + 7))
    seconds, _ = repaired(*kills)
    assert 60.0 < seconds <= 900.0


def test_a_kubelet_that_answers_during_its_drain_keeps_its_machine() -> None:
    seconds, run = repaired(revived_at=18)
    assert seconds == 0.0
    assert run.world.audit.counts.get("node gone as repair", 0) == 0
