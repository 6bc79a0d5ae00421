"""A Machine as an instance: its id, its state and why it does not come (clusterapi.md §3, §7).

The order of the questions is a table, because it decides cases: a failed Machine that is also being deleted is failed.
Where upstream would call a joined Machine by a placeholder or by nothing, it gets its Node's id here: an instance that
seems to have no Node is removed without a drain.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.identity import DELETING, FAILED, PENDING, placeholder
from chalicelib.providers.clusterapi.wire import Machine

_OTHER = "Unknown"   # the error class of a failure that nobody has sorted


def _failed(machine: Machine, node: Node | None) -> Instance | None:
    if not machine.failure or machine.status.phase != "Failed":
        return None
    if machine.leaving:
        error = InstanceError(_OTHER, "DeletingFailed", machine.failure)
        return _instance(placeholder(FAILED, machine), InstanceState.DELETING, machine, node, error)
    if machine.status.node_ref is None and node is None:
        error = InstanceError(_OTHER, "ProvisioningFailed", machine.failure)
        return _instance(placeholder(FAILED, machine), InstanceState.CREATING, machine, node, error)
    # Joined once: upstream gives it no state. While its Node is there it is a running Node like any other.
    return _running(machine, node) if node else _instance(
        placeholder(FAILED, machine), InstanceState.RUNNING, machine, node
    )


def _deleting(machine: Machine, node: Node | None) -> Instance | None:
    if not machine.leaving:
        return None
    return _instance(placeholder(DELETING, machine), InstanceState.DELETING, machine, node)


def _pending(machine: Machine, node: Node | None) -> Instance | None:
    if machine.status.node_ref is not None:
        return None
    # CAPI may be unable to reach the cluster that the Node has long joined: then it is running all the same (D26).
    if node is not None:
        return _running(machine, node)
    return _instance(placeholder(PENDING, machine), InstanceState.CREATING, machine, None)


def _joined(machine: Machine, node: Node | None) -> Instance | None:
    if node is not None or machine.spec.provider_id:
        return _running(machine, node)
    return None


_QUESTIONS: tuple[Callable[[Machine, Node | None], Instance | None], ...] = (_failed, _deleting, _pending, _joined)


def classify(machine: Machine, node: Node | None) -> Instance | None:
    """The instance that a Machine is; None for one whose nodeRef names no Node of this cluster and that has no id."""
    for question in _QUESTIONS:
        if instance := question(machine, node):
            return instance
    return None


def _running(machine: Machine, node: Node | None) -> Instance:
    # The Node's own spelling first: ids are compared letter by letter. Never an empty id (D27): a Node without one
    # is found by its name.
    provider_id = (node.provider_id if node else "") or machine.spec.provider_id or placeholder(PENDING, machine)
    return _instance(provider_id, InstanceState.RUNNING, machine, node)


def _instance(
    name: str, state: InstanceState, machine: Machine, node: Node | None, error: InstanceError | None = None
) -> Instance:
    return Instance(name, state, error, handle=machine.handle, node=node.name if node else "")
