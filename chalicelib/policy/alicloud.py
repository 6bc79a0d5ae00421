"""spec.providers.alicloud: the settings of Alibaba Cloud's Auto Scaling.

Each value is validated on its own here. The provider validates combinations (complete credentials, groups named twice),
because it also knows the secret and nodeGroups.
"""

from __future__ import annotations

import re

from chalicelib.model.errors import BadInput
from chalicelib.policy.provider_value_types import KUBELET_RESERVE, bounds_of, calls_per_second, https_address
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import SECRET, ValueType, choice, scalar, text

GROUP_ID = r"asg-\S+\Z"


_METADATA = re.compile(r"(https://[^/?#@\s]+|http://(100\.100\.100\.200|localhost|127\.0\.0\.1|\[::1\])(:\d+)?)/?\Z")


def _metadata(value: str) -> str:
    """Accept an address with TLS, or one that providers/http.py calls without."""
    if not _METADATA.match(value):
        raise BadInput("", "is not an address", "write it like http://100.100.100.200")
    return value


_SPECS = bounds_of("id", "1:10:asg-bp18p2yfxow2dloq0001", GROUP_ID, "is not the id of a scaling group")
_ENDPOINT = https_address("https://ess.cn-hangzhou.aliyuncs.com", path=False)
_ARN = text("a resource name", r"acs:[\x21-\x7e]{1,512}", "something like acs:ram::1234567890123456:role/outscaler")

ALICLOUD = Section(
    fields=(
        Field(
            "region",
            text("a region", r"[a-z0-9]+(-[a-z0-9]+)+", "something like cn-hangzhou"),
            "region",
            "Region of the scaling groups (upstream: REGION_ID).",
            required=True,
            example="region: cn-hangzhou",
        ),
        Field("nodes", _SPECS, "nodes", "Scaling groups as upstream's --nodes; others may be in nodeGroups."),
        Field(
            "network", choice(("public", "vpc")), "network", "Which of the vendor's hosts are called.", default="public"
        ),
        Field(
            "credentialsSecret",
            SECRET,
            "credentialsSecret",
            "Secret with accessKeyId, accessKeySecret and perhaps securityToken, as JSON or [global] of an INI.",
        ),
        Field(
            "observeSecret",
            SECRET,
            "observeSecret",
            "The same with keys that may only read, or a role in it that may: what "
            "passes look with, instead of all the "
            "other settings about credentials.",
        ),
        Field("roleArn", _ARN, "roleArn", "Role to assume, by the access key or by OIDC."),
        Field(
            "sessionName",
            text("a session's name", r"[A-Za-z0-9.@_-]{2,64}", "something like outscaler"),
            "sessionName",
            "What the vendor's audit log shows for that role; outscaler-<cluster> if not given.",
        ),
        Field("oidcProviderArn", _ARN, "oidcProviderArn", "OIDC provider for roleArn (RRSA)."),
        Field("oidcTokenSecret", SECRET, "oidcTokenSecret", "Secret with the OIDC token, read again at every renewal."),
        Field(
            "oidcTokenFile", text("a path"), "oidcTokenFile", "The same in a file; for commands on a workstation only."
        ),
        Field(
            "metadataEndpoint",
            ValueType("address", scalar(_metadata, "an address")),
            "metadataEndpoint",
            "Metadata service of an ECS instance to take credentials from; never asked if neither this nor ramRole is "
            "given.",
        ),
        Field(
            "ramRole",
            text("a role's name", r"[A-Za-z0-9._@-]{1,64}", "something like worker-role"),
            "ramRole",
            "The instance's role, to avoid a request to the metadata service for its name.",
        ),
        Field("essEndpoint", _ENDPOINT, "essEndpoint", "Another host for Auto Scaling, scheme included."),
        Field("ecsEndpoint", _ENDPOINT, "ecsEndpoint", "The same for ECS."),
        Field("stsEndpoint", _ENDPOINT, "stsEndpoint", "The same for STS."),
        calls_per_second("10", "Calls per second of all functions together to one product with one account."),
        *KUBELET_RESERVE,
    )
)
