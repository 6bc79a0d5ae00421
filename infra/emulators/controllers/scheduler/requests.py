"""Computes a pod's requests per resource.

The sum over containers, side-cars, init containers, pod-level resources and overhead is easy to get wrong, so it is
separate and has its own tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.model.quantity import parse_amount

Json = Mapping[str, Any]
Amounts = dict[str, int]


def read_amounts(raw: Json | None) -> Amounts:
    """Read a resource list in integers: millicores for cpu, otherwise bytes or counts."""
    return {name: parse_amount(name, str(amount)) for name, amount in (raw or {}).items()}


def _larger(amounts: Amounts, other_amounts: Amounts) -> Amounts:
    return {name: max(amounts.get(name, 0), other_amounts.get(name, 0)) for name in amounts | other_amounts}


def _sum(amounts: Amounts, other_amounts: Amounts) -> Amounts:
    return {name: amounts.get(name, 0) + other_amounts.get(name, 0) for name in amounts | other_amounts}


def _resize_infeasible(status: Json) -> bool:
    return any(
        c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible" for c in status.get("conditions") or ()
    )


def _container_requests(container: Json, status: Json, granted: Mapping[str, Json]) -> Amounts:
    """Return the container's requests. During a resize, this is the larger of requested and allocated."""
    asked = read_amounts((container.get("resources") or {}).get("requests"))
    held = granted.get(container.get("name", ""))
    if held is None or not (held.get("allocatedResources") or held.get("resources")):
        return asked
    holding = _larger(
        read_amounts(held.get("allocatedResources")), read_amounts((held.get("resources") or {}).get("requests"))
    )
    return holding if _resize_infeasible(status) else _larger(asked, holding)


def is_sidecar(container: Json) -> bool:
    """Return whether an init container keeps running."""
    return container.get("restartPolicy") == "Always"


def pod_requests(pod: Json) -> Amounts:
    """Return max(containers + side-cars, peak of each init container with the side-cars declared before it), replaced
    by pod-level values, plus overhead."""
    spec, status = pod["spec"], pod.get("status") or {}
    granted = {s["name"]: s for kind in ("containerStatuses", "initContainerStatuses") for s in status.get(kind) or ()}
    steady: Amounts = {}
    for container in spec.get("containers") or ():
        steady = _sum(steady, _container_requests(container, status, granted))
    beside: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _container_requests(container, status, granted)
        if is_sidecar(container):
            steady, beside = _sum(steady, asked), _sum(beside, asked)
            peak = _larger(peak, beside)
        else:
            peak = _larger(peak, _sum(asked, beside))
    total = _larger(steady, peak)
    for name, amount in read_amounts((spec.get("resources") or {}).get("requests")).items():
        if name in {"cpu", "memory"} or name.startswith("hugepages-"):
            total[name] = amount
    return _sum(total, read_amounts(spec.get("overhead")))
