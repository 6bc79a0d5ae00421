"""spec.providers.alicloud: the settings of Alibaba Cloud's Auto Scaling.

Upstream reads these from flags, a file and environment variables. A function that serves many
clusters has none of them, so they are settings in each cluster's policy (docs/policy.md "alicloud"
maps the variables). Which credentials are complete is the provider's to say
(providers/alicloud/settings.py).
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.value_types import (
    BOOLEAN,
    SECRET,
    bounds_of,
    choice,
    https_address,
    number,
    scalar,
    text,
)
from chalicelib.policy.vendors.settings import (
    GroupForm,
    ReservedCpu,
    ReservedEphemeralStorage,
    ReservedMemory,
    VendorSettings,
    entry_bounds,
)


class AlicloudBounds(msgspec.Struct, frozen=True):
    """One scaling group of the policy: its id, its size limits and its priority."""

    id: str
    min: int
    max: int
    priority: int = 0


def _parse_metadata_address(value: str) -> str:
    """Accept an address with TLS, or one that providers/kit/http.py calls without."""
    plain = r"http://(100\.100\.100\.200|localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
    if re.fullmatch(rf"(https://[^/?#@\s]+|{plain})/?", value) is None:
        raise BadInput("", "is not an address", "write it like http://100.100.100.200")
    return value


_GROUP_ID = r"asg-\S+"
_ENDPOINT = https_address("https://ess.cn-hangzhou.aliyuncs.com", path=False)
_ARN = text(
    "a resource name",
    r"acs:[\x21-\x7e]{1,512}",
    "something like acs:ram::1234567890123456:role/outscaler",
)


class AlicloudSection(VendorSettings, frozen=True):
    """spec.providers.alicloud. groups: those that the policy names."""

    vendor: ClassVar = "alicloud"
    states_prices: ClassVar = True
    states_spot_prices: ClassVar = True
    spot_notice: ClassVar = 300.0
    group_id: ClassVar = _GROUP_ID
    group_example: ClassVar = "asg-bp18p2yfxow2dloq0001"

    region: Annotated[
        str,
        text("a region", r"[a-z0-9]+(-[a-z0-9]+)+", "something like cn-hangzhou"),
        "Region of the scaling groups (upstream: REGION_ID).",
    ]
    nodes: Annotated[
        tuple[tuple[int, int, str], ...],
        bounds_of(
            "id", "1:10:asg-bp18p2yfxow2dloq0001", _GROUP_ID, "is not the id of a scaling group"
        ),
        "Scaling groups as upstream's --nodes; others may be in nodeGroups.",
    ] = ()
    network: Annotated[
        str, choice(("public", "vpc")), "Which of the vendor's hosts are called."
    ] = "public"
    credentials_secret: Annotated[
        str,
        SECRET,
        (
            "Secret with accessKeyId, accessKeySecret and perhaps securityToken, as JSON or "
            "[global] of an INI."
        ),
    ] = ""
    observe_secret: Annotated[
        str,
        SECRET,
        "The same with keys that may only read, or a role in it that may: what passes look with, "
        "instead of all the "
        "other settings about credentials.",
    ] = ""
    role_arn: Annotated[str, _ARN, "Role to assume, by the access key or by OIDC."] = ""
    session_name: Annotated[
        str,
        text("a session's name", r"[A-Za-z0-9.@_-]{2,64}", "something like outscaler"),
        "What the vendor's audit log shows for that role; outscaler-<cluster> if not given.",
    ] = ""
    oidc_provider_arn: Annotated[str, _ARN, "OIDC provider for roleArn (RRSA)."] = ""
    oidc_token_secret: Annotated[
        str, SECRET, "Secret with the OIDC token, read again at every renewal."
    ] = ""
    oidc_token_file: Annotated[
        str, text("a path"), "The same in a file; for commands on a workstation only."
    ] = ""
    metadata_endpoint: Annotated[
        str,
        scalar("address", _parse_metadata_address, "an address"),
        "Metadata service of an ECS instance to take credentials from; never asked if neither this "
        "nor ramRole is "
        "given.",
    ] = ""
    ram_role: Annotated[
        str,
        text("a role's name", r"[A-Za-z0-9._@-]{1,64}", "something like worker-role"),
        "The instance's role, to avoid a request to the metadata service for its name.",
    ] = ""
    ess_endpoint: Annotated[str, _ENDPOINT, "Another host for Auto Scaling, scheme included."] = ""
    ecs_endpoint: Annotated[str, _ENDPOINT, "The same for ECS."] = ""
    sts_endpoint: Annotated[str, _ENDPOINT, "The same for STS."] = ""
    vpc_endpoint: Annotated[str, _ENDPOINT, "The same for VPC."] = ""
    calls_per_second: Annotated[
        float,
        number(0.1, 1000, "10"),
        "Calls per second of all functions together to one product with one account.",
    ] = 10.0
    read_prices: Annotated[
        bool,
        BOOLEAN,
        (
            "Ask ECS what the instance types cost; groups have no price from the vendor if the key "
            "may not."
        ),
    ] = True
    reserved_cpu: ReservedCpu = None
    reserved_memory: ReservedMemory = None
    reserved_ephemeral_storage: ReservedEphemeralStorage = None
    groups: tuple[AlicloudBounds, ...] = ()


def _of_entry(group_policy: GroupPolicy) -> AlicloudBounds:
    return AlicloudBounds(group_policy.id, *entry_bounds(group_policy), group_policy.priority)


GROUPS = GroupForm(
    of_spec=lambda least, most, name: AlicloudBounds(name, least, most),
    of_entry=_of_entry,
    name=lambda bounds: bounds.id,
    noun="each scaling group",
    none=(
        "no scaling group is named, and none is discovered",
        "name them here as min:max:asg-…, or under nodeGroups",
    ),
)
