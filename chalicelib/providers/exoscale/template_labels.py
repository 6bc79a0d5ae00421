"""Reads the labels of a standalone Instance Pool that describe its future nodes.

    k8s.io/cluster-autoscaler/node-template/label/KEY      = VALUE
    k8s.io/cluster-autoscaler/node-template/taint/KEY      = VALUE:EFFECT
    k8s.io/cluster-autoscaler/node-template/resources/NAME = QUANTITY

Its other labels belong to the cloud and are not set on nodes. A Nodepool has its own labels and taints, which its nodes
get. Invalid Kubernetes labels and taints are skipped with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.node import Taint
from chalicelib.model.quantity import parse_amount
from chalicelib.providers.exoscale.models import ExoscaleTaint as Given

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_LABEL, _TAINT, _RESOURCE = f"{_TEMPLATE}label/", f"{_TEMPLATE}taint/", f"{_TEMPLATE}resources/"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z", re.ASCII)
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class Marks(msgspec.Struct, frozen=True):
    """labels, taints and resources of new nodes; warnings: what was skipped."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, int] = {}
    warnings: tuple[str, ...] = ()


def of_nodepool(labels: Mapping[str, str] | None, taints: Mapping[str, Given] | None) -> Marks:
    """Return what the Nodepool's nodes get: its labels, and its taints by key."""
    good = {key: value for key, value in (labels or {}).items() if _is_key(key) and _is_value(value)}
    bad = sorted(set(labels or {}) - set(good))
    effective = {
        key: given
        for key, given in (taints or {}).items()
        if _is_key(key) and _is_value(given.value) and given.effect in _EFFECTS
    }
    odd = sorted(set(taints or {}) - set(effective))
    warnings = (
        *(f"label {key} of the Nodepool is none for Kubernetes, so the template is without it" for key in bad),
        *(f"taint {key} of the Nodepool is none for Kubernetes, so the template is without it" for key in odd),
    )
    return Marks(
        good, tuple(Taint(key, each.effect, each.value) for key, each in sorted(effective.items())), {}, warnings
    )


def of_pool(labels: Mapping[str, str] | None) -> Marks:
    """Return what the labels of a standalone pool define for its nodes."""
    found: dict[str, str] = {}
    taints: list[Taint] = []
    resources: dict[str, int] = {}
    warnings: list[str] = []
    for key, value in sorted((labels or {}).items()):
        if key.startswith(_LABEL) and _is_key(key.removeprefix(_LABEL)) and _is_value(value):
            found[key.removeprefix(_LABEL)] = value
        elif key.startswith(_TAINT) and (taint := _taint(key.removeprefix(_TAINT), value)) is not None:
            taints.append(taint)
        elif key.startswith(_RESOURCE) and (amount := _amount(key.removeprefix(_RESOURCE), value)) is not None:
            resources[key.removeprefix(_RESOURCE)] = amount
        elif key.startswith(_TEMPLATE):
            warnings.append(f"label {key}={value!r} of the pool says nothing that a node can have; correct it")
    return Marks(found, tuple(taints), resources, tuple(warnings))


def _taint(key: str, text: str) -> Taint | None:
    value, _, effect = text.strip().rpartition(":")
    return Taint(key, effect, value) if _is_key(key) and _is_value(value) and effect in _EFFECTS else None


def _amount(name: str, text: str) -> int | None:
    try:
        amount = parse_amount(name, text.strip())
    except BadInput:
        return None
    return amount if _is_key(name) and amount >= 0 else None


def _is_key(text: str) -> bool:
    domain, slash, name = text.rpartition("/")
    return (not slash or _DOMAIN.match(domain) is not None) and _NAME.match(name) is not None


def _is_value(text: str) -> bool:
    return not text or _NAME.match(text) is not None
