"""Tests of the API requests and the decoding of their answers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.providers.alicloud.decoding import GroupsPage, TypesAnswer, decode
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.kit.errors import (
    NotFound,
    ProviderError,
    Transient,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.kit.http import VendorResponse
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.alicloud.emulated import (
    GROUP,
    action,
    answering,
    groups_page,
    ids_in,
    instances_page,
    refusal,
)
from tests.providers.emulated import KeptCache


def test_alicloud_api_call_is_a_signed_post_with_all_parameters_in_the_query() -> None:
    ess = answering(groups_page(GROUP))
    assert list(ess.api().groups([GROUP])) == [GROUP]
    [request] = ess.server.requests
    assert (request.method, request.path, request.body) == ("POST", "/", b"")
    assert request.parameters() == {
        "RegionId": "cn-hangzhou",
        "PageNumber": "1",
        "PageSize": "50",
        "ScalingGroupIds.1": GROUP,
    }
    assert action(request) == "DescribeScalingGroups"
    assert request.headers["x-acs-version"] == "2022-02-22"
    assert request.headers["x-acs-date"] == "2027-01-15T08:00:00Z"
    assert re.fullmatch("[0-9a-f]{32}", request.headers["x-acs-signature-nonce"])
    assert request.headers["authorization"]
    assert "x-acs-security-token" not in request.headers


def test_alicloud_api_reads_twenty_groups_per_call_and_repeats_none() -> None:
    ids = [f"asg-{number:03d}" for number in range(45)]

    def answer(request: Incoming) -> Answer:
        return groups_page(*ids_in(request, "ScalingGroupIds"))

    ess = answering(answer)
    found = ess.api().groups([*ids, ids[0]])
    assert sorted(found) == ids
    assert len(ess.server.requests) == 3


def test_alicloud_api_ignores_a_group_that_was_not_requested() -> None:
    ess = answering(groups_page(GROUP, "asg-of-somebody-else"))
    assert list(ess.api().groups([GROUP])) == [GROUP]


def test_alicloud_api_group_counted_but_not_listed_blocks_no_other() -> None:
    """The vendor may omit inactive groups from a query by id."""
    shown = scripted(200, {"TotalCount": 2, "ScalingGroups": [{"ScalingGroupId": GROUP}]})
    ess = answering(shown)
    assert list(ess.api().groups([GROUP, "asg-inactive"])) == [GROUP]
    assert len(ess.server.requests) == 1


def test_alicloud_api_unknown_groups_are_absent() -> None:
    ess = answering(groups_page())
    assert ess.api().groups([GROUP]) == {}


def paged(total: int) -> Callable[[Incoming], Answer]:
    def answer(request: Incoming) -> Answer:
        first = (int(request.parameters()["PageNumber"]) - 1) * int(
            request.parameters()["PageSize"]
        )
        return instances_page(range(first, min(total, first + 50)), total)

    return answer


@each_row(("total", "calls"), [(0, 1), (1, 1), (50, 1), (51, 2), (137, 3)])
def test_alicloud_api_reads_pages_of_fifty_to_the_end(total: int, calls: int) -> None:
    ess = answering(paged(total))
    found = ess.api().instances(GROUP)
    assert [each.instance_id for each in found] == [f"i-{number:04d}" for number in range(total)]
    assert len(ess.server.requests) == calls


@each_row(
    ("bad", "cls"),
    [
        (refusal("Forbidden.RAM", 403), Unauthorized),
        (scripted(200, b'{"TotalCount": 137, "ScalingInst'), Transient),
        (scripted(200, "<html>", {"Content-Type": "text/html"}), Transient),
        (scripted(200, {"RequestId": "r"}), Unknown),
        (scripted(200, {"TotalCount": 137, "ScalingInstances": "many"}), Unknown),
    ],
)
def test_alicloud_api_failed_page_fails_the_read(bad: Answer, cls: type[ProviderError]) -> None:
    def answer(request: Incoming) -> Answer:
        return bad if request.parameters()["PageNumber"] == "2" else paged(137)(request)

    ess = answering(answer)
    with pytest.raises(cls, match="DescribeScalingInstances"):
        ess.api().instances(GROUP)


def test_alicloud_api_list_that_changed_during_the_read_is_read_once_more() -> None:
    """An instance that vanishes between two pages shifts another one out of the result."""
    replies = [
        instances_page(range(50), 60),
        instances_page(range(51, 60), 60),
        instances_page(range(50), 59),
        instances_page(range(51, 60), 59),
    ]
    ess = answering(*replies)
    assert len(ess.api().instances(GROUP)) == 59


def test_alicloud_api_list_with_a_changing_total_is_read_once_more() -> None:
    """i-0003 vanished after the first page was read, so that i-0050 moved from the
    second page to the first: the number of instances matches the last page's total, but
    one of them no longer exists."""
    replies = [
        instances_page(range(50), 100),
        instances_page(range(51, 100), 99),
        instances_page(range(1, 51), 99),
        instances_page(range(51, 100), 99),
    ]
    ess = answering(*replies)
    found = {each.instance_id for each in ess.api().instances(GROUP)}
    assert {"i-0050", "i-0099"} <= found
    assert "i-0000" not in found


def test_alicloud_api_reads_instances_by_twenty_ids_and_unknown_ones_are_absent() -> None:
    def answer(request: Incoming) -> Answer:
        asked = ids_in(request, "InstanceIds")
        assert 1 <= len(asked) <= 20
        return scripted(
            200,
            {
                "TotalCount": 2,
                "ScalingInstances": [
                    {"InstanceId": asked[0], "ScalingGroupId": "asg-2"},
                    {"InstanceId": "i-nobody-asked-for"},
                ],
            },
        )

    names = [f"i-{number:04d}" for number in range(45)]
    ess = answering(answer)
    api = ess.api()
    assert [each.instance_id for each in api.instances(GROUP, names)] == [
        "i-0000",
        "i-0020",
        "i-0040",
    ]
    assert [each.scaling_group_id for each in api.instances("", names[:1])] == ["asg-2"]
    assert [query.get("ScalingGroupId") for query in ess.queries()] == [
        GROUP,
        GROUP,
        GROUP,
        None,
    ]


def test_alicloud_api_malformed_group_hides_no_other_group() -> None:
    groups = [
        {"ScalingGroupId": "asg-1", "MaxSize": "5"},
        {"ScalingGroupId": "asg-2", "MinSize": "few"},
        {"ScalingGroupId": "asg-3", "ActiveCapacity": -1},
        {"ScalingGroupName": "without an id"},
    ]
    ess = answering(scripted(200, {"TotalCount": 4, "ScalingGroups": groups}))
    found = ess.api().groups(["asg-1", "asg-2", "asg-3"])
    assert (found["asg-1"].max_size, found["asg-1"].problem) == (5, "")
    assert "MinSize" in found["asg-2"].problem
    assert "ActiveCapacity" in found["asg-3"].problem


def test_alicloud_api_list_that_never_matches_its_total_is_an_error() -> None:
    ess = answering(lambda _: instances_page(range(3), 5))
    with pytest.raises(Transient, match="3 of 5"):
        ess.api().instances(GROUP)
    assert len(ess.server.requests) == 2


NEW = {
    "TotalCount": 1,
    "ScalingGroups": [
        {
            "ScalingGroupId": GROUP,
            "EnableDesiredCapacity": True,
            "DesiredCapacity": 3,
            "MaxSize": 20,
            "SuspendedProcesses": ["ScaleIn"],
            "VSwitchIds": ["vsw-1"],
            "Tags": [{"TagKey": "env", "TagValue": "prod"}],
            "LaunchTemplateOverrides": [{"InstanceType": "ecs.g7.large"}],
        }
    ],
}
OLD = {
    "TotalCount": "1",
    "ScalingGroups": {
        "ScalingGroup": [
            {
                "ScalingGroupId": GROUP,
                "EnableDesiredCapacity": "True",
                "DesiredCapacity": "3",
                "MaxSize": "20",
                "SuspendedProcesses": {"SuspendedProcess": ["ScaleIn"]},
                "VSwitchIds": {"VSwitchId": ["vsw-1"]},
                "Tags": {"Tag": [{"TagKey": "env", "TagValue": "prod"}]},
                "LaunchTemplateId": None,
                "LifecycleState": "",
                "PendingCapacity": None,
                "LaunchTemplateOverrides": {
                    "LaunchTemplateOverride": [{"InstanceType": "ecs.g7.large"}]
                },
            }
        ]
    },
}


def test_alicloud_api_both_answer_forms_decode_to_the_same_group() -> None:
    ess = answering(scripted(200, NEW), scripted(200, OLD))
    api = ess.api()
    new, old = api.groups([GROUP])[GROUP], api.groups([GROUP])[GROUP]
    assert new == old
    assert (new.enable_desired_capacity, new.desired_capacity, new.max_size) == (True, 3, 20)
    assert new.suspended_processes == ["ScaleIn"]
    assert [tag.pair for tag in new.tags or ()] == [("env", "prod")]


def test_alicloud_api_instance_types_are_read_by_ten_and_cached() -> None:
    names = [f"ecs.g7.{number}" for number in range(12)]

    def answer(request: Incoming) -> Answer:
        asked = ids_in(request, "InstanceTypes")
        return scripted(
            200,
            {
                "InstanceTypes": {
                    "InstanceType": [
                        {
                            "InstanceTypeId": name,
                            "CpuCoreCount": "4",
                            "MemorySize": 16.0,
                            "GPUAmount": 1,
                        }
                        for name in asked
                        if name != "ecs.g7.11"
                    ]
                }
            },
        )

    cache = KeptCache()
    ess = answering(answer)
    found = ess.api(cache=cache).instance_types(names)
    assert [len(request.parameters()) for request in ess.server.requests] == [11, 3]
    assert {request.headers["x-acs-version"] for request in ess.server.requests} == {"2014-05-26"}
    assert sorted(found) == sorted(names[:11])
    assert (
        found[names[0]].cpu_core_count,
        found[names[0]].memory_size,
        found[names[0]].gpu_amount,
    ) == (4, 16.0, 1)

    again = ess.api(cache=cache)
    assert again.instance_types(names) == found
    assert len(ess.server.requests) == 2
    ess.clock.advance(3601)  # a type that was absent may exist now
    assert ess.api(cache=cache).instance_types(names) == found
    assert len(ess.server.requests) == 3
    ess.clock.advance(86400)
    assert ess.api(cache=cache).instance_types(names) == found
    assert len(ess.server.requests) == 5


def test_alicloud_api_invalid_cache_entry_or_clock_causes_only_a_new_request() -> None:
    types = scripted(200, {"InstanceTypes": {"InstanceType": [{"InstanceTypeId": "ecs.g7.large"}]}})
    cache = KeptCache()
    ess = answering(lambda _: types)
    ess.api(cache=cache).instance_types(["ecs.g7.large"])
    ess.skew = -7200.0
    ess.api(cache=cache).instance_types(["ecs.g7.large"])
    assert len(ess.server.requests) == 2
    for key in cache.rows:
        cache.rows[key] = b'{"ecs.g7.large": [0, 9e99, 7]}'
    assert list(ess.api(cache=cache).instance_types(["ecs.g7.large"])) == ["ecs.g7.large"]
    assert len(ess.server.requests) == 3


def versions(*sets: dict[str, object]) -> Answer:
    return scripted(
        200,
        {
            "TotalCount": len(sets),
            "LaunchTemplateVersionSets": {"LaunchTemplateVersionSet": list(sets)},
        },
    )


def template(number: int, kind: str, *, default: bool = False) -> dict[str, object]:
    return {
        "VersionNumber": number,
        "DefaultVersion": default,
        "LaunchTemplateId": "lt-1",
        "LaunchTemplateData": {
            "InstanceType": kind,
            "SystemDisk": {"Size": 80},
            "Tags": {"InstanceTag": [{"Key": "a", "Value": "b"}]},
        },
    }


@each_row(
    ("version", "asked", "kind"),
    [
        ("2", {"LaunchTemplateVersion.1": "2"}, "ecs.two"),
        ("Default", {"DefaultVersion": "true"}, "ecs.one"),
        ("Latest", {}, "ecs.ten"),
        ("", {"DefaultVersion": "true"}, "ecs.one"),
    ],
)
def test_alicloud_api_reads_a_launch_template_version(
    version: str, asked: dict[str, str], kind: str
) -> None:
    sets = [template(2, "ecs.two"), template(1, "ecs.one", default=True), template(10, "ecs.ten")]
    ess = answering(versions(*sets))
    data = ess.api().launch_template("lt-1", version)
    assert (data.instance_type, data.system_disk_size) == (kind, 80)
    assert [tag.pair for tag in data.tags or ()] == [("a", "b")]
    query = ess.server.requests[0].parameters()
    assert {name: value for name, value in query.items() if "Version" in name} == asked


def test_alicloud_api_missing_launch_template_version_is_not_found() -> None:
    ess = answering(versions())
    with pytest.raises(NotFound, match="lt-1"):
        ess.api().launch_template("lt-1", "7")


def test_alicloud_api_activities_are_newest_first() -> None:
    body = {
        "TotalCount": 2,
        "ScalingActivities": [
            {
                "ScalingActivityId": "asa-1",
                "StartTime": "2026-01-15T08:30Z",
                "StatusCode": "Failed",
                "Progress": "100",
                "ErrorMessages": [{"Code": "OperationDenied.NoStock", "Message": "none"}],
            },
            {
                "ScalingActivityId": "asa-2",
                "StartTime": "2026-01-15T08:31Z",
                "StatusCode": "InProgress",
            },
        ],
    }
    ess = answering(scripted(200, body), scripted(200, body))
    found = ess.api().activities(GROUP, limit=5)
    ess.api().activities(GROUP, ids=["asa-1"])
    assert [each.scaling_activity_id for each in found] == ["asa-2", "asa-1"]
    assert [each.over for each in found] == [False, True]
    by_group, by_id = (request.parameters() for request in ess.server.requests)
    assert (by_group["ScalingGroupId"], by_group["PageSize"]) == (GROUP, "5")
    assert by_id["ScalingActivityIds.1"] == "asa-1"
    assert "ScalingGroupId" not in by_id


rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Code",
                    "TotalCount",
                    "ScalingGroups",
                    "ScalingGroup",
                    "ScalingGroupId",
                    "InstanceTypes",
                    "Tags",
                    "MinSize",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=60) | rubbish.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([200, 400, 503]),
)
def test_alicloud_api_arbitrary_answers_decode_or_raise_a_provider_error(
    body: bytes, status: int
) -> None:
    answer = VendorResponse("POST ess/", status, {}, body)
    assert error_for(answer) is None or isinstance(error_for(answer), ProviderError)
    for kind in (GroupsPage, TypesAnswer):
        with contextlib.suppress(ProviderError):
            assert isinstance(decode(answer, kind), kind)


def test_alicloud_api_endlessly_nested_answer_is_a_provider_error() -> None:
    for body in (b"[" * 100_000, b'{"TotalCount": 1, "x": ' + b'{"x": ' * 900 + b"1" + b"}" * 901):
        with contextlib.suppress(ProviderError):
            decode(VendorResponse("POST ess/", 200, {}, body), GroupsPage)
        assert error_for(VendorResponse("POST ess/", 400, {}, body)) is None
