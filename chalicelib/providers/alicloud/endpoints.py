"""The table of hosts by service and region.

The vendor's location service would cost one more call, and upstream can resolve no host when it fails. HTTPS is always
used. The vendor's tables disagree on a few regions, so each host can be overridden.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Service(StrEnum):
    """The three products that are called, named by the first label of their hosts."""

    ESS = "ess"
    ECS = "ecs"
    STS = "sts"


class Network(StrEnum):
    """The network from which they are called."""

    PUBLIC = "public"
    VPC = "vpc"


VERSIONS = {Service.ESS: "2022-02-22", Service.ECS: "2014-05-26", Service.STS: "2015-04-01"}

# Regions that a central host serves on the public network (Alibaba Cloud's list of ESS endpoints).
_ESS_CENTRAL = frozenset(
    {
        "cn-qingdao",
        "cn-beijing",
        "cn-hangzhou",
        "cn-shanghai",
        "cn-shenzhen",
        "cn-hongkong",
        "ap-southeast-1",
        "us-east-1",
        "us-west-1",
        "cn-nanjing",
        "cn-shanghai-finance-1",
        "cn-shenzhen-finance-1",
        "cn-beijing-finance-1",
        "cn-hangzhou-finance",
        "cn-north-2-gov-1",
        "cn-beijing-gov-1",
    }
)
_HANGZHOU = "ecs-cn-hangzhou.aliyuncs.com"
_PINNED: dict[tuple[Service, str], str] = {
    **{(Service.ESS, region): "ess.aliyuncs.com" for region in _ESS_CENTRAL},
    (Service.ECS, "cn-hangzhou"): _HANGZHOU,
    (Service.ECS, "cn-shanghai-finance-1"): _HANGZHOU,
    (Service.ECS, "cn-shenzhen-finance-1"): _HANGZHOU,
    (Service.ECS, "cn-hangzhou-finance"): "ecs.aliyuncs.com",
    (Service.ECS, "cn-north-2-gov-1"): "ecs.aliyuncs.com",
    (Service.ECS, "cn-beijing-gov-1"): "ecs.aliyuncs.com",
}


class Endpoints(msgspec.Struct, frozen=True):
    """overrides: service -> URL of its root, with scheme, without a trailing slash."""

    region: str
    network: Network = Network.PUBLIC
    overrides: dict[Service, str] = {}

    def url(self, service: Service) -> str:
        """Return the service's root, such as `https://ess.aliyuncs.com`."""
        if self.overrides.get(service):
            return self.overrides[service]
        if self.network is Network.VPC:
            return f"https://{service}-vpc.{self.region}.aliyuncs.com"
        return f"https://{_PINNED.get((service, self.region), f'{service}.{self.region}.aliyuncs.com')}"
