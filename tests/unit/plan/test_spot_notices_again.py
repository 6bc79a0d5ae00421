"""Notices that are taken back and come again, from pass to pass
(docs/reference/spot.md "Signals").
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import GroupMemory, InterruptionNotice, InterruptionRisk, Memory
from chalicelib.model.node import TO_BE_DELETED, Condition, Taint
from chalicelib.model.operation import SIGNAL, OperationState
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.spot import Spot
from tests.builders import NOW, ClusterBuilder, cluster, node

SPOT = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")
OURS = Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW)))


def spot_node(*taints: Taint, ready: str = "True", leaves_at: float = 0.0) -> ClusterBuilder:
    build = cluster().node(
        "a", "4", "16Gi", group="g", taints=list(taints), conditions=(Condition("Ready", ready),)
    )
    build.running("a", 2, "1", "1Gi").group(
        "g", max=10, spot=True, template=node("new-g", "4", "16Gi")
    )
    [group] = build.groups
    instances = tuple(
        msgspec.structs.replace(instance, leaves_at=leaves_at) for instance in group.instances
    )
    build.groups[0] = msgspec.structs.replace(group, instances=instances)
    return build


def decide(
    build: ClusterBuilder, memory: Memory | None = None, now: float = NOW
) -> tuple[Plan, Memory]:
    policy = Policy(
        "test", mode=Mode.ACTIVE, options=Options(scale_down_unneeded_time=1e6), spot=Spot()
    )
    return plan_cluster(build.snapshot(), policy, memory or Memory(), now, 0)


def notices(memory: Memory) -> dict[str, InterruptionNotice]:
    risk = memory.groups["g"].risk
    return risk.notices if risk is not None else {}


def test_a_removal_knows_by_which_signal_its_node_was_announced() -> None:
    [removal] = [op for op in decide(spot_node(SPOT))[0].operations if op.spec.interrupted]
    assert removal.status.data[SIGNAL] == f"taint {SPOT.key}"
    [removal] = [
        op for op in decide(spot_node(leaves_at=NOW + 90.0))[0].operations if op.spec.interrupted
    ]
    assert removal.status.data[SIGNAL] == "its provider says so"


def test_a_notice_of_the_vendors_api_is_remembered_as_such() -> None:
    assert notices(decide(spot_node(SPOT))[1]) == {"a": InterruptionNotice(NOW, NOW + 120.0)}
    both = decide(spot_node(SPOT, leaves_at=NOW + 300.0))[1]
    assert notices(both) == {"a": InterruptionNotice(NOW, NOW + 120.0, by_vendor=True)}
    silent = decide(spot_node(ready="Unknown"), both, now=NOW + 60.0)[1]
    assert notices(silent) == {"a": InterruptionNotice(NOW, NOW + 120.0, by_vendor=True)}
    assert notices(decide(spot_node(), both, now=NOW + 60.0)[1]) == {}


def test_a_signal_that_comes_again_while_the_node_is_evacuated_is_a_new_notice() -> None:
    first, memory = decide(spot_node(SPOT))
    [removal] = [op for op in first.operations if op.spec.interrupted]
    memory = msgspec.structs.replace(
        memory, operations=(removal.with_status(state=OperationState.WAITING),)
    )
    _, without = decide(spot_node(OURS), memory, now=NOW + 30.0)
    assert notices(without) == {}
    plan, again = decide(spot_node(OURS, SPOT), without, now=NOW + 60.0)
    assert notices(again) == {"a": InterruptionNotice(NOW + 60.0, NOW + 180.0)}
    assert not plan.removals, "the first evacuation is under way"
    ended = msgspec.structs.replace(again, operations=())
    plan, _ = decide(spot_node(SPOT), ended, now=NOW + 70.0)
    assert [(removal.node, removal.leaves_at) for removal in plan.removals] == [("a", NOW + 180.0)]


def test_a_signal_on_a_node_that_somebody_removes_is_no_notice() -> None:
    _, memory = decide(spot_node(OURS, SPOT))
    assert notices(memory) == {}


def test_a_notice_of_an_earlier_release_is_read() -> None:
    row = b'{"risk":{"notices":{"a":{"seen_at":1.0,"leaves_at":2.0}}}}'
    known = msgspec.json.decode(row, type=GroupMemory)
    assert known == GroupMemory(risk=InterruptionRisk(notices={"a": InterruptionNotice(1.0, 2.0)}))
