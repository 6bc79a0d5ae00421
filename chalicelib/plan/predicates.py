"""The filters of kube-scheduler that look at one node and one pod, in the scheduler's order.

Here: `static_mask` and `tally` of a class over all rows, and `reasons` for one row. The first
filter that fails gives the reason; NodeResourcesFit names every resource that is short. Not here:
filters over other pods (simulation/pod_topology.py) and over volumes (volumes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from chalicelib.model.node import Taint
from chalicelib.model.pod import PodClass, Toleration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import PODS
from chalicelib.model.selector import NodeTerm
from chalicelib.plan.tables import Bools, Ints, NodeTable
from chalicelib.policy.settings.cluster_options import Options

Mask = Callable[[int, PodClass, NodeTable], Bools]
"""(index of the class, class, table) -> the rows that pass."""
Why = Callable[[int, PodClass, NodeTable, int], tuple[Reason, ...]]
"""(index of the class, class, table, row) -> why the row fails, () if it passes."""

BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_SHOWN_VALUES = 5  # of a requirement that is not met

# -- NodeUnschedulable: a cordoned node takes only pods that tolerate
# `node.kubernetes.io/unschedulable:NoSchedule`


def unschedulable_mask(_at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows that are not cordoned, or all rows if the class tolerates the taint."""
    if untolerated(pod_class.tolerations, (_CORDON,)) is None:
        return np.ones(len(table), dtype=np.bool_)
    return ~table.cordoned


def unschedulable_reasons(
    _at: int, pod_class: PodClass, table: NodeTable, row: int
) -> tuple[Reason, ...]:
    """Return one reason if the row is cordoned and the class does not tolerate the taint."""
    cordoned = (
        table.nodes[row].unschedulable
        and untolerated(pod_class.tolerations, (_CORDON,)) is not None
    )
    return (Reason.of(ReasonCode.UNSCHEDULABLE_NODE),) if cordoned else ()


# -- TaintToleration: every NoSchedule or NoExecute taint needs a matching toleration;
# PreferNoSchedule never blocks


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint: effect empty or equal; key equal, or empty with
    Exists; operator Exists, or Equal with the same value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key != taint.key and not (
        toleration.key == "" and toleration.operator == "Exists"
    ):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator == "Equal" and toleration.value == taint.value


def untolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> Taint | None:
    """Return the first blocking taint without a matching toleration."""
    return next(
        (
            taint
            for taint in taints
            if taint.effect in BLOCKING and not any(tolerates(t, taint) for t in tolerations)
        ),
        None,
    )


def taint_mask(_at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows whose taints are all tolerated; computed once per distinct set of taints."""
    ids, sets = table.taint_sets()
    # Each taint is checked once, however many sets contain it.
    barred = {
        taint
        for taint in {taint for taints in sets for taint in taints}
        if untolerated(pod_class.tolerations, (taint,)) is not None
    }
    verdicts = np.fromiter(
        (barred.isdisjoint(taints) for taints in sets), dtype=np.bool_, count=len(sets)
    )
    allowed: Bools = verdicts[ids]
    return allowed


def taint_reasons(_at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason that names the first taint that is not tolerated."""
    taint = untolerated(pod_class.tolerations, table.nodes[row].taints)
    return (Reason.of(ReasonCode.UNTOLERATED_TAINT, taint=str(taint)),) if taint else ()


# -- NodeAffinity: requires all nodeSelector pairs, and at least one required term if there are any


def affinity_mask(_at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the matching rows, computed per label column."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for key, value in pod_class.node_selector.items():
        codes, values = table.label(key)
        allowed &= codes == values.get(value, -2)
    if pod_class.required_affinity is not None:
        any_term: Bools = np.zeros(len(table), dtype=np.bool_)
        for term in pod_class.required_affinity:
            any_term |= _term_mask(term, table)
        allowed &= any_term
    return allowed


def _term_mask(term: NodeTerm, table: NodeTable) -> Bools:
    if not term.expressions and not term.fields:
        return np.zeros(len(table), dtype=np.bool_)
    allowed = table.matching_fields(term.fields)
    for requirement in term.expressions:
        allowed &= table.matching(requirement)
    return allowed


def matches_node(pod_class: PodClass, name: str, labels: dict[str, str]) -> bool:
    """Return whether one node matches; used where there is no table (DaemonSets on a template)."""
    if any(labels.get(key) != value for key, value in pod_class.node_selector.items()):
        return False
    return pod_class.required_affinity is None or any(
        term.matches(name, labels) for term in pod_class.required_affinity
    )


def affinity_reasons(
    _at: int, pod_class: PodClass, table: NodeTable, row: int
) -> tuple[Reason, ...]:
    """Return one reason if the row does not match."""
    node = table.nodes[row]
    if matches_node(pod_class, node.name, node.labels):
        return ()
    return (
        Reason.of(
            ReasonCode.NODE_AFFINITY, term=unmet_requirement(pod_class, node.name, node.labels)
        ),
    )


def unmet_requirement(pod_class: PodClass, name: str, labels: dict[str, str]) -> str:
    """Name the first requirement that a node does not meet, and the
    node's value: `zone In a,b: has c`.

    Of several alternative terms only the first is named, with their number. Long
    lists of values are cut.
    """
    for key, value in pod_class.node_selector.items():
        if labels.get(key) != value:
            return f"{key}={value}: {_label_text(key, labels)}"
    terms = pod_class.required_affinity or ()
    alternatives = f" (first of {len(terms)} terms)" if len(terms) > 1 else ""
    for term in terms[:1]:
        for values, requirements in (
            (labels, term.expressions),
            ({"metadata.name": name}, term.fields),
        ):
            for requirement in requirements:
                if not requirement.matches(values):
                    shown = ",".join(requirement.values[:_SHOWN_VALUES])
                    more = ",…" if len(requirement.values) > _SHOWN_VALUES else ""
                    text = f"{requirement.key} {requirement.operator} {shown}{more}".rstrip()
                    return f"{text}: {_label_text(requirement.key, values)}{alternatives}"
    return f"an empty term matches nothing{alternatives}"


def _label_text(key: str, labels: dict[str, str]) -> str:
    return f"has {labels[key] or 'an empty value'}" if key in labels else "has no such label"


# -- NodePorts: a host port can be used once per node, protocol and address


def ports_mask(_at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows on which every requested port is free."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for row in table.ports if pod_class.ports else ():
        allowed[row] = table.port_clash(row, pod_class.ports) is None
    return allowed


def ports_reasons(_at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason that names the port in use."""
    port = table.port_clash(row, pod_class.ports)
    return (Reason.of(ReasonCode.PORTS, port=f"{port.port}/{port.protocol}"),) if port else ()


# -- NodeResourcesFit: compares requests with what is allocatable and not yet requested by other
# pods. Equal amounts fit. A resource that is not requested is not checked, so an overcommitted node
# still takes a pod without requests.


def resources_mask(at: int, _pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows with room for one more pod of the class."""
    return table.fitting(at)


def resource_reasons(
    at: int, _pod_class: PodClass, table: NodeTable, row: int
) -> tuple[Reason, ...]:
    """Return one reason per resource that is short, `Too many pods` first."""
    need, free = table.columns.need(at), table.free[row]
    return tuple(
        Reason.of(ReasonCode.TOO_MANY_PODS, offers=int(table.allocatable[row][column]))
        if name == PODS
        else Reason.of(
            ReasonCode.INSUFFICIENT,
            resource=name,
            needs=int(need[column]),
            offers=max(0, int(free[column])),
        )
        for column, name in enumerate(table.columns.names)
        if need[column] > 0 and need[column] > free[column]
    )


def resource_shortages(at: int, table: NodeTable, rows: Bools) -> list[tuple[Reason, int]]:
    """Return per resource how many of these rows are short of it."""
    need, shortages = table.columns.need(at), []
    for column, name in enumerate(table.columns.names):
        short = (
            int((rows & (table.free[:, column] < need[column])).sum()) if need[column] > 0 else 0
        )
        if short:
            best = max(0, int(table.free[rows, column].max()))
            reason = (
                Reason.of(ReasonCode.TOO_MANY_PODS, offers=best)
                if name == PODS
                else Reason.of(
                    ReasonCode.INSUFFICIENT, resource=name, needs=int(need[column]), offers=best
                )
            )
            shortages.append((reason, short))
    return shortages


# -- all of them

# Predicates that depend on the node alone: their masks are valid for the whole pass.
STATIC: tuple[tuple[str, Mask, Why], ...] = (
    ("NodeUnschedulable", unschedulable_mask, unschedulable_reasons),
    ("TaintToleration", taint_mask, taint_reasons),
    ("NodeAffinity", affinity_mask, affinity_reasons),
)
# Then those whose result changes as pods are placed.
TABLE = (
    *STATIC,
    ("NodePorts", ports_mask, ports_reasons),
    ("NodeResourcesFit", resources_mask, resource_reasons),
)


def static_mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the rows that a class may use, regardless of resources and ports."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for _, mask, _ in STATIC:
        allowed &= mask(at, pod_class, table)
    return allowed


def tally(
    at: int, pod_class: PodClass, table: NodeTable, rows: Bools
) -> tuple[list[tuple[Reason, int]], Bools]:
    """Count how many of these rows each predicate rejects, as the scheduler reports it (`9
    Insufficient cpu`), and return the rows that pass all of them. The first failing predicate of a
    row counts; a row short of two resources counts for both."""
    counts: list[tuple[Reason, int]] = []
    passing = rows.copy()
    for name, mask, why in TABLE:
        failing = passing & ~mask(at, pod_class, table)
        if not failing.any():
            continue
        if name == "NodeResourcesFit":
            counts += resource_shortages(at, table, failing)
        else:
            counts.append(
                (why(at, pod_class, table, int(np.flatnonzero(failing)[0]))[0], int(failing.sum()))
            )
        passing &= ~failing
    return counts, passing


def room_reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return why a row has no room for one more pod of a class, () if it has: without
    the predicates of the node."""
    table_only = TABLE[len(STATIC) :]
    return next(
        (failing for _, _, why in table_only if (failing := why(at, pod_class, table, row))), ()
    )


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return why a row does not take one more pod of a class: the first failing
    predicate's reasons, () if it fits."""
    return next((failing for _, _, why in TABLE if (failing := why(at, pod_class, table, row))), ())


def all_reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return the reasons of every failing predicate, () if the row takes one more pod."""
    return tuple(reason for _, _, why in TABLE for reason in why(at, pod_class, table, row))


def failing(at: int, pod_class: PodClass, table: NodeTable) -> tuple[Ints, Ints]:
    """Return for each row how many reasons `all_reasons` has, and the number in TABLE of the first
    predicate that fails, len(TABLE) where none does."""
    counts: Ints = np.zeros(len(table), dtype=np.int64)
    first: Ints = np.full(len(table), len(TABLE), dtype=np.int64)
    for number, (name, mask, _) in reversed(tuple(enumerate(TABLE))):
        fails = ~mask(at, pod_class, table)
        first[fails] = number
        if name != "NodeResourcesFit":
            counts += fails
    need = table.columns.need(at)
    short = (need > 0) & (need > table.free)
    counts += short.sum(axis=1)
    return counts, first


# -- what is not simulated

# With its name in the answer, in the order of the answer.
_FEATURES: tuple[
    tuple[Callable[[PodClass, frozenset[str]], bool], Callable[[PodClass], str]], ...
] = (
    # it exceeds a reading limit (cluster/input_limits.py)
    (lambda cls, _: bool(cls.excess), lambda cls: cls.excess),
    (lambda cls, _: bool(cls.resource_claims), lambda _: "resource claims"),
    (
        lambda cls, schedulers: cls.scheduler not in schedulers,
        lambda cls: f"scheduler {cls.scheduler}",
    ),
)


class NotSimulated:
    """Reports what is not simulated, so that such a pod never silently fits: a class with one of
    these features is neither promised a node nor moved to one. Schedulers named in the policy count
    as the default scheduler under another name."""

    def __init__(self, classes: Sequence[PodClass], options: Options) -> None:
        self._classes = classes
        self._schedulers = frozenset(
            {
                "default-scheduler",
                *options.bypassed_scheduler_names,
                *options.allowed_scheduler_names,
            }
        )
        self._reasons: dict[int, tuple[Reason, ...]] = {}

    def reasons(self, at: int) -> tuple[Reason, ...]:
        """Return one reason per feature that is not simulated; () for a class
        that is fully simulated."""
        if at not in self._reasons:
            cls = self._classes[at]
            self._reasons[at] = tuple(
                Reason.of(ReasonCode.NOT_SIMULATED, what=name(cls))
                for has_feature, name in _FEATURES
                if has_feature(cls, self._schedulers)
            )
        return self._reasons[at]
