"""NodeAffinity: requires all nodeSelector pairs, and at least one required term if there are any."""

from __future__ import annotations

import numpy as np

from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable

_SHOWN_VALUES = 5  # of a requirement that is not met


def mask(at: int, pod_class: PodClass, table: NodeTable) -> Bools:
    """Return the matching rows, computed per label column."""
    del at
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for key, value in pod_class.node_selector.items():
        codes, values = table.label(key)
        allowed &= codes == values.get(value, -2)
    if pod_class.required_affinity is not None:
        any_term: Bools = np.zeros(len(table), dtype=np.bool_)
        for term in pod_class.required_affinity:
            any_term |= _term(term, table)
        allowed &= any_term
    return allowed


def _term(term: NodeTerm, table: NodeTable) -> Bools:
    if not term.expressions and not term.fields:
        return np.zeros(len(table), dtype=np.bool_)
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for requirement in term.expressions:
        allowed &= _expression(requirement, table)
    for field in term.fields:
        names = (field.key == "metadata.name" and field.matches({"metadata.name": node.name}) for node in table.nodes)
        allowed &= np.fromiter(names, dtype=np.bool_, count=len(table))
    return allowed


def _expression(requirement: Requirement, table: NodeTable) -> Bools:
    codes, values = table.label(requirement.key)
    verdicts = [requirement.matches({requirement.key: value}) for value in values]  # in the order of their codes
    verdicts.append(requirement.matches({}))  # code -1: the label is missing
    allowed: Bools = np.array(verdicts, dtype=np.bool_)[codes]
    return allowed


def matches(pod_class: PodClass, name: str, labels: dict[str, str]) -> bool:
    """Return whether one node matches; used where there is no table (DaemonSets on a template)."""
    if any(labels.get(key) != value for key, value in pod_class.node_selector.items()):
        return False
    return pod_class.required_affinity is None or any(
        term.matches(name, labels) for term in pod_class.required_affinity
    )


def reasons(at: int, pod_class: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason if the row does not match."""
    del at
    node = table.nodes[row]
    if matches(pod_class, node.name, node.labels):
        return ()
    return (Reason.of(ReasonCode.NODE_AFFINITY, term=unmet(pod_class, node.name, node.labels)),)


def unmet(pod_class: PodClass, name: str, labels: dict[str, str]) -> str:
    """Name the first requirement that a node does not meet, and the node's value: `zone In a,b: has c`.

    Of several alternative terms only the first is named, with their number. Long lists of values are cut.
    """
    for key, value in pod_class.node_selector.items():
        if labels.get(key) != value:
            return f"{key}={value}: {_has(key, labels)}"
    terms = pod_class.required_affinity or ()
    alternatives = f" (first of {len(terms)} terms)" if len(terms) > 1 else ""
    by_field = {"metadata.name": name}
    for term in terms[:1]:
        for known, requirements in ((labels, term.expressions), (by_field, term.fields)):
            for each in requirements:
                if not each.matches(known):
                    return f"{_shown(each)}: {_has(each.key, known)}{alternatives}"
    return f"an empty term matches nothing{alternatives}"


def _shown(requirement: Requirement) -> str:
    values = ",".join(requirement.values[:_SHOWN_VALUES])
    more = ",…" if len(requirement.values) > _SHOWN_VALUES else ""
    return f"{requirement.key} {requirement.operator} {values}{more}".rstrip()


def _has(key: str, labels: dict[str, str]) -> str:
    return f"has {labels[key] or 'an empty value'}" if key in labels else "has no such label"
