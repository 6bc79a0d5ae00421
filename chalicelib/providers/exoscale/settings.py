"""`providers.exoscale` of the policy, validated. All errors are reported at once, each with its place.

Upstream reads these from environment variables, whose errors show as DNS errors at run time, and from --nodes, whose
errors show at every node. Here they are settings in each cluster's policy (docs/providers/exoscale.md "Settings").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.exoscale.provider_ids import is_id
from chalicelib.providers.settings_readers import (
    RESERVE,
    GroupForm,
    Texts,
    address,
    calls_per_second,
    check_order,
    flag,
    named_groups,
    node_spec,
    read_all,
    reserve,
)

PROVIDER = "exoscale"
PLACE = "providers.exoscale"
CALLS_PER_SECOND = 10.0
UNLIMITED = 1000  # default maximum size of a group whose account has no quota
LEAST = 1  # default minimum size of a group
VERSION = "/v2"

_ZONE = re.compile(r"[a-z]{2}-[a-z]{3}-[0-9]{1,3}\Z", re.ASCII)
_ENVIRONMENT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)
_WHOLE = re.compile(r"[1-9][0-9]{0,6}\Z", re.ASCII)
_LARGEST = 1_000_000
_EXAMPLE = "1:10:web"


class ExoscaleBounds(msgspec.Struct, frozen=True):
    """One group that the policy names.

    name: an Instance Pool's or a Nodepool's id, or a name, optionally as cluster/name. max None: as much as the
    account's quota allows."""

    name: str
    min: int
    max: int | None
    priority: int = 0


class ExoscaleSettings(msgspec.Struct, frozen=True):
    """root: URL of the API, `…/v2`. sks_cluster: id or name of the SKS cluster whose Nodepools are groups even while it
    has no nodes. auto_discovery: pools that no entry names are groups, too. unlimited: the maximum size if the quota is
    -1. reserve: subtracted from a template's capacity."""

    zone: str
    root: str
    credentials_secret: str
    groups: tuple[ExoscaleBounds, ...] = ()
    sks_cluster: str = ""
    scale_from_zero: bool = True
    auto_discovery: bool = False
    unlimited: int = UNLIMITED
    reserve: dict[str, int] = {}
    calls_per_second: float = CALLS_PER_SECOND


def read_settings(settings: Mapping[str, str], groups: Iterable[GroupPolicy] = ()) -> ExoscaleSettings:
    """Return the policy's text values and group entries as Settings; raises BadInput, or BadInputs for several errors.

    Keys: zone; environment or endpoint; credentialsSecret; nodes (upstream's `--nodes=min:max:name`, one per line);
    sksCluster; scaleFromZero; autoDiscovery; unlimitedMax; callsPerSecond; reservedCpu, reservedMemory,
    reservedEphemeralStorage. Each group comes either from `nodes` or from the policy's nodeGroups; none at all is
    valid, because groups are discovered. Blanks around a value are ignored.
    """
    stripped = {key: value.strip() for key, value in settings.items()}
    readers = _READERS | {"groups": lambda given: named_groups(given, groups, _GROUPS)}
    fields = read_all(stripped, readers, KNOWN, PLACE)
    fields["root"] = fields["root"] or f"https://{fields.pop('environment')}-{fields['zone']}.exoscale.com{VERSION}"
    fields.pop("environment", None)
    return msgspec.convert(fields, ExoscaleSettings)


def parse_spec(text: str, place: str) -> ExoscaleBounds:
    """Parse `min:max:name`: split at the first two colons, integers without blanks, 0 <= min <= max. Raises BadInput.

    A minimum of 0 is valid for SKS only; the kind of the group is known once it is read.
    """
    least, most, name = node_spec(text, place, _EXAMPLE)
    return ExoscaleBounds(_name(name), least, most)


def _of_entry(group_policy: GroupPolicy) -> ExoscaleBounds:
    """Convert an entry of nodeGroups; its missing values are those of an unnamed group."""
    place, name = f"nodeGroups: {group_policy.id}", _name(group_policy.id)
    if not name:
        raise BadInput(place, "has no id", "write the group's id or name")
    least = (
        group_policy.min
        if group_policy.min is not None
        else LEAST
        if group_policy.max is None
        else min(LEAST, group_policy.max)
    )
    if least < 0 or (group_policy.max is not None and group_policy.max < 0):
        raise BadInput(place, "has a negative size", "write 0 or more")
    check_order(place, least, group_policy.max)
    return ExoscaleBounds(name, least, group_policy.max, group_policy.priority)


def _name(text: str) -> str:
    """Return an id in lower case, so that one group has one name; a name unchanged."""
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
            f"{PLACE}.environment", "conflicts with endpoint, which already names the host", "keep one of the two"
        )
    if name and not _ENVIRONMENT.match(name):
        raise BadInput(
            f"{PLACE}.environment", f"{name!r} is not the beginning of a host's name", "leave it out for api"
        )
    return name or "api"


def _root(settings: Texts) -> str:
    """Return the endpoint, if one is given, with the API's version at its end; "" otherwise."""
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


_GROUPS = GroupForm(
    provider=PROVIDER,
    place=PLACE,
    parse=parse_spec,
    of_entry=_of_entry,
    name=lambda bounds: bounds.name,
    each="each group",
)
_READERS: dict[str, Callable[[Texts], object]] = {
    "zone": _zone,
    "environment": _environment,
    "root": _root,
    "credentials_secret": _credentials_secret,
    "sks_cluster": lambda settings: _name(settings.get("sksCluster", "")),
    "scale_from_zero": flag(PLACE, "scaleFromZero", default=True),
    "auto_discovery": flag(PLACE, "autoDiscovery", default=False),
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
        "autoDiscovery",
        "unlimitedMax",
        "callsPerSecond",
        *RESERVE,
    }
)
