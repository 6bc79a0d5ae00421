"""The rules of RBAC that a policy needs, and the role of infra/kubernetes that grants each of
them; a test compares both.

Which rules these are follows from the policy alone: its providers and their settings, its options,
and how it reads the cluster. A rule is as narrow as its use: where the policy names a namespace, it
is a rule of a Role there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from chalicelib.cluster.storage import PRIORITIES
from chalicelib.policy.horizontal_node_autoscaler import GROUP, NAMESPACE, PLURAL, obeyed
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import ClusterReading, Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.cherryservers.tokens import IDS
from chalicelib.providers.clusterapi.models import DEFAULT_GROUP
from chalicelib.providers.clusterapi.settings import read_names, scope, to_management
from chalicelib.runtime.mode_guard import permitted

WORKLOAD, MANAGEMENT = "workload", "management"
WORKLOAD_FILE, TOKENS_FILE = "rbac-workload.yaml", "rbac-bootstrap-tokens.yaml"
NAMESPACED, EVERYWHERE = "rbac-capi-namespaced.yaml", "rbac-capi-management.yaml"
ALL_FILES = (WORKLOAD_FILE, TOKENS_FILE, NAMESPACED, EVERYWHERE)
_CLUSTER_API = "clusterapi"
_DEFAULT = Options()
_SCALABLE = ("machinedeployments", "machinesets", "machinepools")
_LISTED = {
    "": (
        "nodes",
        "pods",
        "replicationcontrollers",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
    ),
    "apps": ("daemonsets", "replicasets", "statefulsets"),
    "batch": ("jobs",),
    "policy": ("poddisruptionbudgets",),
    "storage.k8s.io": ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"),
}
_LIST_USES = {
    "": "every plan",
    "apps": "drain rules",
    "batch": "drain rules",
    "policy": "disruption budgets",
    "storage.k8s.io": "pods with volumes",
}


class RoleFile(msgspec.Struct, frozen=True):
    """A role in a file of infra/kubernetes. edits: (text of the file, what this
    policy needs in its place)."""

    file: str
    role: str
    edits: tuple[tuple[str, str], ...] = ()


class NeededRule(msgspec.Struct, frozen=True):
    """A rule of RBAC that a policy needs.

    place: workload or management, the cluster. source: the role that grants it. needed_for: what
    fails without it. names: of the objects, where the rule names them. namespace: of the Role,
    empty for a ClusterRole. required: an error where it is missing, otherwise a warning. acts: it
    is used by changes only, so it is a warning before mode active.
    """

    place: str
    source: RoleFile
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    needed_for: str
    names: tuple[str, ...] = ()
    namespace: str = ""
    required: bool = True
    acts: bool = False

    @property
    def is_moved(self) -> bool:
        """Return whether the role must be in another namespace than its file says."""
        return self.namespace in dict(self.source.edits).values()


_RBAC = RoleFile(WORKLOAD_FILE, "outscaler")
_BEFORE_DRAIN = "the check before a drain"
_FOLLOWING = "passes that read what has changed; without it every pass reads everything"
_LISTS = tuple(
    NeededRule(WORKLOAD, _RBAC, group, resources, ("list",), _LIST_USES[group])
    for group, resources in _LISTED.items()
)
_WATCHES = tuple(
    NeededRule(WORKLOAD, _RBAC, group, resources, ("watch",), _FOLLOWING, required=False)
    for group, resources in _LISTED.items()
)
_CONTROLLERS = {"": ("replicationcontrollers",), "apps": _LISTED["apps"], "batch": _LISTED["batch"]}
_CHANGES = (
    *(
        NeededRule(
            WORKLOAD, _RBAC, group, resources, ("get",), _BEFORE_DRAIN, required=False, acts=True
        )
        for group, resources in _CONTROLLERS.items()
    ),
    NeededRule(WORKLOAD, _RBAC, "", ("nodes",), ("get", "patch"), "taints and cordons", acts=True),
    NeededRule(WORKLOAD, _RBAC, "", ("pods",), ("get",), "drains", acts=True),
    NeededRule(WORKLOAD, _RBAC, "", ("pods/eviction",), ("create",), "drains", acts=True),
    NeededRule(
        WORKLOAD, _RBAC, "", ("events",), ("create",), "events on nodes and pods", required=False
    ),
)


def needed_rules(policy: Policy) -> tuple[NeededRule, ...]:
    """Return the rules, in the order of the files. Raises BadInput for settings of clusterapi
    that contradict each other."""
    return (
        *_LISTS,
        *(_WATCHES if _follows_changes(policy) else ()),
        *_rule_objects(policy),
        *_CHANGES,
        *_config_maps(policy),
        *_tokens(policy),
        *_cluster_api(policy),
    )


def management_access(policy: Policy) -> KubernetesAccess | None:
    """Return the access to a management cluster of Cluster API; None where the policy has none, or
    where it is the workload cluster. Raises BadInput for settings that contradict each other."""
    if _CLUSTER_API not in policy.providers:
        return None
    return to_management(read_names(policy.providers[_CLUSTER_API]).management, policy.kubernetes)


def capi_namespaces(policy: Policy) -> tuple[str, ...]:
    """Return the namespaces of Cluster API's objects, ("",) for all of them, and () without the
    provider. Raises BadInput."""
    if _CLUSTER_API not in policy.providers:
        return ()
    return scope(read_names(policy.providers[_CLUSTER_API]).specs)


def makes_tokens(policy: Policy) -> bool:
    """Return whether the policy has bootstrap tokens made."""
    return policy.providers.get("cherryservers", {}).get("createBootstrapTokens") == "true"


def _follows_changes(policy: Policy) -> bool:
    """A watcher follows the changes with an account of its own, and what it posts is
    used under these conditions."""
    watched = (
        policy.kubernetes.watcher_secret
        and policy.reading is ClusterReading.CHANGES
        and not obeyed(policy)
    )
    return policy.reading is not ClusterReading.FULL and not watched


def _rule_objects(policy: Policy) -> Iterator[NeededRule]:
    if obeyed(policy):
        source = RoleFile(WORKLOAD_FILE, "outscaler-node-autoscalers")
        use = "rules of HorizontalNodeAutoscalers"
        yield NeededRule(
            WORKLOAD, source, GROUP, (PLURAL,), ("list",), use, namespace=NAMESPACE, required=False
        )


def _config_maps(policy: Policy) -> Iterator[NeededRule]:
    options = policy.options
    edits = [
        (_DEFAULT.namespace, options.namespace),
        (_DEFAULT.status_config_map_name, options.status_config_map_name),
    ]
    rule = NeededRule(
        WORKLOAD,
        RoleFile(WORKLOAD_FILE, "outscaler", _different(edits)),
        "",
        ("configmaps",),
        ("get",),
        "the expander priority",
        names=(PRIORITIES,),
        namespace=options.namespace,
    )
    if "priority" in options.expander:
        yield rule
    # In mode shadow the status of the other autoscaler is read there, whether
    # Outscaler writes one or not.
    if options.write_status_configmap or not permitted(policy).act:
        yield msgspec.structs.replace(
            rule,
            verbs=("get", "patch") if options.write_status_configmap else ("get",),
            needed_for="the status ConfigMap",
            names=(options.status_config_map_name,),
            required=False,
        )


def _different(edits: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((written, needed) for written, needed in edits if written != needed)


def _tokens(policy: Policy) -> Iterator[NeededRule]:
    if not makes_tokens(policy):
        return
    source, use = (
        RoleFile(TOKENS_FILE, "outscaler-bootstrap-tokens"),
        "bootstrap tokens of Cherry Servers",
    )
    names = tuple(f"bootstrap-token-{id_}" for id_ in IDS)
    space = "kube-system"
    yield NeededRule(
        WORKLOAD,
        source,
        "",
        ("secrets",),
        ("get", "update"),
        use,
        names=names,
        namespace=space,
        acts=True,
    )
    use = f"{use}; RBAC cannot limit create to names"
    yield NeededRule(
        WORKLOAD, source, "", ("secrets",), ("create",), use, namespace=space, acts=True
    )


def _cluster_api(policy: Policy) -> Iterator[NeededRule]:
    spaces = capi_namespaces(policy)
    group = policy.providers.get(_CLUSTER_API, {}).get("group") or DEFAULT_GROUP
    place = WORKLOAD if management_access(policy) is None else MANAGEMENT
    for space in spaces:
        edits = (("default", space or "default"), (DEFAULT_GROUP, group))
        file = NAMESPACED if space else EVERYWHERE
        source = RoleFile(file, "outscaler-cluster-api", _different(edits))
        for resources, verbs, use, acts in _CAPI_ROWS:
            yield NeededRule(
                place, source, group, resources, verbs, use, namespace=space, acts=acts
            )
        if policy.node_lifecycle is not None and policy.node_lifecycle.repair:
            use = "repairs of nodes"
            checks = ("machinehealthchecks",)
            yield NeededRule(
                place, source, group, checks, ("list",), use, namespace=space, required=False
            )


_CAPI_ROWS = (
    ((*_SCALABLE, "machines", "clusters"), ("list",), "node groups of Cluster API", False),
    ((*_SCALABLE, "clusters"), ("get",), "the check before a change of a group", True),
    (tuple(f"{plural}/scale" for plural in _SCALABLE), ("get", "patch"), "sizes of groups", True),
    (("machines",), ("get", "patch"), "removals of machines", True),
)
