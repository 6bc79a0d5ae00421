"""How long an operation may take before it is given up: written into it when it is planned, obeyed when it is executed.

The length of a removal is the sum of the longest each of its steps may take (scale-down.md §10, last line), so that the
deadline only ever cuts off what is stuck.
"""

from __future__ import annotations

from chalicelib.model.operation import Kind
from chalicelib.model.policy import Options

CONFIRM_TIME = 300.0
"""How long a removed node may stay listed: upstream expects it gone in 5 minutes (state.md §5)."""
TERMINATION_SLACK = 30.0
SLACK = 180.0
QUICK = 600.0


def length(kind: Kind, options: Options) -> float:
    """Seconds from planning to giving up."""
    if kind is Kind.REMOVE:
        return (options.node_delete_delay_after_taint + options.max_pod_eviction_time
                + options.max_graceful_termination_sec + TERMINATION_SLACK
                + options.node_deletion_delay_timeout + CONFIRM_TIME + SLACK)
    return options.max_node_provision_time if kind is Kind.GROW else QUICK
