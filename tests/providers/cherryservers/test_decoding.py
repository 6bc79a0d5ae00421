"""The types of API answers, and the decoding of answers that differ
slightly from the documentation.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from chalicelib.providers.cherryservers import decoding
from chalicelib.providers.cherryservers.decoding import (
    CherryPlan,
    CherryServer,
    decoded,
    read_one,
    read_row,
)
from chalicelib.providers.kit.errors import Transient, Unknown
from chalicelib.providers.kit.http import VendorResponse
from tests.cases import each_row
from tests.providers.cherryservers.emulated import FULL_ROW, PLAN, ROW, TAGS, order


def answer(body: Any) -> VendorResponse:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return VendorResponse("GET api.example/v1/servers", 200, {}, text)


def read_list(given: VendorResponse, kind: type[CherryServer]) -> list[CherryServer]:
    return [read_row(row, kind, f"row {number}") for number, row in enumerate(decoded(given))]


def sorted_json(text: bytes) -> str:
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_cherry_order_body_equals_the_documented_one_after_key_sort() -> None:
    assert sorted_json(
        order(hostname="k8s-cluster2-pool3-gndxdmmw", user_data="<base64>").body()
    ) == sorted_json(
        b'{"project_id":10001,"plan":"e5_1620v4","hostname":"k8s-cluster2-pool3-gndxdmmw","image":'
        b'"ubuntu_18_04",'
        b'"region":"eu_nord_1","ssh_keys":[101,102],"ip_addresses":null,"user_data":"<base64>",'
        b'"tags":{"k8s-cluster":"ours","k8s-nodepool":"pool3"},"os_partition_size":60}'
    )


def test_cherry_order_body_omits_empty_fields_except_lists_which_are_null() -> None:
    body = json.loads(order(os_partition_size=0, ssh_keys=(), user_data="", tags={}).body())
    assert body["ssh_keys"] is None
    assert body["ip_addresses"] is None
    assert not body.keys() & {"os_partition_size", "user_data", "tags", "spot_market"}
    assert json.loads(order(ssh_keys=None).body())["ssh_keys"] is None
    assert json.loads(order(spot_market=True).body())["spot_market"] is True


def test_cherry_decoding_documented_list_rows_are_read_completely() -> None:
    small, full = read_list(answer([ROW, FULL_ROW]), CherryServer)
    assert (small.id, small.hostname, small.state, small.tags) == (
        1000,
        ROW["hostname"],
        "active",
        TAGS,
    )
    assert (full.id, full.status, full.region.slug, full.plan.slug) == (
        899712,
        "deployed",
        "LT-Siauliai",
        "amd-ryzen-9950x",
    )
    assert (full.plan.specs.memory.total, full.plan.specs.storage[0].unit) == (192, "TB")


def test_cherry_decoding_plan_is_read_completely() -> None:
    plan = read_one(answer(PLAN), CherryPlan)
    assert (plan.slug, plan.name, plan.specs.cpus.cores) == (
        "amd-ryzen-9950x",
        "AMD Ryzen 9950X",
        16,
    )
    assert [row.unit for row in plan.pricing] == ["Hourly", "Spot hourly", "Monthly"]
    assert [row.stock_qty for row in plan.available_regions] == [4, 0]


NAMES = {
    "AvailableRegions": "AvailableRegion",
    "Server": "CherryServer",
    "Plan": "CherryPlan",
    "ErrorResponse": "CherryRefusal",
}
TYPES = {
    "Server": (
        "id name hostname region state plan tags created_at status spot_instance termination_date"
    ),
    "CreateServer": "project_id plan hostname image region ssh_keys ip_addresses user_data tags "
    "spot_market "
    "os_partition_size",
    "Plan": "id slug name custom specs pricing available_regions type category title href",
    "Specs": "cpus memory storage raid nics bandwidth",
    "Cpus": "count name cores frequency unit",
    "Memory": "count total unit name",
    "Storage": "count name size unit type",
    "Pricing": "price taxed currency unit id unit_price",
    "AvailableRegions": "id name region_iso_2 stock_qty slug spot_qty href location",
    "Region": "id slug name location",
    "ErrorResponse": "errors error code message",
}


def modelled(name: str) -> type[msgspec.Struct]:
    own = NAMES.get(name, name)
    found: type[msgspec.Struct] = getattr(decoding, own)
    return found


@each_row("name", TYPES)
def test_cherry_decoding_every_type_has_the_documented_keys(name: str) -> None:
    assert {field.encode_name for field in msgspec.structs.fields(modelled(name))} == set(
        TYPES[name].split()
    )


@each_row(
    ("change", "key", "value"),
    [
        ({"plan": None}, "plan", CherryPlan()),
        ({"plan": []}, "plan", CherryPlan()),
        ({"hostname": None}, "hostname", ""),
        ({"status": 7}, "status", ""),
        ({"tags": None}, "tags", {}),
        ({"tags": []}, "tags", {}),
        ({"tags": {**TAGS, "n": 5}}, "tags", {**TAGS, "n": "5"}),
        ({"id": "1000"}, "id", 1000),
        ({"wibble": {"new": 1}}, "id", 1000),
        ({"created_at": 1.5}, "created_at", ""),
    ],
    ids=str,
)
def test_cherry_decoding_unexpected_value_hides_no_row_or_list(
    change: dict[str, Any], key: str, value: object
) -> None:
    other, strange = read_list(answer([FULL_ROW, ROW | change]), CherryServer)
    assert other.plan.slug == "amd-ryzen-9950x"
    assert getattr(strange, key) == value
    assert strange.state == "active"


def test_cherry_decoding_loses_only_a_nested_unexpected_value() -> None:
    strange = json.loads(json.dumps(FULL_ROW))
    strange["plan"]["specs"]["cpus"]["cores"] = "many"
    strange["plan"]["specs"]["storage"].insert(0, "an old disk")
    strange["ip_addresses"][0] |= {"id": 5, "tags": "none"}
    [server] = read_list(answer([strange]), CherryServer)
    assert server.plan.specs.cpus.cores == 0
    assert server.plan.specs.cpus.frequency == 4.3
    assert [disk.name for disk in server.plan.specs.storage] == ["NVMe 1TB"]


@each_row(
    "row",
    [
        {key: value for key, value in ROW.items() if key != "id"},
        ROW | {"id": None},
        ROW | {"id": "x"},
        ROW | {"id": 0},
        ROW | {"id": -4},
        ROW | {"id": 1.5},
        ROW | {"tags": "k8s-cluster"},
        ROW | {"tags": ["k8s-cluster-cluster1"]},
        "server",
        None,
        7,
        [],
    ],
    ids=str,
)
def test_cherry_decoding_row_that_cannot_be_counted_fails_the_list(row: object) -> None:
    with pytest.raises(Unknown, match="row 1: "):
        read_list(answer([ROW, row]), CherryServer)


@each_row(
    ("body", "error"),
    [
        (b"", Transient),
        (b"[", Transient),
        (b"[{}", Transient),
        (b"\xff", Transient),
        (b"[" * 5000, Transient),
    ],
    ids=lambda value: str(value)[:12],
)
def test_answer_that_is_not_json_is_never_an_empty_list(
    body: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        read_list(answer(body), CherryServer)


def test_cherry_decoding_endlessly_nested_server_is_refused() -> None:
    body = b'{"id":1,"region":' + b'{"bgp":' * 40 + b"1" + b"}" * 41
    assert read_one(answer(body), CherryServer).region == decoding.Region()


_RUBBISH: tuple[Any, ...] = (
    None,
    "",
    "x",
    0,
    -1,
    2**70,
    1.5,
    True,
    [],
    {},
    [None],
    {"id": []},
    [[]],
    {"tags": 1},
)


def _bent(value: Any, chance: Random) -> Any:
    """Returns the value with some parts replaced, omitted or added."""
    if chance.random() < 0.04:
        return chance.choice(_RUBBISH)
    if isinstance(value, dict):
        kept = {key: _bent(each, chance) for key, each in value.items() if chance.random() > 0.04}
        return kept | ({"wibble": 1} if chance.random() < 0.1 else {})
    return [_bent(each, chance) for each in value] if isinstance(value, list) else value


def test_cherry_decoding_arbitrary_answer_is_a_complete_list_or_provider_error() -> None:
    chance, whole, refused = Random(6), 0, 0
    for _ in range(400):
        rows = [_bent(FULL_ROW | {"plan": PLAN, "tags": TAGS}, chance) for _ in range(2)]
        try:
            found = read_list(answer(rows), CherryServer)
        except (Unknown, Transient):
            refused += 1
            continue
        whole += 1
        assert [int(row["id"]) for row in rows] == [server.id for server in found]
        assert all(
            server.tags == row.get("tags", {})
            for row, server in zip(rows, found, strict=True)
            if isinstance(row.get("tags"), dict)
            and set(map(str, row["tags"].values())) <= {*TAGS.values()}
        )
    assert whole > 100
    assert refused > 20
