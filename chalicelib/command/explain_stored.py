"""`outscaler explain … --cluster NAME`: explains the last decision that the deployment made about a cluster.

The journal keeps the plan with all its reasons, but not the objects of the cluster: requests, labels and taints are not
shown. Neither a kubeconfig nor a vendor's credentials are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chalicelib.command import explain_group, explain_node, explain_pod, explain_view
from chalicelib.command.explain_view import ExplainContext, Explanation, weakening
from chalicelib.command.name_lookup import named, namespaced
from chalicelib.command.output import emit
from chalicelib.command.plan_inputs import PlanInputs, PlannedCase
from chalicelib.command.store_access import open_store, stored_policy
from chalicelib.command.stored_decision import required_decision
from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time

if TYPE_CHECKING:
    from chalicelib.record.last_decision import LastDecision
    from chalicelib.store import Store


def run(args: argparse.Namespace) -> int:
    """Print the explanation and return 0. Raises BadInput for an unknown cluster or name, and where no decision is
    stored."""
    store = open_store(args)
    stored_policy(store, args.cluster)
    decision = required_decision(store, args.cluster)
    scene = _scene(store, args.cluster, decision)
    answer = _KINDS[args.kind](scene, args.name)
    document = explain_view.as_document(answer, scene) | {"confirmedAt": format_time(decision.confirmed_at)}
    as_of = f"Decided at {format_time(decision.at)}, and the same in the pass of {format_time(decision.confirmed_at)}."
    emit(args.output, document, lambda: [as_of, *explain_view.as_blocks(answer, scene)])
    return 0


def _scene(store: Store, cluster: str, decision: LastDecision) -> ExplainContext:
    plan, memory = decision.plan, store.memory.look(cluster)
    nodes = tuple(Node(name, {}, {}) for name in node_names(plan))
    snapshot = Snapshot(cluster=cluster, taken_at=plan.at, nodes=nodes)
    case = PlanInputs(snapshot, _policy(store, cluster), memory, plan.at, 0, None, (), 0.0)
    return ExplainContext(case, PlannedCase(plan, memory, {}))


def _policy(store: Store, cluster: str) -> Policy:
    """Return the policy in force; without settings where this release cannot read it: it only adds details."""
    from chalicelib.policy.load import load

    try:
        return load(stored_policy(store, cluster).text, place=f"policy {cluster}")[0]
    except BadInput:
        return Policy(name=cluster)


def node_names(plan: Plan) -> tuple[str, ...]:
    """Return the nodes of the cluster: a plan has a verdict about each."""
    found = {each.node for each in plan.unremovable} | {each.node for each in plan.removals} | set(plan.unneeded)
    return tuple(sorted(found))


def pod_keys(plan: Plan) -> frozenset[str]:
    """Return the pods that the plan names, as namespace/name."""
    lists = (
        *(each.pods for each in plan.unschedulable),
        *(each.pods for each in plan.ignored),
        *(each.pods for each in plan.scale_ups),
        plan.fits_existing,
        *(each.evict for each in plan.removals),
    )
    return frozenset(key for pods in lists for key in pods) | {each.pod for each in plan.unremovable if each.pod}


def _pod(context: ExplainContext, name: str) -> Explanation:
    plan = context.plan
    key = namespaced(name, {each: each for each in pod_keys(plan)}, "explain pod", "pod of the last decision")
    part = explain_pod.pending(context, key, bound=False)
    if part is not None:
        gaps = weakening(plan, removal=False, name=key)
        return Explanation("pod", key, (part.says,), part.data, tables=part.tables, gaps=gaps)
    says, data = _bound(plan, key)
    return Explanation("pod", key, (says,), data, gaps=weakening(plan, removal=True, name=key))


def _bound(plan: Plan, key: str) -> tuple[str, dict[str, Any]]:
    removal = next((each for each in plan.removals if key in each.evict), None)
    if removal is not None:
        to = removal.destinations.get(key, "")
        room = f", and there is room for it on {to}" if to else ""
        says = f"Pod {key} is evicted from node {removal.node}, which is removed{room}."
        return says, {"verdict": "runs", "node": removal.node, "nodeVerdict": "removed"}
    blocked = next(each for each in plan.unremovable if each.pod == key)
    why = explain_view.coded(blocked.reason)
    says = f"Pod {key} keeps node {blocked.node}: {why['message']}."
    return says, {"verdict": "runs", "node": blocked.node, "nodeVerdict": "stays", "nodeReason": why}


def _node(context: ExplainContext, name: str) -> Explanation:
    plan = context.plan
    named(name, {each: each for each in node_names(plan)}, "explain node", "node of the last decision")
    says, data = explain_node.fate(context, name)
    return Explanation("node", name, says, data, gaps=weakening(plan, removal=True, node=name))


_KINDS: dict[str, Callable[[ExplainContext, str], Explanation]] = {
    "pod": _pod,
    "node": _node,
    "group": explain_group.answer,
}
