"""What became of what was asked for: scaling activities read (alicloud.md §3.7; defects 7 and 8).

ESS says yes to a request long before it knows whether there is stock. Upstream never looked again. Ours are known by
the metadata that each request carries, so that a call that is repeated after a crash finds its own.
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
    """What a request of this operation carries; the second pair is upstream's."""
    return {OPERATION: operation, **MANAGED}


def _read(activity: ScalingActivity) -> Mapping[str, object]:
    """The metadata of an activity; empty where it has none, or somebody else's that is no object."""
    try:
        return msgspec.json.decode(activity.activity_metadata or "{}", type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def is_own(activity: ScalingActivity) -> bool:
    """Whether an autoscaler asked for it: ours, or upstream's before us."""
    known = _read(activity)
    return OPERATION in known or any(known.get(key) == value for key, value in MANAGED.items())


def of_operation(activities: Iterable[ScalingActivity], operation: str) -> ScalingActivity | None:
    """The activity that an operation began."""
    return next((each for each in activities if _read(each).get(OPERATION) == operation), None)


def running(activities: Iterable[ScalingActivity]) -> bool:
    """Whether any activity is not over: ESS takes no other request meanwhile."""
    return any(not each.over for each in activities)


def failed(activity: ScalingActivity) -> bool:
    """Over, and not all of it happened."""
    return activity.status_code in _BAD


def created(activity: ScalingActivity) -> int:
    """How many instances it made."""
    return max(activity.created_capacity, len(activity.created_instances or ()))


def failure(activity: ScalingActivity) -> InstanceError:
    """Why it failed, with the provider error class that back-off follows. Of several reasons the first that says what
    to do about it: an activity over several instance types may fail in another way for each."""
    reasons = [(activity.error_code, activity.error_message)]
    reasons += [(each.code, each.message) for each in activity.error_messages or ()]
    named = [reason for reason in reasons if reason[0]]
    telling = [reason for reason in named if activity_class(reason[0]) != _UNKNOWN]
    code, message = next(iter(telling or named), (activity.status_code, activity.error_message))
    text = message or activity.status_message or f"scaling activity {activity.scaling_activity_id} failed"
    cls = "Conflict" if is_busy(ProviderError("", code=code)) else activity_class(code)
    return InstanceError(cls, code, text[:_LONGEST])


def last_failure(activities: Sequence[ScalingActivity]) -> InstanceError | None:
    """Why what is missing does not come: the newest own activity's failure. None while that one is running or went
    well, and where ESS itself has made machines since. activities: newest first."""
    for each in activities:
        if is_own(each):
            return failure(each) if failed(each) else None
        if each.over and created(each) > 0:
            return None
    return None
