"""`providers.alicloud` of the policy, checked. All mistakes are reported at once, each with its place.

Upstream takes these from flags, a file and environment variables; a function that serves many clusters has none of
them, so they are settings of one cluster's policy (docs/providers/alicloud.md says which variable became which).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput, BadInputs
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.quantity import parse_amount
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY
from chalicelib.providers.alicloud.access import PLACE, Access, check_access
from chalicelib.providers.alicloud.endpoints import Endpoints, Network, Service

PROVIDER = "alicloud"
CALLS_PER_SECOND = 10.0
_MOST_CALLS = 1000.0

_SPEC_FORM = "write it like 1:10:asg-bp18p2yfxow2dloq0001"
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}\Z", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?\Z", re.ASCII)
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+\Z", re.ASCII)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Bounds(msgspec.Struct, frozen=True):
    """One scaling group that is ours: its id, what we may do with its size, and how much it is preferred."""

    id: str
    min: int
    max: int
    priority: int = 0


class Settings(msgspec.Struct, frozen=True):
    """reserve: what a template keeps back from its capacity. calls_per_second: per account, region and product."""

    region: str
    groups: tuple[Bounds, ...]
    endpoints: Endpoints
    access: Access
    reserve: dict[str, int] = {}
    calls_per_second: float = CALLS_PER_SECOND


def read_settings(settings: Mapping[str, str], groups: Iterable[GroupPolicy] = ()) -> Settings:
    """The policy's text values and its group entries as Settings; raises BadInput, or BadInputs for several mistakes.

    Keys: region; network (public, vpc); essEndpoint, ecsEndpoint, stsEndpoint; nodes (upstream's
    `--nodes=min:max:asg-id`, a line each); reservedCpu, reservedMemory, reservedEphemeralStorage; callsPerSecond; and
    those of Access. Groups come from `nodes` and from the policy's nodeGroups, each from one of the two.
    """
    fields: dict[str, object] = {}
    mistakes: list[BadInput] = []
    readers = _READERS | {"groups": lambda given: _groups(given.get("nodes", ""), groups)}
    for field, reader in readers.items():
        try:
            fields[field] = reader(settings)
        except BadInputs as several:
            mistakes.extend(several.problems)
        except BadInput as mistake:
            mistakes.append(mistake)
    mistakes.extend(
        BadInput(f"{PLACE}.{key}", "there is no such setting", f"the settings are {', '.join(sorted(KNOWN))}")
        for key in settings
        if key not in KNOWN
    )
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else BadInputs(tuple(mistakes))
    where = {"region": fields["region"], "network": fields.pop("network"), "overrides": fields.pop("overrides")}
    return msgspec.convert(fields | {"endpoints": where}, Settings)


def parse_spec(text: str, place: str) -> Bounds:
    """`min:max:id` (§2): split at the first two colons, whole numbers without blanks, 0 <= min <= max.

    Raises BadInput.
    """
    parts = text.split(":", 2)
    if len(parts) != 3 or not parts[2] or re.search(r"\s", parts[2]):
        raise BadInput(place, f"{text!r} is not min:max:id", _SPEC_FORM)
    for name, part in zip(("min", "max"), parts, strict=False):
        if not _WHOLE.match(part):
            raise BadInput(place, f"{name} {part!r} of {text!r} is not a whole number", _SPEC_FORM)
    least, most = int(parts[0]), int(parts[1])
    if least < 0:
        raise BadInput(place, f"min of {text!r} is negative", "write 0 or more")
    if most < least:
        raise BadInput(place, f"max of {text!r} is below its min", f"write {least} or more, or lower min")
    return Bounds(parts[2], least, most)


def _groups(nodes: str, groups: Iterable[GroupPolicy]) -> tuple[Bounds, ...]:
    mistakes: list[BadInput] = []
    found: dict[str, Bounds] = {}
    place = f"{PLACE}.nodes"
    lines = [line.strip() for line in nodes.splitlines()]
    readers: list[tuple[str, Callable[[], Bounds]]] = [
        *((place, partial(parse_spec, line, place)) for line in lines if line),
        *((f"nodeGroups: {each.id}", partial(_of_entry, each)) for each in groups if each.provider == PROVIDER),
    ]
    for place, read in readers:
        try:
            bounds = read()
            if bounds.id in found:
                raise BadInput(place, f"{bounds.id} is given twice", "name each scaling group once")
            found[bounds.id] = bounds
        except BadInput as mistake:
            mistakes.append(mistake)
    if mistakes:
        raise BadInputs(tuple(mistakes))
    if not found:
        raise BadInput(f"{PLACE}.nodes", "no scaling group is named, and none is discovered",
                       "name them here as min:max:asg-…, or under nodeGroups")
    return tuple(found.values())


def _of_entry(entry: GroupPolicy) -> Bounds:
    place = f"nodeGroups: {entry.id}"
    if entry.max is None:
        raise BadInput(place, "has no max", "add max: the provider alicloud has no default for it")
    least = entry.min or 0
    if entry.max < least:
        raise BadInput(place, f"max {entry.max} is below min {least}", f"write {least} or more, or lower min")
    return Bounds(entry.id, least, entry.max, entry.priority)


def _region(settings: Mapping[str, str]) -> str:
    region = settings.get("region", "").strip()
    if not _REGION.match(region):
        problem = f"{region!r} is not a region" if region else "is missing"
        raise BadInput(f"{PLACE}.region", problem, "write the scaling groups' region, such as cn-hangzhou")
    return region


def _network(settings: Mapping[str, str]) -> Network:
    name = settings.get("network") or Network.PUBLIC
    if name not in set(Network):
        raise BadInput(f"{PLACE}.network", f"{name!r} is not known", f"use {' or '.join(Network)}")
    return Network(name)


def _overrides(settings: Mapping[str, str]) -> dict[Service, str]:
    return {service: _root(key, settings[key]) for key, service in _ENDPOINTS.items() if settings.get(key)}


def _root(key: str, url: str) -> str:
    """A root URL over TLS; without it on this machine only, where the emulator is (defect 1)."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
        whole = bool(parts.hostname) and parts.path in {"", "/"} and not (parts.query or parts.fragment)
        right = whole and (plain or parts.scheme == "https") and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise BadInput(f"{PLACE}.{key}", "is not an https address", "write it like https://ess.cn-hangzhou.aliyuncs.com")
    return url.rstrip("/")


def _access(settings: Mapping[str, str]) -> Access:
    if settings.get("metadataEndpoint"):
        _metadata_address(settings["metadataEndpoint"])
    access = Access(**{field: settings.get(key, "").strip() for key, field in _ACCESS.items()})
    check_access(access)
    return access


def _metadata_address(url: str) -> None:
    if not re.match(r"(https://[^/?#@\s]+|http://(100\.100\.100\.200|localhost|127\.0\.0\.1|\[::1\])(:\d+)?)/?\Z", url):
        raise BadInput(f"{PLACE}.metadataEndpoint", "is not an address", "write it like http://100.100.100.200")


def _reserve(settings: Mapping[str, str]) -> dict[str, int]:
    reserve = {}
    for key, resource in _RESERVE.items():
        if text := settings.get(key, ""):
            try:
                reserve[resource] = parse_amount(resource, text)
            except BadInput as bad:
                raise BadInput(f"{PLACE}.{key}", bad.problem, bad.remedy) from None
    return reserve


def _calls(settings: Mapping[str, str]) -> float:
    text = settings.get("callsPerSecond") or f"{CALLS_PER_SECOND:g}"
    if not _NUMBER.match(text) or not 0.1 <= float(text) <= _MOST_CALLS:
        raise BadInput(f"{PLACE}.callsPerSecond", f"{text!r} is not a number from 0.1 to {_MOST_CALLS:g}",
                       f"leave it out for {CALLS_PER_SECOND:g}")
    return float(text)


_ENDPOINTS = {"essEndpoint": Service.ESS, "ecsEndpoint": Service.ECS, "stsEndpoint": Service.STS}
_RESERVE = {"reservedCpu": CPU, "reservedMemory": MEMORY, "reservedEphemeralStorage": EPHEMERAL}
_ACCESS = {
    "credentialsSecret": "credentials_secret",
    "roleArn": "role_arn",
    "sessionName": "session_name",
    "oidcProviderArn": "oidc_provider_arn",
    "oidcTokenSecret": "oidc_token_secret",
    "oidcTokenFile": "oidc_token_file",
    "metadataEndpoint": "metadata_endpoint",
    "ramRole": "ram_role",
}
_READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "region": _region,
    "network": _network,
    "overrides": _overrides,
    "access": _access,
    "reserve": _reserve,
    "calls_per_second": _calls,
}
KNOWN = frozenset({"region", "network", "nodes", "callsPerSecond", *_ENDPOINTS, *_RESERVE, *_ACCESS})
