"""Discovers the served version of Cluster API and its kinds."""

from __future__ import annotations

import re

import msgspec

from chalicelib.providers.clusterapi.api import ask, decode
from chalicelib.providers.errors import InvalidRequest, NotFound
from chalicelib.providers.kube_protocol import KubeApi

_VERSION = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?\Z")


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


class _ApiGroup(msgspec.Struct, rename="camel"):
    versions: list[_Version] | None = None
    preferred_version: _Version = _Version()


class _Served(msgspec.Struct):
    name: str = ""
    kind: str = ""


class _ServedList(msgspec.Struct):
    resources: list[_Served] | None = None


class Served(msgspec.Struct, frozen=True):
    """The version to use, and the kinds of the API group, None if they were not requested."""

    version: str
    kinds: frozenset[str] | None = None


def discover(kube: KubeApi, group: str, wanted: str, *, kinds: bool = True) -> Served:
    """Return the version to use, the wanted one or the one the server prefers, and its kinds.

    kinds False saves a call if only the version is needed. A wanted version is verified, because with one that is not
    served every object would seem to be gone. Raises InvalidRequest if group or version is not served.
    """
    version = wanted or _preferred(kube, group)
    return Served(version, _kinds(kube, group, version) if kinds or wanted else None)


def _preferred(kube: KubeApi, group: str) -> str:
    try:
        found = decode(ask(kube, "GET", f"/apis/{group}"), _ApiGroup)
    except NotFound:
        raise InvalidRequest(
            f"this cluster does not serve the API group {group}; install Cluster API there, name the group it uses in "
            "providers.clusterapi.group, or the cluster it is in with providers.clusterapi.kubeconfigSecret"
        ) from None
    version = found.preferred_version.version or next((v.version for v in found.versions or ()), "")
    if not _VERSION.match(version):
        raise InvalidRequest(f"the API group {group} serves no version" + (f" but {version[:40]!r}" if version else ""))
    return version


def _kinds(kube: KubeApi, group: str, version: str) -> frozenset[str]:
    try:
        found = decode(ask(kube, "GET", f"/apis/{group}/{version}"), _ServedList)
    except NotFound:
        raise InvalidRequest(
            f"this cluster does not serve {group}/{version}; leave providers.clusterapi.version out, or name one of "
            f"those that `kubectl api-versions` lists"
        ) from None
    return frozenset(served.kind for served in found.resources or () if "/" not in served.name)
