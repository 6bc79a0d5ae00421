"""Pods, split in two: the class, which the scheduler and the drain rules see and thousands of
pods share, and the rest.

A cluster of 170,000 pods has a few thousand classes. Every predicate is evaluated once per class; a
Pod is only a name on a node. Classes are created while pods are decoded
(cluster/snapshot_builder.py) and never change.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.api_groups import CONTROLLER_GROUPS, is_foreign
from chalicelib.model.selector import NodeTerm, Selector
from chalicelib.model.storage import Claim

SETTLED_AFTER = 2.0
"""Seconds after which nodes are added for a pending pod, whether or not others still arrive."""
QUIET_AFTER = 1.1
"""Seconds without a further pending pod after which nodes are added: a Deployment's pods come one
by one. Kubernetes writes whole seconds, so this is a real pause of 0.1 to 1.1 seconds."""
REFUSAL_WAIT = 8.0
"""Seconds after a scheduler's first refusal after which nodes are added, whether or not
it refuses further pods."""
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - Kubernetes' word for "every address of the node"; nothing listens here


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controlling owner reference."""

    kind: str
    name: str
    uid: str
    api_version: str = ""

    @property
    def built_in(self) -> bool:
        """Return whether it is a built-in controller of Kubernetes, which a snapshot can contain,
        and not one of another API group with the same kind."""
        return self.kind in CONTROLLER_GROUPS and not is_foreign(self.kind, self.api_version)


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration as in the Pod spec; operator Exists or Equal (the default)."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A port on the node itself; an empty address was set to 0.0.0.0, an empty protocol to TCP."""

    port: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS


class PodAffinityTerm(msgspec.Struct, frozen=True, gc=False):
    """One required inter-pod term. namespaces None and namespace_selector None:
    the pod's own namespace."""

    topology_key: str
    selector: Selector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None


class SpreadConstraint(msgspec.Struct, frozen=True, gc=False):
    """One topologySpreadConstraint with whenUnsatisfiable DoNotSchedule."""

    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class PreferredTerm(msgspec.Struct, frozen=True, gc=False):
    """One preferredDuringScheduling node term; weight 1 to 100. It influences the
    choice and never blocks."""

    weight: int
    term: NodeTerm


class Volume(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A volume as far as the planner needs it: its name, kind, and the claim behind it. `kind` is
    the source's own key (persistentVolumeClaim, emptyDir, hostPath, ephemeral, csi …); an emptyDir
    in memory has kind `emptyDirMemory`.

    claim: the name of a claim in the pod's namespace. An ephemeral volume has one only if its own
    claim decides (a pending pod whose claim exists and differs from the template); otherwise
    template describes each pod's future claim. disk: identifies the disk of an in-tree volume
    (pdName, volumeID, iqn, pool/image …); monitors: of rbd; driver: the CSI driver that attaches
    it.
    """

    name: str
    kind: str
    claim: str = ""
    template: Claim | None = None
    disk: str = ""
    monitors: tuple[str, ...] = ()
    read_only: bool = False
    driver: str = ""


class PodClass(msgspec.Struct, frozen=True, gc=False):
    """Everything about a pod that decides where it may run and whether it may be moved; equal
    for all pods of a class.

    requests: cpu in millicores, memory and storage in bytes, extended resources in pieces; `pods`
    is not among them. node_selector and required_affinity together are NodeAffinity;
    required_affinity None means "no terms".
    """

    namespace: str
    labels: dict[str, str]
    requests: dict[str, int]
    owner: Owner | None = None
    node_selector: dict[str, str] = {}
    required_affinity: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[HostPort, ...] = ()
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preferred_nodes: tuple[PreferredTerm, ...] = ()
    preferred_spread: tuple[SpreadConstraint, ...] = ()  # whenUnsatisfiable: ScheduleAnyway
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    priority: int | None = None
    priority_class: str = ""
    preemption_policy: str = ""
    scheduler: str = "default-scheduler"
    restart_policy: str = "Always"
    grace_seconds: float = 30.0
    host_network: bool = False
    mirror: bool = False
    safe_to_evict: str = ""
    safe_local_volumes: str = ""
    daemonset_annotation: str = ""
    enable_ds_eviction: str = ""
    scale_up_delay: str = ""
    do_not_disrupt: str = ""  # karpenter.sh/do-not-disrupt as written
    deletion_cost: str = ""  # controller.kubernetes.io/pod-deletion-cost as written
    # the exceeded limit of cluster/input_limits.py; fields that exceed it are left out above
    excess: str = ""
    # fields that are left out may keep other pods off the node of such a pod
    excess_bars: bool = False

    @property
    def is_daemonset(self) -> bool:
        """Return whether it is controlled by a DaemonSet of any API group, as in Cluster
        Autoscaler, or annotated as such."""
        return (
            self.owner is not None and self.owner.kind == "DaemonSet"
        ) or self.daemonset_annotation == "true"


class Pod(msgspec.Struct, frozen=True, gc=False):
    """One pod. cls indexes Snapshot.classes. Times are epoch seconds; 0.0 means "not set"."""

    namespace: str
    name: str
    uid: str
    cls: int
    node: str = ""
    nominated: str = ""
    phase: str = ""
    created: float = 0.0
    deleted: float = 0.0
    deletion_grace: float = 30.0
    scheduled: str = ""  # status of condition PodScheduled: True, False or "" if there is none
    scheduled_reason: str = ""  # its reason: Unschedulable, SchedulingGated …
    scheduled_message: str = ""
    unready: bool = False  # running, with condition Ready False
    started: float = 0.0  # read only of pods with karpenter.sh/do-not-disrupt
    refused_at: float = 0.0  # when the scheduler refused it first: since when PodScheduled is False

    @property
    def key(self) -> str:
        """Return namespace/name, as used in all reports."""
        return f"{self.namespace}/{self.name}"
