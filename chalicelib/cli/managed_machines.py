"""What `explain` says of the machines that managed pools could buy: how many of each declaration
fit a pod, and what one is that is not open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.arguments import unfolded
from chalicelib.cli.explain_view import ExplainContext, Explanation, weakening
from chalicelib.cli.output import Table
from chalicelib.cli.plan_document import encoded, fields
from chalicelib.model.machine_offers import MOST_CHEAPEST, MachineOffers, OfferedMachine, PoolFit
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import counted
from chalicelib.views.cluster_view import coded
from chalicelib.views.managed_pools import funnel_data, funnel_words

if TYPE_CHECKING:
    from chalicelib.plan.state.cluster_state import ClusterState


class FittingMachines(msgspec.Struct, frozen=True):
    """What the declarations have for a pod. says: a sentence for each; machines: the cheapest that
    fit; data: JSON of both."""

    says: tuple[str, ...] = ()
    machines: tuple[OfferedMachine, ...] = ()
    data: tuple[dict[str, Any], ...] = ()

    @property
    def table(self) -> Table:
        """Return the cheapest machines with their prices."""
        rows = tuple(
            (machine.choice.declaration, machine.choice.machine, price_of(machine))
            for machine in self.machines
        )
        columns = ("managed pool", "machine", "price an hour")
        return Table(columns, rows, title="Cheapest machines that fit")


def live_machines(context: ExplainContext, cls: int) -> FittingMachines:
    """Return what the declarations have for a class of pods of the cluster; nothing where no
    declaration is known."""
    from chalicelib.journal.machine_offers import machine_offers, pool_fits

    if not context.case.snapshot.selections:
        return FittingMachines()
    state = state_of(context)
    return fitting_machines(machine_offers(state), pool_fits(state, [cls])[cls])


def fitting_machines(offers: MachineOffers, fits: Mapping[str, PoolFit]) -> FittingMachines:
    """Return what the declarations have for a pod. fits: declaration -> its machines."""
    machine_of = {machine.group: machine for machine in offers.machines}
    says: list[str] = []
    data: list[dict[str, Any]] = []
    machines: list[OfferedMachine] = []
    for selection in offers.selections:
        fit = fits.get(selection.declaration, PoolFit())
        cheapest = [machine_of[group] for group in fit.cheapest if group in machine_of]
        says.append(f"{funnel_words(selection, fit.count)}.")
        shown = [_machine_data(machine) for machine in cheapest]
        data.append({**funnel_data(selection, fit.count), "cheapest": shown})
        machines += cheapest
    machines.sort(key=lambda machine: (machine.price, machine.group))
    return FittingMachines(tuple(says), tuple(machines[:MOST_CHEAPEST]), tuple(data))


def unopened_machine(context: ExplainContext, name: str) -> Explanation | None:
    """Explain a group that could be opened, found by its name; None for another one."""
    from chalicelib.journal.machine_offers import machine_offers

    offers = context.offers or MachineOffers()
    if context.case.snapshot.candidates:
        offers = machine_offers(state_of(context))
    unopened = {machine.group: machine for machine in offers.machines if not machine.is_open}
    name = unfolded(name, unopened)
    machine = unopened.get(name)
    if machine is None:
        return None
    choice = machine.choice
    growth = next((up for up in context.plan.scale_ups if up.group == name), None)
    data: dict[str, Any] = {"verdict": "opens" if growth is not None else "notOpen"}
    data |= {"declaration": choice.declaration, **_machine_data(machine)}
    start = f"Group {name} is not open: machine {choice.machine} of managed pool"
    says = [f"{start} {choice.declaration}."]
    if growth is not None:
        pods = counted(len(growth.pods), "pod")
        nodes = counted(growth.nodes, "node")
        says.append(f"It would be opened now with {nodes}, for {pods}.")
        data["growth"] = encoded(fields(growth, "from to max pods", "rules headroom replacement"))
    else:
        reasons = _why_not_opened(offers, machine)
        data["reasons"] = [coded(reason) for reason in reasons]
        says += [f"{capital(sentence(reason))}." for reason in reasons]
        if not reasons:
            says.append("It could be opened; nothing needs it now, or others are cheaper.")
    facts = (
        ("managed pool", choice.declaration),
        ("type", choice.instance_type),
        ("zone", choice.zone),
        ("market", choice.market),
        ("price an hour", price_of(machine)),
        ("most nodes", str(machine.most)),
    )
    gaps = weakening(context.plan, removal=False)
    return Explanation("group", name, tuple(says), data, facts, gaps=gaps)


def _why_not_opened(offers: MachineOffers, machine: OfferedMachine) -> list[Reason]:
    """Return what keeps a candidate from being opened: limits, a back-off, and a better machine."""
    reasons = [machine.stop] if machine.stop is not None else []
    better = offers.better(machine)
    if better is not None:
        code, price = ReasonCode.CANDIDATE_DOMINATED, price_of(better)
        reasons.append(Reason.of(code, machine=better.choice.machine, price=price))
    return reasons


def capital(text: str) -> str:
    """Return the text as a sentence begins."""
    return text[:1].upper() + text[1:]


def price_of(machine: OfferedMachine) -> str:
    """Return `0.1004 EUR`, "-" where the price is unknown."""
    return f"{machine.price:.4f} {machine.currency}".strip() if machine.price else "-"


def state_of(context: ExplainContext) -> ClusterState:
    """Return the state of the cluster from which the plan was made."""
    from chalicelib.plan.state.cluster_state import build_cluster_state

    case = context.case
    return build_cluster_state(case.snapshot, case.policy, case.memory, case.now)


def _machine_data(machine: OfferedMachine) -> dict[str, Any]:
    choice = machine.choice
    return {
        "group": machine.group,
        "type": choice.instance_type,
        "zone": choice.zone,
        "market": choice.market,
        "price": machine.price,
        "currency": machine.currency,
    }
