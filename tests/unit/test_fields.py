"""The fields of values: their defaults, and their names outside of the program.

A field is empty unless something is given. Rows and messages leave out what is empty, and
an answer of a vendor leaves out what it does not know: a default that means something is
listed here with its value."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chalicelib import __version__
from chalicelib.providers.clusterapi import settings
from chalicelib.store.gauge_ring import Extremes
from chalicelib.views.cost_view import SAVED_AGAINST
from tests.source_trees import ROOT, module_name, sources

OTHERS = {"__pycache__", "cli", "page"}
PACKAGES = sorted(
    path for path in (ROOT / "chalicelib").iterdir() if path.is_dir() and path.name not in OTHERS
)
EMPTY: tuple[object, ...] = (None, "", 0, 0.0, False, (), {}, set(), frozenset(), b"", [])
#: class.field -> value. Those of policy documents stand in docs/policy.md too.
EXPECTED: dict[str, object] = {
    "ReconcileMessage.reason": "schedule",
    "MachineChoice.market": "on-demand",
    "ReadBounds.body": 201_326_592,
    "ReadBounds.page": 50_331_648,
    "ReadBounds.pages": 10_000,
    "ReadBounds.volume": 8_589_934_592,
    "KubeRequest.total": math.inf,
    "KubeRequest.longest": 201_326_592,
    "KubeRequest.accept": "application/json",
    "KubeRequest.keep_body": True,
    "Instance.state": "running",
    "Pool.max": -1,
    "LabelValues.least": -(2**63),
    "LabelValues.most": 2**63 - 1,
    "WorkloadCost.names": 1,
    "Bill.bound": -1,
    "CostView.note": "Machines only: without disks, load balancers, traffic and the vendor's fees.",
    "CostView.saved_against": SAVED_AGAINST,
    "NodeGroup.billed_per": 1.0,
    "Price.source": "policy",
    "AlicloudSettings.read_prices": True,
    "AlicloudSection.read_prices": True,
    "CceSettings.read_prices": True,
    "Replacement.reason": "consolidation",
    "JudgedMove.reason": "consolidation",
    "DueNode.action": "replace",
    "Removal.reason": "unneeded",
    "Consolidation.mode": "off",
    "Consolidation.aggressiveness": 2.0,
    "Consolidation.min_savings": 0.1,
    "Consolidation.quiet_time": 600.0,
    "Consolidation.min_node_age": 1800.0,
    "Consolidation.confirm_after": 60.0,
    "Consolidation.steering": "true",
    "Consolidation.patience": True,
    "Consolidation.max_replacements": 3,
    "Consolidation.moves_per_pod_per_day": 4,
    "Consolidation.split_nodes": True,
    "Consolidation.min_cheaper_groups": 3,
    "DisruptionBudget.time_zone": "UTC",
    "RepairRule.status": ("True",),
    "RepairRule.flap_time": 60.0,
    "RepairRule.action": "replace",
    "NodeLifecycle.jitter": 0.1,
    "NodeLifecycle.expiry_grace": 259_200.0,
    "NodeLifecycle.drift": "report",
    "NodeLifecycle.max_unhealthy": 0.2,
    "NodeLifecycle.annotations": True,
    "Spot.interruptions": "act",
    "Spot.avoid_after_interruption": 1800.0,
    "Spot.return_after": 3600.0,
    "Spot.max_share": 1.0,
    "Spot.rebalance": "ignore",
    "Requirements.architectures": ("amd64",),
    "Requirements.markets": ("on-demand",),
    "PoolLimits.nodes": 100,
    "MaxShare.type": 1.0,
    "MaxShare.zone": 1.0,
    "ManagedPool.mode": "active",
    "ManagedPool.max_pools": 16,
    "ManagedPool.opening_factor": 0.02,
    "ManagedPool.keep_empty": 3600.0,
    "ManagedPool.min_types": 1,
    "GroupStatus.since": 0.0,
    "GroupStatus.until": 0.0,
    "GaugePoint.wanted": -1,
    "GaugePoint.cpu": -1,
    "GaugePoint.memory": -1,
    "GaugePoint.cost": -1.0,
    **dict.fromkeys((f"Extremes.{name}" for name in Extremes.__struct_fields__), -1),
    "NodeOverview.group": -1,
    "NodeOverview.cpu": -1,
    "NodeOverview.memory": -1,
    "Backoff.attempt": 1,
    "FailedRemoval.times": 1,
    "GroupMemory.size_wrong": (0, 0),
    "QuietHours.time_zone": "UTC",
    "Notifications.min_severity": "warning",
    "OperationStatus.state": "planned",
    "OperationDocument.state": "planned",
    "Pause.part": "all",
    "PodPlacement.promised": True,
    "GroupVerdict.healthy": True,
    "Health.healthy": True,
    "Toleration.operator": "Equal",
    "HostPort.protocol": "TCP",
    "HostPort.address": "0.0.0.0",
    "SpreadConstraint.min_domains": 1,
    "SpreadConstraint.node_affinity_policy": "Honor",
    "SpreadConstraint.node_taints_policy": "Ignore",
    "PodClass.scheduler": "default-scheduler",
    "PodClass.restart_policy": "Always",
    "PodClass.grace_seconds": 30.0,
    "Pod.deletion_grace": 30.0,
    "Options.expander": ("least-waste",),
    "Options.cores_total": (0, 320000),
    "Options.memory_total": (0, 6871947673600000),
    "Options.max_nodes_per_scale_up": 1_000,
    "Options.expendable_pods_priority_cutoff": -10,
    "Options.node_info_cache_expire_time": 315360000.0,
    "Options.namespace": "kube-system",
    "Options.pending_pods_batching_timeout": 240.0,
    "Options.max_nodegroup_binpacking_duration": 10.0,
    "Options.max_binpacking_time": 300.0,
    "Options.memory_difference_ratio": 0.015,
    "Options.max_free_difference_ratio": 0.05,
    "Options.max_allocatable_difference_ratio": 0.05,
    "Options.scale_up_from_zero": True,
    "Options.max_node_provision_time": 900.0,
    "Options.max_node_startup_time": 900.0,
    "Options.initial_node_group_backoff_duration": 300.0,
    "Options.max_node_group_backoff_duration": 1800.0,
    "Options.node_group_backoff_reset_timeout": 10800.0,
    "Options.max_total_unready_percentage": 45.0,
    "Options.ok_total_unready_count": 3,
    "Options.scale_down_enabled": True,
    "Options.scale_down_unready_enabled": True,
    "Options.scale_down_utilization_threshold": 0.5,
    "Options.scale_down_gpu_utilization_threshold": 0.5,
    "Options.scale_down_unneeded_time": 600.0,
    "Options.scale_down_unready_time": 1200.0,
    "Options.scale_down_delay_after_add": 600.0,
    "Options.scale_down_delay_after_failure": 180.0,
    "Options.scale_down_simulation_timeout": 30.0,
    "Options.unremovable_node_recheck_timeout": 300.0,
    "Options.skip_nodes_with_system_pods": True,
    "Options.blocking_system_pod_disruption_timeout": 315360000.0,
    "Options.skip_nodes_with_local_storage": True,
    "Options.skip_nodes_with_custom_controller_pods": True,
    "Options.max_scale_down_parallelism": 10,
    "Options.max_drain_parallelism": 1,
    "Options.max_bulk_soft_taint_count": 10,
    "Options.max_bulk_soft_taint_time": 3.0,
    "Options.cordon_node_before_terminating": True,
    "Options.node_delete_delay_after_taint": 5.0,
    "Options.max_graceful_termination_sec": 600,
    "Options.max_pod_eviction_time": 120.0,
    "Options.daemonset_eviction_for_occupied_nodes": True,
    "Options.node_deletion_delay_timeout": 120.0,
    "Options.write_status_configmap": True,
    "Options.status_config_map_name": "cluster-autoscaler-status",
    "Webhook.debounce": 2.0,
    "Window.removals": True,
    "Window.time_zone": "UTC",
    "Policy.mode": "shadow",
    "Policy.scan_interval": 60.0,
    "Policy.metrics": "summary",
    "Policy.reading": "changes",
    "Deployment.secret_prefix": "outscaler/",
    "Deployment.prefix_known": True,
    "Rule.time_zone": "UTC",
    "Schedule.time_zone": "UTC",
    "ScaleUp.unschedulable_pods": True,
    "ScaleUp.rules": True,
    "ScaleUp.cpu_threshold": 100,
    "ScaleUp.memory_threshold": 100,
    "ScaleUp.cron_time_zone": "UTC",
    "Claim.volume_mode": "Filesystem",
    "PersistentVolume.volume_mode": "Filesystem",
    "Request.keep_body": True,
    "NoticeRules.acts": True,
    "PodState.grace": 30.0,
    "PodState.deletion_grace": 30.0,
    "OperationDefinition.irreversible_steps": frozenset({"poll"}),
    "SimulationFailure.cls": -1,
    "Cap.fresh": 2_147_483_648,
    "Cap.total": 2_147_483_648,
    "PoolFacts.whole": True,
    "AddedPods.count": 1,
    "Admission.purpose": 1,
    "Scalar.size": 1,
    "AlicloudSection.network": "public",
    "AlicloudSection.calls_per_second": 10.0,
    "Bootstrap.lifetime": 7200.0,
    "CherrySettings.bootstrap_token_lifetime": 7200.0,
    "CherrySettings.endpoint": "https://api.cherryservers.com/v1",
    "CherrySettings.calls_per_second": 4.0,
    "CapiSection.group": "cluster.x-k8s.io",
    "CapiSection.scale_zero_default_arch": "amd64",
    "CapiSection.zone_from_failure_domain": True,
    "ExoscaleSettings.scale_from_zero": True,
    "ExoscaleSettings.unlimited_max": 1_000,
    "ExoscaleSettings.environment": "api",
    "ExoscaleSettings.calls_per_second": 10.0,
    "Agency.seconds": 3_600,
    "CceSettings.autodiscovery": True,
    "CceSettings.warn_about_addon": True,
    "CceSettings.agency_duration": 3_600,
    "CceSettings.calls_per_second": 10.0,
    "SecretFormat.problem": "contains spaces or special characters",
    "AccessKey.expires": math.inf,
    "AlicloudCredential.expires": math.inf,
    "ScalingGroup.lifecycle_state": "Active",
    "ScalingGroup.group_type": "ECS",
    "InstanceType.cpu_architecture": "X86",
    "Endpoints.network": "public",
    "AlicloudSettings.network": "public",
    "AlicloudSettings.calls_per_second": 10.0,
    "Slot.ours": True,
    "CapiAnnotations.group": "cluster.x-k8s.io",
    "CapiSettings.group": "cluster.x-k8s.io",
    "CapiSettings.scale_zero_default_arch": "amd64",
    "CapiSettings.zone_from_failure_domain": True,
    "CapiSettings.specs": (settings.Spec(),),
    "Quota.limit": -1,
    "InstanceType.authorized": True,
    "Limits.connect": 3.0,
    "Limits.read": 10.0,
    "Limits.total": 20.0,
    "Limits.attempts": 3,
    "Limits.longest_pause": 5.0,
    "Limits.bytes": 16_777_216,
    "CceCredential.expires": math.inf,
    "Flavor.arch": "amd64",
    "Event.type": "Normal",
    "PlanLine.healthy": True,
    "PauseLine.part": "all",
    "ResumeLine.part": "all",
    "Metric.prefix": "cluster_autoscaler_",
    "Recorder.metrics": "summary",
    "WantedNodes.passes": 1,
    "ApiSpreadConstraint.max_skew": 1,
    "ApiSpreadConstraint.when_unsatisfiable": "DoNotSchedule",
    "PodSpec.scheduler_name": "default-scheduler",
    "PodSpec.restart_policy": "Always",
    "ListOrigin.release": __version__,
    "OwnershipClaim.named": True,
    "PassFailure.count": 1,
    "Written.schema": 1,
}
#: class.field -> its name in rows, messages and answers, where it is not the field's
#: own in another spelling.
NAMES = {
    "_Envelope.audit_id": "auditID",
    "_NodeInfo.boot_id": "bootID",
    "ListMeta.next_page": "continue",
    "ListMeta.remaining": "remainingItemCount",
    "_OwnedFields.data": "f:data",
    "_OwnedFields.spec": "f:spec",
    "GroupMemory.failed_instances": "erred",
    "BreakerState.removals": "taken",
    "BreakerState.tripped_at": "pulled",
    "RuleMemory.last_occurrence": "handled",
    "RuleMemory.pending_occurrence": "kept",
    "RuleMemory.target_size": "goal",
    "RuleMemory.last_scaled_at": "acted",
    "Memory.breaker": "brake",
    "ScaleUp.from_size": "from",
    "ScaleUp.to_size": "to",
    "Repair.from_size": "from",
    "Repair.to_size": "to",
    "Options.max_nodes_per_scale_up": "maxNodesPerScaleup",
    "Options.blocking_system_pod_disruption_timeout": "blockingSystemPodDistruptionTimeout",
    "MissingData.affected_decisions": "weakens",
    "_NodeSpec.provider_id": "providerID",
    "ScalingGroup.multi_az_policy": "MultiAZPolicy",
    "InstanceType.gpu_amount": "GPUAmount",
    "InstanceType.gpu_spec": "GPUSpec",
    "GroupsPage.items": "ScalingGroups",
    "InstancesPage.items": "ScalingInstances",
    "ConfigurationsPage.items": "ScalingConfigurations",
    "ActivitiesPage.items": "ScalingActivities",
    "Version.data": "LaunchTemplateData",
    "VersionsPage.items": "LaunchTemplateVersionSets",
    "ResourceSpec.provider_id_list": "providerIDList",
    "MachineSpec.provider_id": "providerID",
    "_ListedSpec.provider_id": "providerID",
    "OperationLine.from_size": "from",
    "OperationLine.to_size": "to",
    "OperationLine.error_class": "class",
    "FailingLine.error_class": "class",
    "RecoveredLine.error_class": "class",
    "ResumeLine.was_until": "was until",
    "FailureView.error_class": "class",
    "BackoffView.error_class": "class",
    "OperationView.from_size": "from",
    "OperationView.to_size": "to",
    "ClusterRow.mode_word": "mode",
    "PartsView.daemonsets": "daemonSets",
    "MachinesView.parts": "perHour",
    "SpotCostView.fallback": "fallbackNodes",
    "BillView.parts": "perHour",
    "BillView.bound": "lowerBound",
    "BillView.overcommitted": "overcommittedNodes",
    "SavingsView.rate": "perHour",
    "SavingsView.week": "sevenDays",
    "SavingsView.given_back_week": "givenBackSevenDays",
    "SavingsView.spot_week": "spotSevenDays",
    "Annotations.safe_to_evict": "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "Annotations.safe_local_volumes": (
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    ),
    "Annotations.daemonset_pod": "cluster-autoscaler.kubernetes.io/daemonset-pod",
    "Annotations.enable_ds_eviction": "cluster-autoscaler.kubernetes.io/enable-ds-eviction",
    "Annotations.scale_up_delay": "cluster-autoscaler.kubernetes.io/pod-scale-up-delay",
    "Annotations.do_not_disrupt": "karpenter.sh/do-not-disrupt",
    "Annotations.deletion_cost": "controller.kubernetes.io/pod-deletion-cost",
    "Annotations.mirror": "kubernetes.io/config.mirror",
    "_Port.host_ip": "hostIP",
    "_ApiNodeSpec.provider_id": "providerID",
    "_NodeInfo.machine_id": "machineID",
    "_NodeInfo.system_uuid": "systemUUID",
    "StorageAnnotations.selected_node": "volume.kubernetes.io/selected-node",
    "StorageAnnotations.bind_completed": "pv.kubernetes.io/bind-completed",
    "StorageAnnotations.old_class": "volume.beta.kubernetes.io/storage-class",
    "StorageAnnotations.is_default": "storageclass.kubernetes.io/is-default-class",
    "StorageAnnotations.was_default": "storageclass.beta.kubernetes.io/is-default-class",
    "DiskSource.volume_id": "volumeID",
    "DiskSource.disk_uri": "diskURI",
}


def classes(package: Path) -> Iterator[type]:
    """The classes that the modules of a package define."""
    for path in sources(package.relative_to(ROOT).as_posix()):
        module = importlib.import_module(module_name(path.relative_to(ROOT).as_posix()))
        yield from (
            thing
            for thing in vars(module).values()
            if isinstance(thing, type) and thing.__module__ == module.__name__
        )


def fields(thing: type) -> Iterator[tuple[str, object]]:
    """The fields with a default, and the default."""
    if issubclass(thing, msgspec.Struct):
        names, values = thing.__struct_fields__, thing.__struct_defaults__
        for name, value in zip(names[len(names) - len(values) :], values, strict=True):
            made = getattr(value, "factory", None)
            if value is not msgspec.NODEFAULT:
                yield name, made() if made else value
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            if field.default_factory is not dataclasses.MISSING:
                yield field.name, field.default_factory()
            elif field.default is not dataclasses.MISSING:
                yield field.name, field.default


def shown(value: object) -> object:
    """A plain value; None for one whose own fields are what counts, and for functions and
    services."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, msgspec.Raw):
        return bytes(value) or None
    return (
        value
        if isinstance(value, str | int | float | tuple | frozenset | set | dict | bytes)
        else None
    )


def is_empty(value: object) -> bool:
    """Whether it is the empty value of its type."""
    return any(type(value) is type(empty) and value == empty for empty in EMPTY)


def defaults() -> list[tuple[str, object]]:
    """The defaults that are not empty, by "class.field"."""
    return [
        (f"{thing.__name__}.{name}", shown(value))
        for package in PACKAGES
        for thing in classes(package)
        for name, value in fields(thing)
        if not is_empty(shown(value))
    ]


def test_fields_are_empty_unless_listed() -> None:
    assert (
        len(
            [field for package in PACKAGES for thing in classes(package) for field in fields(thing)]
        )
        > 1500
    )
    found = defaults()
    assert [(name, value) for name, value in found if EXPECTED.get(name) != value] == []
    assert EXPECTED.keys() - {name for name, _ in found} == set(), "no longer there, or empty now"


def test_fields_keep_their_names_outside_unless_listed() -> None:
    found = {
        f"{thing.__name__}.{field}": outside
        for package in PACKAGES
        for thing in classes(package)
        if issubclass(thing, msgspec.Struct)
        for field, outside in zip(
            thing.__struct_fields__, thing.__struct_encode_fields__, strict=True
        )
        if outside
        not in {
            field,
            camel(field),
            camel(field)[:1].upper() + camel(field)[1:],
            field.replace("_", "-"),
        }
    }
    assert found == NAMES


def camel(name: str) -> str:
    """The field in camel case."""
    return re.sub("_(.)", lambda match: match[1].upper(), name)
