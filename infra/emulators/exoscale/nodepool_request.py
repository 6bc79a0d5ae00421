"""The body of a request to create an SKS Nodepool, with the bounds of the vendor's document.

Fields of the document that the zone does not emulate (addons, a deploy target, MIG profiles, image
garbage collection) are refused, so that no test believes that they had an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from infra.emulators.vendor_common.fault_injection import VendorRefusedError
from infra.emulators.vendor_common.http_messages import UUID

_UUID = rf"^{UUID.pattern}$"
_SMALL_LETTERS = r"^[^A-Z]*$"


class ReferenceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to another object by its id."""

    id: Annotated[str, msgspec.Meta(pattern=_UUID)]


class TaintBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A taint, sent under its key; a value is required."""

    value: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    effect: Literal["NoExecute", "NoSchedule", "PreferNoSchedule"]


_Eight = Annotated[tuple[ReferenceBody, ...], msgspec.Meta(max_length=8)]
_Sixteen = Annotated[tuple[ReferenceBody, ...], msgspec.Meta(max_length=16)]


class NodepoolRequest(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """A Nodepool to create. disk_size: GiB. kubelet_max_pods: None for the kubelet's default."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=_SMALL_LETTERS)]
    size: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    disk_size: Annotated[int, msgspec.Meta(ge=20, le=51_200)]
    instance_type: ReferenceBody
    description: Annotated[str, msgspec.Meta(max_length=255)] = ""
    instance_prefix: Annotated[str, msgspec.Meta(min_length=1, max_length=30)] = "pool"
    labels: dict[str, str] = {}
    taints: dict[str, TaintBody] = {}
    anti_affinity_groups: _Eight = ()
    security_groups: _Sixteen = ()
    private_networks: _Sixteen = ()
    kubelet_max_pods: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    public_ip_assignment: Literal["dual", "inet4"] = "inet4"

    def __post_init__(self) -> None:
        """Raise ValueError for a reference that is given twice."""
        for references in (self.anti_affinity_groups, self.security_groups, self.private_networks):
            if len(set(references)) < len(references):
                raise ValueError("the same id occurs twice in a list")


def read_nodepool_request(body: Mapping[str, Any]) -> NodepoolRequest:
    """Return the requested Nodepool. Raises VendorRefusedError with 400 and a text."""
    try:
        return msgspec.convert(body, NodepoolRequest)
    except msgspec.ValidationError as error:
        raise VendorRefusedError(400, f"The Nodepool cannot be created: {error}") from None
