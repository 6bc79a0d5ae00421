"""Reads one ConfigMap by name and patches only Outscaler's own keys. It never creates one.

A ConfigMap of that name may belong to another program, or have unknown keys. A change is therefore a merge patch of the
given keys against the version that was read: a concurrent write makes the server return 409.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import Unavailable

_MERGE = "application/merge-patch+json"
OWN_MANAGER = "outscaler"
"""Field manager of what Outscaler writes: the API server takes it from the beginning of the User-Agent."""


class _OwnedFields(msgspec.Struct, frozen=True):
    data: dict[str, object] | None = msgspec.field(default=None, name="f:data")


class _ManagedFields(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields_v1: _OwnedFields | None = None


class _ConfigMapMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    managed_fields: tuple[_ManagedFields, ...] | None = None


class ConfigMap(msgspec.Struct, frozen=True):
    """The fields that are used. data: None where it has none."""

    metadata: _ConfigMapMeta
    data: dict[str, str] | None = None

    @property
    def uid(self) -> str:
        """Return the object's uid, for events about it."""
        return self.metadata.uid

    def text(self, key: str) -> str:
        """Return one key's text, empty where it is missing."""
        return (self.data or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """Return one annotation, empty where it is missing."""
        return (self.metadata.annotations or {}).get(key, "")

    def writers(self, key: str) -> frozenset[str]:
        """Return the field managers that have set one key's text. Others may own labels, or the object without its
        data, as tools do that apply its manifest."""
        entries = self.metadata.managed_fields or ()
        return frozenset(
            each.manager for each in entries if each.fields_v1 and f"f:{key}" in (each.fields_v1.data or {})
        )


def get(kube: KubeClient, namespace: str, name: str) -> ConfigMap:
    """Return the current ConfigMap. Raises NotFound where there is none of that name, and other ClusterErrors."""
    return kube.read(_path(namespace, name), ConfigMap)


def get_once(kube: KubeClient, namespace: str, name: str) -> ConfigMap:
    """Return the current ConfigMap by a single attempt, for optional data. Raises ClusterErrors."""
    return _decoded(kube.request("GET", _path(namespace, name), attempts=1))


def patch(
    kube: KubeClient,
    namespace: str,
    name: str,
    config_map: ConfigMap,
    data: Mapping[str, str],
    annotations: Mapping[str, str],
) -> ConfigMap:
    """Set these keys and annotations and leave all others. Raises Conflict if it changed since it was read,
    NotFound."""
    meta = {"resourceVersion": config_map.metadata.resource_version, "annotations": dict(annotations)}
    body = {"metadata": meta, "data": dict(data)}
    return _decoded(kube.request("PATCH", _path(namespace, name), body=body, content_type=_MERGE))


def _decoded(body: bytes) -> ConfigMap:
    """Return the object. A write has succeeded, even if its response cannot be decoded."""
    try:
        return msgspec.json.decode(body, type=ConfigMap)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the answer is not a ConfigMap: {error}") from None


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_segment(namespace)}/configmaps/{path_segment(name)}"
