"""`providers.clusterapi` of the policy, validated. All errors are reported at once, each with its place.

Upstream reads these from flags and environment variables. A function that serves many clusters has neither, so they are
settings in each cluster's policy (docs/providers/clusterapi.md "Settings").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import KubernetesAccess
from chalicelib.model.quantity import parse_duration
from chalicelib.policy.go_patterns import pattern
from chalicelib.providers.clusterapi.annotations import DEFAULT_GROUP, CapiAnnotations, is_domain
from chalicelib.providers.clusterapi.discovery import EVERYTHING, Spec, cluster_names, parse_labels, parse_spec
from chalicelib.providers.clusterapi.management_cluster import CapiManagement
from chalicelib.providers.settings_readers import RESERVE, flag, read_all, reserve

PLACE = "providers.clusterapi"
_MOST_PATTERNS = 100
ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")


class CapiSettings(msgspec.Struct, frozen=True):
    """specs: what to discover, any may match; discovers: they were written as autoDiscovery. version: empty means the
    one the API server prefers.

    reserve: subtracted from a template's capacity. managed_labels: further template labels that CAPI is configured to
    copy to Nodes, as regular expressions found anywhere in the key. management: access to the management cluster.
    allow_pool_shrink: lower the size of a MachinePool without Machines, although it then chooses the instance to
    delete. zone_label: a template gets its zone from the failureDomain. stuck_after: seconds a Machine's failing
    conditions must last before it counts as failed, 0.0 for never.
    """

    specs: tuple[Spec, ...] = EVERYTHING
    keys: CapiAnnotations = CapiAnnotations()
    version: str = ""
    architecture: str = ARCHITECTURES[0]
    reserve: dict[str, int] = {}
    managed_labels: tuple[str, ...] = ()
    management: CapiManagement = CapiManagement()
    allow_pool_shrink: bool = False
    zone_label: bool = True
    stuck_after: float = 0.0
    discovers: bool = False


def read_settings(settings: Mapping[str, str]) -> CapiSettings:
    """Return the policy's text values as Settings; raises BadInput, or BadInputs for several errors.

    Keys: autoDiscovery (upstream's specs, separated by white space) or namespace, clusterName and labels; group,
    version (CAPI_GROUP, CAPI_VERSION); scaleZeroDefaultArch; reservedCpu, reservedMemory, reservedEphemeralStorage;
    syncMachineLabels (regular expressions, separated by white space); kubeconfigSecret or kubeconfigFile, context,
    cloudConfigAuthoritative (the management cluster); allowPoolShrink, zoneFromFailureDomain (true or false);
    stuckAfter (a duration).
    """
    return msgspec.convert(read_all(settings, _READERS, KNOWN, PLACE), CapiSettings)


def read_names(settings: Mapping[str, str]) -> CapiSettings:
    """Like read_settings, for only the settings that name this cluster and the access to the management cluster."""
    readers = {"specs": _specs, "management": _way, "discovers": _READERS["discovers"]}
    return msgspec.convert(read_all(settings, readers, settings, PLACE), CapiSettings)


def _specs(settings: Mapping[str, str]) -> tuple[Spec, ...]:
    discovery = settings.get("autoDiscovery", "").split()
    plain = [key for key in ("namespace", "clusterName", "labels") if settings.get(key)]
    if discovery and plain:
        raise BadInput(
            f"{PLACE}.{plain[0]}",
            "conflicts with autoDiscovery",
            "use one of the two: put the namespace, the cluster and the labels into the specs",
        )
    if discovery:
        return tuple(parse_spec(text, f"{PLACE}.autoDiscovery") for text in discovery)
    labels = parse_labels(settings.get("labels", ""), f"{PLACE}.labels")
    return (Spec(settings.get("namespace", ""), settings.get("clusterName", ""), labels),)


def unnamed(settings: CapiSettings, access: KubernetesAccess | None) -> BadInput | None:
    """Return the error if a separate management cluster is used and the settings do not name this cluster; None
    otherwise.

    A management cluster holds other clusters too, and the Nodes' own claims must not choose among them. access: access
    to a management cluster separate from the Nodes', None if there is none."""
    if access is None or cluster_names(settings.specs) is not None:
        return None
    if settings.discovers:
        return BadInput(
            f"{PLACE}.autoDiscovery",
            "has a spec without clusterName, and the management cluster may hold other clusters",
            "write clusterName=NAME into each spec, and namespace=NAME",
        )
    return BadInput(
        f"{PLACE}.clusterName",
        "is missing, and the management cluster may hold other clusters",
        "write the name of the Cluster object, and its namespace as namespace",
    )


def _management(settings: Mapping[str, str]) -> CapiManagement:
    secret, file = settings.get("kubeconfigSecret", ""), settings.get("kubeconfigFile", "")
    context = settings.get("context", "")
    if secret and file:
        raise BadInput(f"{PLACE}.kubeconfigFile", "conflicts with kubeconfigSecret", "keep one of the two")
    if context and not (secret or file):
        raise BadInput(
            f"{PLACE}.context",
            "belongs to a kubeconfig of the management cluster, and none is named here",
            "add kubeconfigSecret, or write the context into spec.kubernetes",
        )
    if settings.get("observeSecret") and not secret:
        raise BadInput(
            f"{PLACE}.observeSecret",
            "is given without kubeconfigSecret, which is used for changes",
            "add kubeconfigSecret, or take it out",
        )
    flag(PLACE, "cloudConfigAuthoritative", default=False)(settings)
    return _way(settings)


def _way(settings: Mapping[str, str]) -> CapiManagement:
    """Return the access to the management cluster, even if its settings contradict each other."""
    return CapiManagement(
        settings.get("kubeconfigSecret", ""),
        settings.get("kubeconfigFile", ""),
        settings.get("context", ""),
        settings.get("cloudConfigAuthoritative") == "true",
    )


def _keys(settings: Mapping[str, str]) -> CapiAnnotations:
    group = settings.get("group") or DEFAULT_GROUP
    if not is_domain(group):
        raise BadInput(f"{PLACE}.group", f"{group!r} is not an API group", f"leave it out for {DEFAULT_GROUP}")
    return CapiAnnotations(group)


def _version(settings: Mapping[str, str]) -> str:
    version = settings.get("version", "")
    if version and not re.fullmatch(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?", version):
        raise BadInput(f"{PLACE}.version", f"{version!r} is not an API version", "write one such as v1beta2")
    return version


def _architecture(settings: Mapping[str, str]) -> str:
    name = settings.get("scaleZeroDefaultArch") or ARCHITECTURES[0]
    if name not in ARCHITECTURES:
        raise BadInput(f"{PLACE}.scaleZeroDefaultArch", f"{name!r} is not known", f"use {', '.join(ARCHITECTURES)}")
    return name


def _managed_labels(settings: Mapping[str, str]) -> tuple[str, ...]:
    patterns = tuple(settings.get("syncMachineLabels", "").split())
    if len(patterns) > _MOST_PATTERNS:
        raise BadInput(f"{PLACE}.syncMachineLabels", f"has {len(patterns)} patterns", f"write at most {_MOST_PATTERNS}")
    for each in patterns:
        try:
            pattern(each)
        except BadInput as error:
            raise BadInput(
                f"{PLACE}.syncMachineLabels",
                f"{each[:80]!r} is not a regular expression ({error.problem})",
                "correct or remove it",
            ) from None
    return patterns


def _stuck_after(settings: Mapping[str, str]) -> float:
    text = settings.get("stuckAfter", "")
    if not text:
        return 0.0
    try:
        seconds = parse_duration(text)
    except BadInput as bad:
        raise BadInput(f"{PLACE}.stuckAfter", bad.problem, bad.remedy) from None
    if seconds < 0:
        raise BadInput(f"{PLACE}.stuckAfter", f"{text!r} is negative", "write it like 5m, or leave it out")
    return seconds


_READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "specs": _specs,
    "keys": _keys,
    "version": _version,
    "architecture": _architecture,
    "reserve": reserve(PLACE),
    "managed_labels": _managed_labels,
    "management": _management,
    "allow_pool_shrink": flag(PLACE, "allowPoolShrink", default=False),
    "zone_label": flag(PLACE, "zoneFromFailureDomain", default=True),
    "stuck_after": _stuck_after,
    "discovers": lambda settings: bool(settings.get("autoDiscovery", "").split()),
}
KNOWN = frozenset(
    {"autoDiscovery", "namespace", "clusterName", "labels", "group", "version", "scaleZeroDefaultArch"}
    | {"kubeconfigSecret", "observeSecret", "kubeconfigFile", "context", "cloudConfigAuthoritative"}
    | {"syncMachineLabels", "allowPoolShrink", "zoneFromFailureDomain", "stuckAfter", *RESERVE}
)
