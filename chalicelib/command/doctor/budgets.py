"""Checks of PodDisruptionBudgets that keep nodes for ever: the eviction API refuses their pods, whatever happens.

A budget without an eviction at present is no finding by itself, because pods become ready again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.model.errors import MALFORMED
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.snapshot import Snapshot

_PATH = "/apis/policy/v1/poddisruptionbudgets"
_MOST = 50


class _PdbMeta(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class _PdbSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = ""


class _PdbStatus(msgspec.Struct, frozen=True, rename="camel"):
    expected_pods: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disruptions_allowed: int = 0


class DeclaredBudget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget with what its author wrote."""

    metadata: _PdbMeta
    spec: _PdbSpec = _PdbSpec()
    status: _PdbStatus = _PdbStatus()

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def most_disrupted(self) -> int:
        """Return how many of its pods may be away while all are healthy."""
        expected = self.status.expected_pods
        if self.spec.max_unavailable is not None:
            return _amount(self.spec.max_unavailable, expected)
        if self.spec.min_available is not None:
            return expected - _amount(self.spec.min_available, expected)
        return max(0, expected - self.status.desired_healthy)


class _Budgets(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None


def check_budgets(context: DoctorContext) -> Sequence[Finding]:
    """DR18: budgets that never allow an eviction. DR20: budgets whose crashing pods block."""
    found: list[Finding] = []
    for budget in _declared(context):
        if budget.status.expected_pods <= 0:
            continue
        if budget.most_disrupted <= 0:
            found.append(_never(budget))
        elif _blocked_by_unready(budget):
            found.append(_unready(budget))
        elif budget.status.disruptions_allowed == 0:
            text = f"PodDisruptionBudget {budget.key} allows no eviction at present"
            fix = "nothing to do: it allows one when its pods are ready again"
            found.append(Finding(id="DR18", severity=Severity.INFO, subject="pdb", message=text, fix=fix))
    return found[:_MOST]


def check_overlaps(context: DoctorContext) -> Sequence[Finding]:
    """DR19: pods under several budgets, which the eviction API never evicts."""
    snapshot = context.seen
    of_class = [_budgets_of(snapshot, cls) for cls in snapshot.classes]  # pods are many, classes are few
    pairs: dict[tuple[str, ...], list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node and len(names := of_class[pod.cls]) > 1:
            pairs.setdefault(names, []).append(pod)
    return [
        Finding(
            id="DR19",
            severity=Severity.WARNING,
            subject="pdb",
            message=f"pods {', '.join(pod.key for pod in pods[:3])} are under the budgets {' and '.join(names)}: "
            "the eviction API refuses them for good",
            fix="leave one budget for each pod",
            evidence={"budgets": list(names), "pods": [pod.key for pod in pods[:_MOST]]},
        )
        for names, pods in list(pairs.items())[:_MOST]
    ]


def _budgets_of(snapshot: Snapshot, pod_class: PodClass) -> tuple[str, ...]:
    return tuple(
        f"{each.namespace}/{each.name}"
        for each in snapshot.budgets
        if each.namespace == pod_class.namespace
        and each.selector is not None
        and each.selector.matches(pod_class.labels)
    )


def _declared(context: DoctorContext) -> Iterator[DeclaredBudget]:
    for page in context.cluster.list_pages(_PATH):
        for raw in msgspec.json.decode(page.body, type=_Budgets).items or ():
            try:
                yield msgspec.json.decode(raw, type=DeclaredBudget)
            except MALFORMED:
                continue


def _never(budget: DeclaredBudget) -> Finding:
    spec, expected = budget.spec, budget.status.expected_pods
    if spec.max_unavailable is not None:
        words = f"maxUnavailable {spec.max_unavailable} of {expected} replicas"
    else:
        words = f"minAvailable {spec.min_available} of {expected} replicas"
    return Finding(
        id="DR18",
        severity=Severity.WARNING,
        subject="pdb",
        message=f"PodDisruptionBudget {budget.key} allows 0 disruptions and always will: {words}",
        fix="add a replica, or allow one pod to be away (maxUnavailable: 1)",
        evidence={"budget": budget.key, "expectedPods": expected},
    )


def _blocked_by_unready(budget: DeclaredBudget) -> bool:
    status = budget.status
    return (
        status.current_healthy < status.desired_healthy
        and budget.spec.unhealthy_pod_eviction_policy != "AlwaysAllow"
        and status.current_healthy == 0
    )


def _unready(budget: DeclaredBudget) -> Finding:
    count = budget.status.expected_pods - budget.status.current_healthy
    return Finding(
        id="DR20",
        severity=Severity.WARNING,
        subject="pdb",
        message=f"PodDisruptionBudget {budget.key}: {count} of its pods are not ready and block their nodes",
        fix="set unhealthyPodEvictionPolicy: AlwaysAllow, or correct the pods",
        evidence={"budget": budget.key, "unready": count},
    )


def _amount(value: int | str, expected: int) -> int:
    """Return a number of pods; a percentage is rounded up, as Kubernetes does."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        return expected
    return -(-int(digits) * expected // 100) if value.endswith("%") else int(digits)
