"""Selection of API hosts; requests never leave without TLS."""

from __future__ import annotations

from chalicelib.providers.alicloud.settings import Endpoints, Network, Service
from tests.cases import each_row


@each_row(
    ("service", "region", "network", "host"),
    [
        (Service.ESS, "cn-hangzhou", Network.PUBLIC, "ess.aliyuncs.com"),
        (Service.ESS, "ap-southeast-1", Network.PUBLIC, "ess.aliyuncs.com"),
        (Service.ESS, "cn-hongkong", Network.PUBLIC, "ess.aliyuncs.com"),
        (Service.ESS, "cn-north-2-gov-1", Network.PUBLIC, "ess.aliyuncs.com"),
        (Service.ESS, "eu-central-1", Network.PUBLIC, "ess.eu-central-1.aliyuncs.com"),
        (Service.ESS, "cn-hangzhou", Network.VPC, "ess-vpc.cn-hangzhou.aliyuncs.com"),
        (Service.ECS, "cn-hangzhou", Network.PUBLIC, "ecs-cn-hangzhou.aliyuncs.com"),
        (Service.ECS, "cn-beijing", Network.PUBLIC, "ecs.cn-beijing.aliyuncs.com"),
        (Service.ECS, "cn-hangzhou", Network.VPC, "ecs-vpc.cn-hangzhou.aliyuncs.com"),
        (Service.STS, "eu-central-1", Network.PUBLIC, "sts.eu-central-1.aliyuncs.com"),
        (Service.STS, "eu-central-1", Network.VPC, "sts-vpc.eu-central-1.aliyuncs.com"),
    ],
)
def test_alicloud_every_endpoint_uses_tls(
    service: Service, region: str, network: Network, host: str
) -> None:
    assert Endpoints(region, network).url(service) == f"https://{host}"


def test_alicloud_endpoint_override_applies_to_one_service() -> None:
    endpoints = Endpoints("cn-hangzhou", overrides={Service.ESS: "https://ess.example.com"})
    assert endpoints.url(Service.ESS) == "https://ess.example.com"
    assert endpoints.url(Service.ECS) == "https://ecs-cn-hangzhou.aliyuncs.com"
