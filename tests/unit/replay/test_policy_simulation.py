"""What another policy would have cost: nodes are simulated, pods are recorded
(docs/bill.md "Another policy").
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import Instance, Pool
from chalicelib.model.memory import Memory
from chalicelib.model.node import OWN_TAINTS, Taint
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.replay.policy_simulation import Comparison, Inputs, PolicyCost, ReadyTimes, compare
from chalicelib.replay.recorded_decision import RecordedDecision
from tests.builders import NOW, ClusterBuilder, node

MINUTE = 60.0


def policy(**options: object) -> Policy:
    usual = {"scale_down_unneeded_time": 240.0, "scale_down_delay_after_add": 0.0}
    return Policy(
        "test", mode=Mode.ACTIVE, options=msgspec.structs.replace(Options(), **{**usual, **options})
    )


REMOVES, STAYS = policy(), policy(scale_down_enabled=False)


def record(at: float, builder: ClusterBuilder, own: Policy = REMOVES) -> RecordedDecision:
    """A decision at so many minutes."""
    now = NOW + at * MINUTE
    snapshot = msgspec.structs.replace(builder.snapshot(), taken_at=now)
    plan, _ = plan_cluster(snapshot, own, Memory(), now, 1)
    return RecordedDecision(snapshot, own, Memory(), now, 1, plan)


def busy(nodes: int, pods: int) -> ClusterBuilder:
    """Nodes of four cores, with pods of two cores on them in order; the rest waits."""
    builder = ClusterBuilder().daemonset("agent", "100m", "100Mi")
    for at in range(nodes):
        builder.node(f"n-{at}", "4", "16Gi", group="g")
        builder.running(
            f"n-{at}", 1, "100m", "100Mi", owner="agent", kind="DaemonSet", namespace="kube-system"
        )
    builder.group("g", max=10, price=0.6, currency="EUR", template=node("t", "4", "16Gi"))
    for at in range(pods):
        builder.running(f"n-{at}", 1, "2", "8Gi", name=f"p{at}")
    return builder


def fixed(own: Policy) -> Inputs:
    def inputs(decision: RecordedDecision) -> tuple[Policy, Snapshot]:
        return own, decision.snapshot

    return inputs


def outcome(decisions: list[RecordedDecision], *policies: Policy) -> Comparison:
    comparison = compare(decisions, [fixed(own) for own in policies])
    assert comparison is not None
    return comparison


def alone(decisions: list[RecordedDecision], own: Policy = REMOVES) -> PolicyCost:
    return outcome(decisions, own).policies[0]


def test_cost_of_policies_is_compared_over_the_same_pods() -> None:
    """Two nodes at 0.6 of which one is empty; one policy removes it after 5 minutes,
    the other one never does."""
    decisions = [record(at, busy(2, 1)) for at in (0, 10, 20)]
    comparison = outcome(decisions, REMOVES, STAYS)
    removes, stays = comparison.policies
    assert (comparison.hours, comparison.left_out, comparison.decisions) == (
        round(20 / 60, 4),
        0.0,
        3,
    )
    assert stays.cost == {"EUR": pytest.approx(0.4)}
    assert removes.cost == {"EUR": pytest.approx(0.25)}, "two nodes for 5 minutes, then one"
    assert (removes.nodes_removed, removes.pods_moved, stays.nodes_removed) == (1, 0, 0)


def test_nodes_come_from_the_simulation_and_not_from_the_record() -> None:
    """The recorded node goes away and another one comes; the simulation keeps the first
    one, with the pods on it."""
    other = busy(1, 0)
    other.node("new", "4", "16Gi", group="other").group("other", price=5.0, currency="EUR")
    other.running("new", 1, "2", "8Gi", name="p0")
    decisions = [record(0, busy(1, 1)), record(10, other), record(20, other)]
    decisions[1:] = [_renamed(decision) for decision in decisions[1:]]
    cost = alone(decisions, STAYS)
    assert cost.cost == {"EUR": pytest.approx(0.2)}
    assert cost.pending_minutes == 0


def _renamed(decision: RecordedDecision) -> RecordedDecision:
    """The decision with the pod of the first one."""
    first = next(pod for pod in busy(1, 1).pods if pod.namespace == "default")
    pods = tuple(
        msgspec.structs.replace(pod, name=first.name) if pod.namespace == "default" else pod
        for pod in decision.snapshot.pods
    )
    return msgspec.structs.replace(
        decision, snapshot=msgspec.structs.replace(decision.snapshot, pods=pods)
    )


def test_new_node_is_paid_from_its_purchase_and_its_pods_wait_until_it_is_ready() -> None:
    crowded = busy(1, 1).pending(1, "3", "8Gi")
    cost = alone([record(0, crowded), record(10, crowded), record(20, crowded)], STAYS)
    assert cost.cost == {"EUR": pytest.approx(0.4)}
    assert (cost.nodes_bought, cost.pending_minutes) == (1, 3.0)


def test_new_nodes_are_ready_after_the_median_time_of_the_record() -> None:
    times = ReadyTimes()
    assert times.seconds == 180.0
    builder = busy(3, 0)
    took = dict(zip(("n-0", "n-1", "n-2"), (60.0, 240.0, 90_000.0), strict=True))
    group = builder.groups[0]
    instances = tuple(
        Instance(i.id, node=i.node, created=NOW - 7200.0 - took[i.node]) for i in group.instances
    )
    builder.groups[0] = msgspec.structs.replace(group, instances=instances)
    times.learn(builder.snapshot())
    assert times.seconds == 150.0, "of what is credible"


def test_pod_without_a_place_waits_all_the_time() -> None:
    hopeless = busy(1, 0).pending(2, "64")
    assert alone([record(0, hopeless), record(10, hopeless)], STAYS).pending_minutes == 20.0


def test_pods_of_a_removed_node_move_to_where_the_plan_puts_them() -> None:
    moves = busy(2, 0)
    moves.running("n-0", 1, "1", "1Gi", name="a").running("n-1", 1, "2", "8Gi", name="b")
    cost = alone([record(at, moves) for at in (0, 10, 20)])
    assert (cost.nodes_removed, cost.pods_moved, cost.disruption, cost.pending_minutes) == (
        1,
        1,
        2.0,
        0.0,
    )


def test_replacement_is_bought_waited_for_and_drained_in_the_simulation() -> None:
    """A half-empty node of 0.2 is replaced by one of 0.1: proposed at 0, bought at
    5 minutes, drained at 10."""
    builder = ClusterBuilder()
    for name, cpu, memory, price in (("s", "2", "8Gi", 0.1), ("m", "4", "16Gi", 0.2)):
        for at in range(2 if name == "m" else 0):
            builder.node(f"m-{at}", cpu, memory, group="m")
        template = node(f"t-{name}", cpu, memory)
        builder.group(name, max=10, price=price, currency="EUR", pool=Pool("p"), template=template)
    builder.running("m-0", 2, "500m", "2Gi").running("m-1", 8, "500m", "2Gi")
    surge = Consolidation(mode=ConsolidationMode.FULL, max_surge=NodeLimit(share=1.0))
    consolidates = msgspec.structs.replace(REMOVES, consolidation=surge)
    cost = alone([record(at, builder) for at in range(0, 61, 10)], consolidates)
    assert (cost.nodes_bought, cost.nodes_removed, cost.pods_moved, cost.pending_minutes) == (
        1,
        1,
        2,
        0.0,
    )
    assert cost.cost == {"EUR": pytest.approx((5 * 0.4 + 5 * 0.5 + 50 * 0.3) / 60, abs=1e-6)}


def test_long_gaps_are_left_out_and_their_share_is_stated() -> None:
    decisions = [record(at, busy(1, 1)) for at in (0, 10, 110, 120)]
    comparison = outcome(decisions, STAYS)
    assert (comparison.hours, comparison.left_out) == (round(20 / 60, 4), round(100 / 120, 4))
    assert comparison.policies[0].cost == {"EUR": pytest.approx(0.2)}


def test_nodes_in_no_group_are_paid_as_recorded_and_unpriced_ones_are_counted() -> None:
    builder = busy(1, 1).node("alone", "2", "8Gi")
    cost = alone([record(0, builder), record(6, builder)], STAYS)
    assert cost.cost == {"EUR": pytest.approx(0.06)}
    assert cost.unpriced_hours == 0.1


def test_taints_of_recorded_removals_are_no_part_of_the_simulation() -> None:
    builder = ClusterBuilder()
    taints = [Taint(key, "NoSchedule") for key in OWN_TAINTS]
    builder.node("n-0", "4", "16Gi", group="g", taints=taints)
    builder.group("g", price=0.6, currency="EUR").pending(1, "2", "8Gi")
    cost = alone([record(0, builder), record(10, builder)], STAYS)
    assert (cost.nodes_bought, cost.pending_minutes) == (0, 0.0)


def test_simulation_gives_the_same_result_every_time() -> None:
    crowded = busy(3, 1).pending(4, "3", "8Gi")
    decisions = [record(at, crowded) for at in (0, 7, 14, 60, 70)]
    assert outcome(decisions, REMOVES, STAYS) == outcome(decisions, REMOVES, STAYS)


def test_nothing_recorded_is_no_comparison() -> None:
    assert compare([], [fixed(REMOVES)]) is None
