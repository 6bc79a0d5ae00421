"""Operation timeouts: set when an operation is planned, enforced when it runs.

The timeout of a removal is the sum of the maximum durations of its steps, so that the deadline only
stops operations that are stuck.
"""

from __future__ import annotations

import math

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation, OperationKind, OperationSpec
from chalicelib.policy.settings.cluster_options import Options

CONFIRM_TIME = 300.0
"""Seconds for which a removed node may stay listed; Cluster Autoscaler expects it to
be gone after 5 minutes."""
TERMINATION_SLACK = 30.0
SLACK = 180.0
QUICK = 600.0
RETURN_TIME = 360.0
"""Seconds after the announced end of a node until a notice counts as taken back: the node
is still there and Ready."""
SHORTEST_NOTICE, LONGEST_NOTICE = 120.0, 86400.0
"""Seconds from a notice to the end of a node: where the vendor does not say, and at most."""
UNSEEN = 900.0
"""Seconds without a pass after which it is not known what happened in between."""
PROVISION = "own.provision"
"""The key in a scale-up's data for the group's own provision time, if it has one. The executor
keeps keys with this prefix (operations/step_context.py)."""
STARTUP = "own.startup"
"""The same of a restart for the group's own time until its nodes are Ready."""
LARGEST = "own.largest"
"""The key in a scale-up's data for the group's maximum when it was planned, from any source,
for the events at its end."""


def longest_gap(scan_interval: float) -> float:
    """Return the seconds between two passes up to which what both saw holds in between."""
    return max(UNSEEN, 3 * scan_interval)


def provision_time(group: NodeGroup, options: Options) -> float:
    """Return the seconds that an instance of the group may take from the request until it is
    a node: the group's own value, otherwise the cluster's."""
    own = group.options.max_node_provision_time
    return options.max_node_provision_time if own is None else own


def provision_deadline(operation: Operation, options: Options) -> float:
    """Return the provision time with which an operation was planned; the group is not
    available when an operation ends."""
    return _planned_seconds(operation, PROVISION, options.max_node_provision_time)


def startup_deadline(operation: Operation, options: Options) -> float:
    """Return the seconds in which a restarted node must be Ready, with which
    its restart was planned."""
    return _planned_seconds(operation, STARTUP, options.max_node_startup_time)


def _planned_seconds(operation: Operation, key: str, default: float) -> float:
    try:
        own = float(operation.status.data.get(key, ""))
    except ValueError:
        return default
    return own if math.isfinite(own) and own >= 0.0 else default


def retry_delay(failures: int, options: Options) -> float:
    """Return the seconds until a repair that failed `failures` times in a row
    is retried: the same back-off as after a failed scale-up of the group, doubling from
    the first length to the longest."""
    longest = options.max_node_group_backoff_duration
    return min(
        longest, options.initial_node_group_backoff_duration * 2.0 ** min(max(failures, 1) - 1, 16)
    )


def operation_timeout(kind: OperationKind, options: Options) -> float:
    """Return the seconds from planning to the deadline."""
    drain = (
        options.node_delete_delay_after_taint
        + options.max_pod_eviction_time
        + options.max_graceful_termination_sec
    )
    if kind is OperationKind.DELETE_NODES:
        return (
            drain + TERMINATION_SLACK + options.node_deletion_delay_timeout + CONFIRM_TIME + SLACK
        )
    if kind is OperationKind.RESTART_NODE:
        return drain + TERMINATION_SLACK + QUICK + options.max_node_startup_time + SLACK
    return options.max_node_provision_time if kind is OperationKind.SCALE_UP else QUICK


def leaving_time(spec: OperationSpec) -> float:
    """Return when the vendor takes the node of an interrupted removal back, epoch seconds: as it
    has announced, but not before the plan."""
    leaves_at = spec.leaves_at if spec.leaves_at > 0.0 else spec.created_at + SHORTEST_NOTICE
    return min(max(leaves_at, spec.created_at), spec.created_at + LONGEST_NOTICE)


def interruption_deadline(spec: OperationSpec) -> float:
    """Return the deadline of an interrupted removal, epoch seconds: its node must be gone,
    or its notice taken back."""
    return leaving_time(spec) + RETURN_TIME + CONFIRM_TIME + SLACK
