"""A horizon of consolidation in events, metrics, history, and in what makes a decision a new
one.
"""

from __future__ import annotations

import msgspec

from chalicelib.journal.journal import decision, plan_entry
from chalicelib.journal.metric_values import horizon_gauges, pass_gauges
from chalicelib.journal.pass_events import PassFacts, events_of_pass
from chalicelib.model.memory import ConsolidationMemory, Horizon, Memory, NodeMemory
from chalicelib.model.plan import ConsolidationReport, Health, HorizonReport, NodeVerdict, Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.views.journal_lines import kinds_of, line_of, sentence
from tests.builders import NOW as PLANNED
from tests.builders import cluster
from tests.unit.journal.support import NOW, STATUS, plan

OLD = Horizon("h1", NOW - 600, {"a": 1, "b": 1}, ("a", "b"), 400_000)
REPORT = HorizonReport("h1", NOW, 0.6, 0.4, {"a": 1, "b": 1}, ("a", "b"), currency="EUR")
NEEDED = Reason.of(ReasonCode.NOT_UNDERUTILIZED)


def with_horizon(horizon: HorizonReport | None = REPORT, nodes: str = "abc") -> Plan:
    return plan(
        consolidation=ConsolidationReport("full", horizon=horizon),
        unremovable=tuple(NodeVerdict(name, NEEDED) for name in nodes),
        health=Health(registered=len(nodes)),
    )


def events(decided: Plan, old: Horizon | None) -> list[tuple[str, str, str]]:
    """Object, type and message of each event about horizons."""
    facts = PassFacts(decided, Snapshot("c", NOW), horizon=old)
    return [
        (event.name, event.type, event.message)
        for event in events_of_pass(facts)
        if event.reason == "ConsolidationHorizon"
    ]


def test_event_says_that_a_horizon_begins_and_where_it_ends() -> None:
    message = (
        "Horizon h1 begins. Nodes that leave: 2 of 3, 0 marked; the others stay. Price at the "
        "end: 0.40 EUR an hour, now 0.60 EUR."
    )
    assert events(with_horizon(), None) == [(STATUS, "Normal", message)]
    before = msgspec.structs.replace(OLD, id="h0")
    assert events(with_horizon(), before) == [(STATUS, "Normal", message)]


def test_horizon_that_still_stands_is_no_event() -> None:
    assert events(with_horizon(), OLD) == []
    assert events(with_horizon(None), None) == []


def test_event_says_how_many_nodes_have_gone_when_a_horizon_is_over() -> None:
    message = "Horizon h1 is over: 1 of 2 nodes have gone"
    assert events(with_horizon(None, "bc"), OLD) == [(STATUS, "Normal", message)]
    off = plan(unremovable=(NodeVerdict("b", NEEDED),))
    assert events(off, OLD) == [(STATUS, "Normal", message)]


def test_metrics_show_the_nodes_that_leave_and_the_price_only_with_a_horizon() -> None:
    gauges = pass_gauges(with_horizon(nodes="bc"), Options(), {})
    shown = {
        name: value
        for name, value in gauges.items()
        if name.startswith(("consolidation_leaving", "consolidation_end"))
    }
    assert shown == {
        "consolidation_leaving_nodes_count": 1.0,
        "consolidation_end_cost_per_hour;currency=EUR": 0.4,
    }
    without = pass_gauges(with_horizon(None), Options(), {})
    assert not any(name.startswith("consolidation_end") for name in without)


def test_steer_8_pods_that_came_to_marked_nodes_are_counted_without_daemonsets() -> None:
    build = cluster()
    for name in ("a", "b", "c"):
        build.node(name, "4", "8Gi")
    late = PLANNED - 10
    build.running("a", 1, "100m", "1Gi", name="late", created=late)
    build.running("a", 1, "100m", "1Gi", name="agent", kind="DaemonSet", created=late)
    build.running("a", 1, "100m", "1Gi", name="early", created=PLANNED - 900)
    build.running("b", 1, "100m", "1Gi", name="unmarked", created=late)
    build.running("c", 1, "100m", "1Gi", name="stays", created=late)
    horizon = msgspec.structs.replace(OLD, since=PLANNED - 600)
    memory = Memory(
        nodes={"a": NodeMemory(marked=True), "c": NodeMemory(marked=True)},
        consolidation=ConsolidationMemory(horizon=horizon),
    )
    state = build_cluster_state(build.snapshot(), Policy("c"), memory, PLANNED)
    assert horizon_gauges(state) == {"pods_on_leaving_nodes_count": 1.0}
    idle = build_cluster_state(build.snapshot(), Policy("c"), Memory(), PLANNED)
    assert horizon_gauges(idle) == {}


def test_history_has_the_departures_of_a_horizon_once_when_it_begins() -> None:
    begins = plan_entry(with_horizon())
    assert sentence(begins) == "decided on 2 later departures in a cluster of 3 nodes"
    assert kinds_of(begins) == {"plan"}
    assert getattr(line_of(begins), "changes_nothing", None) is False
    later = msgspec.structs.replace(REPORT, since=NOW - 60)
    assert "no change" in sentence(plan_entry(with_horizon(later)))


def test_decision_changes_with_a_horizon_and_its_marks_and_not_with_its_price() -> None:
    first = decision(with_horizon())
    assert first != decision(with_horizon(None))
    assert first != decision(with_horizon(msgspec.structs.replace(REPORT, marked=1)))
    assert first == decision(with_horizon(msgspec.structs.replace(REPORT, price=0.7)))
