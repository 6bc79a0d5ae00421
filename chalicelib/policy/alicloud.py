"""spec.providers.alicloud: the settings of Alibaba Cloud's Auto Scaling.

What agrees with what (which credentials are complete, which group is named twice) is for the provider to say, who also
sees the secret and nodeGroups; here each value is right by itself.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from chalicelib.model.errors import BadInput
from chalicelib.policy.parsers import SECRET, Kind, choice, number, scalar, text
from chalicelib.policy.provider_kinds import amount, as_text, lines_of
from chalicelib.policy.report import quote
from chalicelib.policy.schema import Field, Section

GROUP_ID = r"asg-\S+\Z"

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SPEC_FORM = "write it like 1:10:asg-bp18p2yfxow2dloq0001"


def _spec(value: str) -> str:
    """min:max:id as upstream's --nodes (alicloud.md §2)."""
    match = re.match(r"([+-]?[0-9]{1,9}):([+-]?[0-9]{1,9}):(\S+)\Z", value, re.ASCII)
    if match is None:
        raise BadInput("", f"{quote(value)} is not min:max:id", _SPEC_FORM)
    least, most = int(match[1]), int(match[2])
    if least < 0:
        raise BadInput("", f"the minimum {least} of {quote(value)} is negative", "write 0 or more")
    if most < least:
        raise BadInput("", f"the maximum {most} of {quote(value)} is below the minimum {least}", _SPEC_FORM)
    if not re.match(GROUP_ID, match[3]):
        raise BadInput("", f"{quote(match[3])} is not the id of a scaling group", _SPEC_FORM)
    return value


def _root(value: str) -> str:
    """An address without a path; without TLS on this machine only."""
    try:
        parts = urlsplit(value)
        plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
        right = bool(parts.hostname) and (plain or parts.scheme == "https") and parts.path in {"", "/"}
        right = right and not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise BadInput("", "is not an https address", "write it like https://ess.cn-hangzhou.aliyuncs.com")
    return value


_METADATA = re.compile(r"(https://[^/?#@\s]+|http://(100\.100\.100\.200|localhost|127\.0\.0\.1|\[::1\])(:\d+)?)/?\Z")


def _metadata(value: str) -> str:
    """An address with TLS, or one of those that providers/http.py calls without."""
    if not _METADATA.match(value):
        raise BadInput("", "is not an address", "write it like http://100.100.100.200")
    return value


_SPECS = Kind("list of min:max:id", lines_of(scalar(_spec, "it like 1:10:asg-bp18p2yfxow2dloq0001")), str.split)
_ENDPOINT = Kind("address", scalar(_root, "an https address"))
_ARN = text("a resource name", r"acs:[\x21-\x7e]{1,512}", "something like acs:ram::1234567890123456:role/outscaler")

ALICLOUD = Section(fields=(
    Field("region", text("a region", r"[a-z0-9]+(-[a-z0-9]+)+", "something like cn-hangzhou"), "region",
          "Region of the scaling groups (upstream: REGION_ID).", required=True, example="region: cn-hangzhou"),
    Field("nodes", _SPECS, "nodes", "Scaling groups as upstream's --nodes; others may stand in nodeGroups."),
    Field("network", choice(("public", "vpc")), "network", "Which of the vendor's hosts are called.", default="public"),
    Field("credentialsSecret", SECRET, "credentialsSecret",
          "Secret with accessKeyId, accessKeySecret and perhaps securityToken, as JSON or [global] of an INI."),
    Field("roleArn", _ARN, "roleArn", "Role to assume, by the access key or by OIDC."),
    Field("sessionName", text("a session's name", r"[A-Za-z0-9.@_-]{2,64}", "something like outscaler"), "sessionName",
          "What the vendor's audit log shows for that role; outscaler-<cluster> if not given."),
    Field("oidcProviderArn", _ARN, "oidcProviderArn", "OIDC provider for roleArn (RRSA)."),
    Field("oidcTokenSecret", SECRET, "oidcTokenSecret", "Secret with the OIDC token, read anew at every renewal."),
    Field("oidcTokenFile", text("a path"), "oidcTokenFile", "The same in a file, where a pass runs beside one."),
    Field("metadataEndpoint", Kind("address", scalar(_metadata, "an address")), "metadataEndpoint",
          "Metadata service of an ECS instance to take credentials from; never asked if neither this nor ramRole is "
          "given."),
    Field("ramRole", text("a role's name", r"[A-Za-z0-9._@-]{1,64}", "something like worker-role"), "ramRole",
          "The instance's role, if the metadata service shall not be asked for its name."),
    Field("essEndpoint", _ENDPOINT, "essEndpoint", "Another host for Auto Scaling, scheme included."),
    Field("ecsEndpoint", _ENDPOINT, "ecsEndpoint", "The same for ECS."),
    Field("stsEndpoint", _ENDPOINT, "stsEndpoint", "The same for STS."),
    Field("callsPerSecond", as_text(number(0.1, 1000, "10")), "callsPerSecond",
          "Calls per second of all functions together to one product with one account.", default="10"),
    Field("reservedCpu", amount("cpu", "200m"), "reservedCpu",
          "What the kubelet of a new node keeps back of its cpu; learnt from real nodes otherwise."),
    Field("reservedMemory", amount("memory", "500Mi"), "reservedMemory", "The same for memory."),
    Field("reservedEphemeralStorage", amount("ephemeral-storage", "1Gi"), "reservedEphemeralStorage",
          "The same for ephemeral storage."),
))
