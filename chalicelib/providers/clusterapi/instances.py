"""Converts a Machine to an instance: its id, its state and its creation error.

The order of the checks is significant: a failed Machine that is also being deleted counts as failed. A joined Machine
gets its Node's id where upstream would use a placeholder or nothing, because an instance without a Node is removed
without a drain. For the same reason a Machine with a nodeRef, or with an uncertain Node, is blocked (provider_ids.py):
it may be a Node of another cluster.

Since Cluster API v1.11 no controller sets the phase Failed. Conditions still report that a machine will not be created,
but
they also report temporary problems. They are used only after the duration in the settings, and never for a Machine with
a Node.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.clusterapi.error_mapping import failure_class
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, StatusCondition
from chalicelib.providers.clusterapi.provider_ids import DELETING, FAILED, PENDING, Match, placeholder
from chalicelib.providers.errors import OutOfStock, QuotaExceeded

_OTHER = "Unknown"  # the error class of an unclassified failure
_INFRASTRUCTURE, _HEALTH_CHECK, _STARTUP_TIMEOUT = "InfrastructureReady", "HealthCheckSucceeded", "NodeStartupTimeout"


_TOLD_FOR = 120.0
_PLAIN = frozenset({OutOfStock.__name__, QuotaExceeded.__name__})
"""Unambiguous error classes, accepted after two minutes without a setting: waiting longer yields no machine, and
meanwhile no other group is tried."""


class Patience(msgspec.Struct, frozen=True):
    """now: epoch seconds. stuck_after: seconds that the infrastructure may be not ready; 0.0: unlimited, except if it
    reports stock or quota."""

    now: float = 0.0
    stuck_after: float = 0.0

    def is_over(self, condition: StatusCondition, cls: str) -> bool:
        """Whether a condition has lasted too long. A missing or future time proves nothing."""
        limits = [limit for limit in (self.stuck_after, _TOLD_FOR if cls in _PLAIN else 0.0) if limit > 0]
        try:
            since = parse_time(condition.last_transition_time or "")
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
    # The Machine has joined before; upstream gives it no state. While its Node exists, it is a running Node like any
    # other.
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
    # CAPI may be unable to reach the cluster that the Node has joined; the Machine is running nevertheless.
    if node is not None:
        return _running(machine, node)
    stuck = _stuck(machine, patience)
    return _instance(placeholder(PENDING, machine), InstanceState.CREATING, machine, None, stuck)


def _stuck(machine: CapiMachine, patience: Patience) -> InstanceError | None:
    """Return why the Machine will not be created, from its conditions; None if it may be, or if they are not to be
    used."""
    infrastructure, check = machine.condition(_INFRASTRUCTURE), machine.condition(_HEALTH_CHECK)
    # A health check reports this only after its own timeout.
    if patience.stuck_after > 0 and check is not None and (check.status, check.reason) == ("False", _STARTUP_TIMEOUT):
        return _told(check)
    if infrastructure is None or infrastructure.status != "False":
        return None
    error = _told(infrastructure)
    return error if patience.is_over(infrastructure, error.cls) else None


def _told(condition: StatusCondition) -> InstanceError:
    reason, message = condition.reason or "", condition.message or ""
    return InstanceError(failure_class(reason, message), reason or condition.type, message)


def pool_stuck(resource: CapiResource, patience: Patience) -> str:
    """Return why a MachinePool's instances are not created, from its condition; empty while they may be.

    It is only reported, because without a Machine there is no instance that could carry the error."""
    told = next((each for each in resource.conditions if each.type == _INFRASTRUCTURE), None)
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
    """Return the instance of a Machine.

    If its Node is uncertain, it has none and is blocked: neither a removal nor a repair selects it."""
    node = match.node
    found = next((made for question in _QUESTIONS if (made := question(machine, node, patience))), None)
    return msgspec.structs.replace(found or _running(machine, node), held="" if machine.leaving else match.doubt)


def _running(machine: CapiMachine, node: Node | None) -> Instance:
    # The Node's own form takes precedence, because ids are compared by exact text. The id is never empty: a Node
    # without one is found by its name.
    provider_id = (node.provider_id if node else "") or machine.spec.provider_id or placeholder(PENDING, machine)
    return _instance(provider_id, InstanceState.RUNNING, machine, node)


def _instance(
    name: str, state: InstanceState, machine: CapiMachine, node: Node | None, error: InstanceError | None = None
) -> Instance:
    return Instance(name, state, error, handle=machine.handle, node=node.name if node else "")
