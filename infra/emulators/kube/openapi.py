"""The server's OpenAPI v3 document, as far as `kubectl apply` needs it: which resources take the
parameter `fieldValidation`. kubectl leaves the validation of objects to a server that has it."""

from __future__ import annotations

from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.resources import Registry, ServedResource

_INFO = {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}}
_VALIDATED = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


def document(registry: Registry, parts: list[str]) -> KubeObject | None:
    """Return /openapi/v3, or below it the document of a group version; None for other paths.
    parts: of the path."""
    if parts == ["openapi", "v3"]:
        return {"paths": {path: _link(path) for path in _group_versions(registry)}}
    if parts[:2] != ["openapi", "v3"]:
        return None
    path = "/".join(parts[2:])
    found = _group_versions(registry).get(path)
    if found is None:
        return None
    group, version = found
    shown = {
        f"/{path}/{resource.plural}/{{name}}": _operations(resource, group, version)
        for resource in registry.of(group, version)
    }
    return {**_INFO, "paths": shown}


def _group_versions(registry: Registry) -> dict[str, tuple[str, str]]:
    named = {
        f"apis/{group}/{version}": (group, version)
        for group, versions in registry.groups().items()
        for version in versions
    }
    return {"api/v1": ("", "v1"), **named}


def _link(path: str) -> dict[str, str]:
    return {"serverRelativeURL": f"/openapi/v3/{path}?hash=0"}


def _operations(resource: ServedResource, group: str, version: str) -> KubeObject:
    kind = {"group": group, "version": version, "kind": resource.kind}
    return {"patch": {"parameters": [_VALIDATED], "x-kubernetes-group-version-kind": kind}}
