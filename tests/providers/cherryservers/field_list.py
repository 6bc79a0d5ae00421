"""The recorded field list of the Cherry Servers API, and the comparison of answers with it.

A kind is a Python type, the name of another type of the list, or a list of one. KNOWN has the keys
of upstream's types; LIVE has the additional keys that the vendor sends. No other keys are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Kind = type | str | list[Any]

_PRICED = {"id": int, "unit_price": float}
KNOWN: Mapping[str, Mapping[str, Kind]] = {
    "Server": {
        "id": int,
        "name": str,
        "href": str,
        "hostname": str,
        "image": str,
        "spot_instance": bool,
        "bgp": "ServerBGP",
        "project": "Project",
        "region": "Region",
        "state": str,
        "plan": "Plan",
        "availableregions": "AvailableRegions",
        "pricing": "Pricing",
        "ip_addresses": ["IPAddresses"],
        "ssh_keys": ["SSHKeys"],
        "tags": dict,
        "storage": "BlockStorage",
        "created_at": str,
        "termination_date": str,
    },
    "Plan": {
        "id": int,
        "slug": str,
        "name": str,
        "custom": bool,
        "specs": "Specs",
        "pricing": ["Pricing"],
        "available_regions": ["AvailableRegions"],
    },
    "Specs": {
        "cpus": "Cpus",
        "memory": "Memory",
        "storage": ["Storage"],
        "raid": "Raid",
        "nics": "Nics",
        "bandwidth": "Bandwidth",
    },
    "Cpus": {"count": int, "name": str, "cores": int, "frequency": float, "unit": str},
    "Memory": {"count": int, "total": int, "unit": str, "name": str},
    "Storage": {"count": int, "name": str, "size": float, "unit": str},
    "Raid": {"name": str},
    "Nics": {"name": str},
    "Bandwidth": {"name": str},
    "Pricing": {"price": float, "taxed": bool, "currency": str, "unit": str},
    "AvailableRegions": {"id": int, "name": str, "region_iso_2": str, "stock_qty": int},
    "Region": {
        "id": int,
        "slug": str,
        "name": str,
        "region_iso_2": str,
        "bgp": "RegionBGP",
        "href": str,
    },
    "RegionBGP": {"hosts": [str], "asn": int},
    "Project": {"id": int, "name": str, "bgp": "ProjectBGP", "href": str},
    "ProjectBGP": {"enabled": bool, "local_asn": int},
    "ServerBGP": {
        "enabled": bool,
        "available": bool,
        "status": str,
        "routers": int,
        "connected": int,
        "limit": int,
        "active": int,
        "routes": ["BGPRoute"],
        "updated": str,
    },
    "BGPRoute": {"subnet": str, "active": bool, "router": str, "age": str, "updated": str},
    "IPAddresses": {
        "id": str,
        "address": str,
        "address_family": int,
        "cidr": str,
        "gateway": str,
        "type": str,
        "region": "Region",
        "routed_to": "RoutedTo",
        "assigned_to": "AssignedTo",
        "targeted_to": "AssignedTo",
        "project": "Project",
        "ptr_record": str,
        "a_record": str,
        "tags": dict,
        "href": str,
    },
    "RoutedTo": {
        "id": str,
        "address": str,
        "address_family": int,
        "cidr": str,
        "gateway": str,
        "type": str,
        "region": "Region",
    },
    "AssignedTo": {
        "id": int,
        "name": str,
        "href": str,
        "hostname": str,
        "image": str,
        "region": "Region",
        "state": str,
        "pricing": "Pricing",
    },
    "BlockStorage": {
        "id": int,
        "name": str,
        "href": str,
        "size": int,
        "allow_edit_size": bool,
        "unit": str,
        "description": str,
        "attached_to": "AttachedTo",
        "vlan_id": str,
        "vlan_ip": str,
        "initiator": str,
        "discovery_ip": str,
    },
    "AttachedTo": {"href": str},
    "SSHKeys": {
        "id": int,
        "label": str,
        "key": str,
        "fingerprint": str,
        "updated": str,
        "created": str,
        "href": str,
    },
}
LIVE: Mapping[str, Mapping[str, Kind]] = {
    "Server": {
        "status": str,
        "username": str,
        "password": str,
        "deployed_image": dict,
        "bmc": dict,
        "vlan": dict,
        "traffic_used_bytes": int,
        "backup_storage": object,
    },
    "Plan": {"type": str, "category": str, "title": str, "href": str, "softwares": [dict]},
    "Storage": {"type": str},
    "Pricing": _PRICED,
    "AvailableRegions": {
        "slug": str,
        "spot_qty": int,
        "href": str,
        "bgp": "RegionBGP",
        "location": str,
    },
    "Region": {"location": str},
    "IPAddresses": {"ddos_scrubbing": bool, "vlan_id": str},
    "BlockStorage": {"region": "Region"},
    "AttachedTo": {"id": int, "hostname": str},
}


def compare(kind: Kind, value: Any, seen: dict[str, set[str]], place: str = "") -> list[str]:
    """Returns the deviations of a value from the list, one line each. seen: collects the keys
    seen so far for each type."""
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [f"{place}: {type(value).__name__} instead of a list"]
        return [
            line
            for at, each in enumerate(value)
            for line in compare(kind[0], each, seen, f"{place}[{at}]")
        ]
    if isinstance(kind, str):
        return _of_type(kind, value, seen, place or kind)
    wanted = (int, float) if kind is float else (kind,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind not in (bool, object)):
        return [f"{place}: {value!r} is no {kind.__name__}"]
    return []


def _of_type(name: str, value: Any, seen: dict[str, set[str]], place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: {value!r} is no {name}"]
    fields = {**KNOWN[name], **LIVE.get(name, {})}
    seen.setdefault(name, set()).update(value)
    unknown = [f"{place}.{key}: no key of {name}" for key in sorted(value.keys() - fields.keys())]
    return unknown + [
        line
        for key, each in value.items()
        if key in fields
        for line in compare(fields[key], each, seen, f"{place}.{key}")
    ]
