"""`providers.exoscale` of a policy, as the provider reads it."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.vendors.exoscale import ExoscaleBounds, ExoscaleSettings, read_settings
from chalicelib.policy.vendors.settings import keys_of
from tests.cases import each_row
from tests.providers.exoscale.fixture import NP_A as NODEPOOL
from tests.providers.exoscale.fixture import A as POOL

RIGHT = {"zone": "ch-gva-2", "credentialsSecret": "key"}


def problems(settings: dict[str, str], *groups: GroupPolicy) -> list[str]:
    with pytest.raises(BadInput) as raised:
        read_settings(settings, groups)
    bad = raised.value
    return [str(each) for each in (bad.problems if isinstance(bad, InputErrors) else (bad,))]


def test_exoscale_provider_settings_valid_ones_are_read() -> None:
    settings = read_settings(
        {
            **RIGHT,
            "nodes": f"1:5:web\n 0:10:{NODEPOOL.upper()} \n",
            "sksCluster": "prod",
            "scaleFromZero": "false",
            "unlimitedMax": "250",
            "callsPerSecond": "2.5",
            "reservedCpu": "100m",
            "reservedMemory": "1Gi",
        },
        [GroupPolicy("exoscale", "prod/batch", 1, 2, 7), GroupPolicy("alicloud", "asg-1", 1, 2)],
    )
    assert settings.groups == (
        ExoscaleBounds("web", 1, 5),
        ExoscaleBounds(NODEPOOL, 0, 10),
        ExoscaleBounds("prod/batch", 1, 2, 7),
    )
    assert (settings.zone, settings.credentials_secret, settings.sks_cluster) == (
        "ch-gva-2",
        "key",
        "prod",
    )
    assert settings.root == "https://api-ch-gva-2.exoscale.com/v2"
    assert settings.scale_from_zero is False
    assert settings.unlimited_max == 250
    assert settings.calls_per_second == 2.5
    assert settings.reserve == {"cpu": 100, "memory": 2**30}


def test_exoscale_provider_settings_defaults_are_upstreams_and_need_no_groups() -> None:
    settings = read_settings(RIGHT)
    assert settings.groups == ()
    assert (settings.scale_from_zero, settings.unlimited_max, settings.sks_cluster) == (
        True,
        1000,
        "",
    )
    assert settings.calls_per_second == 10.0


def parse_spec(text: str) -> ExoscaleBounds:
    [bounds] = read_settings({**RIGHT, "nodes": text}).groups
    return bounds


@each_row(
    ("change", "root"),
    [
        ({"environment": "ppapi"}, "https://ppapi-ch-gva-2.exoscale.com/v2"),
        ({"zone": "at-vie-1"}, "https://api-at-vie-1.exoscale.com/v2"),
        ({"zone": " ch-gva-2\n", "environment": " api "}, "https://api-ch-gva-2.exoscale.com/v2"),
        ({"zone": "xx-new-17"}, "https://api-xx-new-17.exoscale.com/v2"),
        ({"endpoint": "http://127.0.0.1:8080"}, "http://127.0.0.1:8080/v2"),
        ({"endpoint": "http://localhost:8080/v2/"}, "http://localhost:8080/v2"),
        ({"endpoint": "https://proxy.example/exoscale/v2"}, "https://proxy.example/exoscale/v2"),
        ({"endpoint": " https://proxy.example/exoscale/ "}, "https://proxy.example/exoscale/v2"),
    ],
)
def test_exoscale_provider_settings_address_follows_environment_and_zone(
    change: dict[str, str], root: str
) -> None:
    assert read_settings(RIGHT | change).root == root


@each_row(
    ("text", "bounds"),
    [
        ("1:5:web", ExoscaleBounds("web", 1, 5)),
        ("+1:+3:web", ExoscaleBounds("web", 1, 3)),
        ("3:3:a:b:c", ExoscaleBounds("a:b:c", 3, 3)),
        ("0:5:web", ExoscaleBounds("web", 0, 5)),
        ("0:0:web", ExoscaleBounds("web", 0, 0)),
        ("1:2:prod/web", ExoscaleBounds("prod/web", 1, 2)),
        (f"1:2:{POOL.upper()}", ExoscaleBounds(POOL, 1, 2)),
    ],
)
def test_exoscale_provider_settings_valid_group_specs(text: str, bounds: ExoscaleBounds) -> None:
    assert parse_spec(text) == bounds


@each_row(
    "text",
    [
        "a:5:x",
        "5:3:x",
        "-1:3:x",
        "1:3:",
        "1:3",
        "1_0:20:x",
        "1: 3:x",
        "1:3:x y",
        ":3:x",
        "1::x",
        "::",
        "\uff11:3:x",
        "1.0:3:x",
        "0x1:3:x",
        "99999999999:99999999999:x",
        "1:3: x",
    ],
)
def test_exoscale_provider_settings_invalid_group_specs_need_no_call(text: str) -> None:
    """Upstream detects them at run time, at every node."""
    with pytest.raises(BadInput):
        parse_spec(text)
    assert problems({**RIGHT, "nodes": text})


@each_row(
    ("nodes", "groups", "name"),
    [
        ("1:5:web\n1:6:web", (), "web"),
        ("1:5:web", ("web",), "web"),
        (f"1:5:{POOL}\n1:6:{POOL.upper()}", (), POOL),
        ("", ("web", "web"), "web"),
    ],
)
def test_exoscale_provider_settings_duplicate_group_is_refused(
    nodes: str, groups: tuple[str, ...], name: str
) -> None:
    [problem] = problems(
        {**RIGHT, "nodes": nodes}, *(GroupPolicy("exoscale", each, 1, 5) for each in groups)
    )
    assert f"{name} is given twice" in problem


def test_exoscale_provider_settings_equal_names_of_two_clusters_are_distinct() -> None:
    settings = read_settings({**RIGHT, "nodes": "1:5:prod/web\n1:6:test/web"})
    assert [each.name for each in settings.groups] == ["prod/web", "test/web"]


@each_row(
    ("entry", "bounds"),
    [
        (GroupPolicy("exoscale", "web"), ExoscaleBounds("web", 1, None)),
        (GroupPolicy("exoscale", "web", 0), ExoscaleBounds("web", 0, None)),
        (GroupPolicy("exoscale", "web", max=7, priority=3), ExoscaleBounds("web", 1, 7, 3)),
        (GroupPolicy("exoscale", "web", max=0), ExoscaleBounds("web", 0, 0)),
        (GroupPolicy("exoscale", f" {POOL.upper()} ", 2, 3), ExoscaleBounds(POOL, 2, 3)),
    ],
)
def test_exoscale_provider_settings_entry_fields_are_optional(
    entry: GroupPolicy, bounds: ExoscaleBounds
) -> None:
    assert read_settings(RIGHT, [entry]).groups == (bounds,)


@each_row(
    ("entry", "problem"),
    [
        (GroupPolicy("exoscale", "web", 3, 1), "nodeGroups: web: max 1 is below min 3"),
        (GroupPolicy("exoscale", "web", -1), "nodeGroups: web: has a negative size"),
        (GroupPolicy("exoscale", "web", max=-1), "nodeGroups: web: has a negative size"),
        (GroupPolicy("exoscale", " "), "has no id"),
    ],
)
def test_exoscale_provider_settings_invalid_entry_is_refused(
    entry: GroupPolicy, problem: str
) -> None:
    assert problem in problems(RIGHT, entry)[0]


@each_row(
    ("change", "place"),
    [
        ({"zone": ""}, "providers.exoscale.zone: is missing"),
        ({"zone": " "}, "providers.exoscale.zone: is missing"),
        ({"zone": "Geneva"}, "providers.exoscale.zone: 'Geneva'"),
        ({"zone": "ch-gva-2.evil.example"}, "providers.exoscale.zone"),
        ({"zone": "ch-gva-2\u0660"}, "providers.exoscale.zone"),
        ({"zone": "ch-gva-2/"}, "providers.exoscale.zone"),
        ({"environment": "api.evil"}, "providers.exoscale.environment"),
        ({"environment": "evil/"}, "providers.exoscale.environment"),
        (
            {"environment": "api", "endpoint": "https://a.example"},
            "providers.exoscale.environment: conflicts with endpoint",
        ),
        (
            {"endpoint": "http://api-ch-gva-2.exoscale.com/v2"},
            "providers.exoscale.endpoint: is not an https address",
        ),
        ({"endpoint": "api-ch-gva-2.exoscale.com/v2"}, "providers.exoscale.endpoint"),
        ({"endpoint": "https://user:pass@a.example/v2"}, "providers.exoscale.endpoint"),
        ({"endpoint": "https://a.example/v2?x=y"}, "providers.exoscale.endpoint"),
        ({"endpoint": "https://["}, "providers.exoscale.endpoint"),
        ({"endpoint": "https://a example/v2"}, "providers.exoscale.endpoint"),
        ({"endpoint": "https://a.example/v\t2"}, "providers.exoscale.endpoint"),
        ({"endpoint": "https://a.example\\v2"}, "providers.exoscale.endpoint"),
        ({"credentialsSecret": ""}, "providers.exoscale.credentialsSecret: is missing"),
        ({"credentialsSecret": " "}, "providers.exoscale.credentialsSecret: is missing"),
        ({"scaleFromZero": "maybe"}, "providers.exoscale.scaleFromZero"),
        ({"unlimitedMax": "0"}, "providers.exoscale.unlimitedMax"),
        ({"unlimitedMax": "-1"}, "providers.exoscale.unlimitedMax"),
        ({"unlimitedMax": "9999999"}, "providers.exoscale.unlimitedMax"),
        ({"unlimitedMax": "many"}, "providers.exoscale.unlimitedMax"),
        ({"callsPerSecond": "0"}, "providers.exoscale.callsPerSecond"),
        ({"callsPerSecond": "nan"}, "providers.exoscale.callsPerSecond"),
        ({"reservedCpu": "-1"}, "providers.exoscale.reservedCpu"),
        ({"reservedMemory": "much"}, "providers.exoscale.reservedMemory"),
        ({"apiKey": "x"}, "providers.exoscale.apiKey: there is no such setting"),
    ],
)
def test_exoscale_provider_settings_errors_name_their_path_without_a_call(
    change: dict[str, str], place: str
) -> None:
    [problem] = problems(RIGHT | change)
    assert place in problem


def test_exoscale_provider_settings_errors_are_reported_all_at_once() -> None:
    reported = problems(
        {"nodes": "a:5:x\n5:3:y", "unlimitedMax": "x", "colour": "red"},
        GroupPolicy("exoscale", "web", 3, 1),
    )
    assert [problem.split(":")[0] for problem in reported] == [
        "providers.exoscale.zone",
        "providers.exoscale.credentialsSecret",
        "providers.exoscale.nodes",
        "providers.exoscale.nodes",
        "providers.exoscale.unlimitedMax",
        "nodeGroups",
        "providers.exoscale.colour",
    ]


def test_exoscale_provider_settings_unknown_key_error_lists_all_known_ones() -> None:
    [problem] = problems(RIGHT | {"region": "ch-gva-2"})
    assert all(key in problem for key in keys_of(ExoscaleSettings))
