"""spec.providers.cherryservers: the settings of Cherry Servers, and the pool definitions where the document has them.

Each value is validated on its own here. The provider validates combinations (inherited plans, templates that need a
token), because it also reads upstream's file. Scripts are never repeated in an error.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.provider_value_types import (
    KUBELET_RESERVE,
    YES_OR_NO,
    as_text,
    bounds_of,
    calls_per_second,
    https_address,
)
from chalicelib.policy.schema import Field, Section, entries_of, read_section
from chalicelib.policy.value_types import SECRET, UNSET, ValueType, duration, listed, scalar, text, whole
from chalicelib.policy.yaml_document import Node

POOL = r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?\Z"
EXAMPLE = "pool1"

_LARGEST_ID = 2**31 - 1
_LONGEST_SCRIPT = 100_000
_PLAIN = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+\Z")


def _script(value: str) -> str:
    if not value.strip() or not _PLAIN.match(value):
        raise BadInput("", "is empty, or not plain text", "write it as a block of lines after |")
    if len(value) > _LONGEST_SCRIPT:
        raise BadInput("", f"is {len(value)} characters long", f"keep it under {_LONGEST_SCRIPT}")
    return value


def _base64(value: str) -> str:
    try:
        base64.b64decode("".join(value.split()).encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("", "is not base64", "write the script itself under cloudInit") from None
    return value


_SPECS = bounds_of("pool", "0:10:pool1", POOL, "cannot name a pool, which is a label's value")
_SCRIPT = ValueType("text of many lines", scalar(_script, "text as a block of lines after |"))
_PROJECT = whole(1, _LARGEST_ID)
_CLUSTER = text("one word", r"[^\s\x00-\x1f\x7f]{1,63}", "something like prod-vilnius")
_SLUG = text("plain text", r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?")

_DEFINITION = Section(
    fields=(
        Field("clusterName", _CLUSTER, "clusterName", "Of this pool, if it has another."),
        Field("projectId", _PROJECT, "projectId", "Of the default definition; no other may differ."),
        Field(
            "apiServerEndpoint",
            text("host:port", r"[^\s\x00-\x1f\x7f]{1,300}", "something like 203.0.113.10:6443"),
            "apiServerEndpoint",
            "The same, for the cloud-init.",
        ),
        Field("region", _SLUG, "region", "The vendor's slug."),
        Field("plan", _SLUG, "plan", "The vendor's slug."),
        Field("os", _SLUG, "os", "The vendor's slug of an image."),
        Field("sshKeyIds", listed(whole(1, _LARGEST_ID)), "sshKeyIds", "Ids of SSH keys."),
        Field("cloudinit", ValueType("base64", scalar(_base64, "base64")), "cloudinit", "As in upstream's file."),
        Field("cloudInit", _SCRIPT, "cloudInit", "The same as plain text."),
        Field(
            "hostnamePattern",
            text("a pattern", r"[^\x00-\x1f\x7f]{1,500}", "it with {{.RandString8}} in it"),
            "hostnamePattern",
            "How new machines are called.",
        ),
        Field("osPartitionSize", whole(0, 1_000_000), "osPartitionSize", "GB."),
        Field(
            "spotMarket",
            ValueType("true or false", YES_OR_NO.read, bool, YES_OR_NO.form),
            "spotMarket",
            "From the spot market.",
        ),
        Field("cpuOverride", whole(0, 4096), "cpuOverride", "Cores of a machine, where the plan says something else."),
    )
)


def _read_definitions(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Return pool -> definition as JSON, because settings are texts."""
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return UNSET
    if not entries:
        diagnostics.problem(path, "defines nothing", "add default: {region: …, plan: …, os: …}")
        return UNSET
    found: dict[str, dict[str, Any]] = {}
    for name, definition in entries.items():
        if not re.match(POOL, name):
            diagnostics.problem(
                (*path, name), "cannot name a pool, which is a label's value", f"write it like {EXAMPLE}"
            )
        found[name] = read_section(_DEFINITION, definition, (*path, name), diagnostics) or {}
        if spot := found[name].get("spotMarket"):
            found[name]["spotMarket"] = spot == "true"
        if {"cloudinit", "cloudInit"} <= set(found[name]):
            diagnostics.problem((*path, name, "cloudInit"), "conflicts with cloudinit", "keep one of the two")
    return msgspec.json.encode(found).decode()


CHERRYSERVERS = Section(
    fields=(
        Field(
            "credentialsSecret",
            SECRET,
            "credentialsSecret",
            "Secret with the API token, as it is or as JSON (authToken; upstream: CHERRY_AUTH_TOKEN).",
            required=True,
            example="credentialsSecret: outscaler/prod/cherryservers",
        ),
        Field(
            "observeSecret",
            SECRET,
            "observeSecret",
            "The same with keys that may only read: what passes look with; changes are made with credentialsSecret.",
        ),
        Field(
            "clusterName",
            _CLUSTER,
            "clusterName",
            "Value of the tag k8s-cluster of the cluster's machines (upstream: --cluster-name).",
        ),
        Field("nodes", _SPECS, "nodes", "Pools as upstream's --nodes; others may be in nodeGroups."),
        Field("projectId", as_text(_PROJECT), "projectId", "The project, if the default definition does not name it."),
        Field(
            "cloudConfig", _SCRIPT, "cloudConfig", "The pools' definitions as upstream's --cloud-config, many lines."
        ),
        Field("cloudConfigSecret", SECRET, "cloudConfigSecret", "The same in a secret. One of the three is needed."),
        Field(
            "nodeGroupDefs",
            ValueType("mapping", _read_definitions, msgspec.json.decode, lambda: {"type": "object"}),
            "nodeGroupDefs",
            "The same as a mapping of pools, default among them, to upstream's keys "
            "in lowerCamelCase: region, plan, os, "
            "apiServerEndpoint, projectId, clusterName, sshKeyIds, cloudinit (base64) or cloudInit (plain text), "
            "hostnamePattern, osPartitionSize, spotMarket, cpuOverride.",
        ),
        Field(
            "bootstrapTokenSecret",
            SECRET,
            "bootstrapTokenSecret",
            "Secret with the bootstrap token of new machines: tokenId and tokenSecret as JSON, or id.secret.",
        ),
        Field(
            "createBootstrapTokens",
            YES_OR_NO,
            "createBootstrapTokens",
            "Make such tokens in kube-system instead; they end by themselves.",
            default="false",
        ),
        Field(
            "bootstrapTokenLifetime",
            as_text(duration(600, 30 * 86400)),
            "bootstrapTokenLifetime",
            "How long they live. A machine gets one with at least half of it left.",
            default="2h",
        ),
        Field(
            "maxNodeProvisionTime",
            as_text(duration(60, 86400)),
            "maxNodeProvisionTime",
            "How long a machine of these pools may take to become a node, where that differs from the cluster's option "
            "of that name: bare metal takes 30 to 60 minutes.",
        ),
        Field(
            "controllerNodeLabel",
            text("a label's key", r"[A-Za-z0-9./_-]{1,317}", "it like example.com/controller"),
            "controllerNodeLabel",
            "Label of control-plane nodes (upstream: CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL); both of Kubernetes' if "
            "not given.",
        ),
        Field(
            "endpoint",
            https_address("https://api.cherryservers.com/v1", path=True),
            "endpoint",
            "Another address of the API.",
            default="https://api.cherryservers.com/v1",
        ),
        calls_per_second(
            "4", "Calls per second of all functions together with one account. The vendor takes 4 from one address."
        ),
        *KUBELET_RESERVE,
    )
)
