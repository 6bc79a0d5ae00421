"""Output model of `outscaler explain`, shared by the commands about pods, nodes and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from chalicelib.cli.output import Block, Table
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.plan_output import assumptions
from chalicelib.model.machine_offers import MachineOffers, PodFits
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.plan import Plan
from chalicelib.model.quantity import format_amount
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import lasting_first, sentence
from chalicelib.views.cluster_view import coded

# Kinds whose absence weakens decisions of one side only (cluster/listed_resources.py).
_OF_REMOVALS = frozenset(
    {"ReplicaSet", "StatefulSet", "Job", "ReplicationController", "PodDisruptionBudget"}
)
_OF_GROWTH = frozenset({"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "ConfigMap"})


class ExplainContext(msgspec.Struct, frozen=True):
    """A cluster and the plan for it. overview, offers, fits: of a stored decision, whose snapshot
    has neither groups nor pods. no_offers: why it has no offers."""

    case: PlanInputs
    decided: PlannedCase
    overview: ClusterOverview = ClusterOverview()
    offers: MachineOffers | None = None
    fits: PodFits = PodFits()
    no_offers: str = ""

    @property
    def plan(self) -> Plan:
        """Return the plan."""
        return self.decided.plan


class Explanation(msgspec.Struct, frozen=True):
    """One explanation. says: sentences; facts: (name, value) pairs; tables: related tables; data:
    the JSON fields after the common ones."""

    kind: str
    name: str
    says: tuple[str, ...]
    data: dict[str, Any]
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    gaps: tuple[MissingData, ...] = ()


def as_document(explanation: Explanation, context: ExplainContext) -> dict[str, Any]:
    """Return kind, name, cluster, at, assumed and says, then the explanation's own fields, then the
    plan's notes and the gaps that weaken the explanation."""
    plan = context.plan
    return {
        "kind": explanation.kind,
        "name": explanation.name,
        "cluster": plan.cluster,
        "at": format_time(plan.at),
        "assumed": list(context.case.assumed),
        "says": list(explanation.says),
        **explanation.data,
        "notes": [coded(note) for note in plan.notes],
        "gaps": [msgspec.to_builtins(gap) for gap in explanation.gaps],
    }


def as_blocks(explanation: Explanation, context: ExplainContext) -> list[Block]:
    """Return the assumptions, the sentences, the facts, the tables, and the notes and gaps."""
    facts = tuple((name, value) for name, value in explanation.facts if value)
    notes = tuple((note.code.value, sentence(note)) for note in context.plan.notes)
    gaps: list[tuple[str, ...]] = []
    for gap in explanation.gaps:
        decisions = ", ".join(gap.affected_decisions) or "-"
        gaps.append((gap.name or gap.kind, gap.detail, decisions))
    tables = (
        Table(("property", "value"), facts),
        *explanation.tables,
        Table(("what", "why"), notes, title="Notes"),
        Table(("not read", "why", "less certain decisions"), tuple(gaps), title="Not read"),
    )
    assumed = context.case.assumed
    blocks: list[Block] = [assumptions(assumed)] if assumed else []
    blocks.append("\n".join(explanation.says))
    blocks += [table for table in tables if table.rows or table.empty]
    return blocks


def amounts(resources: Mapping[str, int]) -> str:
    """Format resource amounts, e.g. `cpu 500m, memory 1Gi`. resources: name ->
    millicores, bytes or a number."""
    texts = (f"{name} {format_amount(name, amount)}" for name, amount in sorted(resources.items()))
    return ", ".join(texts) or "nothing"


def sentences(reasons: Iterable[Reason]) -> str:
    """Join several reasons for one table cell, the lasting ones first."""
    return "; ".join(sentence(reason) for reason in lasting_first(reasons))


def weakening(
    plan: Plan, *, removal: bool, name: str = "", node: str = ""
) -> tuple[MissingData, ...]:
    """Return the gaps that make an explanation less certain: gaps of a relevant kind, and gaps
    about the pod itself or about pods on the node.

    removal: True for an explanation of node removals, where drain rules are relevant and scale-up
    rules are not; False for the reverse.
    """
    other_side = _OF_GROWTH if removal else _OF_REMOVALS

    def matters(gap: MissingData) -> bool:
        if gap.affected_decisions:
            return gap.kind not in other_side
        if gap.kind != "Pod" or not gap.name:
            return True
        is_on_node = bool(node) and gap.node == node
        return gap.name == name or is_on_node

    return tuple(gap for gap in plan.gaps if matters(gap))
