"""The vendor's words for how a machine or a pool is, read in one place (exoscale.md §3, §5; §6, 7 and 16).

Upstream gives most states of a machine no state of its own, so that the core never sees them, does not know `updating`,
and waits ten minutes for a suspended pool at every call. A word that is in no table stops nothing here: the machine is
as its node says, and the pool is tried, for the vendor to refuse.
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
        "stopped": InstanceState.RUNNING,  # a node that is not ready: the core's affair
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
"""Of these: changes that no request of ours begins. None says how long it takes, so the group is skipped (§8, 13)."""
SETTLED = frozenset({"running", "degraded", "suspended", "error"})
"""Pools and Nodepools that make and delete nothing: what is missing then does not come by itself."""
ENDING = frozenset({"destroying", "deleting"})
SUSPENDED = "suspended"
# States of a pool in which members that were named may be on their way out though they are listed.
SHRINKING = frozenset({"scaling-down", "updating", "destroying", "scaling", "deleting"})


def is_leaving(state: str) -> bool:
    """Whether a machine in that state is gone or going."""
    return INSTANCE_STATES.get(state) is InstanceState.DELETING
