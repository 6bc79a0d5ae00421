"""spec.providers.cherryservers: the settings of Cherry Servers, and the pool definitions
where the document has them.

Upstream reads these from flags, a file and environment variables. A function that serves many
clusters has none of them, so they are settings in each cluster's policy
(docs/providers/cherryservers.md "Settings"). Settings name secrets and never contain them; scripts
are never repeated in an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, Node, Path
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.value_types import (
    BOOLEAN,
    SECRET,
    UNSET,
    ValueType,
    bounds_of,
    duration,
    https_address,
    listed,
    number,
    scalar,
    text,
    whole,
)
from chalicelib.policy.vendors.settings import (
    GroupForm,
    ObserveSecret,
    ReservedCpu,
    ReservedEphemeralStorage,
    ReservedMemory,
    VendorSettings,
    entry_bounds,
    typed,
)

PROVIDER = "cherryservers"
PLACE = "providers.cherryservers"
DEFAULT = "default"
CONTROLLER_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
LIFETIME, SHORTEST_LIFETIME, LONGEST_LIFETIME = 7200.0, 600.0, 30 * 86400.0  # seconds
_LONGEST_NAME = 63
_POOL = r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?"
_EXAMPLE = "pool1"


class CherryBounds(msgspec.Struct, frozen=True):
    """One pool of the policy: its name, its size limits and its priority."""

    name: str
    min: int
    max: int
    priority: int = 0


class CherryPoolSource(msgspec.Struct, frozen=True):
    """The source of the pools' definitions; exactly one is not empty. text: gcfg; secret: the name
    of a secret with gcfg; mapping: nodeGroupDefs as JSON."""

    text: str = ""
    secret: str = ""
    mapping: str = ""


class Bootstrap(msgspec.Struct, frozen=True):
    """The source of bootstrap tokens. secret: a secret's name; create: generated,
    valid for lifetime seconds."""

    secret: str = ""
    create: bool = False
    lifetime: float = LIFETIME


def pool_name(name: str, place: str) -> str:
    """Validate the name of a pool, which becomes a label's value. Raises BadInput."""
    if re.fullmatch(_POOL, name) is None:
        raise BadInput(
            place,
            f"{name[:80]!r} cannot name a pool",
            f"write letters, digits, dots, dashes and underscores, at most {_LONGEST_NAME}, with a "
            "letter "
            "or a digit at both ends",
        )
    return name


def cluster_name(name: str, place: str) -> str:
    """Validate a cluster's name, a tag's value at the vendor; may be empty. Raises BadInput."""
    if len(name) > _LONGEST_NAME or not name.isprintable() or re.search(r"\s", name):
        raise BadInput(
            place,
            f"{name[:80]!r} cannot name a cluster",
            f"write one word of at most {_LONGEST_NAME} letters",
        )
    return name


# -- nodeGroupDefs ---------------------------------------------------------------------------------


def _parse_script(value: str) -> str:
    if re.fullmatch(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+", value) is None or not value.strip():
        raise BadInput("", "is empty, or not plain text", "write it as a block of lines after |")
    if len(value) > 100_000:
        raise BadInput("", f"is {len(value)} characters long", "keep it under 100000")
    return value


def _parse_base64(value: str) -> str:
    try:
        base64.b64decode("".join(value.split()).encode("ascii"), validate=True)
    except ValueError:  # binascii.Error included
        raise BadInput("", "is not base64", "write the script itself under cloudInit") from None
    return value


_SCRIPT = scalar("text of many lines", _parse_script, "text as a block of lines after |")
_PROJECT = whole(1, 2**31 - 1)
_CLUSTER = text(
    "one word",
    r"[^\s\x00-\x1f\x7f]{1,63}",
    "something like prod-vilnius",
    lambda name: cluster_name(name, ""),
)
_SLUG = text("plain text", r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?")

DEFINITION_KEYS: dict[str, ValueType] = {
    "clusterName": _CLUSTER,
    "projectId": _PROJECT,
    "apiServerEndpoint": text(
        "host:port", r"[^\s\x00-\x1f\x7f]{1,300}", "something like 203.0.113.10:6443"
    ),
    "region": _SLUG,
    "plan": _SLUG,
    "os": _SLUG,
    "sshKeyIds": listed(_PROJECT),
    "cloudinit": scalar("base64", _parse_base64, "base64"),
    "cloudInit": _SCRIPT,
    "hostnamePattern": text(
        "a pattern", r"[^\x00-\x1f\x7f]{1,500}", "it with {{.RandString8}} in it"
    ),
    "osPartitionSize": whole(0, 1_000_000),
    "spotMarket": BOOLEAN,
    "cpuOverride": whole(0, 4096),
}
"""Upstream's keys of a pool in lowerCamelCase."""


def _read_definitions(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Return pool -> definition as JSON, because settings are texts."""
    # of documents only
    from chalicelib.policy.schema import Field, Section, entries_of, read_section

    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return UNSET
    if not entries:
        diagnostics.problem(path, "defines nothing", "add default: {region: …, plan: …, os: …}")
        return UNSET
    section = Section(
        tuple(Field(key, kind, "") for key, kind in DEFINITION_KEYS.items()), by_key=True
    )
    definitions: dict[str, dict[str, Any]] = {}
    for name, definition_node in entries.items():
        if re.fullmatch(_POOL, name) is None:
            problem = "cannot name a pool, which is a label's value"
            diagnostics.problem((*path, name), problem, f"write it like {_EXAMPLE}")
        definition = read_section(section, definition_node, (*path, name), diagnostics) or {}
        if "cloudinit" in definition and "cloudInit" in definition:
            diagnostics.problem(
                (*path, name, "cloudInit"), "conflicts with cloudinit", "keep one of the two"
            )
        definitions[name] = definition
    return msgspec.json.encode(definitions).decode()


_DEFINITIONS = ValueType(
    "mapping",
    _read_definitions,
    msgspec.json.decode,
    lambda: {"type": "object"},
    str,
    keeps_text=True,
)

# -- the settings ----------------------------------------------------------------------------------


class CherrySettings(VendorSettings, frozen=True):
    """spec.providers.cherryservers. groups: the pools that the policy names."""

    vendor: ClassVar = PROVIDER
    group_id: ClassVar = _POOL
    group_example: ClassVar = _EXAMPLE
    states_prices: ClassVar = True
    states_spot_prices: ClassVar = True
    spot_notice: ClassVar = 120.0

    credentials_secret: Annotated[
        str,
        SECRET,
        "Secret with the API token, as it is or as JSON (authToken; upstream: CHERRY_AUTH_TOKEN).",
    ]
    observe_secret: ObserveSecret = ""
    cluster_name: Annotated[
        str,
        _CLUSTER,
        "Value of the tag k8s-cluster of the cluster's machines (upstream: --cluster-name).",
    ] = ""
    nodes: Annotated[
        tuple[tuple[int, int, str], ...],
        bounds_of("pool", "0:10:pool1", _POOL, "cannot name a pool, which is a label's value"),
        "Pools as upstream's --nodes; others may be in nodeGroups.",
    ] = ()
    project_id: Annotated[
        int, _PROJECT, "The project, if the default definition does not name it."
    ] = 0
    cloud_config: Annotated[
        str, _SCRIPT, "The pools' definitions as upstream's --cloud-config, many lines."
    ] = ""
    cloud_config_secret: Annotated[
        str, SECRET, "The same in a secret. One of the three is needed."
    ] = ""
    node_group_defs: Annotated[
        str,
        _DEFINITIONS,
        "The same as a mapping of pools, default among them, to upstream's keys in lowerCamelCase: "
        "region, plan, os, "
        "apiServerEndpoint, projectId, clusterName, sshKeyIds, cloudinit (base64) or cloudInit "
        "(plain text), "
        "hostnamePattern, osPartitionSize, spotMarket, cpuOverride.",
    ] = ""
    bootstrap_token_secret: Annotated[
        str,
        SECRET,
        (
            "Secret with the bootstrap token of new machines: tokenId and tokenSecret as JSON, or "
            "id.secret."
        ),
    ] = ""
    create_bootstrap_tokens: Annotated[
        bool, BOOLEAN, "Make such tokens in kube-system instead; they end by themselves."
    ] = False
    bootstrap_token_lifetime: Annotated[
        float,
        duration(SHORTEST_LIFETIME, LONGEST_LIFETIME),
        "How long they live. A machine gets one with at least half of it left.",
    ] = LIFETIME
    max_node_provision_time: Annotated[
        float | None,
        duration(60, 86400),
        "How long a machine of these pools may take to become a node, where that differs from the "
        "cluster's option of "
        "that name: bare metal takes 30 to 60 minutes.",
    ] = None
    controller_node_label: Annotated[
        str,
        text(
            "a label's key",
            (
                r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-"
                r"9])?"
            ),
            "it like example.com/controller",
        ),
        "Label of control-plane nodes (upstream: CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL); both of "
        "Kubernetes' if not "
        "given.",
    ] = ""
    endpoint: Annotated[
        str,
        https_address("https://api.cherryservers.com/v1", path=True),
        "Another address of the API.",
    ] = "https://api.cherryservers.com/v1"
    calls_per_second: Annotated[
        float,
        number(0.1, 1000, "4"),
        (
            "Calls per second of all functions together with one account. The vendor takes 4 from "
            "one address."
        ),
    ] = 4.0
    reserved_cpu: ReservedCpu = None
    reserved_memory: ReservedMemory = None
    reserved_ephemeral_storage: ReservedEphemeralStorage = None
    groups: tuple[CherryBounds, ...] = ()

    @property
    def definitions(self) -> CherryPoolSource:
        """Where the pools are defined."""
        return CherryPoolSource(self.cloud_config, self.cloud_config_secret, self.node_group_defs)

    @property
    def bootstrap(self) -> Bootstrap:
        """Where the bootstrap tokens of new machines come from."""
        return Bootstrap(
            self.bootstrap_token_secret, self.create_bootstrap_tokens, self.bootstrap_token_lifetime
        )

    @property
    def controller_labels(self) -> tuple[str, ...]:
        """Labels of control-plane nodes; one of them is enough."""
        return (self.controller_node_label,) if self.controller_node_label else CONTROLLER_LABELS


def read_settings(
    settings: Mapping[str, str], entries: Iterable[GroupPolicy] = (), *, managed: bool = False
) -> CherrySettings:
    """Return the settings of a policy's texts and of its entries of nodeGroups. managed: Outscaler
    makes groups, so the policy need not name any. Raises BadInput, or InputErrors for several
    mistakes."""
    groups = msgspec.structs.replace(_GROUPS, none=None) if managed else _GROUPS
    return typed(CherrySettings, settings, (_one_source, _one_token_source), groups, entries)


def _one_source(given: Mapping[str, Any]) -> None:
    count = len(given.keys() & {"cloud_config", "cloud_config_secret", "node_group_defs"})
    if count != 1:
        problem = "conflicts with another one" if count else "is missing"
        raise BadInput(
            f"{PLACE}.cloudConfig",
            problem,
            "give exactly one of cloudConfig, cloudConfigSecret, nodeGroupDefs",
        )


def _one_token_source(given: Mapping[str, Any]) -> None:
    if "bootstrap_token_secret" in given and given.get("create_bootstrap_tokens") is True:
        raise BadInput(
            f"{PLACE}.createBootstrapTokens",
            "conflicts with bootstrapTokenSecret",
            "keep one of the two",
        )


def _of_entry(group_policy: GroupPolicy) -> CherryBounds:
    least, most = entry_bounds(group_policy)
    name = pool_name(group_policy.id, f"nodeGroups: {group_policy.id}")
    return CherryBounds(name, least, most, group_policy.priority)


_GROUPS = GroupForm(
    of_spec=lambda least, most, name: CherryBounds(name, least, most),
    of_entry=_of_entry,
    name=lambda bounds: bounds.name,
    noun="each pool",
    none=(
        "no pool is named, and none is discovered",
        "name them here like 0:10:pool1, or under nodeGroups",
    ),
)
