"""Serializes the zone's objects with the documented fields. Empty lists are omitted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import ExoscaleCluster, ExoscalePool, Kind, Nodepool, Vm, Work

Json = dict[str, Any]


def _time(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def without_empty(found: Json) -> Json:
    return {name: value for name, value in found.items() if value not in ([], {}, "", None)}


def listed(vm: Vm) -> Json:
    return without_empty(
        {
            "id": vm.id,
            "name": vm.name,
            "state": vm.state,
            "created-at": _time(vm.created),
            "instance-type": {"id": vm.kind.id},
            "template": {"id": vm.template or "17000000-0000-4000-8000-000000000001"},
            "public-ip": f"192.0.2.{vm.number % 250 + 1}",
            "public-ip-assignment": "inet4",
            "manager": {"id": vm.pool, "type": "instance-pool"} if vm.pool else None,
        }
    )


def instance(vm: Vm) -> Json:
    return {**listed(vm), "disk-size": vm.disk}


def pool(held: ExoscalePool, zone: Zone) -> Json:
    members = held.members.values() if zone.shows_leaving else held.staying
    return without_empty(
        {
            "id": held.id,
            "name": held.name,
            "state": held.state_now,
            "size": held.size,
            "min-available": 0,
            "disk-size": held.disk,
            "instance-type": {"id": held.kind.id},
            "template": {"id": held.template},
            "labels": held.labels,
            **_configuration(held),
            "instances": [{"id": vm.id} for vm in members],
            "manager": {"id": held.nodepool, "type": "sks-nodepool"} if held.nodepool else None,
        }
    )


def _configuration(held: ExoscalePool) -> Json:
    """Return what the instances of a pool get; an SKS Nodepool shows the same as its pool."""
    return {
        "instance-prefix": held.prefix,
        "public-ip-assignment": held.public_ip_assignment,
        "security-groups": _references(held.security_groups),
        "private-networks": _references(held.private_networks),
        "anti-affinity-groups": _references(held.anti_affinity_groups),
    }


def _references(ids: Iterable[str]) -> list[Json]:
    return [{"id": id_} for id_ in ids]


def nodepool(held: Nodepool) -> Json:
    return without_empty(
        {
            "id": held.id,
            "name": held.name,
            "state": held.state_now,
            "size": held.pool.size,
            "created-at": _time(held.created),
            "instance-pool": {"id": held.pool.id},
            "instance-type": {"id": held.pool.kind.id},
            "template": {"id": held.pool.template},
            "disk-size": held.pool.disk,
            "description": held.description,
            **_configuration(held.pool),
            "version": "1.34.2",
            "kubelet-max-pods": held.max_pods or None,
            "labels": held.labels,
            "taints": {
                key: {"value": value, "effect": effect}
                for key, (value, effect) in held.taints.items()
            },
        }
    )


def cluster(held: ExoscaleCluster) -> Json:
    return without_empty(
        {
            "id": held.id,
            "name": held.name,
            "state": "running",
            "version": "1.34.2",
            "level": "pro",
            "cni": "calico",
            "addons": sorted(held.addons),
            "created-at": _time(held.created),
            "nodepools": [nodepool(each) for each in held.nodepools.values() if each.listed],
        }
    )


def kind(held: Kind, zone: Zone) -> Json:
    return without_empty(
        {
            "id": held.id,
            "family": held.family,
            "size": held.size,
            "cpus": held.cpus,
            "gpus": held.gpus or None,
            "memory": held.memory,
            "authorized": held.authorized,
            "zones": [zone.name],
        }
    )


def price_list(zone: Zone) -> Json:
    """The vendor's public list, which is the same for all zones: prices are texts."""
    prices = {"volume": "0.00014000"}
    for held in zone.kinds.values():
        family = "" if held.family == "standard" else f"{held.family}_"
        name = f"running_{family}{held.size}".replace("-", "_")
        if held.price:
            prices[name] = f"{held.price:.8f}"
    in_euro = {name: f"{float(price) * 1.04:.8f}" for name, price in prices.items()}
    return {"chf": prices, "eur": in_euro, "usd": dict(in_euro)}


def work(held: Work) -> Json:
    return without_empty(
        {
            "id": held.id,
            "state": held.state,
            "reason": held.reason,
            "message": held.message,
            "reference": {"id": held.subject, "link": held.link, "command": held.command},
        }
    )


def quotas(zone: Zone) -> dict[str, Json]:
    """Return the quotas by resource. The vendor's document names no resources; that of Nodepools
    is assumed."""
    numbers = {
        "instance": (zone.usage(), zone.limit),
        "sks-nodepool": (zone.nodepool_usage(), zone.nodepool_limit),
    }
    return {
        resource: {"resource": resource, "usage": usage, "limit": limit}
        for resource, (usage, limit) in numbers.items()
    }
