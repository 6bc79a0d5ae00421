"""Limits on the scheduling rules of one pod (PER_POD) and of all pods of a cluster (PER_CLUSTER).

A pod may carry 1.5 MB of rules, and a user who may create pods in one namespace may create
thousands. Every rule is compared with every node and with other pods, so one tenant could exhaust
the time and the memory of a pass. The limits are far above real use. Fields that exceed one are
left out of the class, and `PodClass.excess` names the limit: such a pod is not simulated. Its cpu,
memory and ephemeral storage still count, the node it runs on is not removed, and where the omitted
fields may keep other pods away (`PodClass.excess_bars`), no pod is promised a place.

Limits of the cluster are sums over all classes, divided evenly: a namespace that uses no
more than its share loses nothing. The namespaces with the largest use lose first, and of
their classes the costliest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from chalicelib.model.pod import PodAffinityTerm, PodClass, SpreadConstraint
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY
from chalicelib.model.selector import NodeTerm, Requirement, Selector

_CORE = (CPU, MEMORY, EPHEMERAL)


class Cap(msgspec.Struct, frozen=True):
    """One limit of a pod. drops: the fields of its class that are left out beyond it; bars: whether
    the omitted fields may keep other pods off its node."""

    what: str
    most: int
    count: Callable[[PodClass], int]
    drops: tuple[str, ...]
    bars: bool = False


class Total(msgspec.Struct, frozen=True):
    """One limit of a cluster. uses: the distinct items that a class counts for. weigher: returns,
    for all classes, a function that weighs one item; each weighs 1 without it."""

    what: str
    most: int
    uses: Callable[[PodClass], Iterable[Hashable]]
    weigher: Callable[[Sequence[PodClass]], Callable[[Hashable], int]] | None = None


def _terms(pod_class: PodClass) -> tuple[PodAffinityTerm, ...]:
    return (*pod_class.pod_affinity, *pod_class.pod_anti_affinity)


def _spreads(pod_class: PodClass) -> tuple[SpreadConstraint, ...]:
    return (*pod_class.spread, *pod_class.preferred_spread)


def _selectors(pod_class: PodClass) -> list[Selector]:
    terms = _terms(pod_class)
    selectors = [term.selector for term in terms]
    selectors += [term.namespace_selector for term in terms]
    selectors += [constraint.selector for constraint in _spreads(pod_class)]
    return [selector for selector in selectors if selector is not None]


def _expressions(pod_class: PodClass) -> int:
    keys = sum(len(constraint.match_label_keys) for constraint in _spreads(pod_class))
    return keys + len(_requirements(_selectors(pod_class)))


def _requirements(selectors: Iterable[Selector]) -> list[Requirement]:
    return [rule for selector in selectors for rule in selector.requirements]


def _values(pod_class: PodClass) -> int:
    namespaces = sum(len(term.namespaces) for term in _terms(pod_class))
    rules = _requirements(_selectors(pod_class))
    return namespaces + sum(len(rule.values) for rule in rules)


def _claim_selectors(pod_class: PodClass) -> list[Selector]:
    templates = (volume.template for volume in pod_class.volumes)
    selectors = (template.selector for template in templates if template is not None)
    return [selector for selector in selectors if selector is not None]


def _claim_expressions(pod_class: PodClass) -> int:
    return _weight(_requirements(_claim_selectors(pod_class)))


def _weight(rules: Iterable[Requirement]) -> int:
    """Return how many expressions rules count for: one each, and one for every ten values."""
    return sum(1 + len(rule.values) // 10 for rule in rules)


def _node_rules(pod_class: PodClass) -> list[Requirement]:
    rules: list[Requirement] = []
    for term in _node_terms(pod_class):
        rules += term.expressions
        rules += term.fields
    return rules


def _node_terms(pod_class: PodClass) -> list[NodeTerm]:
    required = pod_class.required_affinity or ()
    preferred = [preference.term for preference in pod_class.preferred_nodes]
    return [*required, *preferred]


_AFFINITY = ("required_affinity", "preferred_nodes")
_NEIGHBOURS = ("pod_affinity", "pod_anti_affinity", "spread", "preferred_spread")

PER_POD: tuple[Cap, ...] = (
    Cap("host ports", 100, lambda cls: len(cls.ports), ("ports",), bars=True),
    Cap("resource names", 32, lambda cls: len(cls.requests), ("requests",), bars=True),
    Cap("labels", 250, lambda cls: len(cls.labels), ("labels",), bars=True),
    Cap("node selector entries", 100, lambda cls: len(cls.node_selector), ("node_selector",)),
    Cap("node affinity terms", 100, lambda cls: len(_node_terms(cls)), _AFFINITY),
    Cap("node affinity expressions", 500, lambda cls: len(_node_rules(cls)), _AFFINITY),
    Cap(
        "node affinity values",
        5_000,
        lambda cls: sum(len(rule.values) for rule in _node_rules(cls)),
        _AFFINITY,
    ),
    Cap("pod affinity terms", 20, lambda cls: len(cls.pod_affinity), ("pod_affinity",)),
    Cap(
        "pod anti-affinity terms",
        20,
        lambda cls: len(cls.pod_anti_affinity),
        ("pod_anti_affinity",),
        bars=True,
    ),
    Cap(
        "topology spread constraints",
        20,
        lambda cls: len(_spreads(cls)),
        ("spread", "preferred_spread"),
    ),
    Cap("label selector expressions", 200, _expressions, _NEIGHBOURS, bars=True),
    Cap("label selector values", 1_000, _values, _NEIGHBOURS, bars=True),
    Cap("tolerations", 250, lambda cls: len(cls.tolerations), ("tolerations",)),
    Cap("volumes", 250, lambda cls: len(cls.volumes), ("volumes",), bars=True),
    Cap(
        "volume monitors",
        250,
        lambda cls: sum(len(volume.monitors) for volume in cls.volumes),
        ("volumes",),
        bars=True,
    ),
    Cap(
        "expressions of claims of ephemeral volumes",
        50,
        _claim_expressions,
        ("volumes",),
        bars=True,
    ),
    Cap("resource claims", 100, lambda cls: len(cls.resource_claims), ("resource_claims",)),
    Cap("scheduling gates", 100, lambda cls: len(cls.gates), ("gates",)),
)
CONTAINERS = 500
"""Maximum containers of a pod, init containers included. They are not part of a class, so they are
counted when it is created."""


def _rules(pod_class: PodClass) -> Iterable[tuple[str, PodAffinityTerm | SpreadConstraint]]:
    namespace = pod_class.namespace
    for term in _terms(pod_class):
        yield namespace, term
    for constraint in _spreads(pod_class):
        yield namespace, constraint


def _claim_rules(pod_class: PodClass) -> Iterable[Hashable]:
    for selector in set(_claim_selectors(pod_class)):
        for at in range(len(selector.requirements)):
            yield selector, at


def _comparisons(classes: Sequence[PodClass]) -> Callable[[Hashable], int]:
    """Return how many expressions are evaluated to find the pods that a rule of `_rules` selects. A
    selector that requires a value of a label is evaluated on the classes with that label
    (plan/simulation/pod_constraints.py), any other one on all classes."""
    rules = [rule for cls in classes for _, rule in _rules(cls)]
    labels = [_required_label(rule.selector) for rule in rules]
    keys = {label.key for label in labels if label is not None}
    classes_with: Counter[tuple[str, str]] = Counter()
    for cls in classes:
        classes_with.update((key, cls.labels[key]) for key in keys & cls.labels.keys())

    def weigh(used: Hashable) -> int:
        _, rule = cast("tuple[str, PodAffinityTerm | SpreadConstraint]", used)
        label = _required_label(rule.selector)
        compared_classes = len(classes)
        if label is not None:
            compared_classes = sum(classes_with[label.key, value] for value in label.values)
        namespaces = rule.namespace_selector if isinstance(rule, PodAffinityTerm) else None
        selectors = [selector for selector in (rule.selector, namespaces) if selector is not None]
        expressions = _weight(_requirements(selectors))
        return compared_classes * max(1, expressions)

    return weigh


def _required_label(selector: Selector | None) -> Requirement | None:
    if not selector:
        return None
    return next((rule for rule in selector.requirements if rule.operator == "In"), None)


PER_CLUSTER: tuple[Total, ...] = (
    Total(
        "distinct resource names",
        256,
        lambda cls: [name for name in cls.requests if name not in _CORE],
    ),
    Total("distinct rules about other pods", 4_000, _rules),
    Total("comparisons of rules with distinct pods", 4_000_000, _rules, _comparisons),
    Total("expressions of claims of ephemeral volumes of all pods", 5_000, _claim_rules),
    Total(
        "host ports of distinct pods", 10_000, lambda cls: [(id(cls), port) for port in cls.ports]
    ),
    Total(
        "claims and disks of distinct pods",
        50_000,
        lambda cls: [(id(cls), volume.name) for volume in cls.volumes],
    ),
)
_FEW = 32  # at most the smallest limit of PER_POD without rules
_EMPTY: dict[str, Any] = {"required_affinity": None, "labels": {}, "node_selector": {}}
_RULES = ("ports", *_NEIGHBOURS, "volumes")


def within(pod_class: PodClass, containers: int = 0) -> PodClass:
    """Return the class without the fields that exceed a limit of one pod; the
    same object if none does."""
    if _is_plain(pod_class) and containers <= CONTAINERS:
        return pod_class
    exceeded = [cap for cap in PER_POD if cap.count(pod_class) > cap.most]
    reasons = [f"{cap.count(pod_class)} {cap.what}, at most {cap.most}" for cap in exceeded]
    if containers > CONTAINERS:
        reasons.append(f"{containers} containers, at most {CONTAINERS}")
    if not reasons:
        return pod_class
    fields = {name for cap in exceeded for name in cap.drops}
    bars = any(cap.bars for cap in exceeded)
    return _without(pod_class, fields, reasons[0], bars=bars)


def _is_plain(pod_class: PodClass) -> bool:
    """Return whether a class has no rules and so few of everything else that no limit
    can be exceeded, as most have. Asked first, because counting all limits takes longer
    than creating the class."""
    rules = (
        pod_class.required_affinity,
        pod_class.preferred_nodes,
        pod_class.resource_claims,
        pod_class.gates,
    )
    lists = (
        pod_class.ports,
        pod_class.requests,
        pod_class.labels,
        pod_class.node_selector,
        pod_class.tolerations,
    )
    return not (
        any(rules)
        or _terms(pod_class)
        or _spreads(pod_class)
        or sum(map(len, lists)) > _FEW
        or len(pod_class.volumes) > _FEW
        or any(volume.template or volume.monitors for volume in pod_class.volumes)
    )


def _without(pod_class: PodClass, fields: Iterable[str], excess: str, *, bars: bool) -> PodClass:
    empty: dict[str, Any] = {name: _EMPTY.get(name, ()) for name in fields}
    if "requests" in empty:
        requests = pod_class.requests.items()
        empty["requests"] = {name: amount for name, amount in requests if name in _CORE}
    return msgspec.structs.replace(pod_class, **empty, excess=excess, excess_bars=bars)


def share_out(classes: Sequence[PodClass]) -> tuple[PodClass, ...]:
    """Return the classes, with rules removed from those beyond a limit of the cluster."""
    shared = list(classes)
    for total in PER_CLUSTER:
        uses = [frozenset(total.uses(cls)) for cls in shared]
        distinct = frozenset[Hashable]().union(*uses)
        weights = dict.fromkeys(distinct, 1)
        if total.weigher is not None and distinct:
            weigh = total.weigher(shared)
            weights = {item: weigh(item) for item in distinct}
        if sum(weights.values()) <= total.most:
            continue
        for at in _beyond(shared, uses, weights, total.most):
            shared[at] = _without_rules(shared[at], total)
    return tuple(shared)


def _without_rules(pod_class: PodClass, total: Total) -> PodClass:
    """Return a class that is beyond a limit of the cluster without what counts for any of them."""
    rare_resources = pod_class.requests.keys() - set(_CORE)
    bars = bool(
        pod_class.ports or pod_class.pod_anti_affinity or pod_class.volumes or rare_resources
    )
    share = f"the pods of namespace {pod_class.namespace} have more than its share of {total.most}"
    excess = pod_class.excess or f"{total.what}: {share}"
    return _without(pod_class, ("requests", *_RULES), excess, bars=bars or pod_class.excess_bars)


def _beyond(
    classes: Sequence[PodClass],
    uses: Sequence[frozenset[Hashable]],
    weights: Mapping[Hashable, int],
    most: int,
) -> list[int]:
    """Return which classes lose their items, so that the rest uses no more than `most`."""

    def weight_of(items: Iterable[Hashable]) -> int:
        return sum(weights[item] for item in items)

    by_namespace: dict[str, list[int]] = {}
    items_of: dict[str, set[Hashable]] = {}
    for at, cls in enumerate(classes):
        if uses[at]:
            by_namespace.setdefault(cls.namespace, []).append(at)
            items_of.setdefault(cls.namespace, set()).update(uses[at])
    sums = {namespace: weight_of(items) for namespace, items in items_of.items()}
    share = _level(sorted(sums.values()), most)
    excluded: list[int] = []
    for namespace in sorted(name for name, total in sums.items() if total > share):
        costs = {at: weight_of(uses[at]) for at in by_namespace[namespace]}
        used: set[Hashable] = set()
        spent = 0
        for at in sorted(costs, key=lambda at: (costs[at], at)):
            more = weight_of(uses[at] - used)
            if spent + more <= share:
                used |= uses[at]
                spent += more
            else:
                excluded.append(at)
    return excluded


def _level(sizes: Sequence[int], most: int) -> int:
    """Return the largest equal share if namespaces that need less leave the rest to the others."""
    rest = most
    for at, size in enumerate(sizes):
        share = rest // (len(sizes) - at)
        if size > share:
            return share
        rest -= size
    return most
