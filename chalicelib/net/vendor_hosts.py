"""Lists the hosts to which a vendor's credentials may be sent: the vendor's own API
hosts, as one ordered table.

An address in a policy determines who receives signed calls and tokens, so a policy may not choose
it freely. A vendor's whole domain would be too wide: it can include customers' own hosts, such as a
bucket of object storage (`NAME.oss-REGION.aliyuncs.com`) or the API server of a cluster
(`ID.cce.REGION.myhuaweicloud.com`). The table therefore names the API hosts, and a host must match
one of them completely.

The deployment can permit other hosts (model/policy_permissions.py). TLS is required, except on this
machine's own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.policy_permissions import ALLOWED_ENDPOINTS, Deployment

# Every region and zone begins with two letters and a dash; product names such as
# `oss-cn-hangzhou` do not.
_REGION = r"[a-z]{2}(-[a-z0-9]{1,20}){1,4}"
_ENVIRONMENT = r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?"

CCE_REGIONS = frozenset(
    {
        "cn-north-1",
        "cn-north-2",
        "cn-north-4",
        "cn-north-9",
        "cn-north-11",
        "cn-north-12",
        "cn-south-1",
        "cn-south-2",
        "cn-south-4",
        "cn-east-2",
        "cn-east-3",
        "cn-east-4",
        "cn-east-5",
        "cn-southwest-2",
        "ap-southeast-1",
        "ap-southeast-2",
        "ap-southeast-3",
        "ap-southeast-4",
        "ap-southeast-5",
        "af-south-1",
        "af-north-1",
        "sa-brazil-1",
        "la-south-2",
        "la-north-2",
        "na-mexico-1",
        "ru-northwest-2",
        "ru-moscow-1",
        "tr-west-1",
        "ae-ad-1",
        "me-east-1",
        "my-kualalumpur-1",
        "eu-west-0",
        "eu-west-101",
    }
)
"""The regions of Huawei Cloud CCE."""


class Vendor(msgspec.Struct, frozen=True):
    """hosts: patterns of the API hosts. keys: settings that contain an API address. places:
    settings from which API hosts are derived, with the required format; any other value could
    produce a different host."""

    hosts: tuple[str, ...]
    keys: tuple[str, ...] = ()
    places: tuple[tuple[str, str], ...] = ()


VENDORS: Mapping[str, Vendor] = MappingProxyType(
    {
        "alicloud": Vendor(
            hosts=(
                rf"(ess|ecs|sts|vpc)(-vpc)?\.{_REGION}\.aliyuncs\.com",
                r"(ess|ecs|sts)(\.vpc-proxy)?\.aliyuncs\.com",
                r"ecs-cn-hangzhou\.aliyuncs\.com",
            ),
            keys=("essEndpoint", "ecsEndpoint", "stsEndpoint", "vpcEndpoint"),
            places=(("region", _REGION),),
        ),
        "cherryservers": Vendor(hosts=(r"api\.cherryservers\.com",), keys=("endpoint",)),
        "clusterapi": Vendor(hosts=()),  # its hosts are in kubeconfigs, which are secrets
        "exoscale": Vendor(
            hosts=(rf"{_ENVIRONMENT}-[a-z]{{2}}-[a-z]{{3}}-[0-9]{{1,3}}\.exoscale\.com",),
            keys=("endpoint",),
            places=(("zone", r"[a-z]{2}-[a-z]{3}-[0-9]{1,3}"), ("environment", _ENVIRONMENT)),
        ),
        "huaweicloud": Vendor(
            hosts=(
                rf"(cce|ecs|iam)\.{_REGION}\.myhuaweicloud\.(com|eu)",
                r"(iam|bss)\.myhuaweicloud\.(com|eu)",
                r"bss-intl\.myhuaweicloud\.com",
            ),
            keys=("cceEndpoint", "ecsEndpoint", "iamEndpoint", "bssEndpoint"),
            places=(("region", _REGION),),
        ),
    }
)

EXOSCALE_PRICES, EXOSCALE_PRICES_KEY = "exoscale prices", "priceList"
"""The public list of prices, which is read without a credential."""
_PRICE_HOST = r"portal\.exoscale\.com"
METADATA_SERVICE, METADATA_KEY = "alicloud metadata", "metadataEndpoint"
METADATA = "http://100.100.100.200"
"""The metadata service of Alibaba Cloud instances, on a link-local address and without TLS."""

_OTHER_ADDRESSES = MappingProxyType({
    "alicloud": ((METADATA_KEY, METADATA_SERVICE),),
    "exoscale": ((EXOSCALE_PRICES_KEY, EXOSCALE_PRICES),),
})  # fmt: skip
"""Settings with the address of another service of the vendor, and its name."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The permitted form of an address: no user, no escape, no query, no fragment, no
# trailing dot, lower case only.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(:(?"
    r"P<port>[0-9]{1,5}))?"
    r"(?P<path>/[A-Za-z0-9._~/-]{0,200})?\Z"
)
_NOT_PLAIN = (
    "is not a plain https address: small letters, no user, no escapes, no query, no dot at the "
    "host's end"
)


def refused(vendor: str, url: str, deployment: Deployment) -> str:
    """Return why a vendor's calls may not go to this address, "" if they may. url: its root,
    optionally with a path. vendor: a provider's name, or METADATA_SERVICE."""
    address = _ADDRESS.match(url)
    if address is None or ".." in url or not 0 < int(address["port"] or 443) < 65536:
        return _NOT_PLAIN
    scheme, host, port = address["scheme"], address["host"], int(address["port"] or 0)
    here, tls = host in _LOOPBACK, scheme == "https"
    named = f"{host}:{port}" if port else host
    if vendor == METADATA_SERVICE and url.rstrip("/") == METADATA:
        return ""
    if not (tls or here):
        return "is not an https address"
    if (here and deployment.loopback) or named in deployment.endpoints:
        return ""
    if tls and port in {0, 443} and _is_of(vendor, host):
        return ""
    return f"{named} is not an API host of {vendor}, and the deployment does not permit it"


def mistakes(
    vendor: str, settings: Mapping[str, str], deployment: Deployment
) -> Iterator[tuple[str, str, str]]:
    """Return (key, problem, remedy) for each of a provider's settings that names a file or would
    send its calls to another host."""
    table = VENDORS.get(vendor, Vendor(hosts=()))
    addresses = [(key, vendor) for key in table.keys]
    addresses += _OTHER_ADDRESSES.get(vendor, ())
    for key, service in addresses:
        if (url := settings.get(key, "").strip()) and (
            problem := refused(service, url, deployment)
        ):
            yield (
                key,
                problem,
                f"remove it, or have the deployment list its host in {ALLOWED_ENDPOINTS}",
            )
    for key, form in table.places:
        if (text := settings.get(key, "").strip()) and not re.fullmatch(form, text, re.ASCII):
            yield key, "cannot be part of a vendor host name", "write it as the vendor does"
    for key in sorted(settings):
        if key.endswith("File") and settings[key] and not deployment.files:
            yield key, FILE_PROBLEM, FILE_REMEDY


FILE_PROBLEM = "names a local file, which only commands on a workstation may read"
FILE_REMEDY = "put its content into a secret, and name that by the key that ends in Secret"


def _is_of(vendor: str, host: str) -> bool:
    hosts = VENDORS[vendor].hosts if vendor in VENDORS else ()
    forms = (_PRICE_HOST,) if vendor == EXOSCALE_PRICES else hosts
    return any(re.fullmatch(form, host) for form in forms)
