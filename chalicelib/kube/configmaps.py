"""One ConfigMap by name: read, and changed in our own keys only. None is ever made.

A ConfigMap of that name may be somebody else's, or hold keys that we know nothing of. So a change is a merge patch of
the keys given, against the version that was read: whoever wrote in between makes the server say 409.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import Unavailable

_MERGE = "application/merge-patch+json"


class _ConfigMapMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class ConfigMap(msgspec.Struct, frozen=True):
    """As far as it is used. data: None where it has none."""

    metadata: _ConfigMapMeta
    data: dict[str, str] | None = None

    @property
    def uid(self) -> str:
        """Of the object, for events about it."""
        return self.metadata.uid

    def text(self, key: str) -> str:
        """One key's text, empty where it is missing."""
        return (self.data or {}).get(key, "")


def get(cluster: KubeClient, namespace: str, name: str) -> ConfigMap:
    """As it is now. Raises Missing where there is none of that name, and other ClusterErrors."""
    return cluster.read(_path(namespace, name), ConfigMap)


def patch(
    cluster: KubeClient,
    namespace: str,
    name: str,
    found: ConfigMap,
    data: Mapping[str, str],
    annotations: Mapping[str, str],
) -> ConfigMap:
    """Set these keys and annotations and leave all others. Raises Conflict if it changed since it was read, Missing."""
    meta = {"resourceVersion": found.metadata.resource_version, "annotations": dict(annotations)}
    body = {"metadata": meta, "data": dict(data)}
    return _decoded(cluster.request("PATCH", _path(namespace, name), body=body, content_type=_MERGE))


def _decoded(body: bytes) -> ConfigMap:
    """The written object. The write has happened, whatever the answer looks like."""
    try:
        return msgspec.json.decode(body, type=ConfigMap)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the answer is not a ConfigMap: {error}") from None


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_segment(namespace)}/configmaps/{path_segment(name)}"
