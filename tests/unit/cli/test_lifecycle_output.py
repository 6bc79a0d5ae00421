"""`outscaler plan`, `explain node` and `history` show restarts, and why needed nodes go."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from chalicelib.cli import explain_node
from chalicelib.cli.commands.history import open_line
from chalicelib.cli.explain_view import ExplainContext
from chalicelib.cli.explain_view import as_document as explanation_document
from chalicelib.cli.output import show
from chalicelib.cli.plan_document import as_document
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.plan_output import as_blocks
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.plan import LifecycleVerdict, Plan, Removal, Restart
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.views.lifecycle import summary
from tests.builders import NOW, cluster
from tests.cases import each_row
from tests.operations import new_operation

TIMES = {"decode": 0.0, "plan": 0.0}
NOTHING = Memory()
BUSY = Reason.of(ReasonCode.GROUP_BUSY, who="an update")
RESTART = Restart("a", "g", "KernelDeadlock=True", ("d/p",))


def plan(**parts: Any) -> Plan:
    build = cluster().node("a", group="g").node("b", group="g").group("g", target=2)
    return msgspec.structs.replace(build.plan(), **parts)


def explained(decided: Plan, memory: Memory = NOTHING) -> dict[str, Any]:
    build = cluster().node("a", group="g").node("b", group="g").group("g", target=2)
    case = PlanInputs(
        build.snapshot(), Policy(name="test", mode=Mode.ACTIVE), memory, NOW, 0, None, (), 0.0
    )
    scene = ExplainContext(case, PlannedCase(decided, memory, TIMES))
    return explanation_document(explain_node.answer(scene, "a"), scene)


def test_plan_shows_restarts_with_their_condition_only_where_there_are_any() -> None:
    out = io.StringIO()
    show(as_blocks(plan(restarts=(RESTART,)), TIMES), out)
    assert "Nodes to restart" in out.getvalue()
    assert "KernelDeadlock=True" in out.getvalue()
    row = {"node": "a", "group": "g", "condition": "KernelDeadlock=True", "evict": ["d/p"]}
    assert as_document(plan(restarts=(RESTART,)), TIMES)["restarts"] == [row]
    assert "restarts" not in as_document(plan(), TIMES)


def test_explain_node_says_that_it_is_restarted_and_why() -> None:
    answer = explained(plan(restarts=(RESTART,)))
    assert (
        answer["says"][0]
        == "Node a would be restarted now because of KernelDeadlock=True, evicting 1 pod."
    )
    assert (answer["verdict"], answer["condition"]) == ("restarted", "KernelDeadlock=True")


def test_explain_node_says_that_a_restart_is_under_way() -> None:
    target = RemovalTarget("a", "test://g/a")
    operation = new_operation(
        "r-1", "test", "test", "g", OperationKind.RESTART_NODE, "p", NOW, targets=(target,)
    )
    answer = explained(plan(), Memory(operations=(operation,)))
    assert answer["says"][0] == "Node a is being restarted: operation r-1 is at step look, planned."
    assert answer["verdict"] == "restarting"


@each_row(
    ("reason", "says"),
    [
        (DisruptionReason.EXPIRED, "Node a would be removed now because of age, empty as it is."),
        (
            DisruptionReason.INTERRUPTED,
            "Node a would be removed now because of an interruption, empty as it is.",
        ),
        (DisruptionReason.UNNEEDED, "Node a would be removed now, empty as it is."),
    ],
)
def test_explain_node_says_why_a_needed_node_goes(reason: DisruptionReason, says: str) -> None:
    answer = explained(plan(removals=(Removal("a", "g", "empty", reason=reason),)))
    assert answer["says"][0] == says
    assert answer.get("removedFor", "unneeded") == reason.value


def test_plan_counts_nodes_that_need_not_go_yet_apart() -> None:
    old = tuple(
        LifecycleVerdict(name, DisruptionReason.EXPIRED, NOW, held)
        for name, held in (("a", None), ("b", BUSY))
    )
    sick = LifecycleVerdict(
        "c", DisruptionReason.REPAIR, NOW, Reason.of(ReasonCode.NOT_SICK_LONG_ENOUGH, needs=600.0)
    )
    outdated = tuple(
        LifecycleVerdict(name, DisruptionReason.DRIFTED, NOW, Reason.of(code, needs=60.0))
        for name, code in (("d", ReasonCode.NOT_CONFIRMED), ("e", ReasonCode.NODE_DRIFTED))
    )
    assert summary(plan()) == ""
    assert summary(plan(lifecycle=old)) == "Nodes that should go: 2 too old; 1 now."
    assert (
        summary(plan(lifecycle=(sick,)))
        == "Nodes that should go: none; 1 sick not for long enough yet."
    )
    assert summary(plan(lifecycle=(*old, sick, *outdated))) == (
        "Nodes that should go: 2 too old; 1 now; 1 sick not for long enough yet, 1 not as its "
        "group is defined, to be "
        "confirmed, 1 not as its group is defined, only reported."
    )


@each_row(
    ("kind", "reason", "says"),
    [
        (
            OperationKind.DELETE_NODES,
            "interrupted",
            "1 node of g leaves because of an interruption",
        ),
        (OperationKind.DELETE_NODES, "", "1 node of g leaves"),
        (OperationKind.RESTART_NODE, "repair", "1 node of g is restarted because of a fault"),
    ],
)
def test_history_says_what_is_under_way_and_why(
    kind: OperationKind, reason: str, says: str
) -> None:
    target = RemovalTarget("a", "i")
    operation = new_operation(
        "x", "test", "test", "g", kind, "p", NOW, targets=(target,), reason=reason
    )
    assert open_line(operation, {}, NOW + 5).text == says
