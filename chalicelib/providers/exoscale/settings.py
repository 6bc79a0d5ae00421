"""`providers.exoscale` of the policy, checked. All mistakes are reported at once, each with its place.

Upstream takes these from environment variables, whose mistakes it meets as DNS errors at run time, and from --nodes,
whose mistakes it meets at every node (exoscale.md §1, §2). Here they are settings of one cluster's policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.exoscale.ids import is_id
from chalicelib.providers.settings_readers import (
    RESERVE,
    Texts,
    address,
    calls_per_second,
    flag,
    named_groups,
    node_spec,
    read_all,
    reserve,
)

PROVIDER = "exoscale"
PLACE = "providers.exoscale"
CALLS_PER_SECOND = 10.0
UNLIMITED = 1000  # the largest size of a group whose account has no quota, if nobody says another
LEAST = 1  # §2, defaults: what a group keeps that nobody gives a minimum
VERSION = "/v2"

_ZONE = re.compile(r"[a-z]{2}-[a-z]{3}-[0-9]{1,3}\Z", re.ASCII)
_ENVIRONMENT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)
_WHOLE = re.compile(r"[1-9][0-9]{0,6}\Z", re.ASCII)
_LARGEST = 1_000_000
_EXAMPLE = "1:10:web"


class ExoscaleBounds(msgspec.Struct, frozen=True):
    """One group that is named. name: an Instance Pool's or a Nodepool's id, or a name, which may be written
    cluster/name. max None: as much as the account's quota leaves."""

    name: str
    min: int
    max: int | None
    priority: int = 0


class ExoscaleSettings(msgspec.Struct, frozen=True):
    """root: where the API is, `…/v2`. sks_cluster: id or name of the SKS cluster whose Nodepools are ours even while
    it has no nodes. unlimited: the largest size where the quota says -1. reserve: what a template keeps back."""

    zone: str
    root: str
    credentials_secret: str
    groups: tuple[ExoscaleBounds, ...] = ()
    sks_cluster: str = ""
    scale_from_zero: bool = True
    unlimited: int = UNLIMITED
    reserve: dict[str, int] = {}
    calls_per_second: float = CALLS_PER_SECOND


def read_settings(settings: Mapping[str, str], groups: Iterable[GroupPolicy] = ()) -> ExoscaleSettings:
    """The policy's text values and its group entries as Settings; raises BadInput, or BadInputs for several mistakes.

    Keys: zone; environment or endpoint; credentialsSecret; nodes (upstream's `--nodes=min:max:name`, a line each);
    sksCluster; scaleFromZero; unlimitedMax; callsPerSecond; reservedCpu, reservedMemory, reservedEphemeralStorage.
    Groups come from `nodes` and from the policy's nodeGroups, each from one of the two; none at all is right, since
    groups are discovered. Blanks around a value mean nothing (§1).
    """
    stripped = {key: value.strip() for key, value in settings.items()}
    readers = _READERS | {"groups": lambda given: _groups(given.get("nodes", ""), groups)}
    fields = read_all(stripped, readers, KNOWN, PLACE)
    fields["root"] = fields["root"] or f"https://{fields.pop('environment')}-{fields['zone']}.exoscale.com{VERSION}"
    fields.pop("environment", None)
    return msgspec.convert(fields, ExoscaleSettings)


def parse_spec(text: str, place: str) -> ExoscaleBounds:
    """`min:max:name` (§2): split at the first two colons, whole numbers without blanks, 0 <= min <= max.

    A minimum of 0 is right for SKS only (§5); which kind it is shows when the group is seen. Raises BadInput.
    """
    least, most, name = node_spec(text, place, _EXAMPLE)
    return ExoscaleBounds(_name(name), least, most)


def _groups(nodes: str, groups: Iterable[GroupPolicy]) -> tuple[ExoscaleBounds, ...]:
    entries = [each for each in groups if each.provider == PROVIDER]
    return named_groups(
        nodes,
        entries,
        place=PLACE,
        parse=parse_spec,
        of_entry=_of_entry,
        name=lambda bounds: bounds.name,
        each="each group",
    )


def _of_entry(entry: GroupPolicy) -> ExoscaleBounds:
    """An entry of nodeGroups; what it does not say is as for a group that nobody names."""
    place, name = f"nodeGroups: {entry.id}", _name(entry.id)
    if not name:
        raise BadInput(place, "has no id", "write the group's id or name")
    least = entry.min if entry.min is not None else LEAST if entry.max is None else min(LEAST, entry.max)
    if least < 0 or (entry.max is not None and entry.max < 0):
        raise BadInput(place, "has a negative size", "write 0 or more")
    if entry.max is not None and entry.max < least:
        raise BadInput(place, f"max {entry.max} is below min {least}", f"write {least} or more, or lower min")
    return ExoscaleBounds(name, least, entry.max, entry.priority)


def _name(text: str) -> str:
    """An id in small letters, so that one group is not two; a name as it is written."""
    name = text.strip()
    return name.lower() if is_id(name) else name


def _zone(settings: Texts) -> str:
    zone = settings.get("zone", "")
    if not _ZONE.match(zone):
        raise BadInput(
            f"{PLACE}.zone",
            f"{zone!r} is not a zone" if zone else "is missing",
            "write the cluster's zone, such as ch-gva-2",
        )
    return zone


def _environment(settings: Texts) -> str:
    name = settings.get("environment", "")
    if name and settings.get("endpoint"):
        raise BadInput(
            f"{PLACE}.environment", "stands beside endpoint, which names the host already", "keep one of the two"
        )
    if name and not _ENVIRONMENT.match(name):
        raise BadInput(
            f"{PLACE}.environment", f"{name!r} is not the beginning of a host's name", "leave it out for api"
        )
    return name or "api"


def _root(settings: Texts) -> str:
    """The endpoint if one is given, with the API's version at its end; "" otherwise."""
    url = settings.get("endpoint", "")
    if not url:
        return ""
    root = address(PLACE, "endpoint", url, "https://api-ch-gva-2.exoscale.com/v2", path=True)
    return root if root.endswith(VERSION) else root + VERSION


def _credentials_secret(settings: Texts) -> str:
    if name := settings.get("credentialsSecret", ""):
        return name
    raise BadInput(f"{PLACE}.credentialsSecret", "is missing", "name the secret that holds apiKey and apiSecret")


def _unlimited(settings: Texts) -> int:
    text = settings.get("unlimitedMax") or str(UNLIMITED)
    if not _WHOLE.match(text) or int(text) > _LARGEST:
        raise BadInput(
            f"{PLACE}.unlimitedMax",
            f"{text!r} is not a whole number from 1 to {_LARGEST}",
            f"leave it out for {UNLIMITED}",
        )
    return int(text)


_READERS: dict[str, Callable[[Texts], object]] = {
    "zone": _zone,
    "environment": _environment,
    "root": _root,
    "credentials_secret": _credentials_secret,
    "sks_cluster": lambda settings: _name(settings.get("sksCluster", "")),
    "scale_from_zero": flag(PLACE, "scaleFromZero", default=True),
    "unlimited": _unlimited,
    "reserve": reserve(PLACE),
    "calls_per_second": calls_per_second(PLACE, CALLS_PER_SECOND),
}
KNOWN = frozenset(
    {
        "zone",
        "environment",
        "endpoint",
        "credentialsSecret",
        "observeSecret",
        "nodes",
        "sksCluster",
        "scaleFromZero",
        "unlimitedMax",
        "callsPerSecond",
        *RESERVE,
    }
)
