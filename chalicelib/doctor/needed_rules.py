"""The rights that Outscaler uses, one row for each rule of infra/kubernetes; a test compares both."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.policy import ClusterReading, Policy
from chalicelib.policy.horizontal_node_autoscaler import obeyed

WORKLOAD, MANAGEMENT = "workload", "management"
_SCALABLE = ("machinedeployments", "machinesets", "machinepools")
_TOKENS = tuple(f"bootstrap-token-outsc{number}" for number in range(4))


class NeededRule(msgspec.Struct, frozen=True):
    """A rule of RBAC that Outscaler needs.

    place: workload or management. file: of infra/kubernetes that grants it. needed_for: what fails without it. names:
    of the objects, where the rule names them. namespace: of a Role, empty for a ClusterRole. required: an error where
    it is missing, otherwise a warning. when: whether the policy uses it. acts: it is used by changes only, so it is a
    warning before mode active.
    """

    place: str
    file: str
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    needed_for: str
    names: tuple[str, ...] = ()
    namespace: Callable[[Policy], str] = lambda _: ""
    required: bool = True
    when: Callable[[Policy], bool] = lambda _: True
    acts: bool = False


def _options_namespace(policy: Policy) -> str:
    return policy.options.namespace


def _kube_system(policy: Policy) -> str:
    del policy
    return "kube-system"


def _has_priority(policy: Policy) -> bool:
    return "priority" in policy.options.expander


def _makes_tokens(policy: Policy) -> bool:
    return policy.providers.get("cherryservers", {}).get("createBootstrapTokens") == "true"


def _follows_changes(policy: Policy) -> bool:
    return policy.reading is not ClusterReading.FULL


def _uses_capi(policy: Policy) -> bool:
    return "clusterapi" in policy.providers


_RBAC, _CAPI, _BOOT = "rbac-workload.yaml", "rbac-capi-management.yaml", "rbac-bootstrap-tokens.yaml"
_LISTED = {
    "": ("nodes", "pods", "replicationcontrollers", "namespaces", "persistentvolumeclaims", "persistentvolumes"),
    "apps": ("daemonsets", "replicasets", "statefulsets"),
    "batch": ("jobs",),
    "policy": ("poddisruptionbudgets",),
    "storage.k8s.io": ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"),
}
_WATCHES = tuple(
    NeededRule(
        WORKLOAD,
        _RBAC,
        group,
        resources,
        ("watch",),
        "passes that read what has changed; without it every pass reads everything",
        required=False,
        when=_follows_changes,
    )
    for group, resources in _LISTED.items()
)
RULES = (
    NeededRule(
        WORKLOAD,
        _RBAC,
        "",
        _LISTED[""],
        ("list",),
        "every plan",
    ),
    NeededRule(WORKLOAD, _RBAC, "apps", _LISTED["apps"], ("list",), "drain rules"),
    NeededRule(WORKLOAD, _RBAC, "batch", _LISTED["batch"], ("list",), "drain rules"),
    NeededRule(WORKLOAD, _RBAC, "policy", _LISTED["policy"], ("list",), "disruption budgets"),
    NeededRule(WORKLOAD, _RBAC, "storage.k8s.io", _LISTED["storage.k8s.io"], ("list",), "pods with volumes"),
    *_WATCHES,
    NeededRule(
        WORKLOAD,
        _RBAC,
        "autoscaling.cce.io",
        ("horizontalnodeautoscalers",),
        ("list",),
        "rules of HorizontalNodeAutoscalers",
        required=False,
        when=obeyed,
    ),
    NeededRule(
        WORKLOAD,
        _RBAC,
        "",
        ("replicationcontrollers",),
        ("get",),
        "the check before a drain",
        required=False,
        acts=True,
    ),
    NeededRule(
        WORKLOAD,
        _RBAC,
        "apps",
        ("daemonsets", "replicasets", "statefulsets"),
        ("get",),
        "the check before a drain",
        required=False,
        acts=True,
    ),
    NeededRule(WORKLOAD, _RBAC, "batch", ("jobs",), ("get",), "the check before a drain", required=False, acts=True),
    NeededRule(WORKLOAD, _RBAC, "", ("nodes",), ("get", "patch"), "taints and cordons", acts=True),
    NeededRule(WORKLOAD, _RBAC, "", ("pods",), ("get",), "drains", acts=True),
    NeededRule(WORKLOAD, _RBAC, "", ("pods/eviction",), ("create",), "drains", acts=True),
    NeededRule(WORKLOAD, _RBAC, "", ("events",), ("create",), "events on nodes and pods", required=False),
    NeededRule(
        WORKLOAD,
        _RBAC,
        "",
        ("configmaps",),
        ("get",),
        "the expander priority",
        names=("cluster-autoscaler-priority-expander",),
        namespace=_options_namespace,
        when=_has_priority,
    ),
    NeededRule(
        WORKLOAD,
        _RBAC,
        "",
        ("configmaps",),
        ("get", "patch"),
        "the status ConfigMap",
        names=("cluster-autoscaler-status",),
        namespace=_options_namespace,
        required=False,
        when=lambda policy: policy.options.write_status_configmap,
    ),
    NeededRule(
        WORKLOAD,
        _BOOT,
        "",
        ("secrets",),
        ("get", "update"),
        "bootstrap tokens of Cherry Servers",
        names=_TOKENS,
        namespace=_kube_system,
        when=_makes_tokens,
        acts=True,
    ),
    NeededRule(
        WORKLOAD,
        _BOOT,
        "",
        ("secrets",),
        ("create",),
        "bootstrap tokens of Cherry Servers; RBAC cannot limit create to names",
        namespace=_kube_system,
        when=_makes_tokens,
        acts=True,
    ),
    NeededRule(
        MANAGEMENT,
        _CAPI,
        "cluster.x-k8s.io",
        (*_SCALABLE, "machines", "clusters"),
        ("list",),
        "node groups of Cluster API",
        when=_uses_capi,
    ),
    NeededRule(
        MANAGEMENT,
        _CAPI,
        "cluster.x-k8s.io",
        (*_SCALABLE, "clusters"),
        ("get",),
        "the check before a change of a group",
        when=_uses_capi,
        acts=True,
    ),
    NeededRule(
        MANAGEMENT,
        _CAPI,
        "cluster.x-k8s.io",
        tuple(f"{each}/scale" for each in _SCALABLE),
        ("get", "patch"),
        "sizes of groups",
        when=_uses_capi,
        acts=True,
    ),
    NeededRule(
        MANAGEMENT,
        _CAPI,
        "cluster.x-k8s.io",
        ("machines",),
        ("get", "patch"),
        "removals of machines",
        when=_uses_capi,
        acts=True,
    ),
)
