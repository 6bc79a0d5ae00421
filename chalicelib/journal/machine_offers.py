"""What managed pools could buy in a pass: what `explain` says of it, now and of a stored
decision."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from chalicelib.model.machine_offers import MOST_CHEAPEST, MachineOffers, OfferedMachine, PoolFit
from chalicelib.model.plan import Plan
from chalicelib.plan.scale_up.candidate_groups import Candidates, why_skipped
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.plan.tables import ResourceColumns


def machine_offers(state: ClusterState) -> MachineOffers:
    """Return all machines of managed pools, those with open groups included."""
    limiter = ResourceLimiter(state)
    machines: list[OfferedMachine] = []
    for name, group in state.groups.items():
        managed, template = group.group.managed, group.template
        if managed is None:
            continue
        machines.append(
            OfferedMachine(
                name,
                managed.choice,
                group.group.price,
                group.group.currency,
                group.group.max,
                managed.exists,
                dict(template.node.allocatable) if template is not None else {},
                why_skipped(group, limiter, state.lacking),
            )
        )
    machines.sort(key=lambda machine: (machine.price, machine.group))
    return MachineOffers(state.snapshot.selections, tuple(machines))


def pool_fits(state: ClusterState, classes: Collection[int]) -> dict[int, dict[str, PoolFit]]:
    """Return class -> declaration -> its machines whose empty nodes take a pod of the class."""
    simulated = build(state, (), ResourceColumns(state.snapshot.classes))
    managed = [
        group
        for group in state.groups.values()
        if group.group.managed is not None and group.template is not None
    ]
    managed.sort(key=lambda group: (group.group.price, group.id))
    candidates = Candidates.of(managed, simulated)
    fits: dict[int, dict[str, PoolFit]] = {}
    for cls in classes:
        names: dict[str, list[str]] = {}
        for group, is_fitting in zip(managed, candidates.fits(cls).tolist(), strict=True):
            if is_fitting:
                names.setdefault(declaration_of(group.group), []).append(group.id)
        fits[cls] = {
            pool: PoolFit(len(groups), tuple(groups[:MOST_CHEAPEST]))
            for pool, groups in names.items()
        }
    return fits


def waiting_pods(plan: Plan) -> Iterator[str]:
    """Yield namespace/name of the pods for which a plan looks for a place."""
    refused = (pod for verdict in plan.unschedulable for pod in verdict.pods)
    bought = (pod for growth in plan.scale_ups for pod in growth.pods)
    yield from (*refused, *bought, *plan.fits_existing)
