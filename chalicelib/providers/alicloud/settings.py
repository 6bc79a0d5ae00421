"""`providers.alicloud` of the policy, validated. All errors are reported at once, each with its place.

Upstream reads these from flags, a file and environment variables. A function that serves many clusters has none of
them, so they are settings in each cluster's policy (docs/providers/alicloud.md "Settings" maps the variables).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.alicloud.credentials import PLACE, Access, check_access
from chalicelib.providers.alicloud.endpoints import Endpoints, Network, Service
from chalicelib.providers.settings_readers import (
    RESERVE,
    GroupForm,
    address,
    calls_per_second,
    entry_bounds,
    named_groups,
    node_spec,
    read_all,
    reserve,
)

PROVIDER = "alicloud"
CALLS_PER_SECOND = 10.0

_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+\Z", re.ASCII)


class AlicloudBounds(msgspec.Struct, frozen=True):
    """One scaling group of the policy: its id, its size limits and its priority."""

    id: str
    min: int
    max: int
    priority: int = 0


class AlicloudSettings(msgspec.Struct, frozen=True):
    """reserve: subtracted from a template's capacity. calls_per_second: per account, region and product."""

    region: str
    groups: tuple[AlicloudBounds, ...]
    endpoints: Endpoints
    access: Access
    reserve: dict[str, int] = {}
    calls_per_second: float = CALLS_PER_SECOND


def read_settings(settings: Mapping[str, str], groups: Iterable[GroupPolicy] = ()) -> AlicloudSettings:
    """Return the policy's text values and group entries as Settings; raises BadInput, or BadInputs for several errors.

    Keys: region; network (public, vpc); essEndpoint, ecsEndpoint, stsEndpoint; nodes (upstream's
    `--nodes=min:max:asg-id`, one per line); reservedCpu, reservedMemory, reservedEphemeralStorage; callsPerSecond; and
    those of Access. Each group comes either from `nodes` or from the policy's nodeGroups.
    """
    readers = _READERS | {"groups": lambda given: named_groups(given, groups, _GROUPS)}
    fields = read_all(settings, readers, KNOWN, PLACE)
    where = {"region": fields["region"], "network": fields.pop("network"), "overrides": fields.pop("overrides")}
    return msgspec.convert(fields | {"endpoints": where}, AlicloudSettings)


def parse_spec(text: str, place: str) -> AlicloudBounds:
    """Parse `min:max:id`: split at the first two colons, integers without blanks, 0 <= min <= max.

    Raises BadInput.
    """
    least, most, group = node_spec(text, place, "1:10:asg-bp18p2yfxow2dloq0001")
    return AlicloudBounds(group, least, most)


def _of_entry(group_policy: GroupPolicy) -> AlicloudBounds:
    return AlicloudBounds(group_policy.id, *entry_bounds(group_policy), group_policy.priority)


def _region(settings: Mapping[str, str]) -> str:
    region = settings.get("region", "").strip()
    if not _REGION.match(region):
        problem = f"{region!r} is not a region" if region else "is missing"
        raise BadInput(f"{PLACE}.region", problem, "write the scaling groups' region, such as cn-hangzhou")
    return region


def _network(settings: Mapping[str, str]) -> Network:
    name = settings.get("network") or Network.PUBLIC
    if name not in set(Network):
        raise BadInput(f"{PLACE}.network", f"{name!r} is not known", f"use {' or '.join(Network)}")
    return Network(name)


def _overrides(settings: Mapping[str, str]) -> dict[Service, str]:
    example = "https://ess.cn-hangzhou.aliyuncs.com"
    return {
        service: address(PLACE, key, settings[key], example) for key, service in _ENDPOINTS.items() if settings.get(key)
    }


def _access(settings: Mapping[str, str]) -> Access:
    if settings.get("metadataEndpoint"):
        _metadata_address(settings["metadataEndpoint"])
    access = Access(**{field: settings.get(key, "").strip() for key, field in _ACCESS.items()})
    check_access(access)
    return access


def _metadata_address(url: str) -> None:
    if not re.match(r"(https://[^/?#@\s]+|http://(100\.100\.100\.200|localhost|127\.0\.0\.1|\[::1\])(:\d+)?)/?\Z", url):
        raise BadInput(f"{PLACE}.metadataEndpoint", "is not an address", "write it like http://100.100.100.200")


_ENDPOINTS = {"essEndpoint": Service.ESS, "ecsEndpoint": Service.ECS, "stsEndpoint": Service.STS}
_ACCESS = {
    "credentialsSecret": "credentials_secret",
    "roleArn": "role_arn",
    "sessionName": "session_name",
    "oidcProviderArn": "oidc_provider_arn",
    "oidcTokenSecret": "oidc_token_secret",
    "oidcTokenFile": "oidc_token_file",
    "metadataEndpoint": "metadata_endpoint",
    "ramRole": "ram_role",
}
_GROUPS = GroupForm(
    provider=PROVIDER,
    place=PLACE,
    parse=parse_spec,
    of_entry=_of_entry,
    name=lambda bounds: bounds.id,
    each="each scaling group",
    none=("no scaling group is named, and none is discovered", "name them here as min:max:asg-…, or under nodeGroups"),
)
_READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "region": _region,
    "network": _network,
    "overrides": _overrides,
    "access": _access,
    "reserve": reserve(PLACE),
    "calls_per_second": calls_per_second(PLACE, CALLS_PER_SECOND),
}
KNOWN = frozenset({"region", "network", "nodes", "callsPerSecond", "observeSecret", *_ENDPOINTS, *RESERVE, *_ACCESS})
