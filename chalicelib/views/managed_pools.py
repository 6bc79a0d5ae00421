"""Managed pools for people: what a vendor's catalogue leaves of each declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.managed_group import PoolSelection
from chalicelib.model.overview import PoolOverview

_STAGES: Mapping[str, str] = MappingProxyType({"price": "without price", "stock": "out of stock"})
"""Stages after the requirements, in words."""


class PoolRow(msgspec.Struct, frozen=True, rename="camel"):
    """A managed pool; see PoolOverview. next_price, price: an hour; None: nothing could be
    bought."""

    pool: str
    provider: str
    candidates: int
    open_groups: int
    live_groups: int
    nodes: int
    price: float
    currency: str
    next_machine: str
    next_price: float | None
    held_by: str


def pool_rows(pools: Iterable[PoolOverview]) -> tuple[PoolRow, ...]:
    """Return the rows of the declarations that a pass saw."""
    return tuple(
        PoolRow(
            pool=pool.name,
            provider=pool.provider,
            candidates=pool.candidates,
            open_groups=pool.open_groups,
            live_groups=pool.live_groups,
            nodes=pool.nodes,
            price=pool.price,
            currency=pool.currency,
            next_machine=pool.next_machine,
            next_price=pool.next_price if pool.next_machine else None,
            held_by=pool.held,
        )
        for pool in pools
    )


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
