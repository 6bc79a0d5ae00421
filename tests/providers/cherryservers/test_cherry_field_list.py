"""One test per endpoint: its answers have the keys and types of the recorded
examples and of the field list.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.emulators.cherryservers.account import PROJECT, TEAM
from tests.providers.cherryservers.emulator_client import ORDER, SERVERS, EmulatorClient
from tests.providers.cherryservers.field_list import KNOWN, LIVE, compare
from tests.reference_data import SHARED, needs_shared

CONTRACT = SHARED.joinpath("reference", "providers", "cherryservers").with_suffix(".md")
# The recorded row of a list, unchanged.
ROW = {
    "id": 899712,
    "name": "AMD Ryzen 9950X",
    "hostname": "w1",
    "state": "active",
    "status": "deployed",
    "spot_instance": False,
    "image": "Ubuntu 24.04 64bit",
    "region": {"id": 1, "slug": "LT-Siauliai", "name": "Lithuania", "region_iso_2": "LT"},
    "plan": {
        "id": 1095,
        "slug": "amd-ryzen-9950x",
        "name": "AMD Ryzen 9950X",
        "type": "baremetal",
        "specs": {
            "cpus": {
                "count": 1,
                "cores": 16,
                "frequency": 4.3,
                "unit": "GHz",
                "name": "CPU Ryzen 9950X",
            },
            "memory": {"count": 1, "total": 192, "unit": "GB", "name": "192GB 5600MHz"},
            "storage": [{"count": 2, "name": "NVMe 1TB", "size": 1, "unit": "TB", "type": "NVME"}],
            "nics": {"name": "3Gbps"},
        },
    },
    "ip_addresses": [
        {"id": "571f30fb", "address": "10.168.1.2", "address_family": 4, "type": "private-ip"}
    ],
    "tags": {},
    "created_at": "2026-06-08T09:20:28+00:00",
    "termination_date": "None",
}


@pytest.fixture
def bed() -> EmulatorClient:
    made = EmulatorClient()
    made.cloud.add_server("workers", plan="amd-ryzen-9950x", region="LT-Siauliai")
    rich = made.cloud.order(PROJECT, made.cloud.add_server("workers").order)
    rich.bgp = rich.volume = True
    return made


def listed(kind: Any, value: object) -> dict[str, set[str]]:
    """Checks that the value has no unlisted keys; returns its keys by type."""
    seen: dict[str, set[str]] = {}
    assert compare(kind, value, seen) == []
    return seen


def same_shape(example: Any, found: Any, place: str = "") -> list[str]:
    """Checks that the answer has everything that the example has, with the same types."""
    if isinstance(example, dict) and isinstance(found, dict):
        return [
            line
            for key, each in example.items()
            for line in (
                same_shape(each, found[key], f"{place}.{key}")
                if key in found
                else [f"{place}.{key} is missing"]
            )
        ]
    if isinstance(example, list) and isinstance(found, list) and example:
        return same_shape(example[0], found[0], f"{place}[0]") if found else [f"{place} is empty"]
    numbers = isinstance(example, int | float) and isinstance(found, int | float)
    return (
        []
        if numbers or type(example) is type(found)
        else [f"{place}: {found!r} instead of {example!r}"]
    )


def test_cherry_server_list_matches_the_field_list(bed: EmulatorClient) -> None:
    answer = bed.ask("GET", SERVERS)
    rows = json.loads(answer.body)
    assert (answer.status, answer.headers["X-Total-Count"], len(rows)) == (200, "3", 3)
    listed(["Server"], rows)
    assert same_shape(ROW, rows[0]) == []
    assert rows[0]["plan"]["specs"]["cpus"] == ROW["plan"]["specs"]["cpus"]  # type: ignore[index]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", rows[0]["created_at"])
    assert rows[0]["termination_date"] == "None"


def test_cherry_single_server_has_every_listed_key(bed: EmulatorClient) -> None:
    rich = max(bed.cloud.servers)
    seen = listed("Server", bed.json("PUT", f"/servers/{rich}", {"tags": {"a": "b"}}))
    listed("SSHKeys", bed.json("GET", "/ssh-keys/101"))
    server = bed.json("POST", SERVERS, ORDER)
    for each in (
        seen,
        listed("Server", server),
        listed("Server", bed.json("GET", f"/servers/{rich}")),
    ):
        for name, keys in each.items():
            seen[name] = seen.get(name, set()) | keys
    for name in (
        "Server",
        "Specs",
        "Cpus",
        "Memory",
        "Storage",
        "Raid",
        "Nics",
        "Bandwidth",
        "Region",
        "RegionBGP",
        "Project",
        "ProjectBGP",
        "ServerBGP",
        "BGPRoute",
        "IPAddresses",
        "RoutedTo",
        "BlockStorage",
        "AttachedTo",
        "SSHKeys",
        "AvailableRegions",
        "Pricing",
        "AssignedTo",
    ):
        assert seen[name] >= KNOWN[name].keys() | LIVE.get(name, {}).keys(), name


def test_cherry_created_server_matches_the_field_list(bed: EmulatorClient) -> None:
    answer = bed.ask("POST", SERVERS, ORDER)
    made = json.loads(answer.body)
    listed("Server", made)
    assert (answer.status, made["state"], made["status"]) == (201, "pending", "deploying")
    assert (made["hostname"], made["tags"]) == (ORDER["hostname"], ORDER["tags"])
    assert [key["id"] for key in made["ssh_keys"]] == [101, 102]
    assert bed.json("GET", f"/servers/{made['id']}") == made


def test_cherry_updated_server_matches_the_field_list(bed: EmulatorClient) -> None:
    answer = bed.ask(
        "PUT", "/servers/1000", {"tags": {"k8s-cluster": "other"}, "name": "n", "hostname": "h"}
    )
    listed("Server", json.loads(answer.body))
    assert answer.status == 201
    found = bed.json("GET", "/servers/1000")
    assert (found["tags"], found["name"], found["hostname"]) == ({"k8s-cluster": "other"}, "n", "h")
    assert bed.refusal("PUT", "/servers/1000", {"plan": "x"})[0] == 400


def test_cherry_delete_answer_has_no_body_and_no_content_type(bed: EmulatorClient) -> None:
    answer = bed.ask("DELETE", "/servers/1000")
    assert (answer.status, answer.body, answer.headers) == (204, b"", {"Content-Type": ""})
    bed.front.typed = True
    assert bed.ask("DELETE", "/servers/1001").headers == {}


def test_cherry_plans_match_the_field_list_by_slug_and_number(bed: EmulatorClient) -> None:
    rows = bed.json("GET", "/plans")
    seen = listed(["Plan"], rows)
    assert seen["Plan"] == KNOWN["Plan"].keys() | LIVE["Plan"].keys()
    assert (
        seen["AvailableRegions"]
        == KNOWN["AvailableRegions"].keys() | LIVE["AvailableRegions"].keys()
    )
    assert seen["Pricing"] == KNOWN["Pricing"].keys() | LIVE["Pricing"].keys()
    by_slug = bed.json("GET", "/plans/e3_1240v3")
    assert (
        by_slug
        == bed.json("GET", f"/plans/{by_slug['id']}")
        == next(r for r in rows if r["slug"] == "e3_1240v3")
    )
    assert {each["unit"]: each["price"] for each in by_slug["pricing"]}["Hourly"] == 0.1016
    assert {each["unit"]: each["price"] for each in by_slug["pricing"]}["Spot hourly"] == 0.0812
    assert bed.json("GET", f"/teams/{TEAM}/plans") == rows


def test_cherry_plans_are_filtered_by_type_and_region(bed: EmulatorClient) -> None:
    assert {row["type"] for row in bed.json("GET", "/plans?type[]=vps")} == {"vps"}
    assert {row["type"] for row in bed.json("GET", "/plans?type[]=vps&type[]=baremetal")} == {
        "vps",
        "baremetal",
    }
    assert {row["slug"] for row in bed.json("GET", "/plans?region_id=2")} == {
        "e3_1240v3",
        "e5_1620v4",
    }


def test_cherry_regions_match_the_field_list(bed: EmulatorClient) -> None:
    seen = listed(["Region"], bed.json("GET", "/regions"))
    assert seen["Region"] == KNOWN["Region"].keys() | LIVE["Region"].keys()
    assert bed.json("GET", "/regions/LT-Siauliai") == bed.json("GET", "/regions/1")


def test_cherry_project_matches_the_field_list(bed: EmulatorClient) -> None:
    assert (
        listed("Project", bed.json("GET", f"/projects/{PROJECT}"))["Project"]
        == KNOWN["Project"].keys()
    )
    assert bed.json("GET", f"/teams/{TEAM}/projects") == [bed.json("GET", f"/projects/{PROJECT}")]


def test_cherry_ssh_keys_match_the_field_list(bed: EmulatorClient) -> None:
    assert listed(["SSHKeys"], bed.json("GET", "/ssh-keys"))["SSHKeys"] == KNOWN["SSHKeys"].keys()


@pytest.mark.shared
@needs_shared
def test_cherry_field_list_equals_the_recorded_one() -> None:
    text = CONTRACT.read_text(encoding="utf-8").partition("### 3.1")[2].partition("## 4.")[0]
    recorded: dict[str, str] = {}
    for titles, cells in re.findall(r"^\| ([A-Za-z/, ()]+?) \| (.+) \|$", text, re.MULTILINE):
        parts = re.split(" / ", cells)  # of two types in one row
        for at, title in enumerate(re.split("[,/] ?", titles)):
            recorded[title.strip()] = parts[min(at, len(parts) - 1)]
    for name in KNOWN:
        names = [
            re.findall(r"`([a-z_0-9]+)(?:\{[^}]*\})?`", part)
            for part in recorded[name].partition("//")[::2]
        ]
        assert (set(names[0]), set(names[1])) == (set(KNOWN[name]), set(LIVE.get(name, {}))), name
