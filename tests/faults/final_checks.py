"""Final checks after all faults have stopped: within an hour and a half the system is
idle in a correct state.

The simulated scheduler, which shares no code with the planner, decides which pods could
be placed: a pod may stay pending only if no node accepts it, nor would an empty new node of a
group that may still scale up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import msgspec

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.machines import outdated_sets
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    NodeView,
    PodView,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.predicates import Nowhere, judge
from infra.emulators.controllers.scheduler.scheduler import waits
from infra.emulators.kube.objects import KubeObject
from tests.faults.cluster import GROUPS
from tests.faults.objects import SCALE_DOWN_DISABLED, is_protected, marks_of, must_move, taint_of
from tests.faults.run_state import HARD, Broken, FaultRun

STRIDE, LIMIT = 60.0, 5400.0
"""Virtual seconds: between two looks, and until everything must be at rest."""
AT_REST = 900.0
"""Virtual seconds for which own groups stay as they are in the end."""
LONGEST = 1200.0
"""Virtual seconds after which an operation must have ended, with the options of cluster.py."""
QUIET = 3
"""Looks in a row without a complaint after which a run is over."""


def finish(m: FaultRun) -> None:
    """Stops all faults, switches the cluster on, and waits until it is idle. Raises Broken."""
    m.world.tell("the faults stop")
    m.world.weather.clear()
    m.world.topic.healthy = True
    if m.own is not None:
        m.own.heal()
    for name in m.silent:
        m.world.cluster.kubelets.revive(name)
    m.silent.clear()
    m.mode = "active"
    m.apply_policy()
    began, quiet = m.world.clock(), 0
    begun = {operation.spec.id for operation in m.world.operations()} | _replacements(m).keys()
    while quiet < QUIET:
        m.world.step(STRIDE)
        m.take_machines()
        m.check()
        complaints = [*restless(m), *_unfinished(m, begun)]
        quiet = 0 if complaints else quiet + 1
        if complaints and m.world.clock() - began > LIMIT:
            raise Broken(
                m.report(
                    [
                        f"{LIMIT / 60:.0f} minutes after the last fault: {each}"
                        for each in complaints
                    ]
                )
            )
    if m.own is not None and not m.consolidates:  # nodes grow old
        machines = m.own.machines()
        m.world.step(AT_REST)
        m.check()
        if m.own.machines() != machines:
            raise Broken(m.report(["a machine is bought or removed without a reason"]))
    wrong = m.world.topic.problems()
    if wrong:
        raise Broken(m.report([f"notifications: {each}" for each in wrong]))


def restless(m: FaultRun) -> Iterator[str]:
    """Returns what is not in its final state."""
    operations, audit = m.world.operations(), m.world.audit
    leaving = {target.node for operation in operations for target in operation.spec.targets}
    machines = {
        each["metadata"]["name"]: each for each in m.world.kube.list("machines", group=fields.GROUP)
    }
    for node in m.world.kube.list("nodes"):
        name = node["metadata"]["name"]
        if name in leaving or "deletionTimestamp" in machines.get(name, node)["metadata"]:
            continue
        if taint_of(node, HARD) is not None:
            yield f"node {name} still carries our taint"
        if (
            node["spec"].get("unschedulable")
            and name not in audit.cordoned_by_users | audit.taken_over
        ):
            yield f"node {name} is cordoned, and no person did it"
    yield from (f"the vendor takes {name} back in a moment" for name in m.notices)
    yield from _waiting(m)
    yield from _marks_left(m, leaving)
    yield from _sick(m)
    if m.own is not None:
        yield from m.own.restless()


def _sick(m: FaultRun) -> Iterator[str]:
    """Nodes that should have been repaired, and that nothing holds."""
    audit, now = m.world.audit.due_nodes, m.world.clock()
    if audit is None:
        return
    nodes = m.world.audited_nodes()
    failed = {
        name
        for row in m.world.store.memory.look(m.world.name).replacements.values()
        for name in row.nodes
    }
    for name, node in nodes.items():
        due = audit.sick_since(name)
        if due is None or due > now or not m.machine_stays(name):
            continue
        least, most = m.bounds[node.group]
        is_fixed = least >= m.world.size(node.group) >= most  # it may neither grow nor shrink
        stuck = is_fixed or _is_of_another_set(m, name) or audit.too_many_sick(node.group)
        pods = [pod for pod in m.world.kube.pods_on(name) if must_move(pod)]
        has_to_wait = m.world.size(node.group) >= most and _has_more_than_budgets_allow(m, pods)
        held = (
            stuck
            or has_to_wait
            or name in failed
            or _is_held(m, name)
            or not _fit_one_node(m, pods, node.group)
        )
        if not held:
            yield f"node {name} should have been repaired {now - due:.0f} s ago"


def _is_of_another_set(m: FaultRun, name: str) -> bool:
    """Whether the group of a node has machines of several templates, and would give up another one
    than this: only those of the one outdated set can be chosen."""
    machines = {
        each["metadata"]["name"]: each for each in m.world.kube.list("machines", group=fields.GROUP)
    }
    owner_of = {key: each["metadata"]["ownerReferences"][0] for key, each in machines.items()}
    label = machines[name]["metadata"]["labels"][fields.DEPLOYMENT_NAME]
    used = {
        owner_of[key]["uid"]
        for key, each in machines.items()
        if each["metadata"]["labels"][fields.DEPLOYMENT_NAME] == label
    }
    outdated = outdated_sets(m.world.kube.list("machinesets", group=fields.GROUP)) & used
    return len(used) > 1 and outdated != {owner_of[name]["uid"]}


def _has_more_than_budgets_allow(m: FaultRun, pods: Iterable[KubeObject]) -> bool:
    """Whether these pods cannot all be away at once: those of a node that goes before
    its successor comes are."""
    of_app = Counter((pod["metadata"].get("labels") or {}).get("app") for pod in pods)
    return any(
        of_app[each["spec"]["selector"]["matchLabels"]["app"]]
        > (each.get("status") or {}).get("disruptionsAllowed", 0)
        for each in m.world.kube.list("poddisruptionbudgets", group="policy")
    )


def _fit_one_node(m: FaultRun, pods: Iterable[KubeObject], group: str) -> bool:
    """Whether an empty new node of a group takes all these pods: those that a person bound to their
    node may not fit any, and then no successor is bought."""
    fresh, others = _new_node(group), [read_node(node) for node in m.world.kube.list("nodes")]
    placed: list[PodView] = []
    for pod in pods:
        view = msgspec.structs.replace(read_pod(pod), node="")
        if not _fits(view, fresh, others, placed):
            return False
        placed.append(msgspec.structs.replace(view, node=fresh.name))
    return True


def _is_held(m: FaultRun, name: str) -> bool:
    """Whether a person or a pod keeps a node."""
    kube = m.world.kube
    node = kube.peek("nodes", name)
    pods = [pod for pod in kube.pods_on(name) if must_move(pod)]
    budgets = kube.list("poddisruptionbudgets", group="policy")
    spent = {
        each["spec"]["selector"]["matchLabels"]["app"]
        for each in budgets
        if not (each.get("status") or {}).get("disruptionsAllowed")
    }
    return (
        node is None
        or SCALE_DOWN_DISABLED in marks_of(node)
        or any(
            is_protected(pod) or (pod["metadata"].get("labels") or {}).get("app") in spent
            for pod in pods
        )
    )


def _marks_left(m: FaultRun, leaving: Collection[str]) -> Iterator[str]:
    """Instances that stay and still have a taint or annotation of ours
    (tests/scenario/test_scenario_abandoned_delete_annotation.py)."""
    for machine in m.world.kube.list("machines", group=fields.GROUP):
        name = machine["metadata"]["name"]
        if (
            "deletionTimestamp" not in machine["metadata"]
            and name not in leaving
            and (marks_of(machine).get(fields.DELETE_MACHINE, "").startswith("outscaler/"))
        ):
            yield f"machine {name} still carries our mark"


def _unfinished(m: FaultRun, begun: Collection[str]) -> Iterator[str]:
    """Operations that were open when the faults stopped, and any that exceed their maximum age."""
    for operation in m.world.operations():
        age = m.world.clock() - operation.spec.created_at
        if operation.spec.id in begun or age > LONGEST:
            step = operation.status.step or "its beginning"
            yield (
                f"operation {operation.spec.id} is {operation.status.state.value} at {step} after "
                f"{age:.0f} s"
            )
    yield from (
        f"replacement {name} is {state}"
        for name, state in _replacements(m).items()
        if name in begun
    )


def _replacements(m: FaultRun) -> dict[str, str]:
    audit = m.world.audit.replacements
    return audit.unfinished() if audit is not None else {}


def _waiting(m: FaultRun) -> Iterator[str]:
    pods = [read_pod(pod) for pod in m.world.kube.list("pods")]
    pending = [pod for pod in pods if waits(pod)]
    if not pending:
        return
    nodes = [read_node(node) for node in m.world.kube.list("nodes")]
    for name in sorted(GROUPS):
        size = m.world.size(name)
        if size >= m.bounds[name][1]:
            continue
        fresh = _new_node(name)
        for pod in pending:
            if _fits(pod, fresh, nodes, pods):
                yield (
                    f"pod {pod.name} waits although group {name} ({size} of {m.bounds[name][1]}) "
                    "could take it"
                )


def _new_node(name: str) -> NodeView:
    """An empty new node of a group."""
    group = GROUPS[name]
    return read_node(
        objects.node(
            "fresh",
            f"{int(group.cpu) * 1000 - 100}m",
            "15Gi",
            labels=group.labels,
            taints=[
                {"key": "pool", "value": "batch", "effect": "NoSchedule"} for _ in group.taints
            ],
        )
    )


def _fits(pod: PodView, fresh: NodeView, nodes: list[NodeView], pods: list[PodView]) -> bool:
    verdict = judge(pod, ClusterView([*nodes, fresh], pods))
    return not isinstance(verdict, Nowhere) and not verdict(fresh)
