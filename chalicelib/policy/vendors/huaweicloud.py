"""spec.providers.huaweicloud: the settings of Huawei Cloud CCE's node pools.

Upstream reads these from an INI file in the pod. Here they are settings in each cluster's policy,
and only the key is in a secret (docs/providers/huaweicloud.md "Settings").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.net.vendor_hosts import CCE_REGIONS
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, quote
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.value_types import (
    BOOLEAN,
    SECRET,
    UNSET,
    amount,
    bounds_of,
    https_address,
    number,
    text,
    whole,
)
from chalicelib.policy.vendors.settings import (
    UUID,
    GroupForm,
    ReservedMemory,
    VendorSettings,
    check_order,
    typed,
)

PROVIDER = "huaweicloud"
PLACE = "providers.huaweicloud"
# permitted and default lifetime in seconds of an agency's temporary keys
SHORTEST, LONGEST, USUAL = 900, 86400, 3600
_EXAMPLE = "1:10:pool-a"


class CceBounds(msgspec.Struct, frozen=True):
    """The size limits of one pool or scale group. name: a pool's uid or name, or either with
    `/<scale group>`. min, max None: the pool's own."""

    name: str
    min: int | None = None
    max: int | None = None
    priority: int = 0


class Agency(msgspec.Struct, frozen=True):
    """A role of another account that the key assumes. name, domain: the agency's and that
    account's; seconds: lifetime of the temporary keys."""

    name: str
    domain: str
    seconds: int = USUAL


def _pool_name(value: str) -> str:
    """Return a uid in lower case, so that one pool has one name; names
    unchanged. Raises BadInput."""
    pool, slash, group = value.partition("/")
    if not pool or (slash and not group):
        raise BadInput(
            "",
            f"{value!r} names no pool" if not pool else f"{value!r} names no scale group",
            "write a pool's uid or name, or one of them with /<scale group>",
        )
    return f"{pool.lower() if re.fullmatch(UUID, pool) else pool}{slash}{group}"


_REGION = text("a region", r"[a-z]+(-[a-z0-9]+)+", "something like cn-north-4")


def _read_region(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Accept a region that is not in the table, because the vendor opens new ones."""
    region = _REGION.read(node, path, diagnostics)
    if region is not UNSET and region not in CCE_REGIONS:
        diagnostics.warn(
            path,
            f"{quote(region)} is not a known region of CCE; its hosts are assumed to be "
            f"cce.{region}.myhuaweicloud.com and so on, and cceEndpoint, ecsEndpoint and "
            "iamEndpoint say "
            "otherwise",
        )
    return region


_ENDPOINT = https_address("https://cce.cn-north-4.myhuaweicloud.com", path=False)


class CceSettings(VendorSettings, frozen=True):
    """spec.providers.huaweicloud. groups: those that the policy names. The template of a node
    promises no disk, so nothing of it is reserved."""

    vendor: ClassVar = PROVIDER
    states_prices: ClassVar = True
    group_example: ClassVar = "pool-a"

    region: Annotated[
        str,
        msgspec.structs.replace(
            _REGION, read=_read_region, form=lambda: {"type": ["string", "number", "boolean"]}
        ),
        "Region of the cluster.",
    ]
    cluster_id: Annotated[
        str,
        text(
            "the id of a CCE cluster",
            UUID,
            "something like 2292498e-1111-11ee-8b5e-0255ac1001ba",
            str.lower,
        ),
        "CCE cluster whose node pools these are.",
    ]
    credentials_secret: Annotated[
        str, SECRET, "Secret with accessKey and secretKey, as JSON or as upstream's [Global]."
    ]
    observe_secret: Annotated[
        str,
        SECRET,
        "The same with keys that may only read: what passes look with, without the agency; changes "
        "are made with "
        "credentialsSecret.",
    ] = ""
    project_id: Annotated[
        str,
        text("the id of a project", r"[0-9a-f]{32}", "its 32 hex digits"),
        (
            "Project of the cluster (upstream: project-id); asked from IAM by the region's name if "
            "not given."
        ),
    ] = ""
    nodes: Annotated[
        tuple[tuple[int, int, str], ...],
        bounds_of("pool", _EXAMPLE, make=_pool_name),
        "Pools as upstream's --nodes: a pool's uid or name, perhaps with /<scale group>; others "
        "may be in nodeGroups. "
        "An unnamed pool has the minimum and maximum of its own autoscaling settings.",
    ] = ()
    autodiscovery: Annotated[
        bool, BOOLEAN, "Unnamed pools are groups too, if their autoscaling is on."
    ] = True
    warn_about_addon: Annotated[
        bool,
        BOOLEAN,
        "Look whether the vendor's own autoscaler add-on is at work in the cluster, and warn.",
    ] = True
    agency_name: Annotated[
        str,
        text("an agency's name", r"[A-Za-z0-9_-]{1,64}", "something like outscaler"),
        "Agency of another account to take by the key: temporary keys instead of the long one.",
    ] = ""
    agency_domain: Annotated[
        str,
        text(
            "an account's name",
            r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,62}[^\s\x00-\x1f\x7f])?",
            "the account that owns the agency",
        ),
        "Account that owns the agency.",
    ] = ""
    agency_duration: Annotated[
        int, whole(SHORTEST, LONGEST), "Seconds that temporary keys live."
    ] = USUAL
    cce_endpoint: Annotated[str, _ENDPOINT, "Another host for CCE, scheme included."] = ""
    ecs_endpoint: Annotated[str, _ENDPOINT, "The same for ECS."] = ""
    iam_endpoint: Annotated[str, _ENDPOINT, "The same for IAM."] = ""
    bss_endpoint: Annotated[
        str,
        _ENDPOINT,
        "The same for BSS, which states prices: that of the site where the account is registered.",
    ] = ""
    calls_per_second: Annotated[
        float,
        number(0.1, 1000, "10"),
        "Calls per second of all functions together to one service with one key.",
    ] = 10.0
    read_prices: Annotated[
        bool,
        BOOLEAN,
        "Ask BSS what the flavours cost; groups have no price from the vendor if the key may not. "
        "With another host "
        "for CCE, bssEndpoint must be given too.",
    ] = True
    reserved_cpu: Annotated[
        int | None,
        amount("cpu", "200m"),
        "What the kubelet of a new node keeps back of its cpu, instead of the vendor's rule.",
    ] = None
    reserved_memory: ReservedMemory = None
    groups: tuple[CceBounds, ...] = ()

    @property
    def agency(self) -> Agency | None:
        """The role to assume; None: the key itself is used."""
        return (
            Agency(self.agency_name, self.agency_domain, self.agency_duration)
            if self.agency_name
            else None
        )

    @property
    def endpoints(self) -> dict[str, str]:
        """Service (cce, ecs, iam, bss) -> root without a trailing slash,
        for those that are given."""
        roots = {
            "cce": self.cce_endpoint,
            "ecs": self.ecs_endpoint,
            "iam": self.iam_endpoint,
            "bss": self.bss_endpoint,
        }
        return {service: root for service, root in roots.items() if root}

    @property
    def known_region(self) -> bool:
        """Whether the region is in the vendor's table; an unknown one is used as well."""
        return self.region in CCE_REGIONS


def read_settings(settings: Mapping[str, str], entries: Iterable[GroupPolicy] = ()) -> CceSettings:
    """Return the settings of a policy's texts and of its entries of nodeGroups. Raises BadInput, or
    InputErrors for several mistakes."""
    cce = typed(CceSettings, settings, (_whole_agency,), _GROUPS, entries)
    if not cce.autodiscovery and not cce.groups:
        raise BadInput(
            f"{PLACE}.autodiscovery",
            "is false, and no pool is named",
            f"name pools in nodes as {_EXAMPLE}, or under nodeGroups",
        )
    return cce


def _whole_agency(given: Mapping[str, Any]) -> None:
    attributes = {
        "agency_name": "agencyName",
        "agency_domain": "agencyDomain",
        "agency_duration": "agencyDuration",
    }
    for attribute in ("agency_name", "agency_domain") if attributes.keys() & given.keys() else ():
        if attribute not in given:
            raise BadInput(
                f"{PLACE}.{attributes[attribute]}",
                "is missing, but the others are given",
                "write agencyName and agencyDomain, or take out all that begins with agency",
            )


def _of_entry(group_policy: GroupPolicy) -> CceBounds:
    """Convert an entry of nodeGroups; its missing values are the pool's own."""
    place = f"nodeGroups: {group_policy.id}"
    try:
        name = _pool_name(group_policy.id.strip())
    except BadInput as mistake:
        raise BadInput(place, mistake.problem, mistake.remedy) from None
    check_order(place, group_policy.min, group_policy.max)
    return CceBounds(name, group_policy.min, group_policy.max, group_policy.priority)


_GROUPS = GroupForm(
    of_spec=lambda least, most, name: CceBounds(name, least, most),
    of_entry=_of_entry,
    name=lambda bounds: bounds.name,
    noun="each pool or scale group",
)
