"""spec.providers.exoscale: the settings of Exoscale's SKS Nodepools and Instance Pools.

Upstream reads these from environment variables, whose errors show as DNS errors at run time, and
from --nodes, whose errors show at every node. Here they are settings in each cluster's policy
(docs/providers/exoscale.md "Settings").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.value_types import (
    BOOLEAN,
    SECRET,
    bounds_of,
    https_address,
    number,
    text,
    whole,
)
from chalicelib.policy.vendors.settings import (
    UUID,
    GroupForm,
    ObserveSecret,
    ReservedCpu,
    ReservedEphemeralStorage,
    ReservedMemory,
    VendorSettings,
    check_order,
    typed,
)

PROVIDER = "exoscale"
PLACE = "providers.exoscale"
LEAST = 1  # default minimum size of a group
VERSION = "/v2"


class ExoscaleBounds(msgspec.Struct, frozen=True):
    """One group that the policy names.

    name: an Instance Pool's or a Nodepool's id, or a name, optionally as cluster/name. max None: as
    much as the account's quota allows."""

    name: str
    min: int
    max: int | None
    priority: int = 0


def _pool_name(value: str) -> str:
    """Return an id in lower case, so that one group has one name; a name unchanged."""
    return value.lower() if re.fullmatch(UUID, value) else value


class ExoscaleSettings(VendorSettings, frozen=True):
    """spec.providers.exoscale. groups: those that the policy names."""

    vendor: ClassVar = PROVIDER
    group_example: ClassVar = "prod/web"
    spot: ClassVar = False

    zone: Annotated[
        str,
        text("a zone", r"[a-z]{2}-[a-z]{3}-[0-9]{1,3}", "something like ch-gva-2"),
        "Zone of the cluster (upstream: EXOSCALE_ZONE).",
    ]
    credentials_secret: Annotated[
        str,
        SECRET,
        (
            "Secret with apiKey and apiSecret, as JSON or as lines EXOSCALE_API_KEY=… and "
            "EXOSCALE_API_SECRET=…."
        ),
    ]
    observe_secret: ObserveSecret = ""
    nodes: Annotated[
        tuple[tuple[int, int, str], ...],
        bounds_of("name", "1:10:web"),
        "Groups as upstream's --nodes: a Nodepool's or an Instance Pool's name or id, or "
        "cluster/name; others may be "
        "in nodeGroups. Pools that are not named are groups only with sksCluster or autoDiscovery, "
        "with min 1 and the "
        "account's quota as max.",
    ] = ()
    sks_cluster: Annotated[
        str,
        text(
            "an SKS cluster's name or id",
            r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,253}[^\s\x00-\x1f\x7f])?",
            "something like prod",
            _pool_name,
        ),
        "SKS cluster whose Nodepools are seen even while it has no node at all.",
    ] = ""
    scale_from_zero: Annotated[
        bool,
        BOOLEAN,
        (
            "Nodepools without nodes are groups too, if their SKS cluster has other nodes of this "
            "cluster."
        ),
    ] = True
    auto_discovery: Annotated[
        bool,
        BOOLEAN,
        "Pools that neither nodes nor nodeGroups name are groups, too, as in Cluster Autoscaler. "
        "Without named pools "
        "they always are.",
    ] = False
    unlimited_max: Annotated[
        int,
        whole(1, 1_000_000),
        "The largest size of a group where the account's quota has no limit.",
    ] = 1000
    environment: Annotated[
        str,
        text("the beginning of a host's name", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "api"),
        "The vendor's environment (upstream: EXOSCALE_API_ENVIRONMENT).",
    ] = "api"
    endpoint: Annotated[
        str,
        https_address("https://api-ch-gva-2.exoscale.com/v2", path=True),
        "Another address of the API than https://<environment>-<zone>.exoscale.com/v2.",
    ] = ""
    price_list: Annotated[
        str,
        https_address("https://portal.exoscale.com/api/pricing/opencompute", path=True),
        "Another address of the vendor's public list of prices than "
        "https://portal.exoscale.com/api/pricing/opencompute.",
    ] = ""
    calls_per_second: Annotated[
        float,
        number(0.1, 1000, "10"),
        "Calls per second of all functions together with one key in one zone.",
    ] = 10.0
    reserved_cpu: ReservedCpu = None
    reserved_memory: ReservedMemory = None
    reserved_ephemeral_storage: ReservedEphemeralStorage = None
    groups: tuple[ExoscaleBounds, ...] = ()

    @property
    def root(self) -> str:
        """URL of the API, with its version at the end."""
        root = self.endpoint or f"https://{self.environment}-{self.zone}.exoscale.com"
        return root if root.endswith(VERSION) else root + VERSION


def read_settings(
    settings: Mapping[str, str], entries: Iterable[GroupPolicy] = ()
) -> ExoscaleSettings:
    """Return the settings of a policy's texts and of its entries of nodeGroups; no group at all is
    valid, because groups are discovered. Raises BadInput, or InputErrors for several mistakes."""
    return typed(ExoscaleSettings, settings, (_one_host,), _GROUPS, entries)


def _one_host(given: Mapping[str, Any]) -> None:
    if "environment" in given and "endpoint" in given:
        raise BadInput(
            f"{PLACE}.environment",
            "conflicts with endpoint, which already names the host",
            "keep one of the two",
        )


def _of_entry(group_policy: GroupPolicy) -> ExoscaleBounds:
    """Convert an entry of nodeGroups; its missing values are those of an unnamed group."""
    place, name = f"nodeGroups: {group_policy.id}", _pool_name(group_policy.id.strip())
    if not name:
        raise BadInput(place, "has no id", "write the group's id or name")
    usual = LEAST if group_policy.max is None else min(LEAST, group_policy.max)
    least = usual if group_policy.min is None else group_policy.min
    check_order(place, least, group_policy.max)
    return ExoscaleBounds(name, least, group_policy.max, group_policy.priority)


_GROUPS = GroupForm(
    # A minimum of 0 is valid for SKS only; the kind of the group is known once it is read.
    of_spec=lambda least, most, name: ExoscaleBounds(_pool_name(name), least, most),
    of_entry=_of_entry,
    name=lambda bounds: bounds.name,
    noun="each group",
)
