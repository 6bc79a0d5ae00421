"""Scaling rules over many passes with the real store: rules in force, stored state, and reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from tests.functional.operations.harness import POLICY, OperationHarness
from tests.functional.operations.test_reconcile_idle_cost import Costs

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
RULES = "horizontalnodeautoscalers"
# The documented HorizontalNodeAutoscaler example, in lower case throughout.
SPEC: dict[str, Any] = {
    "disable": False,
    "rules": [
        {
            "action": {"type": "scaleup", "unit": "node", "value": 1},
            "crontrigger": {"schedule": "47 20 * * *"},
            "disable": False,
            "rulename": "cronrule",
            "type": "cron",
        },
        {
            "action": {"type": "scaleup", "unit": "node", "value": 2},
            "disable": False,
            "metrictrigger": {
                "metricname": "cpu",
                "metricoperation": ">",
                "metricvalue": "60",
                "unit": "percent",
            },
            "rulename": "metricrule",
            "type": "metric",
        },
    ],
}


def group(stage: OperationHarness) -> str:
    """The node group's id, unique per test, because a group belongs to the
    cluster that acted on it first."""
    return f"g.{stage.name}"


def policy(stage: OperationHarness, *lines: str) -> None:
    """Sets the policy for the following passes, with these lines in its spec."""
    current = stage.store.policies.current(stage.name)
    text = POLICY.format(name=stage.name, mode="active").replace("id: g,", f"id: {group(stage)},")
    text += "".join(f"  {line}\n" for line in lines)
    stage.store.policies.put(stage.name, text, "active", current.version if current else None)


def a_pass(stage: OperationHarness, at: str = "") -> list[Operation]:
    """Runs a pass in a new process, a minute later or at that time (of 21 November 2026, or the
    given day); returns its open operations."""
    stage.replace(
        **{field: getattr(stage._runtime(), field) for field in ("kube_client", "providers")}
    )
    if at:
        instant = (
            datetime.fromisoformat(at if "T" in at else f"2026-11-21T{at}")
            .replace(tzinfo=UTC)
            .timestamp()
        )
        stage.clock.advance(instant - stage.clock())
    else:
        stage.clock.advance(60)
    handle(encode(ReconcileMessage(stage.name, "webhook", stage.clock())).decode(), stage.runtime)
    return list(stage.memory().operations)


def nodes(stage: OperationHarness, count: int, used: str = "") -> None:
    """A group of ready nodes with 4 cpu. used: request of the pod on each."""
    for name, machine in stage.provider.add_pool(group(stage), size=count).machines.items():
        stage.kube.create(
            "nodes",
            {
                "metadata": {"name": name},
                "spec": {"providerID": machine.id},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": ROOM,
                    "capacity": ROOM,
                },
            },
        )
        if used:
            stage.pod(
                f"p-{name}",
                name,
                containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": used}}}],
            )


def rule_object(stage: OperationHarness, spec: dict[str, Any] | None = None) -> None:
    """Creates or changes the object."""
    spec = {**(spec or SPEC), "targetnodepoolids": [group(stage)]}
    made = stage.kube.peek(RULES, "xxxx", "kube-system", "autoscaling.cce.io")
    if made is None:
        stage.kube.create(
            RULES,
            {"metadata": {"name": "xxxx", "namespace": "kube-system"}, "spec": spec},
            "autoscaling.cce.io",
        )
    else:
        stage.kube.update(RULES, {**made, "spec": spec}, "autoscaling.cce.io")


def growths(operations: list[Operation]) -> list[tuple[int, int]]:
    return [
        (each.spec.from_size, each.spec.to_size)
        for each in operations
        if each.spec.kind is OperationKind.SCALE_UP
    ]


def test_CCE_A1_4_settings_apply_at_the_next_pass_and_timers_survive_it(
    stage: OperationHarness,
) -> None:
    policy(stage, "options: {scaleDownUnneededTime: 10m, scaleDownDelayAfterAdd: 0s}")
    nodes(stage, 1)
    assert a_pass(stage, "08:00:00") == []
    [node] = stage.memory().nodes
    began = stage.memory().nodes[node].unneeded_since
    assert began > 0

    policy(stage, "options: {scaleDownUnneededTime: 20m, scaleDownDelayAfterAdd: 0s}")
    assert a_pass(stage, "08:11:00") == [], "the new patience counts at once"
    assert stage.memory().nodes[node].unneeded_since == began, "and the timer ran on"

    policy(stage, "options: {scaleDownUnneededTime: 10m, scaleDownDelayAfterAdd: 0s}")
    assert [each.spec.kind for each in a_pass(stage, "08:12:00")] == [OperationKind.DELETE_NODES], (
        "eleven minutes were not forgotten"
    )


def test_CCE_A1_3_rules_need_no_add_on_of_the_vendor(stage: OperationHarness) -> None:
    # in other clusters, which do not know the kind
    stage.kube.resources.drop(RULES, "autoscaling.cce.io")
    policy(
        stage,
        "scaleUp: {horizontalNodeAutoscalers: true}",
        "options: {scaleDownEnabled: false}",
        f"rules: [{{name: busy, groups: [{group(stage)}], metric: cpu, above: 60, add: 2}}]",
    )
    nodes(stage, 2, used="3")
    assert growths(a_pass(stage, "09:00:00")) == [(2, 4)]
    entry = next(each for each in stage.store.journal.recent(stage.name) if each.kind == "plan")
    assert (entry.facts["rules"], entry.facts["gaps"]) == ("busy", 0)


def test_CCE_A2_documented_example_object_is_in_force(stage: OperationHarness) -> None:
    policy(
        stage, "scaleUp: {horizontalNodeAutoscalers: true}", "options: {scaleDownEnabled: false}"
    )
    nodes(stage, 2, used="1")
    rule_object(stage)
    assert a_pass(stage, "20:46:30") == []
    assert growths(a_pass(stage, "20:47:10")) == [(2, 3)]
    assert growths(a_pass(stage, "20:47:30")) == [(2, 3)], "once, though the pass is made again"
    assert [name for name, _ in stage.events("RuleScaledUp")] == ["xxxx"]


def test_CCE_A2_metric_rule_of_the_documented_example_acts(stage: OperationHarness) -> None:
    policy(
        stage, "scaleUp: {horizontalNodeAutoscalers: true}", "options: {scaleDownEnabled: false}"
    )
    nodes(stage, 2, used="3")
    rule_object(stage)
    assert growths(a_pass(stage, "09:00:00")) == [(2, 4)]


def test_CCE_A2_invalid_version_is_reported_and_the_last_valid_one_stays(
    stage: OperationHarness,
) -> None:
    policy(
        stage, "scaleUp: {horizontalNodeAutoscalers: true}", "options: {scaleDownEnabled: false}"
    )
    nodes(stage, 2, used="1")
    rule_object(stage)
    assert a_pass(stage, "20:40:00") == []
    metric = {
        **SPEC["rules"][1],
        "metrictrigger": {**SPEC["rules"][1]["metrictrigger"], "metricvalue": 60},
    }
    rule_object(stage, {**SPEC, "rules": [metric]})
    a_pass(stage, "20:46:00")
    [(name, words)] = stage.events("HorizontalNodeAutoscalerInvalid")
    assert name == "xxxx"
    assert 'metricValue: 60 is a number; write it as text, "60"' in words
    assert growths(a_pass(stage, "20:47:10")) == [(2, 3)], "the cron rule of the version before"


def test_CCE_A2_objects_no_longer_in_use_are_forgotten(stage: OperationHarness) -> None:
    policy(
        stage, "scaleUp: {horizontalNodeAutoscalers: true}", "options: {scaleDownEnabled: false}"
    )
    nodes(stage, 2, used="1")
    rule_object(stage)
    a_pass(stage, "20:40:00")
    assert stage.memory().rule_objects != {}
    policy(
        stage, "scaleUp: {horizontalNodeAutoscalers: false}", "options: {scaleDownEnabled: false}"
    )
    assert a_pass(stage, "20:47:10") == []
    assert stage.memory().rule_objects == {}


def test_rules_without_work_add_no_cost_to_a_quiet_pass(stage: OperationHarness) -> None:
    policy(stage, "options: {scaleDownEnabled: false}")
    nodes(stage, 2, used="2300m")
    items = []
    for lines in ((), ("scaleUp: {horizontalNodeAutoscalers: true}",)):
        policy(stage, "options: {scaleDownEnabled: false}", *lines)
        rule_object(stage)
        a_pass(stage)
        a_pass(stage)
        with Costs(stage) as costs:
            a_pass(stage)
        items.append(costs.items)
    assert stage.memory().rule_objects != {}
    assert items[0] == items[1]
