"""Discovery documents: /version, /api, /apis, and the resources of each group version, as recorded."""

from __future__ import annotations

from typing import Any

from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.resources import Registry, ServedResource, Version

VERSION: KubeObject = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-08-21T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_EDIT = ["get", "patch", "update"]
# subresources other than status and scale: resource -> (name, kind, group, version)
_MORE = {("", "pods"): (("binding", "Binding", "", ""), ("eviction", "Eviction", "policy", "v1"))}


def api_versions() -> KubeObject:
    """Return /api."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: tuple[str, ...]) -> KubeObject:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def group_list(registry: Registry) -> KubeObject:
    """Return /apis."""
    groups = [_group(name, versions) for name, versions in registry.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> KubeObject | None:
    """Return /apis/{group}, None if it is not served."""
    versions = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _entries(resource: ServedResource, version: Version) -> list[KubeObject]:
    main: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    found = [main]
    below: list[tuple[str, str, str, str, list[str]]] = [
        (name, kind, group_name, version_name, ["create"])
        for name, kind, group_name, version_name in _MORE.get((resource.group, resource.plural), ())
    ]
    if version.status:
        below.append(("status", resource.kind, "", "", _EDIT))
    if version.scale:
        below.append(("scale", "Scale", "autoscaling", "v1", _EDIT))
    for name, kind, group_name, version_name, verbs in below:
        entry = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        if group_name:
            entry |= {"group": group_name, "version": version_name}
        found.append({**entry, "kind": kind, "verbs": list(verbs)})
    return found


def resource_list(registry: Registry, group_name: str, version: str) -> KubeObject | None:
    """Return /api/v1 or /apis/{group}/{version}, None if it is not served."""
    resources = registry.of(group_name, version)
    if not resources:
        return None
    entries = [
        entry
        for resource in resources
        for served in resource.versions
        if served.name == version
        for entry in _entries(resource, served)
    ]
    document: KubeObject = {"kind": "APIResourceList"}
    if group_name:
        document["apiVersion"] = "v1"
    name = f"{group_name}/{version}" if group_name else version
    return {**document, "groupVersion": name, "resources": entries}
