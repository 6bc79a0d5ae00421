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

from chalicelib.cli import plan_document, plan_output
from chalicelib.cli.output import Block, Table, warn
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.node import Node
from chalicelib.model.plan import Plan
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.words import some


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
    names = (setting.partition("=")[0].strip() for setting in settings)
    return tuple(dict.fromkeys(names))


def differing(first_policy: Policy, second_policy: Policy) -> tuple[str, ...]:
    """Return the names of the options in which two policies differ."""
    from chalicelib.policy.options import ROWS

    return tuple(name for name in ROWS if _shown(first_policy, name) != _shown(second_policy, name))


def as_document(pair: Pair) -> dict[str, Any]:
    """Return both plans as `plan` prints them, each with its values of the compared
    options, and the differences."""
    plans: list[dict[str, Any]] = []
    for policy, planned in zip(pair.policies, pair.decided, strict=True):
        options = {name: _shown(policy, name) for name in pair.options}
        plan = plan_document.as_document(planned.plan, planned.timings, pair.case.assumed)
        plans.append({"options": options, "plan": plan})
    return {"plans": plans, "difference": _difference(pair)}


def as_blocks(pair: Pair) -> list[Block]:
    """Return the options, the totals, and the groups and pods in which the plans differ."""
    difference = _difference(pair)
    first = pair.plans[0]
    headline = f"Cluster {first.cluster} at {format_time(pair.case.now)}: two plans."
    assumed = pair.case.assumed
    blocks: list[Block] = [plan_output.assumptions(assumed)] if assumed else []
    blocks.append("\n".join([*plan_output.headline(first), headline]))
    blocks.append(_totals_table(pair, difference))
    blocks.append(_groups_table(difference["groups"]))
    blocks.append(_lists_table(difference))
    return blocks


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


def _totals_table(pair: Pair, difference: dict[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name in pair.options:
        values = [_shown(policy, name) for policy in pair.policies]
        rows.append((name, *map(_text, values)))
    for key, title in _TOTALS:
        if key in difference:
            rows.append((title, *map(_text, difference[key])))
    columns = ("", "first", "second")
    return Table(columns, tuple(rows), title="In all", right=frozenset({1, 2}))


def _groups_table(groups: list[dict[str, Any]]) -> Table:
    rows = [(group["group"], _change(group, 0), _change(group, 1)) for group in groups]
    columns = ("group", "first", "second")
    return Table(columns, tuple(rows), title="Node groups", empty="neither changes a group")


def _lists_table(difference: dict[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for key, title in _LISTS:
        names = difference.get(key)
        if names:
            rows.append((title, str(len(names)), some(names)))
    alike = "the same pods get a node in both"
    columns = ("what", "how many", "which")
    return Table(columns, tuple(rows), title="Where they differ", empty=alike)


def _difference(pair: Pair) -> dict[str, Any]:
    plans = pair.plans
    first, second = (_pods_with_place(plan) for plan in plans)
    difference: dict[str, Any] = {
        "groups": _groups(plans),
        "nodes": [sum(up.to_size - up.from_size for up in plan.scale_ups) for plan in plans],
        "pods": [sum(len(up.pods) for up in plan.scale_ups) for plan in plans],
        "fitsExisting": [len(plan.fits_existing) for plan in plans],
        "left": [sum(len(verdict.pods) for verdict in plan.unschedulable) for plan in plans],
        "removals": [len(plan.removals) for plan in plans],
        "onlyFirst": sorted(first - second),
        "onlySecond": sorted(second - first),
    }
    has_own_prices = any(policy.prices is not None for policy in pair.policies)
    if has_own_prices or any(group.price for group in pair.case.snapshot.groups):
        pairs = zip(pair.policies, plans, strict=True)
        costs = [cost(pair.case, policy, plan) for policy, plan in pairs]
        difference["cost"] = [round(total.added, 6) for total in costs]
        difference["saved"] = [round(total.saved, 6) for total in costs]
        difference["unpriced"] = sorted({name for total in costs for name in total.unknown})
    return difference


def _pods_with_place(plan: Plan) -> set[str]:
    pods = set(plan.fits_existing)
    for up in plan.scale_ups:
        pods.update(up.pods)
    return pods


def _groups(plans: tuple[Plan, Plan]) -> list[dict[str, Any]]:
    """Return the groups that at least one of the plans changes, with sizes,
    pods and removals in both."""
    scale_ups = [{up.group: up for up in plan.scale_ups} for plan in plans]
    removals = [Counter(removal.group for removal in plan.removals) for plan in plans]
    sizes = {verdict.group: verdict.target for plan in plans for verdict in plan.groups}
    names: set[str] = set()
    names = names.union(*scale_ups, *removals)
    groups: list[dict[str, Any]] = []
    for name in sorted(names):
        size = sizes.get(name, 0)
        ups = [side.get(name) for side in scale_ups]
        sizes_before = [up.from_size for up in ups if up is not None]
        group = {
            "group": name,
            "from": sizes_before[0] if sizes_before else size,
            "to": [size if up is None else up.to_size for up in ups],
            "pods": [0 if up is None else len(up.pods) for up in ups],
            "removals": [side[name] for side in removals],
        }
        groups.append(group)
    return groups


def _change(group: dict[str, Any], side: int) -> str:
    size_before = group["from"]
    size_after = group["to"][side]
    removed = group["removals"][side]
    parts = []
    if size_after != size_before:
        parts.append(f"{size_before} -> {size_after} for {group['pods'][side]} pods")
    if removed:
        parts.append(f"{removed} removed")
    return ", ".join(parts) or "-"


def cost(inputs: PlanInputs, policy: Policy, plan: Plan) -> Cost:
    """Return the hourly cost of a plan's changes, by the policy's prices or, where the policy has
    none, the providers' prices."""
    from chalicelib.plan.prices import price_book
    from chalicelib.plan.state.cluster_state import build_cluster_state

    state = build_cluster_state(inputs.snapshot, policy, inputs.memory, inputs.now)
    nodes = {node.name: node for node in inputs.snapshot.nodes}
    groups = [group.group for group in state.groups.values()]
    book = price_book(policy.prices, groups, spot=policy.spot is not None)

    def hourly(node: Node | None, group: str) -> float | None:
        return None if node is None else book.hourly(node, state.groups[group].group)

    added = saved = 0.0
    unknown: list[str] = []
    for up in plan.scale_ups:
        grown = state.groups.get(up.group)
        template = grown.template if grown is not None else None
        price = hourly(template.node if template is not None else None, up.group)
        if price is None:
            unknown.append(up.group)
        else:
            added += price * (up.to_size - up.from_size)
    for removal in plan.removals:
        price = hourly(nodes.get(removal.node), removal.group)
        if price is None:
            unknown.append(removal.node)
        else:
            saved += price
    return Cost(added, saved, tuple(unknown))


def _shown(policy: Policy, name: str) -> Any:
    """Return an option's value in a policy as a document states it; None for an
    option that is not used."""
    from chalicelib.policy.options import ROWS, attribute

    row = ROWS.get(name)
    if row is None:
        return None
    option = attribute(row)
    return row.kind.show(getattr(policy.options, option)) if hasattr(Options(), option) else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
