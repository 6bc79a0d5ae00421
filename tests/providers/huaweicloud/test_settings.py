"""The settings of a policy as the provider reads them, and their errors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.net.vendor_hosts import CCE_REGIONS
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.vendors.huaweicloud import Agency, CceBounds, CceSettings, read_settings
from chalicelib.policy.vendors.settings import keys_of
from chalicelib.providers.huaweicloud.models import Service, url_of
from infra.emulators.huaweicloud.account import PROJECT
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import CLUSTER, POOL, entry

SMALL = {"region": "cn-north-4", "clusterId": CLUSTER, "credentialsSecret": "key"}


def test_huawei_settings_minimal_ones_suffice() -> None:
    found = read_settings(SMALL)
    assert (found.region, found.cluster_id, found.project_id, found.agency, found.groups) == (
        "cn-north-4",
        CLUSTER,
        "",
        None,
        (),
    )
    assert (
        found.autodiscovery,
        found.warn_about_addon,
        found.calls_per_second,
        found.known_region,
    ) == (
        True,
        True,
        10.0,
        True,
    )
    assert [
        found.endpoints.get(service) or url_of(service, found.region) for service in Service
    ] == [
        "https://cce.cn-north-4.myhuaweicloud.com",
        "https://ecs.cn-north-4.myhuaweicloud.com",
        "https://iam.cn-north-4.myhuaweicloud.com",
        "https://bss.myhuaweicloud.com",
    ]


def test_huawei_settings_are_all_read_and_trimmed() -> None:
    found = read_settings(
        SMALL
        | {
            "clusterId": f" {CLUSTER.upper()}\n",
            "projectId": PROJECT,
            "agencyName": "scaler",
            "agencyDomain": "Ops Team",
            "agencyDuration": "900",
            "cceEndpoint": "https://cce.example.com/",
            "ecsEndpoint": "http://127.0.0.1:8080",
            "iamEndpoint": "https://iam.example.com",
            "bssEndpoint": "https://bss.example.com",
            "readPrices": "false",
            "nodes": f"0:5:pool-a\n1:3:{POOL.upper()}/c7-az2\n",
            "autodiscovery": "false",
            "warnAboutAddon": "false",
            "callsPerSecond": "2.5",
            "reservedCpu": "200m",
            "reservedMemory": "500Mi",
        },
        [entry("pool-b/default", 0, 4, 7)],
    )
    assert (found.cluster_id, found.project_id, found.agency) == (
        CLUSTER,
        PROJECT,
        Agency("scaler", "Ops Team", 900),
    )
    assert [found.endpoints.get(service) for service in Service] == [
        "https://cce.example.com",
        "http://127.0.0.1:8080",
        "https://iam.example.com",
        "https://bss.example.com",
    ]
    assert not found.read_prices
    assert found.groups == (
        CceBounds("pool-a", 0, 5),
        CceBounds(f"{POOL}/c7-az2", 1, 3),
        CceBounds("pool-b/default", 0, 4, 7),
    )
    assert (found.autodiscovery, found.warn_about_addon, found.calls_per_second) == (
        False,
        False,
        2.5,
    )
    assert found.reserve == {"cpu": 200, "memory": 500 * 2**20}


@each_row(
    ("region", "service", "url"),
    [
        ("eu-west-101", Service.CCE, "https://cce.eu-west-101.myhuaweicloud.eu"),
        ("eu-west-101", Service.IAM, "https://iam.eu-west-101.myhuaweicloud.eu"),
        ("eu-west-0", Service.ECS, "https://ecs.eu-west-0.myhuaweicloud.com"),
        ("cn-north-11", Service.IAM, "https://iam.myhuaweicloud.com"),
        ("xx-moon-1", Service.IAM, "https://iam.myhuaweicloud.com"),
        ("xx-moon-1", Service.CCE, "https://cce.xx-moon-1.myhuaweicloud.com"),
    ],
)
def test_huawei_settings_each_region_has_its_endpoints(
    region: str, service: Service, url: str
) -> None:
    assert url_of(service, region) == url


def test_huawei_settings_unknown_region_is_tried() -> None:
    assert not read_settings(SMALL | {"region": "xx-moon-1"}).known_region
    assert len(CCE_REGIONS) == 33


@each_row(
    ("changed", "place", "problem"),
    [
        ({"region": ""}, "region", "is missing"),
        ({"region": "North"}, "region", "is not a region"),
        ({"clusterId": ""}, "clusterId", "is missing"),
        ({"clusterId": "prod/../x"}, "clusterId", "is not the id"),
        ({"credentialsSecret": ""}, "credentialsSecret", "is missing"),
        ({"projectId": "p/../.."}, "projectId", "is not the id"),
        ({"agencyName": "a"}, "agencyDomain", "is missing, but"),
        ({"agencyDomain": "a"}, "agencyName", "is missing, but"),
        ({"agencyDuration": "900"}, "agencyName", "is missing, but"),
        (
            {"agencyName": "a", "agencyDomain": "b", "agencyDuration": "899"},
            "agencyDuration",
            "out of range",
        ),
        (
            {"agencyName": "a", "agencyDomain": "b", "agencyDuration": "86401"},
            "agencyDuration",
            "out of range",
        ),
        (
            {"agencyName": "a", "agencyDomain": "b", "agencyDuration": "1h"},
            "agencyDuration",
            "is not a whole number",
        ),
        ({"cceEndpoint": "http://cce.example.com"}, "cceEndpoint", "not an https"),
        ({"ecsEndpoint": "https://a:b@ecs.example.com"}, "ecsEndpoint", "not an https"),
        ({"iamEndpoint": "https://iam.example.com/v3"}, "iamEndpoint", "not an https"),
        ({"autodiscovery": "maybe"}, "autodiscovery", "is not true or false"),
        ({"autodiscovery": "false"}, "autodiscovery", "no pool is named"),
        ({"warnAboutAddon": "1"}, "warnAboutAddon", "is not true or false"),
        ({"callsPerSecond": "0"}, "callsPerSecond", "out of range"),
        ({"reservedCpu": "much"}, "reservedCpu", ""),
        ({"nodes": "1:0:a"}, "nodes", "below the minimum"),
        ({"nodes": "-1:3:a"}, "nodes", "negative"),
        ({"nodes": "0:3"}, "nodes", "is not min:max:pool"),
        ({"nodes": "0:3:/default"}, "nodes", "names no pool"),
        ({"nodes": "0:3:a/"}, "nodes", "names no scale group"),
        ({"nodes": "0:3:a\n1:2:a"}, "nodes", "given twice"),
        ({"nodes": f"0:3:{POOL}\n1:2:{POOL.upper()}"}, "nodes", "given twice"),
        ({"zone": "a"}, "zone", "no such setting"),
    ],
)
def test_huawei_settings_errors_name_their_path(
    changed: dict[str, str], place: str, problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        read_settings(SMALL | changed)
    assert raised.value.place == f"providers.huaweicloud.{place}"
    assert problem in raised.value.problem
    assert raised.value.remedy


@each_row(
    ("entries", "problem"),
    [
        ([entry("pool-a"), entry("pool-a")], "given twice"),
        ([entry(POOL), entry(POOL.upper())], "given twice"),
        ([entry("pool-a", 3, 2)], "below min"),
        ([entry("pool-a", -1)], "negative"),
        ([entry(" ")], "names no pool"),
    ],
)
def test_huawei_settings_invalid_node_group_entry_is_named(
    entries: list[GroupPolicy], problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        read_settings(SMALL, entries)
    assert raised.value.place.startswith("nodeGroups: ")
    assert problem in raised.value.problem


def test_huawei_settings_entry_fields_are_optional() -> None:
    found = read_settings(
        SMALL | {"autodiscovery": "false"},
        [
            entry("pool-a"),
            entry("pool-b", None, 0),
            entry("pool-c/az2", 2),
            GroupPolicy("exoscale", "web"),
        ],
    )
    assert found.groups == (
        CceBounds("pool-a"),
        CceBounds("pool-b", None, 0),
        CceBounds("pool-c/az2", 2),
    )


def test_huawei_settings_errors_are_reported_all_at_once() -> None:
    with pytest.raises(InputErrors) as raised:
        read_settings(
            {"region": "?", "nodes": "a\n2:1:b", "cceEndpoint": "x", "extra": "y"}, [entry("/")]
        )
    places = [each.place.removeprefix("providers.huaweicloud.") for each in raised.value.problems]
    assert sorted(places) == sorted(
        [
            "region",
            "clusterId",
            "credentialsSecret",
            "nodes",
            "nodes",
            "nodeGroups: /",
            "cceEndpoint",
            "extra",
        ]
    )


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(keys_of(CceSettings))), st.text(max_size=40)))
def test_huawei_settings_arbitrary_input_is_refused_and_never_crashes(
    given_settings: dict[str, str],
) -> None:
    try:
        read_settings(SMALL | given_settings)
    except (BadInput, InputErrors):
        return


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_huawei_settings_group_spec_is_read_or_refused(text: str) -> None:
    try:
        groups = read_settings(SMALL | {"nodes": text}).groups
    except BadInput:
        return
    assert bool(groups) == bool(text.strip())
    assert all(bounds.min is not None and bounds.max is not None for bounds in groups)
    assert all(0 <= (bounds.min or 0) <= (bounds.max or 0) for bounds in groups)
