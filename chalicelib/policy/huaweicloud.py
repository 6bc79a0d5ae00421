"""spec.providers.huaweicloud: the settings of Huawei Cloud CCE's node pools.

Each value is validated on its own here. The provider validates combinations (agency settings, pools named twice),
because it also knows nodeGroups.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.vendor_hosts import CCE_REGIONS
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.provider_value_types import (
    YES_OR_NO,
    amount,
    as_text,
    bounds_of,
    calls_per_second,
    https_address,
)
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import SECRET, UNSET, ValueType, text, whole
from chalicelib.policy.yaml_document import Node

_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_REGION = text("a region", r"[a-z]+(-[a-z0-9]+)+", "something like cn-north-4")


def _read_region(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Accept a region that is not in the table, because the vendor opens new ones."""
    region = _REGION.read(node, path, diagnostics)
    if region is not UNSET and region not in CCE_REGIONS:
        diagnostics.warn(
            path,
            f"{quote(region)} is not a known region of CCE; its hosts are assumed to be "
            f"cce.{region}.myhuaweicloud.com and so on, and cceEndpoint, ecsEndpoint and iamEndpoint say "
            "otherwise",
        )
    return region


_ENDPOINT = https_address("https://cce.cn-north-4.myhuaweicloud.com", path=False)

HUAWEICLOUD = Section(
    fields=(
        Field(
            "region",
            ValueType("text", _read_region),
            "region",
            "Region of the cluster.",
            required=True,
            example="region: cn-north-4",
        ),
        Field(
            "clusterId",
            text("the id of a CCE cluster", _UUID, "something like 2292498e-1111-11ee-8b5e-0255ac1001ba"),
            "clusterId",
            "CCE cluster whose node pools these are.",
            required=True,
            example="clusterId: 2292498e-1111-11ee-8b5e-0255ac1001ba",
        ),
        Field(
            "credentialsSecret",
            SECRET,
            "credentialsSecret",
            "Secret with accessKey and secretKey, as JSON or as upstream's [Global].",
            required=True,
            example="credentialsSecret: outscaler/prod/huaweicloud",
        ),
        Field(
            "observeSecret",
            SECRET,
            "observeSecret",
            "The same with keys that may only read: what passes look with, without the agency; changes are made with "
            "credentialsSecret.",
        ),
        Field(
            "projectId",
            text("the id of a project", r"[0-9a-f]{32}", "its 32 hex digits"),
            "projectId",
            "Project of the cluster (upstream: project-id); asked from IAM by the region's name if not given.",
        ),
        Field(
            "nodes",
            bounds_of("pool", "1:10:pool-a"),
            "nodes",
            "Pools as upstream's --nodes: a pool's uid or name, perhaps with /<scale group>; others may be in "
            "nodeGroups. An unnamed pool has the minimum and maximum of its own autoscaling settings.",
        ),
        Field(
            "autodiscovery",
            YES_OR_NO,
            "autodiscovery",
            "Unnamed pools are groups too, if their autoscaling is on.",
            default="true",
        ),
        Field(
            "warnAboutAddon",
            YES_OR_NO,
            "warnAboutAddon",
            "Look whether the vendor's own autoscaler add-on is at work in the cluster, and warn.",
            default="true",
        ),
        Field(
            "agencyName",
            text("an agency's name", r"[A-Za-z0-9_-]{1,64}", "something like outscaler"),
            "agencyName",
            "Agency of another account to take by the key: temporary keys instead of the long one.",
        ),
        Field(
            "agencyDomain",
            text(
                "an account's name",
                r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,62}[^\s\x00-\x1f\x7f])?",
                "the account that owns the agency",
            ),
            "agencyDomain",
            "Account that owns the agency.",
        ),
        Field(
            "agencyDuration",
            as_text(whole(900, 86400)),
            "agencyDuration",
            "Seconds that temporary keys live.",
            default="3600",
        ),
        Field("cceEndpoint", _ENDPOINT, "cceEndpoint", "Another host for CCE, scheme included."),
        Field("ecsEndpoint", _ENDPOINT, "ecsEndpoint", "The same for ECS."),
        Field("iamEndpoint", _ENDPOINT, "iamEndpoint", "The same for IAM."),
        calls_per_second("10", "Calls per second of all functions together to one service with one key."),
        Field(
            "reservedCpu",
            amount("cpu", "200m"),
            "reservedCpu",
            "What the kubelet of a new node keeps back of its cpu, instead of the vendor's rule.",
        ),
        Field("reservedMemory", amount("memory", "500Mi"), "reservedMemory", "The same for memory."),
    )
)
