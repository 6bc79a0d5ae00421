"""Managed pools for people: what a vendor's catalogue leaves of each declaration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from chalicelib.model.managed_group import PoolSelection

_STAGES: Mapping[str, str] = MappingProxyType({"price": "without price", "stock": "out of stock"})
"""Stages after the requirements, in words."""


def funnel_words(selection: PoolSelection, fitting: int | None = None) -> str:
    """Return `general: 412 machine types x zones x markets > 96 fail at cpu, 3 out of stock > 313
    candidates > 12 fit the pod`. fitting: candidates that the pod fits, None without a pod."""
    parts = [f"{selection.offered} machine types x zones x markets"]
    if selection.failed:
        parts.append(", ".join(_failed(*stage) for stage in selection.failed.items()))
    parts.append(f"{selection.candidates} candidates")
    if fitting is not None:
        parts.append(f"{fitting} fit the pod")
    words = f"{selection.declaration}: {' > '.join(parts)}"
    return f"{words}; {selection.problem}" if selection.problem else words


def funnel_data(selection: PoolSelection, fitting: int | None = None) -> dict[str, Any]:
    """Return the same under its stable keys."""
    data: dict[str, Any] = {
        "declaration": selection.declaration,
        "offered": selection.offered,
        "failed": dict(selection.failed),
        "candidates": selection.candidates,
    }
    if fitting is not None:
        data["fitting"] = fitting
    if selection.problem:
        data["problem"] = selection.problem
    return data


def _failed(stage: str, count: int) -> str:
    words = _STAGES.get(stage)
    return f"{count} {words}" if words is not None else f"{count} fail at {stage}"
