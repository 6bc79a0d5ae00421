"""Removes instances by id, twenty at a time, with a result for each.

Every call first reads the group's instances and continues from that state, so it may be repeated or interrupted at any
point:

    placeholders among the targets             lower the desired capacity, never below what exists
    absent, or Removing                        removed
    protected, or attached by a user           not requested; the others are, and these are reported as failed
    requested, its activity is running         poll again
    requested, its activity has failed         failed, with the activity's class
    alive                                      requested, if the group stays at or above its minimum

A user may have lowered the desired capacity below the number of instances, and ESS will then remove the surplus. The
instances removed here are part of that surplus. The capacity is not lowered for them again, because ESS would then
remove instances that were not selected.

ESS accepts one request at a time per group, so the second twenty wait for the first. Its response names instances that
it does not remove (IgnoredInstances); an instance that is already gone is not a failure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.context import AlicloudContext, client_token
from chalicelib.providers.alicloud.delete_failed import take_back
from chalicelib.providers.alicloud.error_mapping import is_busy, is_gone
from chalicelib.providers.alicloud.instances import unremovable
from chalicelib.providers.alicloud.models import Accepted, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.scale_up import ACTIVITY, growing_wait
from chalicelib.providers.alicloud.scaling_activities import failed, failure, running
from chalicelib.providers.alicloud.size_bounds import held, range_of, surplus, target_of
from chalicelib.providers.alicloud.targets import (
    AlicloudTargets,
    check_membership,
    check_nodes,
    listed_in,
    lives,
    read_targets,
    spare_the_joined,
)
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError

LOT = 20
STEP, SPARE = "remove", "spare"
ASKED, REFUSED, LATE = "asked", "refused", "late"
_LOOK_AGAIN = 5.0
_LATE_POLLS = 6  # polls after an activity reports success while an instance is still listed, before the removal fails


def delete_nodes(context: AlicloudContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target does not belong to the group."""
    targets = read_targets(operation)
    group = context.group(operation.spec.group)
    # The full list is read only if the desired capacity is to be lowered; otherwise even a large group costs one call.
    listed = listed_in(context, operation.spec.group, () if targets.placeholders else targets.instances)
    removal = _Removal(context, operation, group, listed, targets)
    if not operation.status.data:
        check_membership(context, operation, targets, listed)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES and removal.to_ask:
        spare_the_joined(context, removal.to_ask)
    if targets.placeholders and (conflict := take_back(context, operation, group, listed, targets)):
        return conflict
    return removal.run()


def cancel_delete(context: AlicloudContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError.

    There is nothing to undo, because ESS is not modified before the removal request."""
    targets = read_targets(operation)
    listed = listed_in(context, operation.spec.group, targets.instances) if targets.instances else {}
    if any(lives(name, listed) for name in targets.instances):
        return True
    if not targets.placeholders:
        return False
    try:
        return target_of(context.group(operation.spec.group)) >= operation.spec.from_size
    except NotFound:
        return False


class _Removal:
    """One call of a removal, according to the table above."""

    def __init__(
        self,
        context: AlicloudContext,
        operation: Operation,
        group: ScalingGroup,
        listed: Mapping[str, ScalingInstance],
        targets: AlicloudTargets,
    ) -> None:
        self._context, self._operation, self._group = context, operation, group
        self._targets = targets
        living = [name for name in targets.instances if lives(name, listed)]
        self._refused = {name: why for name, why in _known(operation, REFUSED).items() if name in living}
        self._refused |= {name: why for name in living if (why := unremovable(listed[name]))}
        self._living = [name for name in living if name not in self._refused]
        self._asked = [name for name in operation.status.data.get(ASKED, "").split(",") if name in self._living]

    @property
    def to_ask(self) -> list[str]:
        """Return the instances whose removal this call will request, except those already requested."""
        return [] if self._asked else self._living

    def run(self) -> Outcome:
        """Pending until no target is alive."""
        if not self._living:
            return self._end()
        if self._asked:
            return self._follow()
        self._permitted()
        spare = surplus(self._group)
        if spare:  # our own request may have lowered the capacity already
            self._context.check_idle(self._operation.spec.group)
        lot = self._living[: min(LOT, spare) if spare else LOT]
        if self._operation.spec.kind is OperationKind.DELETE_NODES:
            check_nodes(self._context, self._operation, lot)
        token = client_token(self._operation, STEP if not spare else SPARE, *sorted(lot))
        try:
            accepted = self._context.api.remove(self._operation.spec.group, lot, token=token, decrease=not spare)
        except ProviderError as error:
            if is_busy(error) and self._operation.status.data:
                return InProgress(
                    2 * _LOOK_AGAIN, STEP, dict(self._operation.status.data), "another activity is under way"
                )
            if is_gone(error) and self._some_gone(lot):
                return InProgress(_LOOK_AGAIN, STEP, self._data([], Accepted()), error.message)
            raise
        return self._answered(lot, accepted)

    def _some_gone(self, lot: list[str]) -> bool:
        """Whether an instance has disappeared since it was listed; the removal of the others is then requested without
        it."""
        fresh = listed_in(self._context, self._operation.spec.group, lot)
        return not all(lives(name, fresh) for name in lot)

    def _end(self, code: str = "") -> Outcome:
        gone = len(self._targets.instances) - len(self._refused) + len(self._targets.placeholders)
        facts: dict[str, str | int] = {"removed": gone, "group": self._operation.spec.group}
        if not self._refused:
            return Succeeded(facts)
        text = "; ".join(f"{name}: {why}" for name, why in sorted(self._refused.items()))
        return Failed("InvalidRequest", f"{self._operation.spec.group}: {text}", code, facts=facts)

    def _follow(self) -> Outcome:
        """Follow the activity while requested instances are still alive."""
        name = self._operation.status.data.get(ACTIVITY, "")
        found = self._context.api.activities(self._operation.spec.group, ids=[name]) if name else []
        asked = ", ".join(self._asked)
        if found and failed(found[0]):
            why = failure(found[0])
            text = f"{self._operation.spec.group}: {asked} could not be removed: {why.message}"
            return Failed(why.cls, text, why.code, facts={ACTIVITY: name})
        pause, data, _ = growing_wait(self._operation)
        if running(found):
            return InProgress(pause, STEP, data, f"scaling activity {name} removes {asked}")
        late = data.get(LATE, "") + "."
        if len(late) > _LATE_POLLS:
            text = f"{self._operation.spec.group}: ESS says that {asked} was removed and lists it still"
            return Failed("Unknown", text, facts={ACTIVITY: name})
        return InProgress(pause, STEP, {**data, LATE: late}, f"ESS has not begun to remove {asked}")

    def _permitted(self) -> None:
        """Raise InvalidRequest if the group must not be changed or would fall below its minimum.

        While an activity is running, the numbers may already include our own request. The removal is then retried
        (Conflict) instead of failed."""
        if reason := held(self._group):
            raise InvalidRequest(reason)
        if self._operation.spec.kind is OperationKind.DELETE_INSTANCES:
            return
        bounds = range_of(self._context.bounds(self._operation.spec.group), self._group)
        left = target_of(self._group) - max(0, len(self._living) - surplus(self._group))
        if left < bounds.min:
            self._context.check_idle(self._operation.spec.group)
            raise InvalidRequest(f"{self._operation.spec.group}: {left} would be below the minimum {bounds.min}")

    def _answered(self, lot: list[str], accepted: Accepted) -> Outcome:
        ignored = {each.instance_id: each for each in accepted.ignored_instances or () if each.instance_id in lot}
        for name, why in ignored.items():
            error = ProviderError(why.message, code=why.code)
            if is_busy(error):
                raise Conflict(f"{name}: {why.message or why.code}", code=why.code)
            if not is_gone(error):
                self._refused[name] = f"{why.code}: {why.message}" if why.message else why.code
        if ignored and all(name in self._refused for name in self._living):
            return self._end(next(iter(ignored.values())).code)
        return InProgress(_LOOK_AGAIN, STEP, self._data([name for name in lot if name not in self._refused], accepted))

    def _data(self, lot: list[str], accepted: Accepted) -> dict[str, str]:
        data = {ASKED: ",".join(lot), ACTIVITY: accepted.scaling_activity_id}
        refused = msgspec.json.encode(self._refused).decode() if self._refused else ""
        return {**data, REFUSED: refused} if refused else data


def _known(operation: Operation, key: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(operation.status.data.get(key) or "{}", type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError):
        return {}
