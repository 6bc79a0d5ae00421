"""Restarts one instance, hard, as a repair, and follows it until it runs.

RebootInstance takes no client token, so a repeated request restarts again. The first call
therefore only checks and announces: it records when the instance was started last. Each further
call reads the instance first:

    before the request   Running, started when recorded  ► requested
                         Running, started since          ► done: an earlier attempt has restarted it
                         Starting, Stopping              ► followed: an earlier
                                                         attempt has requested it
                         otherwise (Stopped)             ► refused; ECS restarts only what runs
    after it             Running                         ► done
                         otherwise                       ► polled, for ten minutes at most

ESS counts an instance that does not run as unhealthy. If its health check falls into the
restart, ESS replaces the instance, and the restart fails with NotFound: the node is
repaired by replacement then.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.api import INSTANCES_PERMISSION
from chalicelib.providers.alicloud.decoding import EcsInstance
from chalicelib.providers.alicloud.delete_nodes import (
    check_membership,
    check_nodes_of,
    is_alive,
    listed_in,
    targets_of,
)
from chalicelib.providers.alicloud.error_mapping import is_denied
from chalicelib.providers.alicloud.scale_up import AlicloudContext
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, ProviderError, Unauthorized
from chalicelib.providers.kit.sized_group import Polls

ANNOUNCE, _STARTED, _REQUESTED = "announce", "started", "requested"
_FOLLOWING = Polls("restart", first=10.0, growth=1.5, longest=30.0)
_PATIENCE = 600.0  # seconds
_RUNNING, _CHANGING = "Running", frozenset({"Starting", "Stopping", "Pending"})
_WRONG_STATUS = "IncorrectInstanceStatus"


def restart(context: AlicloudContext, operation: Operation) -> Outcome:
    """See NodeRestarter; raises ProviderError."""
    name, data = _instance_of(operation), operation.status.data
    _check(context, operation, name, whole=_REQUESTED not in data)
    instance = context.api.ecs_instance(name)
    if instance is None:
        raise NotFound(
            f"ECS does not list {name}: it is gone, or the key lacks {INSTANCES_PERMISSION}"
        )
    if _REQUESTED in data:
        return _progress(operation, instance)
    if _STARTED not in data and instance.status == _RUNNING:
        return InProgress(0.0, ANNOUNCE, {_STARTED: instance.start_time})
    if _STARTED in data and instance.status in _CHANGING:
        return _FOLLOWING.begin({**data, _REQUESTED: "before"})
    if instance.status != _RUNNING:
        raise InvalidRequest(
            f"{name} is {instance.status or 'in no known status'}; ECS restarts only what is "
            "running"
        )
    if instance.start_time != data[_STARTED]:
        return _restarted(operation, name)
    return _request(context, operation, name)


def _instance_of(operation: Operation) -> str:
    targets = targets_of(operation)
    if len(targets.machines) != 1 or targets.placeholders:
        raise InvalidRequest("a restart is of exactly one instance")
    return targets.machines[0]


def _check(context: AlicloudContext, operation: Operation, name: str, *, whole: bool) -> None:
    """Raise InvalidRequest if the instance is in another group, NotFound if it is in none or
    leaves, and, before a request (whole), PermanentConflict if it is not the planned node."""
    group = operation.spec.group
    context.bounds(group)
    listed = listed_in(context, group, (name,))
    check_membership(context, group, (name,), listed)
    if not is_alive(name, listed):
        raise NotFound(f"{group}: {name} is gone or being removed")
    if whole:
        check_nodes_of(context, operation, (name,))


def _request(context: AlicloudContext, operation: Operation, name: str) -> Outcome:
    try:
        context.api.reboot(name)
    except ProviderError as error:
        if is_denied(error):
            text = f"{error.message}; grant ecs:RebootInstance, or write action: replace"
            raise Unauthorized(text, code=error.code, request_id=error.request_id) from None
        if error.code != _WRONG_STATUS:  # otherwise it is being restarted since it was read
            raise
    return _FOLLOWING.begin({**operation.status.data, _REQUESTED: "now"})


def _progress(operation: Operation, instance: EcsInstance) -> Outcome:
    name = instance.instance_id
    if instance.status == _RUNNING:
        return _restarted(operation, name)
    if _FOLLOWING.have_taken(operation, _PATIENCE):
        text = (
            f"{operation.spec.group}: {name} is {instance.status} {_PATIENCE:.0f}s after its "
            "restart was requested"
        )
        return Failed("Unknown", text)
    return _FOLLOWING.later(operation, f"{name} is {instance.status}")


def _restarted(operation: Operation, name: str) -> Succeeded:
    return Succeeded({"restarted": name, "group": operation.spec.group})
