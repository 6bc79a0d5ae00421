"""What `explain` says of the machines that managed pools could buy: how many of each declaration
fit a pod, and what one is that is not open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.arguments import unfolded
from chalicelib.cli.explain_view import ExplainContext, Explanation, weakening
from chalicelib.cli.output import Table
from chalicelib.cli.plan_document import encoded, fields
from chalicelib.model.group import NodeGroup
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import counted
from chalicelib.views.cluster_view import coded
from chalicelib.views.managed_pools import funnel_data, funnel_words

if TYPE_CHECKING:
    from chalicelib.plan.state.cluster_state import ClusterState

MOST_CHEAPEST = 5
"""Machines that fit a pod and are named, the cheapest."""


class FittingMachines(msgspec.Struct, frozen=True):
    """What the declarations have for a pod. says: a sentence for each; machines: the cheapest that
    fit; data: JSON of both."""

    says: tuple[str, ...] = ()
    machines: tuple[NodeGroup, ...] = ()
    data: tuple[dict[str, Any], ...] = ()

    @property
    def table(self) -> Table:
        """Return the cheapest machines with their prices."""
        rows = tuple(
            (group.managed.choice.declaration, group.managed.choice.machine, price_of(group))
            for group in self.machines
            if group.managed is not None
        )
        columns = ("managed pool", "machine", "price an hour")
        return Table(columns, rows, title="Cheapest machines that fit")


def fitting_machines(context: ExplainContext, cls: int) -> FittingMachines:
    """Return what the declarations have for a class of pods; nothing where no declaration is
    known."""
    snapshot = context.case.snapshot
    if not snapshot.selections:
        return FittingMachines()
    fitting = _fitting(context, cls)
    says: list[str] = []
    data: list[dict[str, Any]] = []
    for selection in snapshot.selections:
        own = [group for group in fitting if _declaration(group) == selection.declaration]
        says.append(f"{funnel_words(selection, len(own))}.")
        cheapest = [_machine_data(group) for group in own[:MOST_CHEAPEST]]
        data.append({**funnel_data(selection, len(own)), "cheapest": cheapest})
    return FittingMachines(tuple(says), tuple(fitting[:MOST_CHEAPEST]), tuple(data))


def unopened_machine(context: ExplainContext, name: str) -> Explanation | None:
    """Explain a group that could be opened, found by its name; None for another one."""
    candidates = {group.id: group for group in context.case.snapshot.candidates}
    name = unfolded(name, candidates)
    group = candidates.get(name)
    if group is None or group.managed is None:
        return None
    choice = group.managed.choice
    growth = next((up for up in context.plan.scale_ups if up.group == name), None)
    data: dict[str, Any] = {"verdict": "opens" if growth is not None else "notOpen"}
    data |= {"declaration": choice.declaration, **_machine_data(group)}
    start = f"Group {name} is not open: machine {choice.machine} of managed pool"
    says = [f"{start} {choice.declaration}."]
    if growth is not None:
        pods = counted(len(growth.pods), "pod")
        nodes = counted(growth.nodes, "node")
        says.append(f"It would be opened now with {nodes}, for {pods}.")
        data["growth"] = encoded(fields(growth, "from to max pods", "rules headroom replacement"))
    else:
        reasons = _why_not_opened(context, name)
        data["reasons"] = [coded(reason) for reason in reasons]
        says += [f"{_capital(sentence(reason))}." for reason in reasons]
        if not reasons:
            says.append("It could be opened; nothing needs it now, or others are cheaper.")
    facts = (
        ("managed pool", choice.declaration),
        ("type", choice.instance_type),
        ("zone", choice.zone),
        ("market", choice.market),
        ("price an hour", price_of(group)),
        ("most nodes", str(group.max)),
    )
    gaps = weakening(context.plan, removal=False)
    return Explanation("group", name, tuple(says), data, facts, gaps=gaps)


def _why_not_opened(context: ExplainContext, name: str) -> list[Reason]:
    """Return what keeps a candidate from being opened: limits, a back-off, and a better machine."""
    from chalicelib.plan.scale_up.candidate_groups import why_skipped
    from chalicelib.plan.scale_up.finalists import dominating
    from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter

    state = state_of(context)
    group = state.groups.get(name)
    if group is None:  # beyond the most candidates of a pass
        return []
    reasons = []
    stop = why_skipped(group, ResourceLimiter(state), state.lacking)
    if stop is not None:
        reasons.append(stop)
    better = dominating(group, state.groups.values())
    if better is not None and better.group.managed is not None:
        machine, price = better.group.managed.choice.machine, price_of(better.group)
        reasons.append(Reason.of(ReasonCode.CANDIDATE_DOMINATED, machine=machine, price=price))
    return reasons


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def price_of(group: NodeGroup) -> str:
    """Return `0.1004 EUR`, "-" where the price is unknown."""
    return f"{group.price:.4f} {group.currency}".strip() if group.price else "-"


def _fitting(context: ExplainContext, cls: int) -> list[NodeGroup]:
    """Return the managed groups, open or not, whose empty nodes take a class, the cheapest
    first."""
    from chalicelib.plan.scale_up.candidate_groups import Candidates
    from chalicelib.plan.simulation.cluster_builder import build
    from chalicelib.plan.tables import ResourceColumns

    state = state_of(context)
    simulated = build(state, (), ResourceColumns(state.snapshot.classes))
    managed = [
        group
        for group in state.groups.values()
        if group.group.managed is not None and group.template is not None
    ]
    fits = Candidates.of(managed, simulated).fits(cls)
    fitting = [group.group for group, fit in zip(managed, fits.tolist(), strict=True) if fit]
    return sorted(fitting, key=lambda group: (group.price, group.id))


def state_of(context: ExplainContext) -> ClusterState:
    """Return the state of the cluster from which the plan was made."""
    from chalicelib.plan.state.cluster_state import build_cluster_state

    case = context.case
    return build_cluster_state(case.snapshot, case.policy, case.memory, case.now)


def _declaration(group: NodeGroup) -> str:
    return group.managed.choice.declaration if group.managed is not None else ""


def _machine_data(group: NodeGroup) -> dict[str, Any]:
    assert group.managed is not None
    choice = group.managed.choice
    return {
        "group": group.id,
        "type": choice.instance_type,
        "zone": choice.zone,
        "market": choice.market,
        "price": group.price,
        "currency": group.currency,
    }
