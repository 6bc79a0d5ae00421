"""How long an operation may take before it is given up: written into it when it is planned, obeyed when it is executed.

The length of a removal is the sum of the longest each of its steps may take (scale-down.md §10, last line), so that the
deadline only ever cuts off what is stuck.
"""

from __future__ import annotations

import math

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.policy import Options

CONFIRM_TIME = 300.0
"""How long a removed node may stay listed: upstream expects it gone in 5 minutes (state.md §5)."""
TERMINATION_SLACK = 30.0
SLACK = 180.0
QUICK = 600.0
PROVISION = "own.provision"
"""The key in a growth's data: how long its group's machines may take, where the group says so itself. The prefix is the
one under which execute keeps what is ours (execute/vendor.py)."""
LARGEST = "own.largest"
"""The key in a growth's data: the group's maximum when it was planned, whoever set it, for the events of its end."""


def provision_time(group: NodeGroup, options: Options) -> float:
    """Seconds that a machine of the group may take from being asked for to being a node (options.md §1): the group's
    own, else the cluster's."""
    own = group.options.max_node_provision_time
    return options.max_node_provision_time if own is None else own


def provision_deadline(operation: Operation, options: Options) -> float:
    """The same for an operation that was planned with it; the group itself is not at hand when an operation ends."""
    try:
        own = float(operation.status.data.get(PROVISION, ""))
    except ValueError:
        return options.max_node_provision_time
    return own if math.isfinite(own) and own >= 0.0 else options.max_node_provision_time


def retry_delay(failures: int, options: Options) -> float:
    """Seconds until a repair that failed `failures` times in a row is tried again: as long as a failed scale-up of the
    same group would wait (state.md §7), doubling from the first to the longest."""
    longest = options.max_node_group_backoff_duration
    return min(longest, options.initial_node_group_backoff_duration * 2.0 ** min(max(failures, 1) - 1, 16))


def operation_timeout(kind: OperationKind, options: Options) -> float:
    """Seconds from planning to giving up."""
    if kind is OperationKind.DELETE_NODES:
        return (
            options.node_delete_delay_after_taint
            + options.max_pod_eviction_time
            + options.max_graceful_termination_sec
            + TERMINATION_SLACK
            + options.node_deletion_delay_timeout
            + CONFIRM_TIME
            + SLACK
        )
    return options.max_node_provision_time if kind is OperationKind.SCALE_UP else QUICK
