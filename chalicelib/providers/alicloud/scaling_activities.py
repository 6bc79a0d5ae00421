"""Reads scaling activities, which report whether an accepted request succeeded.

ESS accepts a request long before it knows whether there is stock, and upstream never checks the result. Outscaler's own
activities are identified by metadata in each request, so a call that is repeated after a crash finds its own activity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from chalicelib.model.group import InstanceError
from chalicelib.providers.alicloud.error_mapping import activity_class, is_busy
from chalicelib.providers.alicloud.models import ScalingActivity
from chalicelib.providers.errors import ProviderError

OPERATION = "outscaler/operation"
MANAGED: Mapping[str, str] = MappingProxyType({"cluster-autoscaler/alicloud/managed": "true"})
_BAD = frozenset({"Failed", "Rejected", "Warning"})
_UNKNOWN, _LONGEST = "Unknown", 300


def metadata(operation: str) -> dict[str, str]:
    """Return the metadata of this operation's requests. The second pair is upstream's."""
    return {OPERATION: operation, **MANAGED}


def _read(activity: ScalingActivity) -> Mapping[str, object]:
    """Return the metadata of an activity; empty if it has none or if it is not a JSON object."""
    try:
        return msgspec.json.decode(activity.activity_metadata or "{}", type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def is_own(activity: ScalingActivity) -> bool:
    """Whether an autoscaler requested the activity: Outscaler, or upstream before it."""
    known = _read(activity)
    return OPERATION in known or any(known.get(key) == value for key, value in MANAGED.items())


def of_operation(activities: Iterable[ScalingActivity], operation: str) -> ScalingActivity | None:
    """Return the activity that an operation started."""
    return next((each for each in activities if _read(each).get(OPERATION) == operation), None)


def running(activities: Iterable[ScalingActivity]) -> bool:
    """Whether any activity is unfinished. ESS accepts no other request in that time."""
    return any(not each.over for each in activities)


def failed(activity: ScalingActivity) -> bool:
    """Whether the activity ended without complete success."""
    return activity.status_code in _BAD


def created(activity: ScalingActivity) -> int:
    """Return the number of instances that the activity created."""
    return max(activity.created_capacity, len(activity.created_instances or ()))


def failure(activity: ScalingActivity) -> InstanceError:
    """Return why the activity failed, with the provider error class that selects the backoff.

    An activity over several instance types may fail differently for each type. The first reason with a known error
    class is used."""
    reasons = [(activity.error_code, activity.error_message)]
    reasons += [(each.code, each.message) for each in activity.error_messages or ()]
    named = [reason for reason in reasons if reason[0]]
    telling = [reason for reason in named if activity_class(reason[0]) != _UNKNOWN]
    code, message = next(iter(telling or named), (activity.status_code, activity.error_message))
    text = message or activity.status_message or f"scaling activity {activity.scaling_activity_id} failed"
    cls = "Conflict" if is_busy(ProviderError("", code=code)) else activity_class(code)
    return InstanceError(cls, code, text[:_LONGEST])


def last_failure(activities: Sequence[ScalingActivity]) -> InstanceError | None:
    """Return why missing instances do not arrive: the failure of the newest own activity.

    None while that activity is running, if it succeeded, or if ESS itself has created instances since. activities:
    newest first."""
    for each in activities:
        if is_own(each):
            return failure(each) if failed(each) else None
        if each.over and created(each) > 0:
            return None
    return None
