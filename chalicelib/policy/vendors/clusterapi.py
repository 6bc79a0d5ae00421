"""spec.providers.clusterapi: the settings of Cluster API.

Upstream reads these from flags and environment variables. A function that serves many clusters has
neither, so they are settings in each cluster's policy (docs/providers/clusterapi.md "Settings").
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from chalicelib.model.errors import BadInput
from chalicelib.policy import go_patterns
from chalicelib.policy.diagnostics import Diagnostics, Mapping, Node, Path, Scalar, quote
from chalicelib.policy.value_types import (
    BOOLEAN,
    DNS_LABEL,
    FILE,
    PLAIN_NAME,
    SECRET,
    UNSET,
    ValueType,
    choice,
    duration,
    lines,
    scalar,
    text,
)
from chalicelib.policy.vendors.settings import (
    ReservedCpu,
    ReservedEphemeralStorage,
    ReservedMemory,
    VendorSettings,
)

ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")
_DOMAIN = r"(?!.{254})[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_DNS_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


def _is_label(key: str, value: str) -> bool:
    name = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
    return bool(re.fullmatch(rf"({_DNS_NAME}/)?{name}", key) and re.fullmatch(rf"({name})?", value))


def _parse_labels(value: str) -> str:
    """Return `k=v,k=v` without blanks, both sides in label syntax; raises BadInput."""
    pairs = [pair.strip() for pair in value.split(",")]
    for pair in pairs:
        key, equals, label_value = pair.partition("=")
        if not equals or not _is_label(key, label_value):
            raise BadInput(
                "",
                f"{quote(pair)} is not a label as key=value",
                "write it like team=web,tier=front",
            )
    return ",".join(pairs)


_LABELS = scalar("key=value, …", _parse_labels, "labels like team=web,tier=front")


def _read_labels(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Also accept a mapping of labels, which is the usual form of labels."""
    if not isinstance(node, Mapping):
        return _LABELS.read(node, path, diagnostics)
    if not node.entries or any(not isinstance(value, Scalar) for _, value in node.entries):
        diagnostics.problem(path, "is not a mapping of labels", "write it like team=web,tier=front")
        return UNSET
    pairs = ",".join(
        f"{key.text}={value.text}" for key, value in node.entries if isinstance(value, Scalar)
    )
    return _LABELS.read(
        Scalar(pairs, plain=False, line=node.line, column=node.column), path, diagnostics
    )


def _parse_discovery(value: str) -> str:
    """Check one auto-discovery spec, which the provider parses
    (providers/clusterapi/settings.py)."""
    remedy = "write it like clusterapi:namespace=default,clusterName=prod,team=web"
    discoverer, colon, rest = value.partition(":")
    if not colon or discoverer != "clusterapi" or ":" in rest:
        raise BadInput("", f"{quote(value)} is not a clusterapi: spec", remedy)
    for pair in filter(None, rest.split(",")):
        key, equals, label_value = pair.partition("=")
        if not equals or not _is_label(key, label_value):
            raise BadInput("", f"{quote(pair)} is not a key=value pair", remedy)
    return value


def _parse_pattern(value: str) -> str:
    try:
        go_patterns.pattern(value)
    except BadInput as error:
        problem = f"{quote(value)} is not a regular expression ({error.problem})"
        raise BadInput("", problem, "correct it, or remove it") from None
    if not value or re.search(r"\s", value):
        raise BadInput("", f"{quote(value)} is empty or has blanks in it", r"write it like ^team\.")
    return value


class CapiSection(VendorSettings, frozen=True):
    """spec.providers.clusterapi."""

    vendor: ClassVar = "clusterapi"
    may_state_prices: ClassVar = False
    restarts: ClassVar = False
    group_id: ClassVar = r"(MachineDeployment|MachineSet|MachinePool)/[^/]+/[^/]+"
    group_example: ClassVar = "MachineDeployment/default/workers"

    namespace: Annotated[
        str,
        DNS_LABEL,
        "Namespace of the MachineDeployments, MachineSets and MachinePools; all if not given. "
        "Needed where several "
        "namespaces have a Cluster of that name.",
    ] = ""
    cluster_name: Annotated[
        str,
        text("a Cluster's name", _DNS_NAME, "something like prod"),
        "The Cluster that the nodes are of. Required with a separate management cluster; default: "
        "the cluster of most "
        "nodes.",
    ] = ""
    labels: Annotated[
        str,
        ValueType(
            "key=value, …",
            _read_labels,
            str,
            lambda: {"type": ["object", "string"]},
            _parse_labels,
            keeps_text=True,
        ),
        "Only groups with all these labels.",
    ] = ""
    auto_discovery: Annotated[
        tuple[str, ...],
        lines(
            "list of specs",
            _parse_discovery,
            "it like clusterapi:namespace=default,clusterName=prod",
        ),
        "Upstream's way to say the three above: clusterapi:key=value,…; any of several may match.",
    ] = ()
    group: Annotated[
        str, text("an API group", _DOMAIN, "cluster.x-k8s.io"), "API group (upstream: CAPI_GROUP)."
    ] = "cluster.x-k8s.io"
    version: Annotated[
        str,
        text("an API version", r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?", "something like v1beta2"),
        "API version (upstream: CAPI_VERSION); the server's preferred one if not given.",
    ] = ""
    scale_zero_default_arch: Annotated[
        str,
        choice(ARCHITECTURES),
        (
            "Architecture of a group without nodes that does not say (upstream: "
            "CAPI_SCALE_ZERO_DEFAULT_ARCH)."
        ),
    ] = "amd64"
    reserved_cpu: ReservedCpu = None
    reserved_memory: ReservedMemory = None
    reserved_ephemeral_storage: ReservedEphemeralStorage = None
    sync_machine_labels: Annotated[
        tuple[str, ...],
        lines(
            "list of regular expressions", _parse_pattern, r"a regular expression, such as ^team\."
        ),
        (
            "Further labels that Cluster API is configured to copy to Nodes (its "
            "--additional-sync-machine-labels)."
        ),
    ] = ()
    kubeconfig_secret: Annotated[
        str,
        SECRET,
        (
            "Secret with the kubeconfig of the management cluster (upstream: --cloud-config), if "
            "that is another one."
        ),
    ] = ""
    observe_secret: Annotated[
        str,
        SECRET,
        (
            "The same with a user that may only read: what passes look with; changes are made with "
            "kubeconfigSecret."
        ),
    ] = ""
    kubeconfig_file: Annotated[
        str, FILE, "The same as a file; for commands on a workstation only."
    ] = ""
    context: Annotated[
        str,
        PLAIN_NAME,
        "Context of the management cluster's kubeconfig; its current one if not given.",
    ] = ""
    cloud_config_authoritative: Annotated[
        bool,
        BOOLEAN,
        "The management cluster is never the one of spec.kubernetes; without a kubeconfig here it "
        "is that of "
        "spec.kubernetes.inClusterKubeconfigSecret (upstream: "
        "--clusterapi-cloud-config-authoritative).",
    ] = False
    allow_pool_shrink: Annotated[
        bool,
        BOOLEAN,
        "Remove nodes from MachinePools without Machines by lowering the size; which machine goes "
        "is then chosen by "
        "the infrastructure, so another node than the drained one may be lost.",
    ] = False
    zone_from_failure_domain: Annotated[
        bool,
        BOOLEAN,
        (
            "A new node's zone is the resource's failureDomain, unless an annotation or a real "
            "node says otherwise."
        ),
    ] = True
    stuck_after: Annotated[
        float | None,
        duration(),
        "A Machine whose infrastructure fails for so long (conditions) counts as failed; if not "
        "given, only where it "
        "speaks of stock or quota, after 2m.",
    ] = None
