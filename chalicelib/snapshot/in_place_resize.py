"""Computes the requests of a running pod during an in-place resize: the kubelet's allocation may be larger than the
spec's.

This is separate from pod_classes.py because it concerns only a few pods: a pod whose conditions do not indicate a
resize has the requests of its spec. Sidecars among the init containers count by their spec.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.model.resources import largest
from chalicelib.snapshot import api_types
from chalicelib.snapshot.pod_classes import pod_requests

_STATUSES = msgspec.json.Decoder(list[api_types.ContainerStatus] | None)
_SPEC = msgspec.json.Decoder(api_types.PodSpec)


def held_requests(spec: bytes, statuses: msgspec.Raw) -> dict[str, int]:
    """Return the requests of a pod, with each container at the largest of its spec, what was allocated to it and what
    is in force. Raises BadInput for a malformed quantity."""
    held: dict[str, dict[str, int]] = {}
    for status in (_STATUSES.decode(statuses) if statuses else None) or ():
        in_force = status.resources.requests if status.resources else None
        held[status.name] = largest(_amounts(status.allocated_resources), _amounts(in_force))
    decoded = _SPEC.decode(spec)
    containers = [_with(container, held.get(container.name, {})) for container in decoded.containers]
    return pod_requests(msgspec.structs.replace(decoded, containers=containers))


def _with(container: api_types.Container, held: dict[str, int]) -> api_types.Container:
    needs = container.resources or api_types.Requirements()
    asked = {**_amounts(needs.limits), **_amounts(needs.requests)}
    requests: dict[str, api_types.Quantity] = {
        name: f"{amount}m" if name == "cpu" else amount for name, amount in largest(asked, held).items()
    }
    return msgspec.structs.replace(container, resources=api_types.Requirements(requests=requests))


def _amounts(raw: dict[str, api_types.Quantity] | None) -> dict[str, int]:
    return {name: parse_amount(name, quantity_text(value)) for name, value in (raw or {}).items()}
