"""The used fields of Cluster API's objects in both served versions, and the label and
annotation keys on them.

v1beta1 and v1beta2 differ in the places of failure messages and of the newer conditions. Both
places are read, so no other module depends on the version. Everything has a default, because
the API omits empty values.

Some keys have the API group in use as their prefix; others are fixed for every group. The former
are fields of CapiAnnotations and the latter constants, so that they are not confused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from chalicelib.model.api_integers import Int32, Int64
from chalicelib.model.selector import Requirement, Selector

DEFAULT_GROUP = "cluster.x-k8s.io"

PAUSED = "cluster.x-k8s.io/paused"
SKIP_REMEDIATION = "cluster.x-k8s.io/skip-remediation"
INTERRUPTIBLE = "cluster.x-k8s.io/interruptible"
MOST_DOMAINS = 50
"""Failure domains of one object that are considered."""
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"

# The prefix of delete-machine annotation values set by Outscaler; any other value
# was set by another party.
MARK_PREFIX = "outscaler/"
# Seconds after which an annotation set by Outscaler is expired: longer than any function runs
# between annotation and size.
FORGOTTEN_AFTER = 300.0


def mark_age(mark: str, now: float) -> float:
    """Return the seconds since Outscaler set an annotation; infinite for an unreadable one."""
    written = mark.rpartition("/")[2]
    return now - int(written) if written.isdecimal() and len(written) <= _LONGEST_TIME else math.inf


def is_forgotten(mark: str, now: float) -> bool:
    """Whether an annotation set by Outscaler is so old that its change is over. An
    unreadable one counts as such."""
    return mark.startswith(MARK_PREFIX) and mark_age(mark, now) > FORGOTTEN_AFTER


_LONGEST_TIME = 18  # digits


@dataclass(frozen=True)
class CapiAnnotations:
    """The keys with the API group as their prefix. On a resource: min_size, max_size, and options,
    the prefix of the per-group options. On a Machine: delete_machine: delete it first when the
    MachineSet is scaled down; its presence counts, not its value. On a Node: machine, its Machine's
    name, and cluster_namespace, the namespace of its Machine and of its Cluster. cluster_name:
    annotation of a Node, label of CAPI objects."""

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
    **{
        name: name.replace("_", "-")
        for name in ("delete_machine", "machine", "cluster_namespace", "cluster_name")
    },
}

BOUND_ANNOTATIONS = (CapiAnnotations().min_size, CapiAnnotations().max_size)
"""The keys of a group's bounds with the default API group."""


# -- objects

Name = Annotated[str, msgspec.Meta(max_length=253)]  # maximum length of a name in Kubernetes
# maximum length of a providerID; EC2's and Azure's have about a hundred characters
Text = Annotated[str, msgspec.Meta(max_length=2000)]


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """metadata.ownerReferences[]."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """metadata; timestamps unchanged. generation: incremented with every change of the spec."""

    name: Name
    namespace: Name = ""
    uid: Name = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class ResourceMetadata(Metadata, frozen=True, gc=False, rename="camel"):
    """metadata of a resource. managed_fields: undecoded, since nothing depends on it but a name."""

    managed_fields: msgspec.Raw = msgspec.Raw()


class StatusCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of either list of conditions; last_transition_time unchanged."""

    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = ""


class NewConditions(msgspec.Struct, frozen=True, gc=False):
    """status.v1beta2 of a v1beta1 object."""

    conditions: list[StatusCondition] | None = None


class TemplateTaint(msgspec.Struct, frozen=True, gc=False):
    """spec.template.spec.taints[]."""

    key: str
    effect: str = ""
    value: str | None = ""
    propagation: str | None = ""


class TemplateMetadata(msgspec.Struct, frozen=True, gc=False):
    """spec.template.metadata."""

    labels: dict[str, str] | None = None


class InfrastructureReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """spec.template.spec.infrastructureRef: v1beta1 has apiVersion and
    namespace, v1beta2 apiGroup."""

    kind: str = ""
    name: str = ""
    api_version: str = ""
    api_group: str = ""
    namespace: str = ""


class TemplateSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """spec.template.spec."""

    taints: list[TemplateTaint] | None = None
    infrastructure_ref: InfrastructureReference | None = None
    failure_domain: str | None = None
    version: Name | None = None


class MachineTemplate(msgspec.Struct, frozen=True, gc=False):
    """spec.template of a resource, from which its Machines are created."""

    metadata: TemplateMetadata | None = None
    spec: TemplateSpec | None = None


class RolloutStrategy(msgspec.Struct, frozen=True, gc=False):
    """MachineDeployment spec.strategy (v1beta1) or spec.rollout.strategy (v1beta2)."""

    type: str | None = ""


class RolloutSpec(msgspec.Struct, frozen=True, gc=False):
    """MachineDeployment spec.rollout (v1beta2)."""

    strategy: RolloutStrategy | None = None


class ResourceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """spec of a resource; replicas None if it was never set. The last two are a MachinePool's."""

    cluster_name: str = ""
    replicas: Int32 | None = None
    template: MachineTemplate | None = None
    paused: bool | None = None
    strategy: RolloutStrategy | None = None
    rollout: RolloutSpec | None = None
    failure_domains: list[str] | None = None
    provider_id_list: list[Text] | None = msgspec.field(default=None, name="providerIDList")


class NodeRef(msgspec.Struct, frozen=True, gc=False):
    """Machine status.nodeRef, MachinePool status.nodeRefs[]; v1beta2 has only the name."""

    name: str = ""
    kind: str = ""


class ResourceStatus(msgspec.Struct, frozen=True, gc=False):
    """status of a resource; node_refs: a MachinePool's."""

    replicas: Int32 | None = None
    node_refs: list[NodeRef] | None = msgspec.field(default=None, name="nodeRefs")
    conditions: list[StatusCondition] | None = None
    v1beta2: NewConditions | None = None


def all_conditions(
    old: list[StatusCondition] | None, new: NewConditions | None
) -> tuple[StatusCondition, ...]:
    """Return the conditions of both lists; the newer list first, if a v1beta1 object has one."""
    return (*((new.conditions if new else None) or ()), *(old or ()))


class CapiResource(msgspec.Struct, frozen=True, gc=False):
    """A MachineDeployment, MachineSet or MachinePool."""

    metadata: ResourceMetadata
    spec: ResourceSpec = ResourceSpec()
    status: ResourceStatus | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations; an empty dict if there are none."""
        return self.metadata.annotations or {}

    @property
    def labels(self) -> dict[str, str]:
        """Its own labels; an empty dict if there are none."""
        return self.metadata.labels or {}

    def cluster(self, annotations: CapiAnnotations) -> str:
        """The name of the resource's cluster, empty if unknown."""
        return self.spec.cluster_name or self.labels.get(annotations.cluster_name, "")

    @property
    def conditions(self) -> tuple[StatusCondition, ...]:
        """The conditions of both lists."""
        return all_conditions(self.status.conditions, self.status.v1beta2) if self.status else ()

    def is_true(self, condition: str) -> bool:
        """Whether a condition of that type is True, in either list."""
        return any(each.type == condition and each.status == "True" for each in self.conditions)

    @property
    def desired_or_present(self) -> int:
        """The larger of the desired and the current number of replicas."""
        return max(self.spec.replicas or 0, (self.status.replicas if self.status else None) or 0)

    @property
    def strategy(self) -> str:
        """A MachineDeployment's strategy for replacing its Machines: `RollingUpdate`,
        `OnDelete`, empty if unknown."""
        rollout = self.spec.rollout.strategy if self.spec.rollout else None
        return next((each.type for each in (rollout, self.spec.strategy) if each and each.type), "")

    @property
    def node_names(self) -> tuple[str, ...]:
        """The Nodes that Cluster API has matched to a MachinePool."""
        references = (self.status.node_refs if self.status else None) or ()
        return tuple(each.name for each in references if each.name and each.kind in {"", "Node"})

    @property
    def listed(self) -> tuple[str, ...]:
        """The provider ids that a MachinePool lists, each once, without empty ones."""
        return tuple(dict.fromkeys(each for each in self.spec.provider_id_list or () if each))


class OldFailure(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """status.deprecated.v1beta1."""

    failure_message: str | None = None
    failure_reason: str | None = None


class Deprecated(msgspec.Struct, frozen=True, gc=False):
    """status.deprecated."""

    v1beta1: OldFailure | None = None


class MachineSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """spec of a Machine."""

    cluster_name: str = ""
    provider_id: Text | None = msgspec.field(default=None, name="providerID")
    version: Name | None = None


class MachineStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """status of a Machine."""

    phase: str = ""
    node_ref: NodeRef | None = None
    failure_message: str | None = None
    failure_reason: str | None = None
    deprecated: Deprecated | None = None
    conditions: list[StatusCondition] | None = None
    v1beta2: NewConditions | None = None


class CapiMachine(msgspec.Struct, frozen=True, gc=False):
    """A Machine object."""

    metadata: Metadata
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def handle(self) -> str:
        """namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def cluster(self, annotations: CapiAnnotations) -> str:
        """The name of the Machine's cluster, empty if unknown."""
        return self.spec.cluster_name or (self.metadata.labels or {}).get(
            annotations.cluster_name, ""
        )

    @property
    def node_name(self) -> str:
        """The Node that Cluster API has matched to it, empty if there is none."""
        reference = self.status.node_ref
        return reference.name if reference is not None and reference.kind in {"", "Node"} else ""

    @property
    def leaving(self) -> bool:
        """Whether its deletion has begun."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def failure(self) -> str:
        """The failure message from either place, empty if there is none."""
        return self.status.failure_message or self._old_failure.failure_message or ""

    @property
    def failure_reason(self) -> str:
        """The failure reason from either place, empty if there is none."""
        return self.status.failure_reason or self._old_failure.failure_reason or ""

    @property
    def _old_failure(self) -> OldFailure:
        return (self.status.deprecated.v1beta1 if self.status.deprecated else None) or OldFailure()

    def condition(self, kind: str) -> StatusCondition | None:
        """Return the condition of that type, the newer one if it is in both lists."""
        conditions = all_conditions(self.status.conditions, self.status.v1beta2)
        return next((condition for condition in conditions if condition.type == kind), None)

    @property
    def ailing(self) -> bool:
        """Whether a MachineSet that is scaled down deletes it before healthy ones. That is the case
        without a Node known to Cluster API, with a failure, or with an unhealthy Node."""
        healthy = self.condition("NodeHealthy")
        return (
            self.status.node_ref is None
            or bool(self.failure)
            or (healthy is not None and healthy.status != "True")
        )

    def mark(self, annotations: CapiAnnotations) -> str | None:
        """The value of the delete-machine annotation, None if there is none."""
        return (self.metadata.annotations or {}).get(annotations.delete_machine)


class SelectorExpression(msgspec.Struct, frozen=True, gc=False):
    """matchExpressions[] of a label selector."""

    key: Name = ""
    operator: Name = ""
    values: Annotated[list[Name], msgspec.Meta(max_length=1000)] | None = None


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """metav1.LabelSelector, of a bounded size."""

    match_labels: Annotated[dict[str, str], msgspec.Meta(max_length=200)] | None = None
    match_expressions: Annotated[list[SelectorExpression], msgspec.Meta(max_length=200)] | None = (
        None
    )

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Its requirements; empty for a selector that has none."""
        equal = (
            Requirement(key, "In", (value,)) for key, value in (self.match_labels or {}).items()
        )
        expressions = self.match_expressions or ()
        return (
            *equal,
            *(
                Requirement(each.key, each.operator, tuple(each.values or ()))
                for each in expressions
            ),
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it matches these labels. One without requirements matches nothing, as the
        controller of MachineHealthChecks has it."""
        return bool(self.requirements) and Selector(self.requirements).matches(labels)


class ExternalTemplate(msgspec.Struct, frozen=True, gc=False):
    """A reference to a template of an external remediation."""

    name: str = ""


class Remediation(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """spec.remediation of a MachineHealthCheck (v1beta2)."""

    template_ref: ExternalTemplate | None = None


class HealthCheckSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """spec of a MachineHealthCheck; remediation_template is v1beta1's."""

    cluster_name: str = ""
    selector: LabelSelector = LabelSelector()
    remediation_template: ExternalTemplate | None = None
    remediation: Remediation | None = None


class CapiHealthCheck(msgspec.Struct, frozen=True, gc=False):
    """A MachineHealthCheck. Conditions and times of it are not read: whoever repairs a
    Machine does so by them."""

    metadata: Metadata
    spec: HealthCheckSpec = HealthCheckSpec()

    @property
    def is_external(self) -> bool:
        """Whether another controller than Cluster API's own repairs what it finds."""
        remediation = self.spec.remediation
        return self.spec.remediation_template is not None or (
            remediation is not None and remediation.template_ref is not None
        )


class ScaleMetadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """metadata of a Scale."""

    resource_version: str


class ScaleSpec(msgspec.Struct, frozen=True, gc=False):
    """The server omits replicas if it is 0."""

    replicas: Int32 = 0


class Scale(msgspec.Struct, frozen=True, gc=False):
    """autoscaling/v1 Scale."""

    metadata: ScaleMetadata
    spec: ScaleSpec = ScaleSpec()


class Workers(msgspec.Struct, frozen=True):
    """One entry of spec.topology.workers; replicas None: an autoscaler may set the size."""

    name: str = ""
    replicas: Int32 | None = None


class WorkersList(msgspec.Struct, frozen=True, rename="camel"):
    """spec.topology.workers."""

    machine_deployments: list[Workers] | None = None
    machine_pools: list[Workers] | None = None


class Topology(msgspec.Struct, frozen=True):
    """spec.topology."""

    workers: WorkersList | None = None


class ClusterSpec(msgspec.Struct, frozen=True):
    """spec of a Cluster."""

    paused: bool | None = None
    topology: Topology | None = None


class ClusterStatus(msgspec.Struct, frozen=True, rename="camel"):
    """status of a Cluster. failure_domains: by name in v1beta1, a list in v1beta2; of any type,
    because a Cluster that pauses its groups does so whatever else it says."""

    failure_domains: Any = None


class CapiCluster(msgspec.Struct, frozen=True):
    """A Cluster. It says whether its groups are paused, which only newer versions copy to a
    MachineDeployment, and which sizes its topology sets. A replicas field there is not visible on a
    MachineDeployment, yet the topology controller keeps resetting the size to it, so it would
    compete with Outscaler (Cluster API book, managed topologies)."""

    metadata: Metadata
    spec: ClusterSpec | None = None
    status: ClusterStatus | None = None

    @property
    def failure_domains(self) -> tuple[str, ...]:
        """The names of its failure domains, sorted, at most MOST_DOMAINS of them."""
        domains = self.status.failure_domains if self.status is not None else None
        if isinstance(domains, list):
            domains = [domain.get("name") for domain in domains if isinstance(domain, dict)]
        names = (
            [name for name in domains if isinstance(name, str) and name]
            if isinstance(domains, list | dict)
            else []
        )
        return tuple(sorted(names)[:MOST_DOMAINS])

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def paused(self) -> bool:
        """Whether reconciliation of the cluster's objects is paused. The paused annotation on a
        Cluster stops only that object."""
        return self.spec is not None and self.spec.paused is True

    @property
    def sized(self) -> Iterable[str]:
        """The names of the topology's entries that set a number of machines: a
        MachineDeployment has it in the label `topology.cluster.x-k8s.io/deployment-name`, a
        MachinePool in `pool-name`."""
        topology = self.spec.topology if self.spec else None
        workers = topology.workers if topology else None
        entries = (
            [*(workers.machine_deployments or ()), *(workers.machine_pools or ())]
            if workers
            else []
        )
        return [each.name for each in entries if each.name and each.replicas is not None]
