"""`providers.clusterapi` of the policy, checked. All mistakes are reported at once, each with its place.

Upstream takes these from flags and environment variables; a function that serves many clusters can have neither, so
they are settings of one cluster's policy under the names below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput, BadInputs
from chalicelib.model.quantity import parse_amount
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY
from chalicelib.providers.clusterapi.discovery import EVERYTHING, Spec, parse_labels, parse_spec
from chalicelib.providers.clusterapi.keys import DEFAULT_GROUP, Keys, is_domain

PLACE = "providers.clusterapi"
ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")


class Settings(msgspec.Struct, frozen=True):
    """specs: what to discover, any may hold. version: empty means the one the API server prefers.

    reserve: what a template keeps back from its capacity (D23). managed_labels: further template labels that CAPI was
    told to copy to Nodes, as regular expressions found anywhere in the key.
    """

    specs: tuple[Spec, ...] = EVERYTHING
    keys: Keys = Keys()
    version: str = ""
    architecture: str = ARCHITECTURES[0]
    reserve: dict[str, int] = {}
    managed_labels: tuple[str, ...] = ()


def read_settings(settings: Mapping[str, str]) -> Settings:
    """The policy's text values as Settings; raises BadInput, or BadInputs if there are several mistakes.

    Keys: autoDiscovery (upstream's specs, separated by white space) or namespace, clusterName and labels;
    group, version (CAPI_GROUP, CAPI_VERSION); scaleZeroDefaultArch; reservedCpu, reservedMemory,
    reservedEphemeralStorage; syncMachineLabels (regular expressions, separated by white space).
    """
    fields: dict[str, object] = {}
    mistakes: list[BadInput] = []
    for field, reader in _READERS.items():
        try:
            fields[field] = reader(settings)
        except BadInput as mistake:
            mistakes.append(mistake)
    mistakes.extend(
        BadInput(f"{PLACE}.{key}", "there is no such setting", f"the settings are {', '.join(sorted(KNOWN))}")
        for key in settings
        if key not in KNOWN
    )
    try:
        _same_cluster(settings)
    except BadInput as mistake:
        mistakes.append(mistake)
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else BadInputs(tuple(mistakes))
    return msgspec.convert(fields, Settings)


def _specs(settings: Mapping[str, str]) -> tuple[Spec, ...]:
    discovery = settings.get("autoDiscovery", "").split()
    plain = [key for key in ("namespace", "clusterName", "labels") if settings.get(key)]
    if discovery and plain:
        raise BadInput(
            f"{PLACE}.{plain[0]}",
            "stands beside autoDiscovery",
            "use one of the two: put the namespace, the cluster and the labels into the specs",
        )
    if discovery:
        return tuple(parse_spec(text, f"{PLACE}.autoDiscovery") for text in discovery)
    labels = parse_labels(settings.get("labels", ""), f"{PLACE}.labels")
    return (Spec(settings.get("namespace", ""), settings.get("clusterName", ""), labels),)


def _same_cluster(settings: Mapping[str, str]) -> None:
    if settings.get("kubeconfigSecret"):
        raise BadInput(
            f"{PLACE}.kubeconfigSecret",
            "a management cluster of its own is not supported in this version",
            "leave it out, and run Cluster API in the cluster itself (clusterctl move)",
        )


def _keys(settings: Mapping[str, str]) -> Keys:
    group = settings.get("group") or DEFAULT_GROUP
    if not is_domain(group):
        raise BadInput(f"{PLACE}.group", f"{group!r} is not an API group", f"leave it out for {DEFAULT_GROUP}")
    return Keys(group)


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


_RESERVE = {"reservedCpu": CPU, "reservedMemory": MEMORY, "reservedEphemeralStorage": EPHEMERAL}


def _reserve(settings: Mapping[str, str]) -> dict[str, int]:
    reserve = {}
    for key, resource in _RESERVE.items():
        if text := settings.get(key, ""):
            try:
                amount = parse_amount(resource, text)
            except BadInput as bad:
                raise BadInput(f"{PLACE}.{key}", bad.problem, bad.remedy) from None
            if amount < 0:
                raise BadInput(f"{PLACE}.{key}", f"{text!r} is negative", "write 0 or more")
            reserve[resource] = amount
    return reserve


def _managed_labels(settings: Mapping[str, str]) -> tuple[str, ...]:
    patterns = tuple(settings.get("syncMachineLabels", "").split())
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadInput(
                f"{PLACE}.syncMachineLabels", f"{pattern!r} is not a regular expression ({error})", "mend or remove it"
            ) from None
    return patterns


_READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "specs": _specs,
    "keys": _keys,
    "version": _version,
    "architecture": _architecture,
    "reserve": _reserve,
    "managed_labels": _managed_labels,
}
KNOWN = frozenset(
    {"autoDiscovery", "namespace", "clusterName", "labels", "group", "version", "kubeconfigSecret"}
    | {"scaleZeroDefaultArch", "syncMachineLabels", *_RESERVE}
)
