"""The label and annotation keys that Cluster API and its users write, in one place.

Some keys have the API group in use as their prefix; others are fixed for every group. The former are methods of Keys
and the latter constants, so that they are not confused.
"""

from __future__ import annotations

import re

import msgspec

DEFAULT_GROUP = "cluster.x-k8s.io"

PAUSED = "cluster.x-k8s.io/paused"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"

# The prefix of delete-machine annotation values set by Outscaler; any other value was set by another party.
MARK_PREFIX = "outscaler/"


class CapiAnnotations(msgspec.Struct, frozen=True):
    """The keys with the API group as their prefix."""

    group: str = DEFAULT_GROUP

    def _key(self, name: str) -> str:
        return f"{self.group}/{name}"

    @property
    def min_size(self) -> str:
        """The minimum size, on a resource."""
        return self._key("cluster-api-autoscaler-node-group-min-size")

    @property
    def max_size(self) -> str:
        """The maximum size, on a resource."""
        return self._key("cluster-api-autoscaler-node-group-max-size")

    @property
    def options(self) -> str:
        """The prefix of the per-group options."""
        return self._key("autoscaling-options-")

    @property
    def delete_machine(self) -> str:
        """On a Machine: delete it first when the MachineSet is scaled down. Its presence counts, not its value."""
        return self._key("delete-machine")

    @property
    def machine(self) -> str:
        """On a Node: its Machine's name."""
        return self._key("machine")

    @property
    def cluster_namespace(self) -> str:
        """On a Node: the namespace of its Machine and of its Cluster."""
        return self._key("cluster-namespace")

    @property
    def cluster_name(self) -> str:
        """Annotation of a Node, label of CAPI objects: the Cluster's name."""
        return self._key("cluster-name")


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
