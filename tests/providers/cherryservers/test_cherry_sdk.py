"""The vendor's own `cherry-python` client drives the emulator, over TLS as that client requires.

Only tests use this client, and it is loaded on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cherryservers.account import PROJECT, TEAM, CherryCloud
from infra.emulators.cherryservers.server import CherryHttpServer
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.cherryservers.emulator_client import START, TOKEN


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CherryHttpServer, Path]]:
    authority = CertificateAuthority("of the emulated vendor")
    trusted = tmp_path_factory.mktemp("trust") / "ca.pem"
    trusted.write_bytes(authority.pem)
    with CherryHttpServer(CherryCloud(ManualClock(START)), tls=authority.server()) as server:
        server.add_token(TOKEN)
        server.throttle.limits.clear()
        yield server, trusted


@pytest.fixture
def bed(served: tuple[CherryHttpServer, Path], monkeypatch: pytest.MonkeyPatch) -> Any:
    server, trusted = served
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    client = import_module("cherry").Master(auth_token=TOKEN)
    client.api_url = server.host
    return SimpleNamespace(client=client, server=server, cloud=server.cloud)


def test_cherry_sdk_navigates_from_team_to_project_to_servers(bed: Any) -> None:
    (team,) = bed.client.get_teams()
    (project,) = bed.client.get_projects(team["id"])
    assert (team["id"], project["id"]) == (TEAM, PROJECT)
    ours = [bed.cloud.add_server("workers").id for _ in range(3)]
    listed = bed.client.get_servers(project["id"])
    assert [row["id"] for row in listed if row["tags"].get("k8s-nodepool") == "workers"][
        -3:
    ] == ours
    assert len(bed.client.get_servers(project["id"], limit=2, offset=1)) == 2
    assert bed.client.get_servers(project["id"], fields="id")[0].keys() == {"id"}


def test_cherry_sdk_reads_plans_images_and_keys(bed: Any) -> None:
    plans = {plan["slug"]: plan for plan in bed.client.get_plans(TEAM)}
    assert plans["amd-ryzen-9950x"]["specs"]["memory"]["total"] == 192
    assert {each["unit"] for each in plans["e3_1240v3"]["pricing"]} == {
        "Hourly",
        "Spot hourly",
        "Monthly",
    }
    assert plans["e3_1240v3"]["available_regions"][0]["stock_qty"] == 500
    images = bed.client.get_images(plans["e3_1240v3"]["id"])
    assert "ubuntu_24_04_64bit" in {each["slug"] for each in images}
    assert [key["id"] for key in bed.client.get_ssh_keys()] == [101, 102]


def test_cherry_sdk_creates_reads_and_terminates_a_server(bed: Any) -> None:
    made = bed.client.create_server(
        PROJECT,
        "LT-Siauliai",
        1095,
        hostname="by-the-client",
        image="ubuntu_24_04_64bit",
        ssh_keys=["101"],
        tags={"team": "web"},
    )
    assert (made["hostname"], made["status"], made["plan"]["slug"]) == (
        "by-the-client",
        "deploying",
        "amd-ryzen-9950x",
    )
    bed.cloud.clock.advance(1000.0)
    found = bed.client.get_server(made["id"])
    assert (found["state"], found["status"], found["tags"]) == (
        "active",
        "deployed",
        {"team": "web"},
    )
    assert bed.client.terminate_server(made["id"]) is None
    assert bed.client.get_server(made["id"])["state"] == "terminating"
    bed.cloud.clock.advance(1000.0)
    assert bed.client.get_server(made["id"]) == {"code": 404, "message": "Server not found."}


def test_cherry_sdk_reboots_a_server_and_reads_why_another_cannot_be(bed: Any) -> None:
    server = bed.cloud.add_server("workers")
    assert bed.client.reboot_server(server.id)["state"] == "active"
    assert server.reboots == [bed.cloud.clock()]
    bed.cloud.terminate(server)
    assert bed.client.reboot_server(server.id)["code"] == 400
    assert len(server.reboots) == 1


def test_cherry_sdk_reads_the_reason_of_a_refused_order(bed: Any) -> None:
    bed.cloud.stock["e5_1620v4", "eu_west_1"] = 0
    said = bed.client.create_server(PROJECT, "eu_west_1", "e5_1620v4", hostname="none")
    assert (said["code"], "stock" in said["message"]) == (400, True)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (VendorFault.UNAUTHORIZED, "401"),
        (VendorFault.FORBIDDEN, "403"),
        (VendorFault.THROTTLED_FOR, "429"),
        (VendorFault.SERVER_ERROR, "500"),
    ],
)
def test_cherry_sdk_reports_injected_faults(bed: Any, fault: VendorFault, status: str) -> None:
    bed.server.faults.next(fault)
    with pytest.raises(Exception, match=status):
        bed.client.get_servers(PROJECT)
