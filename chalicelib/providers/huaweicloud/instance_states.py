"""Maps the vendor's states of nodes, scale groups and the cluster, in one place.

All phases of pools are deprecated, so counters and conditions describe a pool. An unknown state blocks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from chalicelib.model.group import InstanceState
from chalicelib.providers.errors import (
    InstallFailed,
    InvalidRequest,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Unknown,
)
from chalicelib.providers.huaweicloud.models import DEFAULT_POOL, PREPAID, CceCondition, CceNode, NodePool, ScaleGroup

ERROR, DELETING, SOLD_OUT = "Error", "Deleting", "SoldOut"
SCALABLE = "Scalable"
NODE_STATES: Mapping[str, InstanceState] = MappingProxyType(
    {
        "Build": InstanceState.CREATING,
        "Installing": InstanceState.CREATING,
        "Active": InstanceState.RUNNING,
        "Upgrading": InstanceState.RUNNING,
        "Abnormal": InstanceState.RUNNING,
        "Repairing": InstanceState.RUNNING,
        "RepairFailed": InstanceState.RUNNING,
        DELETING: InstanceState.DELETING,
        ERROR: InstanceState.CREATING,
    }
)
_CAUSES: tuple[tuple[str, type[ProviderError], str], ...] = (
    ("QuotaInsufficient", QuotaExceeded, "the account's quota is used up"),
    ("ResourceInsufficient", OutOfStock, "the flavour is sold out"),
    ("UnexpectedError", InstallFailed, "a node could not be made"),
    ("LockedByOrder", Unknown, "an order waits to be paid"),
    ("InstanceAboveServerGroup", QuotaExceeded, "the server group is full"),
    ("MaxNodeCountReached", QuotaExceeded, "the most nodes are reached"),
    ("ConfigurationInvalid", InvalidRequest, "the pool's configuration is not valid"),
)
_READY = frozenset({"Available", "ScalingUp", "ScalingDown"})
_OVER = frozenset({"Deleting", "Hibernation", "Hibernating", "Empty"})


def is_leaving(node: CceNode) -> bool:
    """Whether CCE is deleting the node."""
    return node.phase == DELETING


def failure(pool: NodePool, group: ScaleGroup) -> ProviderError | None:
    """Return why the group's nodes do not come, according to its conditions, or the pool's if it is the only group.

    None: no condition reports a failure."""
    sole = len(pool.groups) == 1
    if found := _cause(group.conditions or (pool.conditions if sole else ())):
        return found
    sold_out = sole and pool.phase == SOLD_OUT
    return OutOfStock("the pool is in the phase SoldOut: sold out, or quota", code=SOLD_OUT) if sold_out else None


def refusal(pool: NodePool, group: ScaleGroup) -> ProviderError | None:
    """Return why CCE refuses to scale the group up (Scalable is False), with the class of a related condition."""
    said = [*group.conditions, *pool.conditions]
    no = next((each for each in said if each.type == SCALABLE and each.false), None)
    if no is None:
        return None
    own = failure(pool, group) or _cause(pool.conditions)
    return own or Unknown(f"it cannot be scaled just now{_words(no)}", code=SCALABLE)


def _cause(conditions: Iterable[CceCondition]) -> ProviderError | None:
    true = {each.type: each for each in conditions if each.true}
    for kind, cls, text in _CAUSES:
        if kind in true:
            return cls(f"{text}{_words(true[kind])}", code=kind)
    return None


def _words(condition: CceCondition) -> str:
    reported = ", ".join(part for part in (condition.reason, condition.message) if part)
    return f" ({reported})" if reported else ""


def alone(pool: NodePool) -> str:
    """Return why the pool is not changed; empty if it may be."""
    rows = (
        (DEFAULT_POOL in {pool.id, pool.name}, "is the default pool, which cannot be scaled"),
        (pool.billing == PREPAID, "is prepaid; only pools that are paid by use can be scaled"),
        (pool.phase == DELETING, "is being deleted"),
    )
    return next((text for applies, text in rows if applies), "")


def cluster_off(phase: str) -> tuple[str, bool]:
    """Return why a cluster in that phase accepts no change, and whether waiting resolves it; ("", True) if it accepts
    them.

    Only Available, ScalingUp and ScalingDown do."""
    if not phase or phase in _READY:
        return "", True
    return f"the cluster is in the phase {phase}", phase not in _OVER
