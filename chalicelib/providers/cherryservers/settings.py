"""`providers.cherryservers` of the policy, validated. All errors are reported at once, each with its place.

Upstream reads these from flags, a file and environment variables. A function that serves many clusters has none of
them, so they are settings in each cluster's policy (docs/providers/cherryservers.md "Settings"). Settings name secrets
and never contain them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.model.quantity import format_duration, parse_duration
from chalicelib.providers.settings_readers import (
    RESERVE,
    GroupForm,
    address,
    calls_per_second,
    entry_bounds,
    flag,
    named_groups,
    node_spec,
    read_all,
    reserve,
)

PROVIDER = "cherryservers"
PLACE = "providers.cherryservers"
CALLS_PER_SECOND = 4.0
ROOT = "https://api.cherryservers.com/v1"
CONTROLLER_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
PROVISION_TIMES = (60.0, 86400.0)  # seconds: minimum and maximum time for a new server to become a node
# seconds; a server has at least half of it left
LIFETIME, SHORTEST_LIFETIME, LONGEST_LIFETIME = 7200.0, 600.0, 30 * 86400.0
DEFAULT = "default"

_POOL = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?\Z", re.ASCII)
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_LARGEST_ID = 2**31 - 1
_LONGEST_NAME = 63
_SPEC_FORM = "0:10:pool1"


class CherryBounds(msgspec.Struct, frozen=True):
    """One pool of the policy: its name, its size limits and its priority."""

    name: str
    min: int
    max: int
    priority: int = 0


class CherryPoolSource(msgspec.Struct, frozen=True):
    """The source of the pools' definitions; exactly one is not empty. text: gcfg; secret: the name of a secret with
    gcfg; mapping: nodeGroupDefs as JSON."""

    text: str = ""
    secret: str = ""
    mapping: str = ""


class Bootstrap(msgspec.Struct, frozen=True):
    """The source of bootstrap tokens. secret: a secret's name; create: generated, valid for lifetime seconds."""

    secret: str = ""
    create: bool = False
    lifetime: float = LIFETIME


class CherrySettings(msgspec.Struct, frozen=True):
    """root: of the vendor's API, without a trailing slash. reserve: subtracted from a template's capacity. project_id:
    0 if only the definitions name it. provision_time: seconds that a server may take to become a node; None: the
    cluster's option applies."""

    credentials_secret: str
    groups: tuple[CherryBounds, ...]
    definitions: CherryPoolSource
    cluster_name: str = ""
    project_id: int = 0
    root: str = ROOT
    controller_labels: tuple[str, ...] = CONTROLLER_LABELS
    bootstrap: Bootstrap = Bootstrap()
    reserve: dict[str, int] = {}
    calls_per_second: float = CALLS_PER_SECOND
    provision_time: float | None = None


def read_settings(settings: Mapping[str, str], groups: Iterable[GroupPolicy] = ()) -> CherrySettings:
    """Return the policy's text values and group entries as Settings; raises BadInput, or BadInputs for several errors.

    Keys: credentialsSecret; clusterName; projectId; nodes (upstream's `--nodes=min:max:pool`, one per line); one of
    cloudConfig, cloudConfigSecret and nodeGroupDefs; endpoint; controllerNodeLabel; bootstrapTokenSecret, or
    createBootstrapTokens and bootstrapTokenLifetime; maxNodeProvisionTime; callsPerSecond; reservedCpu, reservedMemory,
    reservedEphemeralStorage. Each pool comes either from `nodes` or from the policy's nodeGroups.
    """
    readers = _READERS | {"groups": lambda given: named_groups(given, groups, _GROUPS)}
    return msgspec.convert(read_all(settings, readers, KNOWN, PLACE), CherrySettings)


def parse_spec(text: str, place: str) -> CherryBounds:
    """Parse `min:max:pool`: split at the first two colons, integers, 0 <= min <= max. Raises BadInput."""
    least, most, pool = node_spec(text, place, _SPEC_FORM)
    return CherryBounds(pool_name(pool, place), least, most)


def pool_name(name: str, place: str) -> str:
    """Validate the name of a pool, which becomes a label's value. Raises BadInput."""
    if len(name) > _LONGEST_NAME or not _POOL.match(name):
        raise BadInput(
            place,
            f"{name[:80]!r} cannot name a pool",
            f"write letters, digits, dots, dashes and underscores, at most {_LONGEST_NAME}, with a letter "
            "or a digit at both ends",
        )
    return name


def _of_entry(group_policy: GroupPolicy) -> CherryBounds:
    least, most = entry_bounds(group_policy)
    return CherryBounds(
        pool_name(group_policy.id, f"nodeGroups: {group_policy.id}"), least, most, group_policy.priority
    )


def _credentials(settings: Mapping[str, str]) -> str:
    if not (name := settings.get("credentialsSecret", "").strip()):
        raise BadInput(f"{PLACE}.credentialsSecret", "is missing", "name the secret that holds the API token")
    return name


def _project(settings: Mapping[str, str]) -> int:
    text = settings.get("projectId", "").strip()
    if text and (not re.fullmatch(r"[1-9][0-9]{0,9}", text, re.ASCII) or int(text) > _LARGEST_ID):
        raise BadInput(f"{PLACE}.projectId", f"{text!r} is not a project's number", "write it like 10001")
    return int(text or 0)


def _cluster_name(settings: Mapping[str, str]) -> str:
    return cluster_name(settings.get("clusterName", "").strip(), f"{PLACE}.clusterName")


def cluster_name(name: str, place: str) -> str:
    """Validate a cluster's name, a tag's value at the vendor; may be empty. Raises BadInput."""
    if len(name) > _LONGEST_NAME or not name.isprintable() or re.search(r"\s", name):
        raise BadInput(
            place, f"{name[:80]!r} cannot name a cluster", f"write one word of at most {_LONGEST_NAME} letters"
        )
    return name


def _source(settings: Mapping[str, str]) -> CherryPoolSource:
    given = {field: settings[key] for key, field in _SOURCES.items() if settings.get(key, "").strip()}
    if len(given) != 1:
        raise BadInput(
            f"{PLACE}.cloudConfig",
            "conflicts with another one" if given else "is missing",
            f"give exactly one of {', '.join(_SOURCES)}",
        )
    return CherryPoolSource(**given)


def _root(settings: Mapping[str, str]) -> str:
    return address(PLACE, "endpoint", settings.get("endpoint") or ROOT, ROOT, path=True)


def _controllers(settings: Mapping[str, str]) -> tuple[str, ...]:
    label = settings.get("controllerNodeLabel", "").strip()
    if label and not _LABEL_KEY.match(label):
        raise BadInput(
            f"{PLACE}.controllerNodeLabel",
            f"{label[:80]!r} is not a label's key",
            f"write it like {CONTROLLER_LABELS[0]}",
        )
    return (label,) if label else CONTROLLER_LABELS


def _bootstrap(settings: Mapping[str, str]) -> Bootstrap:
    secret = settings.get("bootstrapTokenSecret", "").strip()
    create = flag(PLACE, "createBootstrapTokens", default=False)(settings)
    if secret and create:
        raise BadInput(f"{PLACE}.createBootstrapTokens", "conflicts with bootstrapTokenSecret", "keep one of the two")
    text = settings.get("bootstrapTokenLifetime", "").strip()
    return Bootstrap(secret, create, lifetime(text) if text else LIFETIME)


def lifetime(text: str) -> float:
    """Return bootstrapTokenLifetime in seconds. Raises BadInput."""
    return _seconds("bootstrapTokenLifetime", text, SHORTEST_LIFETIME, LONGEST_LIFETIME)


def _provision_time(settings: Mapping[str, str]) -> float | None:
    text = settings.get("maxNodeProvisionTime", "").strip()
    return _seconds("maxNodeProvisionTime", text, *PROVISION_TIMES) if text else None


def _seconds(key: str, text: str, least: float, most: float) -> float:
    """Return a duration within bounds. Raises BadInput."""
    try:
        seconds = parse_duration(text)
    except BadInput as mistake:
        raise BadInput(f"{PLACE}.{key}", mistake.problem, mistake.remedy) from None
    if not least <= seconds <= most:
        raise BadInput(
            f"{PLACE}.{key}",
            f"{text!r} is out of range",
            f"write a duration from {format_duration(least)} to {format_duration(most)}, such as 1h",
        )
    return seconds


_SOURCES = {"cloudConfig": "text", "cloudConfigSecret": "secret", "nodeGroupDefs": "mapping"}
_GROUPS = GroupForm(
    provider=PROVIDER,
    place=PLACE,
    parse=parse_spec,
    of_entry=_of_entry,
    name=lambda bounds: bounds.name,
    each="each pool",
    none=("no pool is named, and none is discovered", f"name them here like {_SPEC_FORM}, or under nodeGroups"),
)
_READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "credentials_secret": _credentials,
    "cluster_name": _cluster_name,
    "project_id": _project,
    "definitions": _source,
    "root": _root,
    "controller_labels": _controllers,
    "bootstrap": _bootstrap,
    "provision_time": _provision_time,
    "reserve": reserve(PLACE),
    "calls_per_second": calls_per_second(PLACE, CALLS_PER_SECOND),
}
KNOWN = frozenset(
    {
        "credentialsSecret",
        "observeSecret",
        "clusterName",
        "projectId",
        "nodes",
        "endpoint",
        "controllerNodeLabel",
        "bootstrapTokenSecret",
        "createBootstrapTokens",
        "bootstrapTokenLifetime",
        "maxNodeProvisionTime",
        "callsPerSecond",
        *_SOURCES,
        *RESERVE,
    }
)
