"""Maps the vendor's states of machines and pools, in one place.

Upstream maps most machine states to nothing, so its core never sees them. It does not know `updating`, and waits ten
minutes for a suspended pool at every call. An unknown state blocks nothing here: the machine is judged by its node, and
a change of the pool is attempted, which the vendor may refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chalicelib.model.group import InstanceState

ERROR = "error"
INSTANCE_STATES: Mapping[str, InstanceState] = MappingProxyType(
    {
        "starting": InstanceState.CREATING,
        "running": InstanceState.RUNNING,
        "migrating": InstanceState.RUNNING,
        "stopped": InstanceState.RUNNING,  # a node that is not ready is judged by the planner
        "stopping": InstanceState.DELETING,
        "destroying": InstanceState.DELETING,
        "destroyed": InstanceState.DELETING,
        "expunging": InstanceState.DELETING,
        ERROR: InstanceState.CREATING,
    }
)
POOL_BUSY = frozenset({"creating", "scaling-up", "scaling-down", "updating", "destroying"})
NODEPOOL_BUSY = frozenset({"creating", "scaling", "updating", "renewing-token", "deleting"})
OTHERS = frozenset({"creating", "updating", "renewing-token"})
"""The states above that no request of Outscaler causes. Their duration is unknown, so the group is skipped."""
SETTLED = frozenset({"running", "degraded", "suspended", "error"})
"""Pools and Nodepools that create and delete nothing: missing instances do not appear."""
ENDING = frozenset({"destroying", "deleting"})
SUSPENDED = "suspended"
# States of a pool in which evicted members may still be listed while they are being deleted.
SHRINKING = frozenset({"scaling-down", "updating", "destroying", "scaling", "deleting"})


def is_leaving(state: str) -> bool:
    """Whether a machine in that state is gone or being deleted."""
    return INSTANCE_STATES.get(state) is InstanceState.DELETING
