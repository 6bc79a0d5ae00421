"""Parses and matches upstream's `--node-group-auto-discovery=clusterapi:…`.

Parsing is as strict as upstream's: nothing is trimmed or guessed. Specs are matched against the scalable resource only,
never against the MachineSets and Machines below it, which do not inherit its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.providers.clusterapi.annotations import is_label_value, is_qualified_name

_DISCOVERER = "clusterapi"
_REMEDY = "write clusterapi:namespace=NAME,clusterName=NAME,label=value with any of the parts left out"


class Spec(msgspec.Struct, frozen=True):
    """One spec, of which all parts must match. An empty namespace or cluster is not a restriction."""

    namespace: str = ""
    cluster: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def matches(self, namespace: str, cluster: str, labels: Mapping[str, str]) -> bool:
        """Whether the spec selects a resource in this namespace, of this cluster and with these labels."""
        return (
            self.namespace in {"", namespace}
            and self.cluster in {"", cluster}
            and all(labels.get(key) == value for key, value in self.labels)
        )


EVERYTHING = (Spec(),)


def parse_spec(text: str, place: str) -> Spec:
    """Parse `clusterapi:namespace=blue,color=red`. Raises BadInput naming place for an invalid spec."""
    discoverer, colon, rest = text.partition(":")
    if not colon or ":" in rest:
        raise BadInput(place, f"{text!r} does not have exactly one ':'", _REMEDY)
    if discoverer != _DISCOVERER:
        raise BadInput(place, f"{text!r} is for the discoverer {discoverer!r}, not {_DISCOVERER!r}", _REMEDY)
    parts = {"namespace": "", "clusterName": ""}
    labels = []
    for key, value in _pairs(rest, place):
        if key not in parts:
            labels.append(_label(key, value, place))
        elif is_label_value(value):
            parts[key] = value  # the last one applies
        else:  # upstream accepts any text and then finds nothing; an invalid name here is a typing error
            raise BadInput(place, f"{value!r} cannot be a {key}", _REMEDY)
    return Spec(parts["namespace"], parts["clusterName"], tuple(labels))


def parse_labels(text: str, place: str) -> tuple[tuple[str, str], ...]:
    """Parse `color=blue,shape=square` as label requirements; every key is a label here, also `namespace`."""
    return tuple(_label(key, value, place) for key, value in _pairs(text, place))


def _pairs(text: str, place: str) -> Iterator[tuple[str, str]]:
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or "=" in value:
            raise BadInput(place, f"{pair!r} does not have exactly one '='", _REMEDY)
        yield key, value


def _label(key: str, value: str, place: str) -> tuple[str, str]:
    if not is_qualified_name(key):
        raise BadInput(place, f"{key!r} cannot be the key of a label", _REMEDY)
    if not is_label_value(value):
        raise BadInput(place, f"{value!r} cannot be the value of a label", _REMEDY)
    return key, value


def any_matches(specs: Sequence[Spec], namespace: str, cluster: str, labels: Mapping[str, str]) -> bool:
    """Whether any of the specs matches."""
    return any(spec.matches(namespace, cluster, labels) for spec in specs)


def scope(specs: Sequence[Spec]) -> tuple[str, ...]:
    """Return the namespaces to list: the union over all specs, or ("",), the whole cluster, if any spec names none."""
    namespaces = {spec.namespace for spec in specs}
    return ("",) if "" in namespaces else tuple(sorted(namespaces))


def cluster_names(specs: Sequence[Spec]) -> frozenset[str] | None:
    """Return the clusters that the specs name; None if one of them names none."""
    names = frozenset(spec.cluster for spec in specs)
    return None if "" in names else names
