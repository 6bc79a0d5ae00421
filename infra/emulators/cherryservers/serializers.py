"""Serializes objects of the emulated Cherry Servers API, with the documented keys and those
that the live API sends.

Rows of lists have fewer fields than the response about one server, like the
contract's recorded row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.models import (
    IMAGES,
    NEVER,
    CherryPlan,
    CherryServer,
    Region,
    SshKey,
)

Json = dict[str, Any]
PASSWORD = "example-root-password-0000"
_CURRENCY = "EUR"
_MONTH = 730.0


def stamp(at: float) -> str:
    """Format a time as `2026-06-08T09:20:28+00:00`."""
    return dt.datetime.fromtimestamp(at, dt.UTC).replace(microsecond=0).isoformat()


def region(each: Region) -> Json:
    return {
        "id": each.id,
        "slug": each.slug,
        "name": each.name,
        "region_iso_2": each.country,
        "href": f"/regions/{each.id}",
        "location": each.location,
        "bgp": {"hosts": ["203.0.113.1", "203.0.113.2"], "asn": 16125},
    }


def available(cloud: CherryCloud, plan: CherryPlan, name: str) -> Json:
    """An AvailableRegions: a region and the plan's stock there."""
    each = cloud.regions[name]
    return {
        "id": each.id,
        "name": each.name,
        "slug": each.slug,
        "region_iso_2": each.country,
        "href": f"/regions/{each.id}",
        "bgp": {"hosts": ["203.0.113.1"], "asn": 16125},
        "location": each.location,
        "stock_qty": cloud.stock.get((plan.slug, name), 0),
        "spot_qty": cloud.spot_stock.get((plan.slug, name), 0),
    }


def specs(plan: CherryPlan) -> Json:
    return {
        "cpus": {
            "count": plan.sockets,
            "name": plan.cpu_name,
            "cores": plan.cores,
            "frequency": plan.frequency,
            "unit": "GHz",
        },
        "memory": {
            "count": 1,
            "total": plan.memory,
            "unit": plan.unit,
            "name": f"{plan.memory}{plan.unit}",
        },
        "storage": [
            {
                "count": disk.count,
                "name": disk.name,
                "size": disk.size,
                "unit": disk.unit,
                "type": disk.type,
            }
            for disk in plan.disks
        ],
        "raid": {"name": "RAID 0/1"},
        "nics": {"name": "3Gbps"},
        "bandwidth": {"name": "100TB"},
    }


def pricing(plan: CherryPlan) -> list[Json]:
    """Prices before tax: per hour, per hour as a spot machine if available, and for longer
    periods."""
    prices = [
        ("Hourly", plan.hourly),
        *([("Spot hourly", plan.spot)] if plan.spot else []),
        ("Monthly", round(plan.hourly * _MONTH * 0.9, 2)),
    ]
    return [
        {
            "id": plan.id * 10 + number,
            "price": price,
            "taxed": False,
            "currency": _CURRENCY,
            "unit": unit,
            "unit_price": price,
        }
        for number, (unit, price) in enumerate(prices)
    ]


def plan_row(plan: CherryPlan) -> Json:
    return {
        "id": plan.id,
        "slug": plan.slug,
        "name": plan.name,
        "type": plan.type,
        "specs": specs(plan),
    }


def plan_whole(cloud: CherryCloud, plan: CherryPlan) -> Json:
    return {
        **plan_row(plan),
        "custom": False,
        "category": "vps" if plan.virtual else "baremetal",
        "title": plan.name,
        "href": f"/plans/{plan.id}",
        "softwares": [{"image": {"name": name, "slug": slug}} for slug, name in IMAGES.items()],
        "pricing": pricing(plan),
        "available_regions": [available(cloud, plan, name) for name in plan.regions],
    }


def project(cloud: CherryCloud, number: int) -> Json:
    return {
        "id": number,
        "name": cloud.projects[number],
        "href": f"/projects/{number}",
        "bgp": {"enabled": False, "local_asn": 65000},
    }


def ssh_key(each: SshKey) -> Json:
    return {
        "id": each.id,
        "label": each.label,
        "key": each.key,
        "fingerprint": f"00:11:22:{each.id}",
        "updated": stamp(0.0),
        "created": stamp(0.0),
        "href": f"/ssh-keys/{each.id}",
    }


class Servers:
    """Serializes the servers of one response; parts that many of them share are made once."""

    def __init__(self, cloud: CherryCloud) -> None:
        self._cloud = cloud
        self._plans = {plan.slug: plan_row(plan) for plan in cloud.plans.values()}
        self._regions = {each.slug: region(each) for each in cloud.regions.values()}
        self._prices = {plan.slug: pricing(plan)[0] for plan in cloud.plans.values()}

    def row(self, server: CherryServer, state: str, status: str) -> Json:
        plan, place = self._cloud.plan(server.order.plan), self._cloud.region(server.order.region)
        assert plan is not None
        assert place is not None
        where = self._regions[place.slug]
        return {
            "id": server.id,
            "name": server.name,
            "href": f"/servers/{server.id}",
            "hostname": server.hostname,
            "image": IMAGES.get(server.order.image, ""),
            "spot_instance": server.order.spot,
            "state": state,
            "status": status,
            "tags": dict(server.tags),
            "region": where,
            "plan": self._plans[plan.slug],
            "pricing": self._prices[plan.slug],
            "created_at": stamp(server.created),
            "termination_date": "None" if server.reclaimed == NEVER else stamp(server.reclaimed),
            "username": "root",
            "password": PASSWORD,
            "ip_addresses": [
                {
                    "id": f"{server.id:08x}",
                    "address": _address(server.id),
                    "address_family": 4,
                    "type": "private-ip",
                }
            ],
        }

    def whole(self, server: CherryServer) -> Json:
        plan, place = self._cloud.plan(server.order.plan), self._cloud.region(server.order.region)
        assert plan is not None
        assert place is not None
        image = server.order.image
        return {
            **self.row(server, server.state, server.status),
            "project": project(self._cloud, server.project),
            "availableregions": available(self._cloud, plan, place.slug),
            "bgp": _bgp(server),
            "ip_addresses": [_address_whole(self._cloud, server, self._regions[place.slug])],
            "ssh_keys": [ssh_key(self._cloud.keys[each]) for each in server.order.ssh_keys],
            "deployed_image": {"name": IMAGES.get(image, ""), "slug": image},
            "traffic_used_bytes": 0,
            "bmc": {"user": "example", "password": PASSWORD},
            "vlan": {"id": 100, "name": "default"},
            "backup_storage": None,
            **({"storage": _volume(server, self._regions[place.slug])} if server.volume else {}),
        }


def _address(number: int) -> str:
    return f"10.168.{number // 250 % 250}.{number % 250 + 1}"


def _assigned(server: CherryServer) -> Json:
    return {
        "id": server.id,
        "name": server.name,
        "href": f"/servers/{server.id}",
        "hostname": server.hostname,
        "image": IMAGES.get(server.order.image, ""),
        "region": {"id": 1},
        "state": server.state,
        "pricing": {"price": 0.0, "currency": _CURRENCY, "unit": "Hourly"},
    }


def _address_whole(cloud: CherryCloud, server: CherryServer, where: Json) -> Json:
    address = _address(server.id)
    same = {
        "id": f"{server.id:08x}",
        "address": address,
        "address_family": 4,
        "cidr": f"{address}/24",
        "gateway": "10.168.0.1",
        "type": "private-ip",
        "region": where,
    }
    return {
        **same,
        "routed_to": same,
        "assigned_to": _assigned(server),
        "targeted_to": _assigned(server),
        "project": project(cloud, server.project),
        "ptr_record": f"{server.hostname}.example.net.",
        "tags": {},
        "a_record": f"{server.hostname}.example.net.",
        "href": f"/ips/{server.id:08x}",
        "ddos_scrubbing": False,
        "vlan_id": "100",
    }


def _bgp(server: CherryServer) -> Json:
    routes = [
        {
            "subnet": "203.0.113.64/28",
            "active": True,
            "router": "br1",
            "age": "1d",
            "updated": stamp(0.0),
        }
    ]
    return {
        "enabled": server.bgp,
        "available": True,
        "status": "up" if server.bgp else "down",
        "routers": 2,
        "connected": 2 * server.bgp,
        "limit": 10,
        "active": int(server.bgp),
        "routes": routes if server.bgp else [],
        "updated": stamp(0.0),
    }


def _volume(server: CherryServer, where: Json) -> Json:
    attached = {"href": f"/servers/{server.id}", "id": server.id, "hostname": server.hostname}
    return {
        "id": server.id + 100_000,
        "name": "cs-volume-example",
        "href": f"/storages/{server.id + 100_000}",
        "size": 100,
        "allow_edit_size": True,
        "unit": "GB",
        "description": "example",
        "attached_to": attached,
        "vlan_id": "100",
        "vlan_ip": "10.168.0.9",
        "initiator": "iqn.2019-03.com.example:initiator",
        "discovery_ip": "10.168.0.10",
        "region": where,
    }


def trimmed(rows: Iterable[Json], fields: str) -> list[Json]:
    """Reduce rows to these keys, `a,b`. Without keys, return complete rows."""
    names = [name.strip() for name in fields.split(",") if name.strip()]
    return (
        [{name: row[name] for name in names if name in row} for row in rows]
        if names
        else list(rows)
    )
