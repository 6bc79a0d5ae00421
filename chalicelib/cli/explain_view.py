"""What the answers of `outscaler explain` are made of: the pieces that those about pods, nodes and groups share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.plan_output import assumptions
from chalicelib.cli.tables import Block, Table
from chalicelib.model.plan import Plan
from chalicelib.model.quantity import format_amount
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence

# How the words begin by which a gap says what it weakens (snapshot/live.py).
_REMOVALS_ONLY, _GROWTH_ONLY = ("BlockedByPod",), ("scale-up:", "expander")


class ExplainContext(msgspec.Struct, frozen=True):
    """A cluster, and the plan for it."""

    case: PlanInputs
    decided: PlannedCase

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.decided.plan


class Explanation(msgspec.Struct, frozen=True):
    """One answer. says: sentences; facts: (what, value); tables: whatever belongs to it; data: the JSON without its
    head."""

    kind: str
    name: str
    says: tuple[str, ...]
    data: dict[str, Any]
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    gaps: tuple[MissingData, ...] = ()


def as_document(answer: Explanation, scene: ExplainContext) -> dict[str, Any]:
    """kind, name, cluster, at, assumed, says; then the answer's own; then notes of the plan and gaps that weaken it."""
    plan = scene.plan
    return {
        "kind": answer.kind,
        "name": answer.name,
        "cluster": plan.cluster,
        "at": format_time(plan.at),
        "assumed": list(scene.case.assumed),
        "says": list(answer.says),
        **answer.data,
        "notes": [coded(note) for note in plan.notes],
        "gaps": [msgspec.to_builtins(gap) for gap in answer.gaps],
    }


def as_blocks(answer: Explanation, scene: ExplainContext) -> list[Block]:
    """What is assumed, the sentences, the facts, the tables, notes and gaps."""
    said: list[Block] = [assumptions(scene.case.assumed)] if scene.case.assumed else []
    rows = tuple((gap.name or gap.kind, gap.detail, ", ".join(gap.affected_decisions) or "-") for gap in answer.gaps)
    blocks: list[Block] = [
        *said,
        "\n".join(answer.says),
        Table(("what", "is"), answer.facts),
        *answer.tables,
        Table(("what", "why"), tuple((note.code.value, sentence(note)) for note in scene.plan.notes), title="Notes"),
        Table(("could not be read", "why", "less sure for it"), rows, title="What weakens this answer"),
    ]
    return [block for block in blocks if isinstance(block, str) or block.rows or block.empty]


def coded(reason: Reason) -> dict[str, Any]:
    """A reason for programs: its code, its sentence and its numbers."""
    return {"code": reason.code.value, "message": sentence(reason), "params": dict(reason.params)}


def amounts(named: Mapping[str, int]) -> str:
    """`cpu 500m, memory 1Gi`."""
    return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in sorted(named.items())) or "nothing"


def sentences(reasons: Iterable[Reason]) -> str:
    """Several reasons in one cell."""
    return "; ".join(sentence(reason) for reason in reasons)


def weakening(plan: Plan, *, removal: bool, name: str = "", node: str = "") -> tuple[MissingData, ...]:
    """The gaps that make an answer less sure: of kinds that matter to it, and of the pod itself or of pods on the node.

    removal: the answer is about removing nodes, to which drain rules matter and rules of growing do not; else the other
    way round.
    """
    beside = _GROWTH_ONLY if removal else _REMOVALS_ONLY

    def matters(gap: MissingData) -> bool:
        if gap.affected_decisions:
            return not all(each.startswith(beside) for each in gap.affected_decisions)
        return gap.kind != "Pod" or not gap.name or gap.name == name or (bool(node) and gap.node == node)

    return tuple(gap for gap in plan.gaps if matters(gap))
