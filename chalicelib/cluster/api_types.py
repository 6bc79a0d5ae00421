"""API types for msgspec: the few fields of the API's JSON that planning needs, and their
conversion to the model's.

The types are narrow because decoding is the most expensive part of a pass: fields that are not
named here are skipped without creating objects. A pod's spec, labels and owners stay raw bytes:
equal bytes are one pod class, so they are decoded once per class and not once per pod
(class_table.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from chalicelib.cluster.list_page import ListMeta
from chalicelib.model.api_integers import Int32, Int64
from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.model.selector import NodeTerm, Requirement, Selector

MOST_REQUIREMENTS, MOST_VALUES = 200, 1_000  # of a selector of an object other than a pod
Quantity = str | int | float


class ApiObject(msgspec.Struct, gc=False, frozen=True):
    """The type of an object, empty in the API's own lists, which name it once for all items."""

    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class Annotations(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "safe_to_evict": "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "safe_local_volumes": "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
        "daemonset_pod": "cluster-autoscaler.kubernetes.io/daemonset-pod",
        "enable_ds_eviction": "cluster-autoscaler.kubernetes.io/enable-ds-eviction",
        "scale_up_delay": "cluster-autoscaler.kubernetes.io/pod-scale-up-delay",
        "mirror": "kubernetes.io/config.mirror",
        "do_not_disrupt": "karpenter.sh/do-not-disrupt",
        "deletion_cost": "controller.kubernetes.io/pod-deletion-cost",
    },
):
    """The annotations of a pod that the planner uses."""

    safe_to_evict: str = ""
    safe_local_volumes: str = ""
    daemonset_pod: str = ""
    enable_ds_eviction: str = ""
    scale_up_delay: str = ""
    mirror: str | None = None
    do_not_disrupt: str = ""
    deletion_cost: str = ""


class PodMeta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """metadata of a pod."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = msgspec.Raw(b"")
    annotations: Annotations | None = None
    owner_references: msgspec.Raw = msgspec.Raw(b"")
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None


class PodStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """status of a pod; conditions are decoded only for pods without a node, containers only for
    pods being resized, the start only for pods that must not be disrupted."""

    phase: str = ""
    conditions: msgspec.Raw = msgspec.Raw(b"")
    container_statuses: msgspec.Raw = msgspec.Raw(b"")
    nominated_node_name: str = ""
    start_time: msgspec.Raw = msgspec.Raw(b"")


class ApiPod(ApiObject, kw_only=True, gc=False, frozen=True):
    """A Pod of the API."""

    metadata: PodMeta
    spec: msgspec.Raw
    status: PodStatus = PodStatus()


class PodCondition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A pod condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The resources that the kubelet has allocated to a container; its spec may already differ."""

    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: Requirements | None = None


class OwnerReference(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """metadata.ownerReferences[]."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class Requirements(msgspec.Struct, gc=False, frozen=True):
    """resources of a container or of a pod."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class _Port(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # containers[].ports[]
    host_port: Int32 = 0
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A container or init container."""

    name: str = ""
    resources: Requirements | None = None
    ports: list[_Port] | None = None
    restart_policy: str | None = None


class _Expression(msgspec.Struct, gc=False, frozen=True):  # matchExpressions[] and matchFields[]
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _LabelSelector(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # metav1.LabelSelector
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _SelectorTerm(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # nodeSelectorTerms[]
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


# nodeAffinity's required part
class _NodeSelector(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    node_selector_terms: list[_SelectorTerm] | None = None


# A preferred node term with its weight
class _PreferredNodes(msgspec.Struct, gc=False, frozen=True):
    weight: Int32 = 0
    preference: _SelectorTerm = _SelectorTerm()


class NodeAffinity(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec.affinity.nodeAffinity: required and preferred terms."""

    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[_PreferredNodes] | None = None


# A required inter-pod term
class _AffinityTerm(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    topology_key: str = ""
    label_selector: _LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: _LabelSelector | None = None


class PodAffinity(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """Required terms of podAffinity or podAntiAffinity."""

    required_during_scheduling_ignored_during_execution: list[_AffinityTerm] | None = None


class Affinity(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class _ApiToleration(msgspec.Struct, gc=False, frozen=True):  # spec.tolerations[]
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ApiSpreadConstraint(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec.topologySpreadConstraints[]."""

    topology_key: str = ""
    max_skew: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: _LabelSelector | None = None
    min_domains: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ApiNamed(msgspec.Struct, gc=False, frozen=True):
    """An object of which only the name is used: a scheduling gate, a resource claim."""

    name: str = ""


class BoundTo(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The part of a pod's spec that names its node."""

    node_name: str | None = None


class PodSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec of a pod."""

    containers: list[Container] = []
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[_ApiToleration] | None = None
    topology_spread_constraints: list[ApiSpreadConstraint] | None = None
    volumes: list[dict[str, Any]] | None = None
    resource_claims: list[ApiNamed] | None = None
    scheduling_gates: list[ApiNamed] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Requirements | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = "default-scheduler"
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool = False


# metadata of any object but a pod
class _ApiMeta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    resource_version: str = ""


class _ApiTaint(msgspec.Struct, gc=False, frozen=True):  # spec.taints[]
    key: str
    effect: str = ""
    value: str = ""


class _ApiNodeSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # spec of a node
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[_ApiTaint] | None = None
    unschedulable: bool = False


class _NodeCondition(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # status.conditions[]
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _NodeAddress(msgspec.Struct, gc=False, frozen=True):  # status.addresses[]
    address: str = ""


class _NodeInfo(msgspec.Struct, gc=False, frozen=True):  # status.nodeInfo
    machine_id: str = msgspec.field(default="", name="machineID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeStatus(msgspec.Struct, gc=False, frozen=True):
    """status of a node."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: list[_NodeCondition] | None = None
    addresses: list[_NodeAddress] | None = None
    node_info: _NodeInfo | None = msgspec.field(default=None, name="nodeInfo")


class ApiNode(ApiObject, kw_only=True, gc=False, frozen=True):
    """A Node of the API."""

    metadata: _ApiMeta
    spec: _ApiNodeSpec = _ApiNodeSpec()
    status: NodeStatus | None = None


# spec of a PodDisruptionBudget
class _BudgetSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    selector: _LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


# status of a PodDisruptionBudget
class _BudgetStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0

    @property
    def required(self) -> int:
        """Return how many healthy pods the budget needs, where these are all of its pods."""
        is_strict = 0 < self.expected_pods <= self.desired_healthy
        return self.expected_pods if is_strict else 0


class ApiBudget(ApiObject, kw_only=True, gc=False, frozen=True):
    """A PodDisruptionBudget of the API."""

    metadata: _ApiMeta
    spec: _BudgetSpec = _BudgetSpec()
    status: _BudgetStatus = _BudgetStatus()


class _PodTemplateMeta(msgspec.Struct, gc=False, frozen=True):  # metadata of a pod template
    labels: msgspec.Raw = msgspec.Raw(b"")
    annotations: Annotations | None = None


class _PodTemplate(msgspec.Struct, gc=False, frozen=True):  # spec.template of a controller
    metadata: _PodTemplateMeta = _PodTemplateMeta()
    spec: msgspec.Raw = msgspec.Raw(b"")


class ControllerSpec(msgspec.Struct, gc=False, frozen=True):
    """spec of a controller; template is read for DaemonSets only."""

    replicas: Int32 | None = None
    template: _PodTemplate = _PodTemplate()


class ApiController(ApiObject, kw_only=True, gc=False, frozen=True):
    """A DaemonSet, ReplicaSet, ReplicationController, StatefulSet or Job of the API."""

    metadata: _ApiMeta
    spec: ControllerSpec = ControllerSpec()


class ApiNamespace(ApiObject, kw_only=True, gc=False, frozen=True):
    """A Namespace of the API."""

    metadata: _ApiMeta


class Head(ApiObject, gc=False, frozen=True):
    """The type of a document, before its items are read."""

    items: msgspec.Raw = msgspec.Raw(b"")


T = TypeVar("T")


class Listing(msgspec.Struct, Generic[T], gc=False, frozen=True):
    """A list whose items are all of one kind, decoded at once. metadata: None for a
    list in a file without it."""

    metadata: ListMeta | None = None
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    items: list[T] | None = None


# --- storage: only pods with claims need these


class StorageAnnotations(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "selected_node": "volume.kubernetes.io/selected-node",
        "bind_completed": "pv.kubernetes.io/bind-completed",
        "old_class": "volume.beta.kubernetes.io/storage-class",
        "is_default": "storageclass.kubernetes.io/is-default-class",
        "was_default": "storageclass.beta.kubernetes.io/is-default-class",
    },
):
    """The annotations that are used: of a claim the first three, of a volume the
    third, of a class the rest."""

    selected_node: str = ""
    bind_completed: str | None = None
    old_class: str | None = None
    is_default: str = ""
    was_default: str = ""


# metadata of a storage object
class _StorageMeta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: StorageAnnotations | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


# An amount of storage, as in requests and capacity
class _Amounts(msgspec.Struct, gc=False, frozen=True):
    storage: Quantity | None = None


class _ClaimResources(msgspec.Struct, gc=False, frozen=True):  # resources of a claim
    requests: _Amounts | None = None


class ClaimSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec of a PersistentVolumeClaim, or of its template."""

    access_modes: list[str] | None = None
    resources: _ClaimResources | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = ""
    selector: _LabelSelector | None = None


class _Phase(msgspec.Struct, gc=False, frozen=True):  # status of a claim or a volume
    phase: str = ""


class ApiClaim(ApiObject, kw_only=True, gc=False, frozen=True):
    """A PersistentVolumeClaim of the API."""

    metadata: _StorageMeta
    spec: ClaimSpec
    status: _Phase = _Phase()


class _ClaimTemplate(msgspec.Struct, gc=False, frozen=True):  # ephemeral.volumeClaimTemplate
    spec: ClaimSpec = ClaimSpec()


class Ephemeral(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A generic ephemeral volume of a pod."""

    volume_claim_template: _ClaimTemplate = _ClaimTemplate()


class _Reference(msgspec.Struct, gc=False, frozen=True):  # spec.claimRef
    name: str = ""
    namespace: str = ""


class _VolumeNodeAffinity(msgspec.Struct, gc=False, frozen=True):  # spec.nodeAffinity of a volume
    required: _NodeSelector | None = None


class _CsiSource(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # spec.csi of a volume
    driver: str = ""
    volume_handle: str = ""


class DiskSource(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "volume_id": "volumeID",
        "pd_name": "pdName",
        "disk_uri": "diskURI",
        "volume_path": "volumePath",
    },
):
    """A disk of an in-tree plugin that a CSI driver has replaced; each vendor identifies
    it by a different field."""

    volume_id: str = ""
    pd_name: str = ""
    disk_uri: str = ""
    volume_path: str = ""

    @property
    def name(self) -> str:
        """Return the identifier of the disk."""
        return self.volume_id or self.pd_name or self.disk_uri or self.volume_path


class VolumeSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec of a PersistentVolume."""

    capacity: _Amounts | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    node_affinity: _VolumeNodeAffinity | None = None
    claim_ref: _Reference | None = None
    csi: _CsiSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    gce_persistent_disk: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    vsphere_volume: DiskSource | None = None
    portworx_volume: DiskSource | None = None


class ApiVolume(ApiObject, kw_only=True, gc=False, frozen=True):
    """A PersistentVolume of the API."""

    metadata: _StorageMeta
    spec: VolumeSpec
    status: _Phase = _Phase()


class _TopologyExpression(msgspec.Struct, gc=False, frozen=True):  # key in values
    key: str
    values: list[str] | None = None


class _TopologyTerm(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # allowedTopologies[]
    match_label_expressions: list[_TopologyExpression] | None = None


class ApiStorageClass(ApiObject, kw_only=True, gc=False, frozen=True, rename="camel"):
    """A StorageClass of the API."""

    metadata: _StorageMeta
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[_TopologyTerm] | None = None


class _Count(msgspec.Struct, gc=False, frozen=True):  # allocatable of a driver on a node
    count: Int32 | None = None


class _NodeDriver(msgspec.Struct, gc=False, frozen=True):  # spec.drivers[] of a CSINode
    name: str
    topology_keys: list[str] | None = msgspec.field(default=None, name="topologyKeys")
    allocatable: _Count | None = None


class _NodeDrivers(msgspec.Struct, gc=False, frozen=True):  # spec of a CSINode
    drivers: list[_NodeDriver] | None = None


class ApiCsiNode(ApiObject, kw_only=True, gc=False, frozen=True):
    """A CSINode of the API."""

    metadata: _StorageMeta
    spec: _NodeDrivers = _NodeDrivers()


class _DriverSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):  # spec of a CSIDriver
    storage_capacity: bool | None = None


class ApiCsiDriver(ApiObject, kw_only=True, gc=False, frozen=True):
    """A CSIDriver of the API."""

    metadata: _StorageMeta
    spec: _DriverSpec = _DriverSpec()


class ApiStorageCapacity(ApiObject, kw_only=True, gc=False, frozen=True, rename="camel"):
    """A CSIStorageCapacity of the API."""

    metadata: _StorageMeta
    storage_class_name: str = ""
    node_topology: _LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class Priorities(msgspec.Struct, gc=False, frozen=True):
    """data of the priority expander's ConfigMap."""

    priorities: str | None = None


class ApiConfigMap(ApiObject, kw_only=True, gc=False, frozen=True):
    """A ConfigMap of the API; other keys are ignored."""

    metadata: _StorageMeta
    data: msgspec.Raw = msgspec.Raw(b"")


# --- conversions to the model


def amounts(raw: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Parse amounts of resources. Raises BadInput naming the resource."""
    return {name: parse_amount(name, quantity_text(value)) for name, value in (raw or {}).items()}


def selector(raw: _LabelSelector | None) -> Selector | None:
    """Return a _LabelSelector as data; None stays None, which matches nothing where
    Kubernetes defines it so."""
    if raw is None:
        return None
    equal = [
        Requirement(key, "In", (value,)) for key, value in sorted((raw.match_labels or {}).items())
    ]
    return Selector(tuple(equal) + expressions(raw.match_expressions))


def bounded_selector(raw: _LabelSelector | None) -> Selector | None:
    """Return a selector of an object other than a pod; raises BadInput for one that is
    larger than any in real use."""
    converted = selector(raw)
    requirements = converted.requirements if converted is not None else ()
    if (
        len(requirements) > MOST_REQUIREMENTS
        or sum(len(each.values) for each in requirements) > MOST_VALUES
    ):
        raise BadInput(
            "selector",
            f"has more than {MOST_REQUIREMENTS} requirements or {MOST_VALUES} values",
            "",
        )
    return converted


def expressions(raw: Iterable[_Expression] | None) -> tuple[Requirement, ...]:
    """Return matchExpressions or matchFields as requirements."""
    return tuple(Requirement(e.key, e.operator, tuple(e.values or ())) for e in raw or ())


def node_term(raw: _SelectorTerm) -> NodeTerm:
    """Return one nodeSelectorTerm as data."""
    return NodeTerm(expressions(raw.match_expressions), expressions(raw.match_fields))


def node_terms(raw: _NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """Return a _NodeSelector as terms; None: nothing is required, (): nothing matches."""
    return None if raw is None else tuple(map(node_term, raw.node_selector_terms or ()))
