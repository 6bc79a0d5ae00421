"""NodeAffinity: requires all nodeSelector pairs, and at least one required term if there are any."""

from __future__ import annotations

import numpy as np

from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable


def mask(at: int, cls: PodClass, table: NodeTable) -> Bools:
    """Return the matching rows, computed per label column."""
    del at
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for key, value in cls.node_selector.items():
        codes, values = table.label(key)
        allowed &= codes == values.get(value, -2)
    if cls.required_affinity is not None:
        any_term: Bools = np.zeros(len(table), dtype=np.bool_)
        for term in cls.required_affinity:
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


def matches(cls: PodClass, name: str, labels: dict[str, str]) -> bool:
    """Return whether one node matches; used where there is no table (DaemonSets on a template)."""
    if any(labels.get(key) != value for key, value in cls.node_selector.items()):
        return False
    return cls.required_affinity is None or any(term.matches(name, labels) for term in cls.required_affinity)


def reasons(at: int, cls: PodClass, table: NodeTable, row: int) -> tuple[Reason, ...]:
    """Return one reason if the row does not match."""
    del at
    node = table.nodes[row]
    return () if matches(cls, node.name, node.labels) else (Reason.of(ReasonCode.NODE_AFFINITY),)
