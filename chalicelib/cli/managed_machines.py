"""What `explain` says of the machines that managed pools could buy: how many of each declaration
fit a pod, and what one is that is not open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.explain_view import ExplainContext
from chalicelib.cli.output import Table
from chalicelib.model.group import NodeGroup
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
