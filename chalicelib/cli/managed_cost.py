"""`outscaler cost --managed`: what the present pods would cost on machines of the policy's managed
pools alone, beside what they cost now.

The planner gets an empty cluster in which all pods wait. Groups that somebody has made are left
out, and so are headroom and rules. The lower bound is that of the bill (plan/cost_bound.py), of the
cluster that the plan would make.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from chalicelib import DOCS
from chalicelib.cli import plan_inputs
from chalicelib.cli.output import Block, Table, emit
from chalicelib.cli.plan_inputs import PlanInputs
from chalicelib.model.cluster_bill import MILLION, Bill, ClusterBill
from chalicelib.model.errors import BadInput
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import Condition, Node
from chalicelib.model.plan import Plan, ScaleUp
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.words import counted, money, some

_LIVE = ("kubeconfig", "context")


def show(args: argparse.Namespace) -> int:
    """Print both costs. Returns 0; raises BadInput."""
    case = _read(args)
    estimate = _estimate(case)
    title = args.name or case.policy.name
    output = "table" if args.output == "wide" else args.output
    emit(output, _data(title, estimate), lambda: _blocks(title, estimate))
    return 0


class ManagedEstimate(msgspec.Struct, frozen=True):
    """What the pods cost now, None where no machine has a price; the plan for an empty cluster, and
    what the cluster would cost that it makes."""

    now: ClusterBill | None
    plan: Plan
    managed: ClusterBill | None

    @property
    def bill(self) -> Bill:
        """Return what the machines of managed pools cost, all in one currency."""
        if self.managed is None:
            return Bill()
        return self.managed.bills[0]


def _read(args: argparse.Namespace) -> PlanInputs:
    """Read the cluster, its policy and the machines that could be bought. Raises BadInput."""
    parser = argparse.ArgumentParser()
    plan_inputs.add_arguments(parser)
    words: list[str] = []
    if args.name:
        words += ["--snapshot", args.name]
    for name in (*_LIVE, "policy"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    for secret in args.secret:
        words += ["--secret", secret]
    for file in args.catalogue:
        words += ["--catalogue", str(file)]
    if args.policy is None:
        raise BadInput("--managed", "needs the managed pools of a policy", "give --policy FILE")
    case = plan_inputs.read(parser.parse_args(words))
    if not case.policy.managed_pools:
        raise BadInput(
            str(args.policy),
            "has no spec.managedPools",
            f"see {DOCS}/reference/managed-pools.md",
        )
    if not case.snapshot.candidates:
        raise _no_machine(case)
    return case


def _no_machine(inputs: PlanInputs) -> BadInput:
    """Return why nothing could be bought: no catalogue was given, or nothing is left of it."""
    if inputs.snapshot.selections:
        from chalicelib.views.managed_pools import funnel_words

        left = "; ".join(map(funnel_words, inputs.snapshot.selections))
        return BadInput("--managed", f"no machine can be bought: {left}", "change requirements")
    provider = inputs.policy.managed_pools[0].provider
    return BadInput(
        "--catalogue",
        f"is missing: the machines of {provider} are not known here",
        f"outscaler catalogue {provider} --policy FILE --save catalogue.json writes it",
    )


def _estimate(inputs: PlanInputs) -> ManagedEstimate:
    from chalicelib.plan.cost_breakdown import cluster_bill
    from chalicelib.plan.state.cluster_state import build_cluster_state
    from chalicelib.plan.what_if import all_pending

    present = _without_candidates(inputs.snapshot)
    now = cluster_bill(build_cluster_state(present, inputs.policy, inputs.memory, inputs.now))
    policy = msgspec.structs.replace(inputs.policy, headroom=(), rules=(), node_groups=())
    empty = all_pending(inputs.snapshot, inputs.now, policy.options)
    empty_inputs = msgspec.structs.replace(inputs, snapshot=empty, policy=policy, memory=Memory())
    plan = plan_inputs.decided(empty_inputs).plan
    bought = _bought(empty, plan, inputs.now)
    managed = cluster_bill(build_cluster_state(bought, policy, Memory(), inputs.now))
    return ManagedEstimate(now, plan, managed)


def _without_candidates(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, candidates=(), selections=())


def _bought(snapshot: Snapshot, plan: Plan, now: float) -> Snapshot:
    """Return the empty cluster after its plan: with the new nodes, and the pods on them."""
    groups: list[NodeGroup] = []
    nodes: list[Node] = []
    sizes = {growth.group: growth.nodes for growth in plan.scale_ups}
    for group in snapshot.candidates:
        size = sizes.get(group.id, 0)
        if not size or group.template is None or group.managed is None:
            continue
        own = [_node(group.template, group.id, number, now) for number in range(1, size + 1)]
        instances = tuple(Instance(node.provider_id, node=node.name) for node in own)
        managed = msgspec.structs.replace(group.managed, exists=True)
        groups.append(
            msgspec.structs.replace(group, target=size, instances=instances, managed=managed)
        )
        nodes += own
    return msgspec.structs.replace(
        snapshot, groups=tuple(groups), nodes=tuple(nodes), pods=_placed(snapshot, plan)
    )


def _node(template_node: Node, group: str, number: int, now: float) -> Node:
    name = _name(group, number)
    ready = Condition("Ready", "True")
    return msgspec.structs.replace(
        template_node,
        name=name,
        uid=name,
        provider_id=name,
        conditions=(ready,),
        created=now - 3600.0,
    )


def _name(group: str, number: int) -> str:
    return f"{group}-{number}"


def _placed(snapshot: Snapshot, plan: Plan) -> tuple[Pod, ...]:
    """Return the pods on the nodes where the plan expects them; the others wait."""
    node_of: Mapping[str, str] = {
        pod: _name(place.group, place.number)
        for place in plan.promises
        if place.group
        for pod in place.pods
    }
    return tuple(
        msgspec.structs.replace(
            pod, node=node_of[pod.key], phase="Running", scheduled="True", scheduled_reason=""
        )
        if pod.key in node_of
        else pod
        for pod in snapshot.pods
    )


# -- for people and programs


def _blocks(title: str, estimate: ManagedEstimate) -> Iterator[Block]:
    bill = estimate.bill
    yield "\n".join(_lines(title, estimate))
    rows = tuple(_machine_row(growth) for growth in _by_price(estimate.plan))
    columns = ("managed pool", "machine", "nodes", "pods", "price an hour")
    yield Table(columns, rows, title="Machines", right=frozenset({2, 3}))
    refused = tuple((some(pods.pods), no_place(pods).line) for pods in estimate.plan.unschedulable)
    if refused:
        yield Table(("pods", "why"), refused, title="Pods without a place on such machines")
    if bill.bound < 0:
        yield "The lower bound is not known: there are too many machines and kinds of pods."


def _lines(title: str, estimate: ManagedEstimate) -> Iterator[str]:
    now, bill = estimate.now, estimate.bill
    if now is None:
        yield f"{title}: no machine has a price now."
    else:
        for present in now.bills:
            machines = counted(sum(row.machines for row in present.groups), "machine")
            yield f"{title}: {_per_hour(present)} per hour now for {machines}."
    nodes = counted(sum(growth.nodes for growth in estimate.plan.scale_ups), "machine")
    yield f"With its managed pools alone: {_per_hour(bill)} per hour for {nodes}."
    if bill.bound >= 0:
        bound = money(bill.bound / MILLION, bill.currency)
        yield f"No choice of such machines for these pods is below {bound} per hour."


def _per_hour(bill: Bill) -> str:
    return money(bill.parts.paid / MILLION, bill.currency)


def _by_price(plan: Plan) -> list[ScaleUp]:
    """Return the purchases, the dearest first."""
    return sorted(plan.scale_ups, key=lambda growth: (-growth.price, growth.group))


def _machine_row(scale_up: ScaleUp) -> tuple[str, ...]:
    choice = scale_up.choice
    assert choice is not None
    price = money(scale_up.price, scale_up.currency)
    return choice.declaration, choice.machine, str(scale_up.nodes), str(len(scale_up.pods)), price


def _data(title: str, estimate: ManagedEstimate) -> dict[str, Any]:
    bill = estimate.bill
    now = [
        {"perHour": present.parts.paid / MILLION, "currency": present.currency}
        for present in (estimate.now.bills if estimate.now is not None else ())
    ]
    machines = [
        {
            "declaration": growth.choice.declaration,
            "type": growth.choice.instance_type,
            "zone": growth.choice.zone,
            "market": growth.choice.market,
            "nodes": growth.nodes,
            "pods": len(growth.pods),
            "perHour": growth.price,
        }
        for growth in _by_price(estimate.plan)
        if growth.choice is not None
    ]
    return {
        "cluster": title,
        "now": now,
        "managed": {
            "perHour": bill.parts.paid / MILLION,
            "currency": bill.currency,
            "lowerBound": bill.bound / MILLION if bill.bound >= 0 else None,
            "machines": machines,
        },
        "withoutPlace": [pod for pods in estimate.plan.unschedulable for pod in pods.pods],
    }
