"""`providers.huaweicloud` of the policy, validated. All errors are reported at once, each with its place.

Upstream reads these from an INI file in the pod. Here they are settings in each cluster's policy, and only the key is
in a secret (docs/providers/huaweicloud.md "Settings").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.vendor_hosts import CCE_REGIONS
from chalicelib.providers.huaweicloud.models import Service, url_of
from chalicelib.providers.huaweicloud.provider_ids import is_id, is_project
from chalicelib.providers.settings_readers import (
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

PROVIDER = "huaweicloud"
PLACE = "providers.huaweicloud"
CALLS_PER_SECOND = 10.0
SHORTEST, LONGEST, USUAL = 900, 86400, 3600  # permitted and default lifetime in seconds of an agency's temporary keys
_EXAMPLE = "1:10:pool-a"

_REGION = re.compile(r"[a-z]+(-[a-z0-9]+)+\Z", re.ASCII)
_AGENCY = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_DOMAIN = re.compile(r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,62}[^\s\x00-\x1f\x7f])?\Z")
_SECONDS = re.compile(r"[0-9]{1,6}\Z", re.ASCII)


class CceBounds(msgspec.Struct, frozen=True):
    """The size limits of one pool or scale group. name: a pool's uid or name, or either with `/<scale group>`. min, max
    None: the pool's own."""

    name: str
    min: int | None = None
    max: int | None = None
    priority: int = 0


class Agency(msgspec.Struct, frozen=True):
    """A role of another account that the key assumes. name, domain: the agency's and that account's; seconds: lifetime
    of the temporary keys."""

    name: str
    domain: str
    seconds: int = USUAL


class CceSettings(msgspec.Struct, frozen=True):
    """project "": looked up in IAM. endpoints: service -> its root. discover: unnamed pools with autoscaling on are
    groups too. warn_about_addon: check for the vendor's own autoscaler. reserve: subtracted from a template's
    capacity."""

    region: str
    cluster: str
    credentials_secret: str
    project: str = ""
    agency: Agency | None = None
    endpoints: dict[Service, str] = {}
    groups: tuple[CceBounds, ...] = ()
    discover: bool = True
    warn_about_addon: bool = True
    reserve: dict[str, int] = {}
    calls_per_second: float = CALLS_PER_SECOND

    def url(self, service: Service) -> str:
        """Return the service's root, without a trailing slash."""
        return self.endpoints.get(service) or url_of(service, self.region)

    @property
    def known_region(self) -> bool:
        """Whether the region is in the vendor's table; an unknown one is used as well."""
        return self.region in CCE_REGIONS


def read_settings(settings: Mapping[str, str], groups: Iterable[GroupPolicy] = ()) -> CceSettings:
    """Return the policy's text values and group entries as Settings; raises BadInput, or BadInputs for several errors.

    Keys: region, clusterId, credentialsSecret; projectId; agencyName, agencyDomain, agencyDuration; cceEndpoint,
    ecsEndpoint, iamEndpoint; nodes (upstream's `--nodes=min:max:pool`, one per line); autodiscovery; warnAboutAddon;
    callsPerSecond; reservedCpu, reservedMemory. Blanks around a value are ignored.
    """
    stripped = {key: value.strip() for key, value in settings.items()}
    readers = _READERS | {"groups": lambda given: named_groups(given, groups, _GROUPS)}
    fields = read_all(stripped, readers, KNOWN, PLACE)
    fields["endpoints"] = {service: url for service in Service if (url := fields.pop(service))}
    if not fields["discover"] and not fields["groups"]:
        raise BadInput(
            f"{PLACE}.autodiscovery",
            "is false, and no pool is named",
            f"name pools in nodes as {_EXAMPLE}, or under nodeGroups",
        )
    return msgspec.convert(fields, CceSettings)


def parse_spec(text: str, place: str) -> CceBounds:
    """Parse `min:max:pool`: split at the first two colons, integers without blanks, 0 <= min <= max.

    Raises BadInput.
    """
    least, most, name = node_spec(text, place, _EXAMPLE)
    return CceBounds(_name(name, place), least, most)


def _of_entry(group_policy: GroupPolicy) -> CceBounds:
    """Convert an entry of nodeGroups; its missing values are the pool's own."""
    place = f"nodeGroups: {group_policy.id}"
    name = _name(group_policy.id, place)
    if (group_policy.min is not None and group_policy.min < 0) or (
        group_policy.max is not None and group_policy.max < 0
    ):
        raise BadInput(place, "has a negative size", "write 0 or more")
    check_order(place, group_policy.min, group_policy.max)
    return CceBounds(name, group_policy.min, group_policy.max, group_policy.priority)


def _name(text: str, place: str) -> str:
    """Return a uid in lower case, so that one pool has one name; names unchanged."""
    pool, slash, group = text.strip().partition("/")
    if not pool or (slash and not group):
        raise BadInput(
            place,
            f"{text!r} names no pool" if not pool else f"{text!r} names no scale group",
            "write a pool's uid or name, or one of them with /<scale group>",
        )
    return f"{pool.lower() if is_id(pool) else pool}{slash}{group}"


def _region(settings: Texts) -> str:
    region = settings.get("region", "")
    if not _REGION.match(region):
        raise BadInput(
            f"{PLACE}.region",
            f"{region!r} is not a region" if region else "is missing",
            "write the cluster's region, such as cn-north-4",
        )
    return region


def _cluster(settings: Texts) -> str:
    cluster = settings.get("clusterId", "")
    if not is_id(cluster):
        raise BadInput(
            f"{PLACE}.clusterId",
            f"{cluster!r} is not the id of a cluster" if cluster else "is missing",
            "write the CCE cluster's id, such as 2292498e-1111-11ee-8b5e-0255ac1001ba",
        )
    return cluster.lower()


def _credentials_secret(settings: Texts) -> str:
    if name := settings.get("credentialsSecret", ""):
        return name
    raise BadInput(f"{PLACE}.credentialsSecret", "is missing", "name the secret that holds accessKey and secretKey")


def _project(settings: Texts) -> str:
    project = settings.get("projectId", "")
    if project and not is_project(project):
        raise BadInput(
            f"{PLACE}.projectId",
            f"{project!r} is not the id of a project",
            "write its 32 hex digits, or leave it out: the region's project is asked for then",
        )
    return project


def _agency(settings: Texts) -> Agency | None:
    name, domain, seconds = (settings.get(key, "") for key in ("agencyName", "agencyDomain", "agencyDuration"))
    if not (name or domain or seconds):
        return None
    for key, value, form in (("agencyName", name, _AGENCY), ("agencyDomain", domain, _DOMAIN)):
        if not form.match(value):
            raise BadInput(
                f"{PLACE}.{key}",
                f"{value!r} is not a name" if value else "is missing, but the others are given",
                "write agencyName and agencyDomain, or take out all that begins with agency",
            )
    if seconds and (not _SECONDS.match(seconds) or not SHORTEST <= int(seconds) <= LONGEST):
        raise BadInput(
            f"{PLACE}.agencyDuration",
            f"{seconds!r} is not a whole number from {SHORTEST} to {LONGEST}",
            f"leave it out for {USUAL} seconds",
        )
    return Agency(name, domain, int(seconds or USUAL))


def _endpoint(key: str, service: Service) -> Callable[[Texts], str]:
    example = f"https://{service}.cn-north-4.myhuaweicloud.com"
    return lambda settings: address(PLACE, key, settings[key], example) if settings.get(key) else ""


_ENDPOINTS = {"cceEndpoint": Service.CCE, "ecsEndpoint": Service.ECS, "iamEndpoint": Service.IAM}
_GROUPS = GroupForm(
    provider=PROVIDER,
    place=PLACE,
    parse=parse_spec,
    of_entry=_of_entry,
    name=lambda bounds: bounds.name,
    each="each pool or scale group",
)
_READERS: dict[str, Callable[[Texts], object]] = {
    "region": _region,
    "cluster": _cluster,
    "credentials_secret": _credentials_secret,
    "project": _project,
    "agency": _agency,
    **{service: _endpoint(key, service) for key, service in _ENDPOINTS.items()},
    "discover": flag(PLACE, "autodiscovery", default=True),
    "warn_about_addon": flag(PLACE, "warnAboutAddon", default=True),
    "reserve": reserve(PLACE),
    "calls_per_second": calls_per_second(PLACE, CALLS_PER_SECOND),
}
KNOWN = frozenset(
    {
        "region",
        "clusterId",
        "credentialsSecret",
        "observeSecret",
        "projectId",
        "agencyName",
        "agencyDomain",
        "agencyDuration",
        "nodes",
        "autodiscovery",
        "warnAboutAddon",
        "callsPerSecond",
        *_ENDPOINTS,
        "reservedCpu",
        "reservedMemory",
    }
)  # the template promises no disk, so nothing of it is reserved
