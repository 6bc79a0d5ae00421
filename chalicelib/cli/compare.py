"""`outscaler plan --compare-option expander=price`: plans the same cluster under two sets
of options and shows both.

Costs are shown only where the policy states machine prices; they are the hourly costs of the
added and removed nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.cli import plan_output
from chalicelib.cli.output import Block, Table, warn
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.plan_output import some
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Options, Policy
from chalicelib.model.timestamps import format_time


class Pair(msgspec.Struct, frozen=True):
    """Two policies, the plan of each, and the options in which they may differ."""

    case: PlanInputs
    policies: tuple[Policy, Policy]
    decided: tuple[PlannedCase, PlannedCase]
    options: tuple[str, ...]

    @property
    def plans(self) -> tuple[Plan, Plan]:
        """Return both plans."""
        return self.decided[0].plan, self.decided[1].plan


class Cost(msgspec.Struct, frozen=True):
    """Hourly cost of the new nodes and hourly saving from the removed nodes. unknown: groups and
    nodes without a price, which count as zero."""

    added: float
    saved: float
    unknown: tuple[str, ...] = ()


def policy_of(policy: Policy, settings: Sequence[str]) -> Policy:
    """Return the policy with the second plan's options; raises BadInput."""
    from chalicelib.cli.option_overrides import with_options

    return with_options(policy, settings, place="--compare-option", warn=warn)


def names_of(settings: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the compared options, each once."""
    return tuple(dict.fromkeys(setting.partition("=")[0].strip() for setting in settings))


def differing(first_policy: Policy, second_policy: Policy) -> tuple[str, ...]:
    """Return the names of the options in which two policies differ."""
    from chalicelib.policy.options import ROWS

    return tuple(name for name in ROWS if _shown(first_policy, name) != _shown(second_policy, name))


def as_document(pair: Pair) -> dict[str, Any]:
    """Return both plans as `plan` prints them, each with its values of the compared
    options, and the differences."""
    return {
        "plans": [
            {
                "options": {name: _shown(policy, name) for name in pair.options},
                "plan": plan_output.as_document(decided.plan, decided.timings, pair.case.assumed),
            }
            for policy, decided in zip(pair.policies, pair.decided, strict=True)
        ],
        "difference": _difference(pair),
    }


def as_blocks(pair: Pair) -> list[Block]:
    """Return the options, the totals, and the groups and pods in which the plans differ."""
    difference, first = _difference(pair), pair.plans[0]
    totals = [
        (name, *(_text(_shown(policy, name)) for policy in pair.policies)) for name in pair.options
    ]
    totals += [(title, *map(_text, difference[key])) for key, title in _TOTALS if key in difference]
    groups = [
        (group["group"], *(_change(group, side) for side in (0, 1)))
        for group in difference["groups"]
    ]
    pods = [
        (title, str(len(difference[key])), some(difference[key]))
        for key, title in _LISTS
        if difference.get(key)
    ]
    headline = f"Cluster {first.cluster} at {format_time(pair.case.now)}: two plans."
    alike = "the same pods get a node in both"
    return [
        *([plan_output.assumptions(pair.case.assumed)] if pair.case.assumed else []),
        "\n".join([*plan_output.headline(first), headline]),
        Table(("", "first", "second"), tuple(totals), title="In all", right=frozenset({1, 2})),
        Table(
            ("group", "first", "second"),
            tuple(groups),
            title="Node groups",
            empty="neither changes a group",
        ),
        Table(("what", "how many", "which"), tuple(pods), title="Where they differ", empty=alike),
    ]


_LISTS = (
    ("onlyFirst", "pods with a node in the first only"),
    ("onlySecond", "pods with a node in the second only"),
    ("unpriced", "groups and nodes without a price, counted as nothing"),
)
_TOTALS = (
    ("nodes", "new nodes"),
    ("pods", "pods that get a new node"),
    ("fitsExisting", "pods that fit"),
    ("left", "pods that get none"),
    ("removals", "nodes removed"),
    ("cost", "cost of new nodes per hour"),
    ("saved", "cost of removed nodes per hour"),
)


def _difference(pair: Pair) -> dict[str, Any]:
    plans = pair.plans
    placed = [
        {pod for up in plan.scale_ups for pod in up.pods} | set(plan.fits_existing)
        for plan in plans
    ]
    difference: dict[str, Any] = {
        "groups": _groups(plans),
        "nodes": [sum(up.to_size - up.from_size for up in plan.scale_ups) for plan in plans],
        "pods": [sum(len(up.pods) for up in plan.scale_ups) for plan in plans],
        "fitsExisting": [len(plan.fits_existing) for plan in plans],
        "left": [sum(len(verdict.pods) for verdict in plan.unschedulable) for plan in plans],
        "removals": [len(plan.removals) for plan in plans],
        "onlyFirst": sorted(placed[0] - placed[1]),
        "onlySecond": sorted(placed[1] - placed[0]),
    }
    priced = any(policy.prices is not None for policy in pair.policies)
    if priced or any(group.price for group in pair.case.snapshot.groups):
        costs = [
            cost(pair.case, policy, plan) for policy, plan in zip(pair.policies, plans, strict=True)
        ]
        difference["cost"] = [round(total.added, 6) for total in costs]
        difference["saved"] = [round(total.saved, 6) for total in costs]
        difference["unpriced"] = sorted({name for total in costs for name in total.unknown})
    return difference


def _groups(plans: tuple[Plan, Plan]) -> list[dict[str, Any]]:
    """Return the groups that at least one of the plans changes, with sizes,
    pods and removals in both."""
    scale_ups = [{up.group: up for up in plan.scale_ups} for plan in plans]
    removals = [Counter(removal.group for removal in plan.removals) for plan in plans]
    sizes = {verdict.group: verdict.target for plan in plans for verdict in plan.groups}
    names = sorted(
        {name for side in scale_ups for name in side} | {name for side in removals for name in side}
    )
    return [
        {
            "group": name,
            "from": next(
                (side[name].from_size for side in scale_ups if name in side), sizes.get(name, 0)
            ),
            "to": [
                side[name].to_size if name in side else sizes.get(name, 0) for side in scale_ups
            ],
            "pods": [len(side[name].pods) if name in side else 0 for side in scale_ups],
            "removals": [side[name] for side in removals],
        }
        for name in names
    ]


def _change(group: dict[str, Any], side: int) -> str:
    parts = []
    if group["to"][side] != group["from"]:
        parts.append(f"{group['from']} -> {group['to'][side]} for {group['pods'][side]} pods")
    if group["removals"][side]:
        parts.append(f"{group['removals'][side]} removed")
    return ", ".join(parts) or "-"


def cost(inputs: PlanInputs, policy: Policy, plan: Plan) -> Cost:
    """Return the hourly cost of a plan's changes, by the policy's prices or, where the policy has
    none, the providers' prices."""
    from chalicelib.plan.prices import price_book
    from chalicelib.plan.state.cluster_state import build_cluster_state

    state = build_cluster_state(inputs.snapshot, policy, inputs.memory, inputs.now)
    nodes = {node.name: node for node in inputs.snapshot.nodes}
    unknown: list[str] = []
    sums = {"added": 0.0, "saved": 0.0}
    book = price_book(
        policy.prices,
        [group.group for group in state.groups.values()],
        spot=policy.spot is not None,
    )
    templates = {
        name: group.template.node
        for name, group in state.groups.items()
        if group.template is not None
    }
    moves = [
        ("added", up.group, up.group, templates.get(up.group), up.to_size - up.from_size)
        for up in plan.scale_ups
    ]
    moves += [
        ("saved", removal.node, removal.group, nodes.get(removal.node), 1)
        for removal in plan.removals
    ]
    for kind, name, group, node, count in moves:
        price = None if node is None else book.hourly(node, state.groups[group].group)
        if price is None:
            unknown.append(name)
        else:
            sums[kind] += price * count
    return Cost(sums["added"], sums["saved"], tuple(unknown))


def _shown(policy: Policy, name: str) -> Any:
    """Return an option's value in a policy as a document states it; None for an
    option that is not used."""
    from chalicelib.policy.options import ROWS, attribute

    row = ROWS.get(name)
    lands = attribute(row) if row is not None else ""
    return (
        row.kind.show(getattr(policy.options, lands))
        if row is not None and hasattr(Options(), lands)
        else None
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
