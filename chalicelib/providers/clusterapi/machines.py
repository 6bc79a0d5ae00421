"""A Machine as an instance: its id, its state and why it does not come (clusterapi.md §3, §7).

The order of the questions is a table, because it decides cases: a failed Machine that is also being deleted is failed.
Where upstream would call a joined Machine by a placeholder or by nothing, it gets its Node's id here: an instance that
seems to have no Node is removed without a drain. For the same reason a Machine that has a nodeRef, or whose Node is in
doubt, is held (identity.py): it is somebody's Node, if not one of ours.

No controller sets the phase Failed any more since CAPI 1.11. What still tells that a machine will not come are its
conditions (D25), but they also speak of trouble that passes, so they are believed only where the settings say after
how long, and never of a Machine that has a Node.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.clusterapi.failure_reasons import failure_class
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, StatusCondition
from chalicelib.providers.clusterapi.provider_ids import DELETING, FAILED, PENDING, Match, placeholder
from chalicelib.providers.errors import OutOfStock, QuotaExceeded

_OTHER = "Unknown"  # the error class of a failure that nobody has sorted
_INFRASTRUCTURE, _HEALTH_CHECK, _STARTUP_TIMEOUT = "InfrastructureReady", "HealthCheckSucceeded", "NodeStartupTimeout"


_TOLD_FOR = 120.0
_PLAIN = frozenset({OutOfStock.__name__, QuotaExceeded.__name__})
"""Classes whose words are plain enough to be believed after two minutes without a setting: waiting longer brings no
machine, and meanwhile no other group is tried."""


class Patience(msgspec.Struct, frozen=True):
    """now: epoch seconds. stuck_after: how long the infrastructure may be not ready, seconds; 0.0: for ever, but where
    it speaks of stock or quota."""

    now: float = 0.0
    stuck_after: float = 0.0

    def is_over(self, told: StatusCondition, cls: str) -> bool:
        """Whether a condition has stood as it is for too long. A time that is none, or yet to come, proves nothing."""
        limits = [limit for limit in (self.stuck_after, _TOLD_FOR if cls in _PLAIN else 0.0) if limit > 0]
        try:
            since = parse_time(told.last_transition_time or "")
        except BadInput:
            return False
        return bool(limits) and self.now - since >= min(limits)


WITHOUT_END = Patience()


def _failed(machine: CapiMachine, node: Node | None, patience: Patience) -> Instance | None:
    del patience
    if not machine.failure or machine.status.phase != "Failed":
        return None
    if machine.leaving:
        error = InstanceError(_OTHER, "DeletingFailed", machine.failure)
        return _instance(placeholder(FAILED, machine), InstanceState.DELETING, machine, node, error)
    if machine.status.node_ref is None and node is None:
        cls = failure_class(machine.failure_reason, machine.failure)
        error = InstanceError(cls, "ProvisioningFailed", machine.failure)
        return _instance(placeholder(FAILED, machine), InstanceState.CREATING, machine, node, error)
    # Joined once: upstream gives it no state. While its Node is there it is a running Node like any other.
    return (
        _running(machine, node)
        if node
        else _instance(placeholder(FAILED, machine), InstanceState.RUNNING, machine, node)
    )


def _deleting(machine: CapiMachine, node: Node | None, patience: Patience) -> Instance | None:
    del patience
    if not machine.leaving:
        return None
    return _instance(placeholder(DELETING, machine), InstanceState.DELETING, machine, node)


def _pending(machine: CapiMachine, node: Node | None, patience: Patience) -> Instance | None:
    if machine.status.node_ref is not None:
        return None
    # CAPI may be unable to reach the cluster that the Node has long joined: then it is running all the same (D26).
    if node is not None:
        return _running(machine, node)
    stuck = _stuck(machine, patience)
    return _instance(placeholder(PENDING, machine), InstanceState.CREATING, machine, None, stuck)


def _stuck(machine: CapiMachine, patience: Patience) -> InstanceError | None:
    """Why it will not come, in the words of its conditions; None while it may, or where they are not to be asked."""
    infrastructure, check = machine.condition(_INFRASTRUCTURE), machine.condition(_HEALTH_CHECK)
    # A health check has waited long enough itself before it says this.
    if patience.stuck_after > 0 and check is not None and (check.status, check.reason) == ("False", _STARTUP_TIMEOUT):
        return _told(check)
    if infrastructure is None or infrastructure.status != "False":
        return None
    error = _told(infrastructure)
    return error if patience.is_over(infrastructure, error.cls) else None


def _told(condition: StatusCondition) -> InstanceError:
    reason, message = condition.reason or "", condition.message or ""
    return InstanceError(failure_class(reason, message), reason or condition.type, message)


def pool_stuck(pool: CapiResource, patience: Patience) -> str:
    """Why a MachinePool's instances do not come, in the words of its condition; empty while they may. Those without a
    Machine are no instances yet, so that there is nothing an error could stand on: it is only told."""
    told = next((each for each in pool.conditions if each.type == _INFRASTRUCTURE), None)
    if told is None or told.status != "False":
        return ""
    error = _told(told)
    if not patience.is_over(told, error.cls):
        return ""
    return f"its infrastructure is not ready ({error.cls}): {error.code}: {error.message}"


_QUESTIONS: tuple[Callable[[CapiMachine, Node | None, Patience], Instance | None], ...] = (
    _failed,
    _deleting,
    _pending,
)


def classify(machine: CapiMachine, match: Match, patience: Patience = WITHOUT_END) -> Instance:
    """The instance that a Machine is. In doubt about its Node it has none, and is held: neither a removal nor a repair
    takes it."""
    node = match.node
    found = next((made for question in _QUESTIONS if (made := question(machine, node, patience))), None)
    return msgspec.structs.replace(found or _running(machine, node), held="" if machine.leaving else match.doubt)


def _running(machine: CapiMachine, node: Node | None) -> Instance:
    # The Node's own spelling first: ids are compared letter by letter. Never an empty id (D27): a Node without one
    # is found by its name.
    provider_id = (node.provider_id if node else "") or machine.spec.provider_id or placeholder(PENDING, machine)
    return _instance(provider_id, InstanceState.RUNNING, machine, node)


def _instance(
    name: str, state: InstanceState, machine: CapiMachine, node: Node | None, error: InstanceError | None = None
) -> Instance:
    return Instance(name, state, error, handle=machine.handle, node=node.name if node else "")
