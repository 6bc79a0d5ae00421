"""`outscaler explain pod|node|group NAME`: explains the part of the plan about one object, in
sentences with all reasons.

It makes the same plan as `outscaler plan` with the same arguments, and shows only what concerns the
object. With --cluster it explains the last decision of the deployment. The journal keeps the plan
with all its reasons, but not the objects of the cluster: requests, labels and taints are not shown.
Neither a kubeconfig nor a vendor's credentials are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli import explain_group, explain_node, explain_pod, explain_view, plan_inputs
from chalicelib.cli.arguments import named, namespaced, not_one_of
from chalicelib.cli.explain_pod import PodPart
from chalicelib.cli.explain_view import ExplainContext, Explanation, weakening
from chalicelib.cli.managed_machines import (
    FittingMachines,
    capital,
    fitting_machines,
    unopened_machine,
)
from chalicelib.cli.output import emit
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.cli.store_access import (
    add_table_argument,
    check_group,
    open_store,
    required_decision,
    stored_policy,
)
from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.views.cluster_view import coded, node_names

if TYPE_CHECKING:
    from chalicelib.journal.journal import LastDecision
    from chalicelib.model.machine_offers import PodFits
    from chalicelib.model.plan import Plan
    from chalicelib.store import Store

_KINDS: dict[str, Callable[[ExplainContext, str], Explanation]] = {
    "pod": explain_pod.answer,
    "node": explain_node.answer,
    "group": explain_group.answer,
}
_NAMES = {
    "pod": ("pod", "pods", "po"),
    "node": ("node", "nodes", "no"),
    "group": ("group", "groups", "gr"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add KIND, NAME and the input arguments."""
    parser.add_argument(
        "kind", metavar="KIND", type=_kind, help="pod, node or group; KIND/NAME is taken, too"
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a pod as namespace/name, or by its name alone; a node; a group",
    )
    plan_inputs.add_arguments(parser, stored=True)
    add_table_argument(parser)


def _kind(text: str) -> str:
    """Read KIND or KIND/NAME, with kubectl's short names."""
    word, slash, name = text.partition("/")
    kind = next((kind for kind, names in _NAMES.items() if word in names), "")
    if not kind:
        raise argparse.ArgumentTypeError(not_one_of(word, tuple(_NAMES)))
    return f"{kind}{slash}{name}"


def run(args: argparse.Namespace) -> int:
    """Print the explanation; raises BadInput, also for an unknown cluster or name, and
    where no decision is stored."""
    if "/" in args.kind:
        if args.name is not None:
            args.folder = Path(args.name)
        args.kind, _, args.name = args.kind.partition("/")
    if not args.name:
        raise BadInput("NAME", f"is missing: which {args.kind}?", "write its name after the kind")
    if args.cluster is None:
        case = plan_inputs.read(args)
        context = ExplainContext(case, plan_inputs.decided(case))
        answer = _KINDS[args.kind](context, args.name)
        emit(
            args.output,
            explain_view.as_document(answer, context),
            lambda: explain_view.as_blocks(answer, context),
        )
        return 0
    plan_inputs.choose_source(args)
    store = open_store(args)
    stored_policy(store, args.cluster)
    decision = required_decision(store, args.cluster)
    context = _stored_context(store, args.cluster, decision)
    if args.kind == "group" and unopened_machine(context, args.name) is None:
        otherwise = f"; {context.no_offers}" if context.no_offers else ""
        args.name = check_group(
            store, args.cluster, args.name, place="explain group", otherwise=otherwise
        )
    answer = _STORED_KINDS[args.kind](context, args.name)
    document = explain_view.as_document(answer, context) | {
        "confirmedAt": format_time(decision.confirmed_at)
    }
    as_of = (
        f"Decided at {format_time(decision.at)}, and the same in the pass of "
        f"{format_time(decision.confirmed_at)}."
    )
    emit(args.output, document, lambda: [as_of, *explain_view.as_blocks(answer, context)])
    return 0


def _stored_context(store: Store, cluster: str, decision: LastDecision) -> ExplainContext:
    """Return a stored decision. The policy in force only adds details, so one that this release
    cannot read counts as one without settings."""
    from chalicelib.policy.load import load

    plan, memory = decision.plan, store.memory.look(cluster)
    nodes = tuple(Node(name, {}, {}) for name in node_names(plan))
    try:
        policy = load(stored_policy(store, cluster).text, place=f"policy {cluster}")[0]
    except BadInput:
        policy = Policy(name=cluster)
    snapshot = Snapshot(cluster=cluster, taken_at=plan.at, nodes=nodes)
    case = PlanInputs(snapshot, policy, memory, plan.at, 0, None, (), 0.0)
    overview = store.gauge_rings.overview(cluster)
    context = ExplainContext(case, PlannedCase(plan, memory, {}), overview)
    return _with_offers(context, decision.fits, store) if policy.managed_pools else context


def _with_offers(context: ExplainContext, fits: PodFits | None, store: Store) -> ExplainContext:
    """Return the context with what managed pools could buy, or with why that is not known."""
    from chalicelib.store.errors import StoreError

    problem = "no catalogue is stored with this decision"
    if fits is not None:
        try:
            offers = store.journal.offers(context.plan.cluster, fits.offers)
        except StoreError as error:
            problem = f"its catalogue cannot be shown: {error}"
        else:
            if offers is not None:
                return msgspec.structs.replace(context, offers=offers, fits=fits)
    return msgspec.structs.replace(context, no_offers=problem)


def _pod_keys(plan: Plan) -> frozenset[str]:
    """Return the pods that the plan names, as namespace/name."""
    lists = (
        *(verdict.pods for verdict in plan.unschedulable),
        *(ignored.pods for ignored in plan.ignored),
        *(up.pods for up in plan.scale_ups),
        plan.fits_existing,
        *(removal.evict for removal in plan.removals),
    )
    blocking = {verdict.pod for verdict in plan.unremovable if verdict.pod}
    return frozenset(key for pods in lists for key in pods) | blocking


def _stored_pod(context: ExplainContext, name: str) -> Explanation:
    plan = context.plan
    key = namespaced(
        name, {key: key for key in _pod_keys(plan)}, "explain pod", "pod of the last decision"
    )
    part = explain_pod.pending(context, key, bound=False)
    if part is not None:
        gaps = weakening(plan, removal=False, name=key)
        machines = _stored_machines(context, key, part)
        pools = {"managedPools": list(machines.data)} if machines.data else {}
        return Explanation(
            "pod",
            key,
            (part.says, *machines.says),
            part.data | pools,
            tables=(*part.tables, machines.table),
            gaps=gaps,
        )
    removal = next((removal for removal in plan.removals if key in removal.evict), None)
    data: dict[str, Any]
    if removal is not None:
        destination = removal.destinations.get(key, "")
        room = f", and there is room for it on {destination}" if destination else ""
        says = f"Pod {key} is evicted from node {removal.node}, which is removed{room}."
        data = {"verdict": "runs", "node": removal.node, "nodeVerdict": "removed"}
    else:
        blocked = next(verdict for verdict in plan.unremovable if verdict.pod == key)
        why = coded(blocked.reason)
        says = f"Pod {key} keeps node {blocked.node}: {why['message']}."
        data = {"verdict": "runs", "node": blocked.node, "nodeVerdict": "stays", "nodeReason": why}
    return Explanation("pod", key, (says,), data, gaps=weakening(plan, removal=True, name=key))


def _stored_machines(context: ExplainContext, pod: str, part: PodPart) -> FittingMachines:
    """Return what the declarations had for a pod, if it was looked at."""
    if part.data["verdict"] == "notLookedAt":
        return FittingMachines()
    if context.no_offers:
        return FittingMachines((f"{capital(context.no_offers)}.",))
    own = next((fit for fit in context.fits.classes if pod in fit.pods), None)
    if context.offers is None or own is None:
        return FittingMachines()
    return fitting_machines(context.offers, own.pools)


def _stored_fate(context: ExplainContext, name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Say what becomes of a node, and when its vendor takes it back."""
    says, data = explain_node.fate(context, name)
    leaves, notice = explain_node.notice(context, name)
    group = context.overview.group_of.get(name)
    spot = {"spot": group.spot is not None} if group is not None else {}
    return (*says, *leaves), data | notice | spot


def _stored_node(context: ExplainContext, name: str) -> Explanation:
    plan = context.plan
    named(
        name, {node: node for node in node_names(plan)}, "explain node", "node of the last decision"
    )
    says, data = _stored_fate(context, name)
    more, consolidation = explain_node.consolidation(context, name, data)
    due, lifecycle = explain_node.lifecycle(plan, name)
    tables = (explain_node.replacements(context, name),)
    gaps = weakening(plan, removal=True, node=name)
    return Explanation(
        "node",
        name,
        (*says, *more, *due),
        data | consolidation | lifecycle,
        tables=tables,
        gaps=gaps,
    )


_STORED_KINDS: dict[str, Callable[[ExplainContext, str], Explanation]] = {
    "pod": _stored_pod,
    "node": _stored_node,
    "group": explain_group.answer,
}
