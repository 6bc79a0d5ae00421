"""An Api whose vendor is a script, and the documented examples in the vendor's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.policy.vendors.cherryservers import CherrySettings
from chalicelib.providers.base import Connection
from chalicelib.providers.cherryservers.api import CherryApi, open_api
from chalicelib.providers.cherryservers.decoding import CreateServer
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.services import Cache, ProviderServices, RateLimiter, UnlimitedRateLimiter
from infra.emulators.policy_permissions import LOOPBACK
from tests.unit.providers.alicloud.scripted_api import (
    Board,
    Books,
    HttpScript,
    Reply,
    ScriptedApiClock,
    ScriptedApiSecrets,
    Seen,
)

TOKEN, PROJECT = "EXAMPLE.cherry-api-token_0123456789", 10001
TAGS = {"k8s-cluster": "cluster2", "k8s-nodepool": "pool3"}
ROW: dict[str, Any] = {
    "id": 1000,
    "name": "server-1000",
    "hostname": "k8s-cluster2-pool3-gndxdmmw",
    "state": "active",
    "tags": TAGS,
}
REGION: dict[str, Any] = {"id": 1, "slug": "LT-Siauliai", "name": "Lithuania", "region_iso_2": "LT"}
SPECS: dict[str, Any] = {
    "cpus": {"count": 1, "cores": 16, "frequency": 4.3, "unit": "GHz", "name": "CPU Ryzen 9950X"},
    "memory": {"count": 1, "total": 192, "unit": "GB", "name": "192GB 5600MHz"},
    "storage": [{"count": 2, "name": "NVMe 1TB", "size": 1, "unit": "TB", "type": "NVME"}],
    "nics": {"name": "3Gbps"},
}
FULL_ROW: dict[str, Any] = {
    "id": 899712,
    "name": "AMD Ryzen 9950X",
    "hostname": "w1",
    "state": "active",
    "status": "deployed",
    "spot_instance": False,
    "image": "Ubuntu 24.04 64bit",
    "region": REGION,
    "plan": {"id": 1095, "slug": "amd-ryzen-9950x", "name": "AMD Ryzen 9950X", "type": "baremetal", "specs": SPECS},
    "ip_addresses": [{"id": "571f30fb", "address": "10.168.1.2", "address_family": 4, "type": "private-ip"}],
    "tags": {},
    "created_at": "2026-06-08T09:20:28+00:00",
    "termination_date": "None",
}
PLAN: dict[str, Any] = {
    "id": 1095,
    "slug": "amd-ryzen-9950x",
    "name": "AMD Ryzen 9950X",
    "type": "baremetal",
    "specs": SPECS,
    "pricing": [
        {"id": 1, "unit": "Hourly", "price": 0.4932, "currency": "EUR", "taxed": False},
        {"id": 7, "unit": "Spot hourly", "price": 0.37, "currency": "EUR", "taxed": False},
        {"id": 2, "unit": "Monthly", "price": 299.0, "currency": "EUR", "taxed": False},
    ],
    "available_regions": [
        {**REGION, "stock_qty": 4, "spot_qty": 1},
        {"id": 4, "slug": "US-Chicago", "name": "United States", "stock_qty": 0, "spot_qty": 0},
    ],
}
SERVERS = f"/v1/projects/{PROJECT}/servers"


def open_to(
    url: str,
    *,
    clock: ScriptedApiClock | None = None,
    read_secret: Callable[[str], str] | None = None,
    pacer: RateLimiter | None = None,
    shared_cache: Cache | None = None,
    calls_per_second: float = 4.0,
) -> CherryApi:
    """An Api that calls the script."""
    clock = clock or ScriptedApiClock()
    settings = CherrySettings(
        credentials_secret="token",
        cloud_config_secret="definitions",
        endpoint=f"{url}/v1",
        calls_per_second=calls_per_second,
    )
    means = ProviderServices(
        deployment=LOOPBACK,
        sleep=clock.sleep,
        chance=lambda: 0.5,
        rate_limiter=pacer or UnlimitedRateLimiter(),
        cache=shared_cache or Board(),
    )
    connection = Connection("prod", {}, (), read_secret or ScriptedApiSecrets(token=TOKEN), None, clock, means=means)
    return open_api(connection, settings, PROJECT)


def order(number: int = 0, **more: Any) -> CreateServer:
    """The documented example of an order; number: part of its hostname."""
    fields: dict[str, Any] = {
        "project_id": PROJECT,
        "plan": "e5_1620v4",
        "hostname": f"k8s-cluster2-pool3-{number:08d}",
        "image": "ubuntu_18_04",
        "region": "eu_nord_1",
        "ssh_keys": (101, 102),
        "user_data": "PGJhc2U2ND4=",
        "tags": TAGS,
        "os_partition_size": 60,
    }
    return CreateServer(**fields | more)


def definition(**more: Any) -> Definition:
    """A pool of the example plan."""
    fields: dict[str, Any] = {
        "pool": "pool3",
        "cluster_name": "cluster2",
        "project_id": PROJECT,
        "api_server_endpoint": "203.0.113.10:6443",
        "region": "LT-Siauliai",
        "plan": "amd-ryzen-9950x",
        "os": "ubuntu_24_04_64bit",
        "ssh_key_ids": (),
        "cloudinit": "",
        "hostname_pattern": "",
    }
    return Definition(**fields | more)


def refusal(status: int, message: str = "", **headers: str) -> Reply:
    return Reply(status, {"code": status, "message": message}, {key.replace("_", "-"): headers[key] for key in headers})


__all__ = [
    "FULL_ROW",
    "PLAN",
    "PROJECT",
    "REGION",
    "ROW",
    "SERVERS",
    "SPECS",
    "TAGS",
    "TOKEN",
    "Board",
    "Books",
    "HttpScript",
    "Reply",
    "ScriptedApiClock",
    "ScriptedApiSecrets",
    "Seen",
    "definition",
    "open_to",
    "order",
    "refusal",
]
