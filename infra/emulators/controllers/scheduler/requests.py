"""What a pod asks of a node, per resource (scale-up.md §5.2).

Why apart: the sum over containers, side-cars, init containers, pod-level resources and overhead is the one piece of
arithmetic that everybody gets slightly wrong, and it is checked alone (cases P1 to P3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from chalicelib.model.quantity import parse_amount

Json = Mapping[str, Any]
Amounts = dict[str, int]


def read_amounts(raw: Json | None) -> Amounts:
    """A resource list in whole units: millicores for cpu, else bytes or pieces."""
    return {name: parse_amount(name, str(amount)) for name, amount in (raw or {}).items()}


def _larger(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left | right}


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left | right}


def _resize_infeasible(status: Json) -> bool:
    return any(
        c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible" for c in status.get("conditions") or ()
    )


def _container_requests(container: Json, status: Json, granted: Mapping[str, Json]) -> Amounts:
    """The container's requests; while it is resized, the larger of what is asked and what it still holds."""
    asked = read_amounts((container.get("resources") or {}).get("requests"))
    held = granted.get(container.get("name", ""))
    if held is None or not (held.get("allocatedResources") or held.get("resources")):
        return asked
    holding = _larger(
        read_amounts(held.get("allocatedResources")), read_amounts((held.get("resources") or {}).get("requests"))
    )
    return holding if _resize_infeasible(status) else _larger(asked, holding)


def is_sidecar(container: Json) -> bool:
    """An init container that keeps running."""
    return container.get("restartPolicy") == "Always"


def pod_requests(pod: Json) -> Amounts:
    """max(containers + side-cars, peak of any init container beside the side-cars declared before it), then pod-level
    values in its place, then overhead on top."""
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


def used_by(requests: list[Amounts]) -> Counter[str]:
    """The sum over pods."""
    total: Counter[str] = Counter()
    for amounts in requests:
        total.update(amounts)
    return total
