"""`providers.clusterapi` of the policy (policy/vendors/clusterapi.py), with the provider's own types and the rules
about several settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import KubernetesAccess
from chalicelib.policy.vendors.clusterapi import CapiSection
from chalicelib.policy.vendors.settings import typed
from chalicelib.providers.clusterapi.annotations import CapiAnnotations
from chalicelib.providers.clusterapi.discovery import EVERYTHING, Spec, cluster_names, parse_labels, parse_spec
from chalicelib.providers.clusterapi.management_cluster import CapiManagement

PLACE = "providers.clusterapi"
_MOST_PATTERNS = 100


class CapiSettings(CapiSection, frozen=True):
    """The settings of the policy. specs: what to discover, any may match."""

    specs: tuple[Spec, ...] = EVERYTHING

    @property
    def keys(self) -> CapiAnnotations:
        """The labels and annotations of the API group."""
        return CapiAnnotations(self.group)

    @property
    def management(self) -> CapiManagement:
        """The access to the management cluster."""
        return CapiManagement(
            self.kubeconfig_secret, self.kubeconfig_file, self.context, self.cloud_config_authoritative
        )


def read_settings(settings: Mapping[str, str]) -> CapiSettings:
    """Return the settings of a policy's texts; raises BadInput, or InputErrors for several mistakes."""
    capi = typed(CapiSettings, settings, (_specs, _few_patterns, _check_management))
    return msgspec.structs.replace(capi, specs=_specs(msgspec.structs.asdict(capi)))


def read_names(settings: Mapping[str, str]) -> CapiSettings:
    """Return only what names this cluster and the management cluster, whatever else is wrong. Raises BadInput if the
    specs are."""
    attributes = {"namespace": "namespace", "clusterName": "cluster_name", "labels": "labels"}
    names: dict[str, Any] = {name: settings.get(key, "") for key, name in attributes.items()}
    discovery = tuple(settings.get("autoDiscovery", "").split())
    return CapiSettings(
        auto_discovery=discovery,
        specs=_specs(names | {"auto_discovery": discovery}),
        kubeconfig_secret=settings.get("kubeconfigSecret", ""),
        kubeconfig_file=settings.get("kubeconfigFile", ""),
        context=settings.get("context", ""),
        cloud_config_authoritative=settings.get("cloudConfigAuthoritative") == "true",
    )


def _specs(given: Mapping[str, Any]) -> tuple[Spec, ...]:
    discovery = given.get("auto_discovery", ())
    keys = {"namespace": "namespace", "cluster_name": "clusterName", "labels": "labels"}
    conflicting = [key for attribute, key in keys.items() if given.get(attribute)]
    if discovery and conflicting:
        raise BadInput(
            f"{PLACE}.{conflicting[0]}",
            "conflicts with autoDiscovery",
            "use one of the two: put the namespace, the cluster and the labels into the specs",
        )
    if discovery:
        discovery = discovery if isinstance(discovery, tuple) else ()  # one that could not be read is reported already
        return tuple(parse_spec(spec, f"{PLACE}.autoDiscovery") for spec in discovery)
    labels = parse_labels(given.get("labels", ""), f"{PLACE}.labels")
    return (Spec(given.get("namespace", ""), given.get("cluster_name", ""), labels),)


def unnamed(settings: CapiSettings, access: KubernetesAccess | None) -> BadInput | None:
    """Return the error if a separate management cluster is used and the settings do not name this cluster; None
    otherwise.

    A management cluster holds other clusters too, and the Nodes' own claims must not choose among them. access: access
    to a management cluster separate from the Nodes', None if there is none."""
    if access is None or cluster_names(settings.specs) is not None:
        return None
    if settings.auto_discovery:
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


def _few_patterns(given: Mapping[str, Any]) -> None:
    patterns = given.get("sync_machine_labels", ())
    if isinstance(patterns, tuple) and len(patterns) > _MOST_PATTERNS:
        raise BadInput(f"{PLACE}.syncMachineLabels", f"has {len(patterns)} patterns", f"write at most {_MOST_PATTERNS}")


def _check_management(given: Mapping[str, Any]) -> None:
    secret, file = "kubeconfig_secret" in given, "kubeconfig_file" in given
    if secret and file:
        raise BadInput(f"{PLACE}.kubeconfigFile", "conflicts with kubeconfigSecret", "keep one of the two")
    if "context" in given and not (secret or file):
        raise BadInput(
            f"{PLACE}.context",
            "belongs to a kubeconfig of the management cluster, and none is named here",
            "add kubeconfigSecret, or write the context into spec.kubernetes",
        )
    if "observe_secret" in given and not secret:
        raise BadInput(
            f"{PLACE}.observeSecret",
            "is given without kubeconfigSecret, which is used for changes",
            "add kubeconfigSecret, or take it out",
        )
