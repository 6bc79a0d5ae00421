"""Hosts that vendor calls may reach, with addresses that only look like a vendor's."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import STRICT, Deployment, deployment_of
from chalicelib.net.vendor_hosts import (
    CCE_REGIONS,
    METADATA,
    METADATA_SERVICE,
    mistakes,
    refused,
)
from chalicelib.providers.alicloud.settings import Endpoints, Network
from chalicelib.providers.alicloud.settings import Service as AliService
from chalicelib.providers.huaweicloud.models import Service, url_of
from tests.cases import each_row

OWN = [
    ("alicloud", "https://ess.aliyuncs.com"),
    ("alicloud", "https://sts-vpc.cn-hangzhou.aliyuncs.com"),
    ("alicloud", "https://ecs-cn-hangzhou.aliyuncs.com"),
    ("alicloud", "https://ecs.cn-hangzhou-finance.aliyuncs.com/"),
    ("alicloud", "https://ess.vpc-proxy.aliyuncs.com:443"),
    ("cherryservers", "https://api.cherryservers.com/v1"),
    ("exoscale", "https://api-ch-gva-2.exoscale.com/v2"),
    ("exoscale", "https://ppapi-hr-zag-1.exoscale.com"),
    ("huaweicloud", "https://cce.eu-west-101.myhuaweicloud.eu"),
    ("huaweicloud", "https://iam.myhuaweicloud.com"),
]
# Each of them contains a part of the vendor's name.
FOREIGN = [
    "https://api.cherryservers.com.evil.io",
    "https://api.cherryservers.com@evil.io",
    "https://evil.io/api.cherryservers.com",
    "https://evil.io/#.cherryservers.com",
    "https://evil.io/?api.cherryservers.com",
    "https://evil.io#@api.cherryservers.com",
    "https://api.cherryservers.com:pw@evil.io",
    "https://evilcherryservers.com",
    "https://evil.cherryservers.com",
    "https://cherryservers.com",
    "https://api.cherryservers.com.",
    "https://API.cherryservers.com",
    "https://api.cherryservers.com:8443",
    "https://api.cherryservers.com:0",
    "https://api.cherryservers.com:99999",
    "https://api.cherryservers.com:443:1",
    "https://api.cherryservers.com%2eevil.io",
    "https://api%2echerryservers.com",
    "https://api.cherryservers.com\\@evil.io",
    "https://evil.io\\.cherryservers.com",
    "https://api.cherryservers.com\n.evil.io",
    "https://api.cherryservers.com\t",
    " https://api.cherryservers.com",
    "https://api.cherryservers.c\u043em",
    "https://\uff41pi.cherryservers.com",
    "https://api\u3002cherryservers.com",
    "https://api.xn--cherryservers-x.com",
    "http://api.cherryservers.com",
    "ftp://api.cherryservers.com",
    "//api.cherryservers.com",
    "api.cherryservers.com",
    "https:api.cherryservers.com",
    "https:///api.cherryservers.com",
    "https://[::ffff:127.0.0.1]",
    "https://[::1]",
    "https://[fe80::1%25api.cherryservers.com]",
    "https://127.0.0.1",
    "http://127.1",
    "http://2130706433",
    "http://0x7f000001",
    "http://localhost:8080",
    "https://169.254.169.254",
    "http://169.254.170.2",
    METADATA,
    "https://api.cherryservers.com/v1/../../x",
    "https://api.cherryservers.com/%2e%2e/x",
    "",
]
OF_CUSTOMERS = [
    ("alicloud", "https://ess.oss-cn-hangzhou.aliyuncs.com"),
    ("alicloud", "https://mine.oss-cn-hangzhou.aliyuncs.com"),
    ("alicloud", "https://1234567890123456.cn-hangzhou.fc.aliyuncs.com"),
    ("alicloud", "https://aliyuncs.com"),
    ("huaweicloud", "https://cce.obs.cn-north-4.myhuaweicloud.com"),
    ("huaweicloud", "https://cce.obs.myhuaweicloud.com"),
    (
        "huaweicloud",
        "https://2292498e-1111-11ee-8b5e-0255ac1001ba.cce.cn-north-4.myhuaweicloud.com",
    ),
    ("exoscale", "https://mine.sos-ch-gva-2.exo.io"),
    ("exoscale", "https://a.b-ch-gva-2.exoscale.com"),
    ("exoscale", "https://ess.aliyuncs.com"),
    ("nobody", "https://ess.aliyuncs.com"),
]


@each_row(("vendor", "url"), OWN)
def test_endpoints_of_a_vendors_own_api_are_allowed(vendor: str, url: str) -> None:
    assert refused(vendor, url, STRICT) == ""


@each_row("url", FOREIGN)
def test_endpoints_that_only_look_like_a_vendors_are_refused(url: str) -> None:
    assert refused("cherryservers", url, STRICT)


@each_row(("vendor", "url"), OF_CUSTOMERS)
def test_endpoints_of_customers_under_a_vendors_domain_are_refused(vendor: str, url: str) -> None:
    assert refused(vendor, url, STRICT)


def test_endpoints_derived_by_the_providers_belong_to_the_vendor() -> None:
    regions = (
        "cn-hangzhou",
        "cn-north-2-gov-1",
        "ap-southeast-1",
        "cn-shanghai-finance-1",
        "me-east-1",
        "na-south-1",
    )
    derived = [
        ("alicloud", Endpoints(region, network).url(service))
        for region in regions
        for network in Network
        for service in AliService
    ]
    derived += [
        ("huaweicloud", url_of(service, region))
        for region in (*CCE_REGIONS, "xx-new-1")
        for service in Service
    ]
    assert [pair for pair in derived if refused(*pair, STRICT)] == []


@each_row(
    ("vendor", "settings", "key"),
    [
        ("alicloud", {"region": "oss-cn-hangzhou"}, "region"),
        ("huaweicloud", {"region": "obs-cn-north-4"}, "region"),
        ("alicloud", {"region": "cn-hangzhou.evil"}, "region"),
        ("exoscale", {"zone": "ch-gva-2.evil.io/"}, "zone"),
        ("exoscale", {"environment": "evil.io/"}, "environment"),
        ("alicloud", {"oidcTokenFile": "x"}, "oidcTokenFile"),
        ("anything", {"someNewFile": "x"}, "someNewFile"),
    ],
)
def test_endpoints_settings_that_change_the_host_or_name_a_file_are_refused(
    vendor: str,
    settings: dict[str, str],
    key: str,
) -> None:
    assert [found for found, *_ in mistakes(vendor, settings, STRICT)] == [key]


def test_endpoints_of_other_hosts_need_permission_of_the_deployment() -> None:
    given = Deployment(
        endpoints=frozenset({"proxy.example.com:8443", "api.example.com", "127.0.0.1:8080"})
    )
    may = ["https://proxy.example.com:8443", "https://api.example.com/v1", "http://127.0.0.1:8080"]
    may_not = [
        "https://proxy.example.com",
        "http://proxy.example.com:8443",
        "https://api.example.com:8443",
        "https://x.api.example.com",
        "http://127.0.0.1:8081",
        "http://127.0.0.1",
    ]
    assert [url for url in may if refused("exoscale", url, given)] == []
    assert [url for url in may_not if not refused("exoscale", url, given)] == []


def test_endpoints_on_loopback_are_allowed_outside_lambda_only() -> None:
    here, there = deployment_of({}), deployment_of({"AWS_LAMBDA_FUNCTION_NAME": "f"})
    for url in ("http://127.0.0.1:8080", "http://localhost", "http://[::1]:9"):
        assert not refused("exoscale", url, here)
        assert refused("exoscale", url, there)


def test_endpoints_metadata_service_has_one_address_and_one_use() -> None:
    assert not refused(METADATA_SERVICE, METADATA, STRICT)
    for url in (
        "http://100.100.100.200:80",
        "http://100.100.100.200.evil.io",
        "http://169.254.169.254",
        "https://evil.io",
        "http://100.100.100.200/x",
        "https://100.100.100.200",
    ):
        assert refused(METADATA_SERVICE, url, STRICT)
    assert refused("alicloud", METADATA, STRICT)


@each_row(
    ("variable", "text"),
    [
        ("OUTSCALER_ALLOWED_ENDPOINTS", "https://evil.io"),
        ("OUTSCALER_ALLOWED_ENDPOINTS", "*.example.com"),
        ("OUTSCALER_ALLOWED_ENDPOINTS", "a,B"),
        ("OUTSCALER_SHARED_SECRETS", "outscaler/*"),
        ("OUTSCALER_SECRET_PREFIX", "a b/"),
        ("OUTSCALER_SECRET_PREFIX", "outscaler-"),
    ],
)
def test_endpoints_invalid_variable_is_named(variable: str, text: str) -> None:
    with pytest.raises(BadInput, match=variable):
        deployment_of({variable: text})
    assert deployment_of({"OUTSCALER_SHARED_SECRETS": " a/b , c ,"}).shared_secrets == {"a/b", "c"}
