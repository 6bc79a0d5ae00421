"""spec.options: the cluster-wide options in force, with Cluster Autoscaler's defaults."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Cluster-wide options supported by this version, with Cluster Autoscaler's defaults."""

    expander: tuple[str, ...] = ("least-waste",)
    max_nodes_total: int = 0
    cores_total: tuple[int, int] = (0, 320000)
    memory_total: tuple[int, int] = (0, 6400000 * 2**30)
    gpu_total: tuple[tuple[str, int, int], ...] = ()  # (type, min, max)
    enforce_node_group_min_size: bool = False
    max_nodes_per_scale_up: int = msgspec.field(default=1000, name="maxNodesPerScaleup")
    expendable_pods_priority_cutoff: int = -10
    new_pod_scale_up_delay: float = 0.0
    bypassed_scheduler_names: tuple[str, ...] = ()
    allowed_scheduler_names: tuple[str, ...] = ()
    startup_taint: tuple[str, ...] = ()
    startup_taint_prefix: tuple[str, ...] = ()
    status_taint: tuple[str, ...] = ()
    scale_from_unschedulable: bool = False
    force_ds: bool = False
    node_info_cache_expire_time: float = 87600 * 3600.0
    namespace: str = "kube-system"
    pending_pods_batching_timeout: float = 240.0
    max_nodegroup_binpacking_duration: float = 10.0
    max_binpacking_time: float = 300.0
    balance_similar_node_groups: bool = False
    balancing_ignore_label: tuple[str, ...] = ()
    balancing_label: tuple[str, ...] = ()
    memory_difference_ratio: float = 0.015
    max_free_difference_ratio: float = 0.05
    max_allocatable_difference_ratio: float = 0.05
    scale_up_from_zero: bool = True
    max_node_provision_time: float = 900.0
    max_node_startup_time: float = 900.0
    initial_node_group_backoff_duration: float = 300.0
    max_node_group_backoff_duration: float = 1800.0
    node_group_backoff_reset_timeout: float = 10800.0
    max_total_unready_percentage: float = 45.0
    ok_total_unready_count: int = 3
    scale_down_enabled: bool = True
    scale_down_unready_enabled: bool = True
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    ignore_daemonsets_utilization: bool = False
    ignore_mirror_pods_utilization: bool = False
    scale_down_unneeded_time: float = 600.0
    scale_down_unready_time: float = 1200.0
    scale_down_delay_after_add: float = 600.0
    scale_down_delay_after_delete: float = 0.0
    scale_down_delay_after_failure: float = 180.0
    scale_down_delay_type_local: bool = False
    scale_down_simulation_timeout: float = 30.0
    node_deletion_candidate_ttl: float = 0.0
    unremovable_node_recheck_timeout: float = 300.0
    skip_nodes_with_system_pods: bool = True
    blocking_system_pod_disruption_timeout: float = msgspec.field(
        # ten years: never, as upstream until 1.32; its later releases have an hour
        default=87600 * 3600.0,
        # misspelt in Cluster Autoscaler; kept because users have this name
        name="blockingSystemPodDistruptionTimeout",
    )
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    min_replica_count: int = 0
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    max_bulk_soft_taint_count: int = 10
    max_bulk_soft_taint_time: float = 3.0
    cordon_node_before_terminating: bool = True
    node_delete_delay_after_taint: float = 5.0
    max_graceful_termination_sec: int = 600
    # (priority, seconds of grace), ascending
    drain_priority_config: tuple[tuple[int, int], ...] = ()
    max_pod_eviction_time: float = 120.0
    daemonset_eviction_for_empty_nodes: bool = False
    daemonset_eviction_for_occupied_nodes: bool = True
    node_deletion_delay_timeout: float = 120.0
    record_duplicated_events: bool = False
    force_delete_unregistered_nodes: bool = False
    write_status_configmap: bool = True
    status_config_map_name: str = "cluster-autoscaler-status"
    emit_per_nodegroup_metrics: bool = False
