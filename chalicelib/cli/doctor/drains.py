"""Checks of pods and PodDisruptionBudgets that hold their nodes for ever, whatever happens.

A budget without an eviction at present is no finding by itself, because pods become ready again.
Pods are counted by drain rule, from the planner's own verdicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from chalicelib.cli.doctor.finding import QUESTIONS, DoctorContext, Finding, Severity, finding
from chalicelib.model.errors import MALFORMED
from chalicelib.model.memory import Memory
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.pod import Pod
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster

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


class _DeclaredBudget(msgspec.Struct, frozen=True):
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


def _amount(value: int | str, expected: int) -> int:
    """Return a number of pods; a percentage is rounded up, as Kubernetes does."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        return expected
    return -(-int(digits) * expected // 100) if value.endswith("%") else int(digits)


def _declared_budgets(context: DoctorContext) -> Iterator[_DeclaredBudget]:
    for page in context.cluster.list_pages(_PATH):
        for raw in msgspec.json.decode(page.body, type=_Budgets).items or ():
            try:
                yield msgspec.json.decode(raw, type=_DeclaredBudget)
            except MALFORMED:
                continue


def check_budgets(context: DoctorContext) -> Iterator[Finding]:
    """DR18: budgets that never allow an eviction. DR20: budgets whose crashing pods block."""
    yield from itertools.islice(_budget_findings(context), _MOST)


def _budget_findings(context: DoctorContext) -> Iterator[Finding]:
    for budget in _declared_budgets(context):
        spec, status, text = budget.spec, budget.status, f"PodDisruptionBudget {budget.key}"
        if status.expected_pods <= 0:
            continue
        if budget.most_disrupted <= 0:
            bound = f"minAvailable {spec.min_available}"
            if spec.max_unavailable is not None:
                bound = f"maxUnavailable {spec.max_unavailable}"
            text += (
                f" allows 0 disruptions and always will: {bound} of {status.expected_pods} replicas"
            )
            yield finding("DR18", text, budget=budget.key, expectedPods=status.expected_pods)
        elif status.current_healthy == 0 < status.desired_healthy and (
            spec.unhealthy_pod_eviction_policy != "AlwaysAllow"
        ):
            text += f": {status.expected_pods} of its pods are not ready and block their nodes"
            yield finding("DR20", text, budget=budget.key, unready=status.expected_pods)
        elif status.disruptions_allowed == 0:
            text += " allows no eviction at present"
            fix = "nothing to do: it allows one when its pods are ready again"
            yield finding("DR18", text, severity=Severity.INFO, fix=fix)


def check_overlaps(context: DoctorContext) -> Iterator[Finding]:
    """DR19: pods under several budgets, which the eviction API never evicts."""
    snapshot = context.required_snapshot
    names_by_class = [  # pods are many, classes are few
        tuple(
            f"{budget.namespace}/{budget.name}"
            for budget in snapshot.budgets
            if budget.namespace == pod_class.namespace
            and budget.selector is not None
            and budget.selector.matches(pod_class.labels)
        )
        for pod_class in snapshot.classes
    ]
    pods_by_names: dict[tuple[str, ...], list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node and len(names := names_by_class[pod.cls]) > 1:
            pods_by_names.setdefault(names, []).append(pod)
    for names, pods in list(pods_by_names.items())[:_MOST]:
        shown = ", ".join(pod.key for pod in pods[:3])
        text = (
            f"pods {shown} are under the budgets {' and '.join(names)}: the eviction API refuses "
            "them for good"
        )
        yield finding("DR19", text, budgets=list(names), pods=[pod.key for pod in pods[:_MOST]])


# -- drain rules -----------------------------------------------------------------------------------

MANY = 0.25
"""Share of the nodes of node groups from which held nodes are a warning."""
UNNEEDED = 86400.0


def check_drains(context: DoctorContext) -> Iterator[Finding]:
    """DR21: nodes that no drain can empty, by rule. DR22: nodes held by
    kube-system pods without a budget."""
    grouped = {
        instance.node
        for group in context.required_snapshot.groups
        for instance in group.instances
        if instance.node
    }
    blocked = [verdict for verdict in _blocked_nodes(context) if verdict.node in grouped]
    if not blocked:
        return
    by_rule: dict[str, list[NodeVerdict]] = {}
    for verdict in blocked:
        by_rule.setdefault(verdict.reason.drain_rule, []).append(verdict)
    rules = sorted(by_rule, key=lambda rule: (-len(by_rule[rule]), rule))
    words = []
    for rule in rules:
        pods = [verdict.pod for verdict in by_rule[rule]]
        words.append(f"{rule} {len(pods)} ({', '.join(pods[:3])}{' …' if len(pods) > 3 else ''})")
    fix_of = {code.value: code.row.fix for code in ReasonCode if code.row.fix}
    fixes = [f"{rule}: {fix_of[rule]}" for rule in rules if rule in fix_of]
    yield finding(
        "DR21",
        f"{len(blocked)} of {len(grouped)} nodes cannot be drained at present: {'; '.join(words)}",
        severity=Severity.WARNING if len(blocked) > MANY * len(grouped) else Severity.INFO,
        fix="\n".join(fixes),
        nodes=len(grouped),
        held={rule: [verdict.node for verdict in by_rule[rule]] for rule in rules},
    )
    system = by_rule.get(ReasonCode.KUBE_SYSTEM, [])
    if system:
        pods = list(dict.fromkeys(verdict.pod for verdict in system))
        command = (
            "kubectl -n kube-system create poddisruptionbudget NAME --selector=k8s-app=NAME "
            "--max-unavailable=1"
        )
        fix = "\n".join([QUESTIONS["DR22"].fix, *(f"# {pod}: {command}" for pod in pods[:3])])
        text = (
            f"pods of kube-system without a budget hold {len(system)} nodes: {', '.join(pods[:3])}"
        )
        nodes = [verdict.node for verdict in system][:100]
        yield finding("DR22", text, fix=fix, pods=pods[:100], nodes=nodes)


def _blocked_nodes(context: DoctorContext) -> Sequence[NodeVerdict]:
    """Return the nodes that a pod blocks. Utilization does not count, since
    it may fall at any time."""
    options = msgspec.structs.replace(
        context.policy.options,
        scale_down_enabled=True,
        scale_down_utilization_threshold=1.0,
        scale_down_gpu_utilization_threshold=1.0,
        ignore_daemonsets_utilization=True,
    )
    policy = msgspec.structs.replace(context.policy, options=options)
    plan, _ = plan_cluster(
        context.required_snapshot,
        policy,
        Memory(),
        context.clock(),
        0,
        assume_unneeded_for=UNNEEDED,
        wait=False,
    )
    return [verdict for verdict in plan.unremovable if verdict.reason.drain_rule]
