"""The label and annotation keys that Cluster API and its users write, in one place.

Some keys have the API group in use as their prefix; others are fixed for every group. The former are fields of
CapiAnnotations and the latter constants, so that they are not confused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

DEFAULT_GROUP = "cluster.x-k8s.io"

PAUSED = "cluster.x-k8s.io/paused"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"

# The prefix of delete-machine annotation values set by Outscaler; any other value was set by another party.
MARK_PREFIX = "outscaler/"


@dataclass(frozen=True)
class CapiAnnotations:
    """The keys with the API group as their prefix. On a resource: min_size, max_size, and options, the prefix of the
    per-group options. On a Machine: delete_machine: delete it first when the MachineSet is scaled down; its presence
    counts, not its value. On a Node: machine, its Machine's name, and cluster_namespace, the namespace of its Machine
    and of its Cluster. cluster_name: annotation of a Node, label of CAPI objects."""

    group: str = DEFAULT_GROUP
    min_size: str = field(init=False)
    max_size: str = field(init=False)
    options: str = field(init=False)
    delete_machine: str = field(init=False)
    machine: str = field(init=False)
    cluster_namespace: str = field(init=False)
    cluster_name: str = field(init=False)

    def __post_init__(self) -> None:
        for name, key in _KEYS.items():
            object.__setattr__(self, name, f"{self.group}/{key}")


_KEYS = {
    "min_size": "cluster-api-autoscaler-node-group-min-size",
    "max_size": "cluster-api-autoscaler-node-group-max-size",
    "options": "autoscaling-options-",
    **{name: name.replace("_", "-") for name in ("delete_machine", "machine", "cluster_namespace", "cluster_name")},
}
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z")


def is_label_value(text: str) -> bool:
    """Whether the text is a valid Kubernetes label value."""
    return not text or _NAME.match(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether the text is a valid key of a Kubernetes label or taint: `name` or `domain/name`."""
    domain, slash, name = text.rpartition("/")
    if slash and not is_domain(domain):
        return False
    return _NAME.match(name) is not None


def is_domain(text: str) -> bool:
    """Whether the text is a DNS-1123 subdomain, like API groups and key prefixes."""
    return 0 < len(text) <= 253 and _DOMAIN.match(text) is not None


BOUND_ANNOTATIONS = (CapiAnnotations().min_size, CapiAnnotations().max_size)
"""The keys of a group's bounds with the default API group."""
