"""Whether a pod may be moved off its node: the drain rules, in upstream's order, and the
disruptions that PodDisruptionBudgets still allow. The first decisive rule counts, and a
pod without one is movable.

A rule gets all three arguments of the table and uses those that it needs. drainability
(candidates.py) asks the rules for each class of pods; operations/drain_recheck.py asks them again
before the first eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Controller, Snapshot
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.policy.settings.cluster_options import Options

KNOWN_CONTROLLERS = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")
"""Controllers that recreate a pod on another node."""


class Action(StrEnum):
    """What happens to the pod when its node is removed."""

    SKIP = "skip"  # it is ignored
    MOVE = "move"  # evicted; must find a place on another node
    EVICT = "evict"  # evicted on a best-effort basis; needs no place
    WAIT = "wait"  # the node waits for it to complete
    BLOCK = "block"  # it blocks the removal of the node


class Verdict(msgspec.Struct, frozen=True):
    """An action; for BLOCK also the rule's reason."""

    action: Action
    reason: Reason | None = None


MOVABLE = Verdict(Action.MOVE)
SKIP = Verdict(Action.SKIP)
EVICT = Verdict(Action.EVICT)
WAIT = Verdict(Action.WAIT)


def _block(code: ReasonCode, **params: str | int) -> Verdict:
    return Verdict(Action.BLOCK, Reason.of(code, **params))


class DrainContext(msgspec.Struct, frozen=True):
    """Inputs of a drain rule. controllers: by (kind, namespace, name); controller_kinds: the
    kinds that could be read."""

    now: float
    options: Options
    controllers: Mapping[tuple[str, str, str], Controller]
    controller_kinds: frozenset[str]
    budgets: PodDisruptionBudgets

    @classmethod
    def of(
        cls, snapshot: Snapshot, options: Options, now: float, budgets: PodDisruptionBudgets
    ) -> DrainContext:
        """Return the context for the controllers of a snapshot."""
        controllers = {(c.kind, c.namespace, c.name): c for c in snapshot.controllers}
        return cls(now, options, controllers, frozenset(snapshot.controller_kinds), budgets)


# -- pods that are ignored


def mirror(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Mirror pods belong to their kubelet; they go with the node and are not moved."""
    return SKIP if pod_class.mirror else None


def long_terminating(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """A pod that should have been gone over 30 seconds ago is ignored."""
    return SKIP if is_long_terminating(pod, context.now) else None


def is_long_terminating(pod: Pod, now: float) -> bool:
    """Return whether deletionTimestamp + grace + 30 s is past."""
    return bool(pod.deleted) and pod.deleted + pod.deletion_grace + 30.0 < now


# -- pods whose controller forbids removal, whatever their annotations say


def replica_count(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """The controller exists and has enough replicas. This rule comes before "safe to evict" because
    a pod whose controller is gone would not be recreated. It applies only with
    skipNodesWithCustomControllerPods, and to controller kinds that could be read; a controller of
    another API group is never read."""
    if pod_class.owner is None or not context.options.skip_nodes_with_custom_controller_pods:
        return None
    kind, name = pod_class.owner.kind, pod_class.owner.name
    if kind not in context.controller_kinds or not pod_class.owner.built_in:
        return None
    controller = context.controllers.get((kind, pod.namespace, name))
    if controller is None:
        return _block(ReasonCode.CONTROLLER_NOT_FOUND, controller=f"{kind}/{name}")
    replicas, least = controller.replicas or 0, context.options.min_replica_count
    if kind in {"ReplicaSet", "ReplicationController"} and replicas < least:
        return _block(ReasonCode.MIN_REPLICAS, replicas=replicas, min=least)
    return None


# -- pods that may be evicted


def daemonset(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """DaemonSet pods go with the node; they are evicted on a best-effort basis
    and need no other place."""
    return EVICT if pod_class.is_daemonset else None


def safe_to_evict(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """`safe-to-evict: "true"` makes a pod movable whatever later rules say, including
    PodDisruptionBudgets; the eviction itself still checks those."""
    return MOVABLE if pod_class.safe_to_evict == "true" else None


def terminal(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """A pod that has ended needs no place: Failed, or Succeeded and not to be restarted."""
    ended = pod.phase == "Failed" or (
        pod.phase == "Succeeded" and pod_class.restart_policy in {"Never", "OnFailure"}
    )
    return EVICT if ended else None


def on_completion(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """`safe-to-evict: "on-completion"`: the node may be selected, and the removal waits
    until the pod has completed."""
    return WAIT if pod_class.safe_to_evict == "on-completion" else None


# -- pods that block the removal of their node


def replicated(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """A pod that no controller would recreate blocks removal; by default, so does a pod of an
    unknown kind of controller."""
    owner = pod_class.owner
    if owner is None:
        return _block(ReasonCode.NOT_REPLICATED)
    if (
        context.options.skip_nodes_with_custom_controller_pods
        and owner.kind not in KNOWN_CONTROLLERS
    ):
        return _block(ReasonCode.NOT_REPLICATED, controller=f"{owner.kind}/{owner.name}")
    return None


def system(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """A kube-system pod that no PodDisruptionBudget selects blocks removal.
    blockingSystemPodDistruptionTimeout limits this to the first time of the pod: an older one is
    movable, and later rules are skipped."""
    if (
        not context.options.skip_nodes_with_system_pods
        or pod.namespace != "kube-system"
        or context.budgets.of(pod.cls)
    ):
        return None
    if context.now - pod.created > context.options.blocking_system_pod_disruption_timeout:
        return MOVABLE
    return _block(ReasonCode.KUBE_SYSTEM)


def not_safe_to_evict(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """`safe-to-evict: "false"` blocks the removal of the node until the annotation is removed.
    Only the exact value counts."""
    return _block(ReasonCode.NOT_SAFE_TO_EVICT) if pod_class.safe_to_evict == "false" else None


def local_storage(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Pods with hostPath or emptyDir volumes block removal because data on the node would be
    lost, unless the volume is named in `safe-to-evict-local-volumes` (comma-separated, without
    trimming) or is in memory."""
    if not context.options.skip_nodes_with_local_storage:
        return None
    exempt = pod_class.safe_local_volumes.split(",")
    volumes = (
        v.name
        for v in pod_class.volumes
        if v.kind in {"hostPath", "emptyDir"} and v.name not in exempt
    )
    name = next(volumes, None)
    return _block(ReasonCode.LOCAL_STORAGE, volume=name) if name is not None else None


def pdb(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict | None:
    """Every PodDisruptionBudget that selects the pod allows one more disruption; pods that this
    plan moves already count."""
    budgets = (name for name in context.budgets.spent_by(pod) if context.budgets.left(name) < 1)
    name = next(budgets, None)
    return Verdict(Action.BLOCK, context.budgets.refusal(name)) if name is not None else None


Rule = Callable[[Pod, PodClass, DrainContext], Verdict | None]

RULES: tuple[tuple[str, Rule], ...] = (
    ("Mirror", mirror),
    ("LongTerminating", long_terminating),
    ("ReplicaCount", replica_count),
    ("DaemonSet", daemonset),
    ("SafeToEvict", safe_to_evict),
    ("Terminal", terminal),
    ("OnCompletion", on_completion),
    ("Replicated", replicated),
    ("System", system),
    ("NotSafeToEvict", not_safe_to_evict),
    ("LocalStorage", local_storage),
    ("PDB", pdb),
)
BEFORE_BUDGETS = RULES[:-1]
"""The rules whose verdict does not change during planning."""


def first_verdict(
    pod: Pod,
    pod_class: PodClass,
    context: DrainContext,
    rules: tuple[tuple[str, Rule], ...] = RULES,
) -> Verdict | None:
    """Return the verdict of the first decisive rule; None where no rule
    decides, which means MOVABLE."""
    for _, rule in rules:
        verdict = rule(pod, pod_class, context)
        if verdict is not None:
            return verdict
    return None
