"""The table of hosts by service and region, taken from the vendor's own client.

A region that is not in the table uses the common pattern, because the vendor opens new ones; the policy warns about it.
"""

from __future__ import annotations

from enum import StrEnum

from chalicelib.model.vendor_hosts import CCE_REGIONS


class Service(StrEnum):
    """The three services that are called, named by the first label of their hosts."""

    CCE = "cce"
    ECS = "ecs"
    IAM = "iam"


_DOMAINS = {"eu-west-101": "myhuaweicloud.eu"}
_DOMAIN = "myhuaweicloud.com"
# Regions without their own IAM in the vendor's client (3.1.219), which use the global one. eu-west-101 is missing
# there too, but it is a separate partition with its IAM under its own domain.
_GLOBAL_IAM = frozenset({"cn-north-11", "cn-south-4", "ap-southeast-5", "af-north-1", "ru-northwest-2"})


def url_of(service: Service, region: str) -> str:
    """Return the service's root, such as `https://cce.cn-north-4.myhuaweicloud.com`."""
    domain = _DOMAINS.get(region, _DOMAIN)
    if service is Service.IAM and (region in _GLOBAL_IAM or region not in CCE_REGIONS):
        return f"https://iam.{domain}"
    return f"https://{service}.{region}.{domain}"
