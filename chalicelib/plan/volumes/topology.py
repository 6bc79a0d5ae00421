"""Evaluates node terms and zones over all rows at once: the node labels that volumes, storage
classes and capacities require.

A volume has few and simple terms, but there may be thousands of volumes: terms `key
In (values)` are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.selector import NodeTerm, Selector
from chalicelib.model.storage import PersistentVolume
from chalicelib.plan.tables import Bools, NodeTable


class Places(msgspec.Struct, frozen=True):
    """Where at least one of many node selectors matches, indexed so that thousands of
    them are cheap to evaluate: selectors that only say `key in values` are merged to
    one set of values per key."""

    everywhere: bool = False
    values: dict[str, frozenset[str]] = {}
    terms: tuple[NodeTerm, ...] = ()


Zone = tuple[str, str, frozenset[str]]  # volume, label key, the zones it may be used in

# Each topology label with its older or newer name.
_TWINS = {
    "topology.kubernetes.io/zone": "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region": "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}


def places(selectors: Iterable[tuple[NodeTerm, ...] | None]) -> Places:
    """Return where any of these selectors matches; None allows everything,
    an empty selector nothing."""
    values: dict[str, set[str]] = {}
    rest: dict[NodeTerm, None] = {}
    for terms in selectors:
        if terms is None:
            return Places(everywhere=True)
        for term in terms:
            if (
                len(term.expressions) == 1
                and not term.fields
                and term.expressions[0].operator == "In"
            ):
                values.setdefault(term.expressions[0].key, set()).update(term.expressions[0].values)
            else:
                rest[term] = None
    return Places(values={key: frozenset(some) for key, some in values.items()}, terms=tuple(rest))


def rows(places: Places, table: NodeTable) -> Bools:
    """Return the rows in these places; an empty term matches none."""
    allowed: Bools = np.full(len(table), places.everywhere, dtype=np.bool_)
    for key, values in places.values.items():
        allowed |= table.having(key, values)
    for term in places.terms:
        if term.expressions or term.fields:
            allowed |= selected(Selector(term.expressions), table) & table.matching_fields(
                term.fields
            )
    return allowed


def one_matches(terms: Iterable[NodeTerm] | None, node: Node) -> bool:
    """Return whether one selector matches one node."""
    return terms is None or any(term.matches(node.name, node.labels) for term in terms)


def selected(selector: Selector, table: NodeTable) -> Bools:
    """Return the rows whose labels a selector matches; an empty one matches all."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for requirement in selector.requirements:
        allowed &= table.matching(requirement)
    return allowed


def zones_of(volumes: Iterable[PersistentVolume]) -> tuple[Zone, ...]:
    """Return the zones and regions of bound volumes for VolumeZone; `a__b` is a set, and a label
    with an empty part, such as `a__`, is ignored."""
    zones: list[Zone] = []
    for volume in volumes:
        for key in _TWINS.keys() & volume.labels.keys():
            parts = [part.strip() for part in volume.labels[key].split("__")]
            if all(parts):
                zones.append((volume.name, key, frozenset(parts)))
    return tuple(sorted(zones, key=lambda zone: zone[:2]))


def zone_mask(zones: Iterable[Zone], table: NodeTable) -> Bools:
    """Return the rows in the zones of all volumes; a node without any topology label
    counts as in all of them."""
    unlabelled: Bools = np.ones(len(table), dtype=np.bool_)
    for key in _TWINS:
        unlabelled &= table.label(key)[0] < 0
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for _, key, values in zones:
        inside, missing = table.having(key, values), table.label(key)[0] < 0
        if missing.any():
            inside = inside | missing & table.having(_TWINS[key], values)
        allowed &= inside
    return allowed | unlabelled


def wrong_zone(zones: Iterable[Zone], labels: Mapping[str, str]) -> str:
    """Return the first volume that cannot be used in the zone of a node with
    these labels, "" if all can."""
    if not any(key in labels for key in _TWINS):
        return ""
    return next(
        (
            name
            for name, key, values in zones
            if labels.get(key, labels.get(_TWINS[key])) not in values
        ),
        "",
    )
