"""spec.providers: one table of settings per provider, and which providers this version can run.

Settings reach a provider as text (`Connection.settings`), already validated here: a list is joined by newlines, labels
are `key=value` pairs joined by commas. A document may name a provider that is not available yet, so that it can be
prepared in advance; its groups are then reported as unreadable, and the warning says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.alicloud import ALICLOUD, GROUP_ID
from chalicelib.policy.cherryservers import CHERRYSERVERS, EXAMPLE, POOL
from chalicelib.policy.diagnostics import Diagnostics, Path, closest, quote
from chalicelib.policy.exoscale import EXOSCALE
from chalicelib.policy.huaweicloud import HUAWEICLOUD
from chalicelib.policy.provider_value_types import DURATION_TEXT, KUBELET_RESERVE, YES_OR_NO, lines_of, texts_form
from chalicelib.policy.schema import LIKE_A_SECRET, Field, Section, entries_of, read_section, section_form
from chalicelib.policy.value_types import DNS_LABEL, SECRET, UNSET, Form, ValueType, choice, scalar, text, wrong
from chalicelib.policy.yaml_document import Mapping, Node, Scalar

_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
_DNS_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


class ProviderTable(msgspec.Struct, frozen=True):
    """One provider. available: this version can run it; section None: any settings, as text. prices: it states what a
    node of its groups costs, so that the document need not."""

    name: str
    available: bool
    section: Section | None = None
    group_id: str = ""  # format of its ids, where it has one
    group_example: str = ""
    prices: bool = False


def _labels(value: str) -> str:
    """Parse `k=v,k=v` with both sides in label syntax."""
    for pair in value.split(","):
        key, equals, worth = pair.strip().partition("=")
        if not equals or not _LABEL_KEY.match(key) or not _LABEL_VALUE.match(worth):
            raise BadInput(
                "", f"{quote(pair.strip())} is not a label as key=value", "write it like team=web,tier=front"
            )
    return ",".join(pair.strip() for pair in value.split(","))


_LABELS_TEXT = scalar(_labels, "labels like team=web,tier=front")


def _read_labels(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Also accept a mapping of labels, which is the usual form of labels."""
    if not isinstance(node, Mapping):
        return _LABELS_TEXT(node, path, diagnostics)
    if not node.entries or any(not isinstance(value, Scalar) for _, value in node.entries):
        diagnostics.problem(path, "is not a mapping of labels", "write it like team=web,tier=front")
        return UNSET
    pairs = ",".join(f"{key.text}={value.text}" for key, value in node.entries if isinstance(value, Scalar))
    return _LABELS_TEXT(Scalar(pairs, plain=False, line=node.line, column=node.column), path, diagnostics)


def _discovery(value: str) -> str:
    """Parse one auto-discovery spec (Cluster API provider of Cluster Autoscaler)."""
    form = "write it like clusterapi:namespace=default,clusterName=prod,team=web"
    discoverer, colon, rest = value.partition(":")
    if not colon or discoverer != "clusterapi" or ":" in rest:
        raise BadInput("", f"{quote(value)} is not a clusterapi: spec", form)
    for pair in filter(None, rest.split(",")):
        key, equals, worth = pair.partition("=")
        if not equals or not _LABEL_KEY.match(key) or not _LABEL_VALUE.match(worth):
            raise BadInput("", f"{quote(pair)} is not a key=value pair", form)
    return value


_DISCOVERY_TEXT = scalar(_discovery, "it like clusterapi:namespace=default,clusterName=prod")


def _pattern(value: str) -> str:
    # Imported here because it loads the planner, which functions that only forward messages must not load.
    from chalicelib.policy import go_patterns

    try:
        go_patterns.pattern(value)
    except BadInput as error:
        raise BadInput(
            "", f"{quote(value)} is not a regular expression ({error.problem})", "correct it, or remove it"
        ) from None
    if not value or re.search(r"\s", value):
        raise BadInput("", f"{quote(value)} is empty or has blanks in it", r"write it like ^team\.")
    return value


_PATTERN = scalar(_pattern, r"a regular expression, such as ^team\.")


_CLUSTER_API = Section(
    fields=(
        Field(
            "namespace",
            DNS_LABEL,
            "namespace",
            "Namespace of the MachineDeployments, MachineSets and MachinePools; all if not given. Needed where "
            "several namespaces have a Cluster of that name.",
        ),
        Field(
            "clusterName",
            text("a Cluster's name", _DNS_NAME, "something like prod"),
            "clusterName",
            "The Cluster that the nodes are of. Required with a separate management cluster; default: the cluster "
            "of most nodes.",
        ),
        Field(
            "labels",
            ValueType("key=value, …", _read_labels, form=lambda: {"type": ["object", "string"]}),
            "labels",
            "Only groups with all these labels.",
        ),
        Field(
            "autoDiscovery",
            ValueType("list of specs", lines_of(_DISCOVERY_TEXT), str.split, texts_form),
            "autoDiscovery",
            "Upstream's way to say the three above: clusterapi:key=value,…; any of several may match.",
        ),
        Field(
            "group",
            text("an API group", _DNS_NAME, "cluster.x-k8s.io"),
            "group",
            "API group (upstream: CAPI_GROUP).",
            default="cluster.x-k8s.io",
        ),
        Field(
            "version",
            text("an API version", r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?", "something like v1beta2"),
            "version",
            "API version (upstream: CAPI_VERSION); the server's preferred one if not given.",
        ),
        Field(
            "scaleZeroDefaultArch",
            choice(("amd64", "arm64", "ppc64le", "s390x")),
            "scaleZeroDefaultArch",
            "Architecture of a group without nodes that does not say (upstream: CAPI_SCALE_ZERO_DEFAULT_ARCH).",
            default="amd64",
        ),
        *KUBELET_RESERVE,
        Field(
            "syncMachineLabels",
            ValueType("list of regular expressions", lines_of(_PATTERN), str.split, texts_form),
            "syncMachineLabels",
            "Further labels that Cluster API is configured to copy to Nodes (its --additional-sync-machine-labels).",
        ),
        Field(
            "kubeconfigSecret",
            SECRET,
            "kubeconfigSecret",
            "Secret with the kubeconfig of the management cluster (upstream: --cloud-config), if that is another one.",
        ),
        Field(
            "observeSecret",
            SECRET,
            "observeSecret",
            "The same with a user that may only read: what passes look with; changes are made with kubeconfigSecret.",
        ),
        Field(
            "kubeconfigFile",
            text("a file's path"),
            "kubeconfigFile",
            "The same as a file; for commands on a workstation only.",
        ),
        Field(
            "context",
            text("a name without spaces", r"[^\s\x00-\x1f\x7f]{1,256}"),
            "context",
            "Context of the management cluster's kubeconfig; its current one if not given.",
        ),
        Field(
            "cloudConfigAuthoritative",
            YES_OR_NO,
            "cloudConfigAuthoritative",
            "The management cluster is never the one of spec.kubernetes; without a kubeconfig here it is that of "
            "spec.kubernetes.inClusterKubeconfigSecret (upstream: --clusterapi-cloud-config-authoritative).",
            default="false",
        ),
        Field(
            "allowPoolShrink",
            YES_OR_NO,
            "allowPoolShrink",
            "Remove nodes from MachinePools without Machines by lowering the size; "
            "which machine goes is then chosen by "
            "the infrastructure, so another node than the drained one may be lost.",
            default="false",
        ),
        Field(
            "zoneFromFailureDomain",
            YES_OR_NO,
            "zoneFromFailureDomain",
            "A new node's zone is the resource's failureDomain, unless an annotation or a real node says otherwise.",
            default="true",
        ),
        Field(
            "stuckAfter",
            DURATION_TEXT,
            "stuckAfter",
            "A Machine whose infrastructure fails for so long (conditions) counts as "
            "failed; if not given, only where it "
            "speaks of stock or quota, after 2m.",
        ),
    )
)

PROVIDERS = {
    table.name: table
    for table in (
        ProviderTable(
            "alicloud", available=True, section=ALICLOUD, group_id=GROUP_ID, group_example="asg-bp18p2yfxow2dloq0001"
        ),
        ProviderTable(
            "cherryservers", available=True, section=CHERRYSERVERS, group_id=POOL, group_example=EXAMPLE, prices=True
        ),
        ProviderTable(
            "clusterapi",
            available=True,
            section=_CLUSTER_API,
            group_id=r"(MachineDeployment|MachineSet|MachinePool)/[^/]+/[^/]+\Z",
            group_example="MachineDeployment/default/workers",
        ),
        ProviderTable("exoscale", available=True, section=EXOSCALE, group_example="prod/web"),
        ProviderTable("huaweicloud", available=True, section=HUAWEICLOUD, group_example="pool-a"),
    )
}

_FREE_TEXT = text("text on one line")


def providers_form() -> Form:
    """Return the JSON schema of spec.providers."""
    sections = {
        name: section_form(table.section) if table.section else {"type": ["object", "null"]}
        for name, table in PROVIDERS.items()
    }
    return {"type": "object", "properties": sections, "additionalProperties": False, "minProperties": 1}


def read_providers(node: Node | None, path: Path, diagnostics: Diagnostics) -> dict[str, dict[str, str]]:
    """Return provider -> settings. A provider with invalid settings is included with the readable ones."""
    found: dict[str, dict[str, str]] = {}
    entries = entries_of(node, path, diagnostics)
    if entries is not None and not entries:
        diagnostics.problem(path, "names no provider", f"add one of {', '.join(PROVIDERS)}")
    for name, settings in (entries or {}).items():
        below = (*path, name)
        table = PROVIDERS.get(name)
        if table is None:
            near = closest(name, PROVIDERS)
            diagnostics.problem(
                below, "is not a provider", f"did you mean {near}?" if near else f"known: {', '.join(PROVIDERS)}"
            )
            continue
        if not table.available:
            diagnostics.warn(
                below, f"provider {name}: not available in this version, its groups will be reported as unreadable"
            )
        found[name] = (
            read_section(table.section, settings, below, diagnostics)
            if table.section
            else _read_free(settings, below, diagnostics)
        ) or {}
    return found


def _read_free(node: Node | None, path: Path, diagnostics: Diagnostics) -> dict[str, str]:
    """Read settings of a provider that defines its own table: text, and secrets by name only."""
    found: dict[str, str] = {}
    for key, value in (entries_of(node, path, diagnostics) or {}).items():
        below = (*path, key)
        if key.endswith("Secret"):
            got = SECRET.read(value, below, diagnostics)
        elif LIKE_A_SECRET.search(key):
            diagnostics.problem(
                below, "looks like a secret itself", "keep it in Secrets Manager and name it by a key ending in Secret"
            )
            continue
        else:
            got = _FREE_TEXT.read(value, below, diagnostics)
        if got is not UNSET:
            found[key] = got
    return found


def without_prices(names: Iterable[str]) -> tuple[str, ...] | None:
    """Return the providers among these that do not state what their nodes cost; None where none of them does."""
    silent = {name: name not in PROVIDERS or not PROVIDERS[name].prices for name in names}
    return None if all(silent.values()) else tuple(name for name, says_nothing in silent.items() if says_nothing)


def provider_name(value: str) -> str:
    """Parse a provider's name; raises BadInput."""
    if value in PROVIDERS:
        return value
    near = closest(value, PROVIDERS)
    refused = wrong(value, "a provider")
    raise BadInput("", refused.problem, f"did you mean {near}?" if near else f"known: {', '.join(PROVIDERS)}")
