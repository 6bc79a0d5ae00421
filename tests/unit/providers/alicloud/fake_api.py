"""ESS in a dictionary: the documented behaviour of sizes, activities, tokens and refusals, without HTTP.

Activities take effect at `step()`. ESS also adjusts its groups there: a group with more instances than its desired
capacity loses the oldest, so that a wrong number costs a running machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget, operation_id
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.decoding import (
    Accepted,
    CodeAndMessage,
    InstanceType,
    LaunchTemplateData,
    ScalingActivity,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
    Tag,
    TemplateOverride,
)
from chalicelib.providers.alicloud.provider import AliCloud
from chalicelib.providers.alicloud.settings import read_settings
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, Transient
from chalicelib.providers.services import KubeLists
from tests.operations import new_operation

LEAVING = ("Removing", "Removing:Wait")


@dataclass
class FakeApiGroup:
    """One scaling group. stock: how many instances can still be created; None: any number."""

    id: str
    desired_mode: bool = True
    least: int = 0
    most: int = 20
    desired: int = 0
    stock: int | None = None
    code: str = "OperationDenied.NoStock"
    wait_hook: bool = False
    instances: dict[str, ScalingInstance] = field(default_factory=dict)
    activities: list[ScalingActivity] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    configuration: str = "asc-1"

    def living(self) -> list[ScalingInstance]:
        return [each for each in self.instances.values() if each.lifecycle_state not in (*LEAVING, "Stopped")]

    def busy(self) -> bool:
        return any(not each.over for each in self.activities)

    def size(self) -> int:
        return self.desired if self.desired_mode else len(self.living())


def refusal(cls: type[ProviderError], code: str) -> ProviderError:
    return cls(f"{code}: refused", code=code)


class FakeAlicloudApi(AlicloudApi):
    """The calls on Groups. trouble: method -> errors for the next calls, raised before the call has an effect, or after
    it
    for those in `lost`."""

    def __init__(self, *groups: FakeApiGroup) -> None:
        self.all = {group.id: group for group in groups}
        self.calls: list[str] = []
        self.trouble: dict[str, list[ProviderError]] = {}
        self.lost: set[str] = set()
        self.tokens: dict[str, Accepted] = {}
        self.kinds: dict[str, InstanceType] = {"ecs.g7.xlarge": InstanceType("ecs.g7.xlarge", "ecs.g7", 4, 16.0)}
        self.plans = {"asc-1": ScalingConfiguration("asc-1", instance_type="ecs.g7.xlarge", system_disk_size=120)}
        self.launch: dict[tuple[str, str], LaunchTemplateData] = {}
        self.made: dict[str, int] = {}
        self.scaled_in: list[str] = []  # instances that ESS selected
        self.removed: list[str] = []  # instances that we named
        self._number = 0

    def writes(self) -> list[str]:
        return [call for call in self.calls if call.startswith(("scale ", "remove "))]

    def next_id(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}-{self._number:04d}"

    def fill(self, group: str, size: int, state: str = "InService", **more: Any) -> list[str]:
        """Adds instances and raises the desired capacity accordingly."""
        names = [self.next_id("i") for _ in range(size)]
        found = self.all[group]
        for name in names:
            found.instances[name] = ScalingInstance(name, group, lifecycle_state=state, zone_id="cn-hangzhou-i", **more)
        if state not in (*LEAVING, "Stopped"):
            found.desired += size
        return names

    def set_state(self, group: str, name: str, state: str) -> None:
        found = self.all[group].instances
        found[name] = msgspec.structs.replace(found[name], lifecycle_state=state)

    # the calls

    def groups(self, ids: Sequence[str]) -> dict[str, ScalingGroup]:
        found: dict[str, ScalingGroup] = {}
        for at in range(0, len(ids), 20):
            self._call("groups", str(len(ids[at : at + 20])))
            found |= {name: self._describe(self.all[name]) for name in ids[at : at + 20] if name in self.all}
        return found

    def expect(self, calls: int) -> None:
        del calls

    def instances(self, group: str, ids: Sequence[str] = ()) -> list[ScalingInstance]:
        places = [self.all[group]] if group in self.all else [] if group else list(self.all.values())
        found = [each for place in places for each in place.instances.values() if not ids or each.instance_id in ids]
        for _ in range(max(1, -(-len(ids) // 20) if ids else -(-len(found) // 50))):
            self._call("instances", group)
        return found

    def all_instances(self, most: int) -> list[ScalingInstance] | None:
        found = [each for place in self.all.values() for each in place.instances.values()]
        for _ in range(max(1, -(-len(found) // 50))):
            self._call("instances", "")
        return found if -(-len(found) // 50) <= most else None

    def configurations(self, ids: Sequence[str]) -> dict[str, ScalingConfiguration]:
        self._call("configurations", "", counted=False)
        return {name: self.plans[name] for name in ids if name in self.plans}

    def activities(self, group: str, *, ids: Sequence[str] = (), limit: int = 50) -> list[ScalingActivity]:
        self._call("activities", group)
        found = list(reversed(self.all[group].activities))[:limit]
        return [each for each in found if not ids or each.scaling_activity_id in ids]

    def instance_types(self, names: Sequence[str]) -> dict[str, InstanceType]:
        self._call("instance_types", "", counted=False)
        return {name: self.kinds[name] for name in names if name in self.kinds}

    def launch_template(self, template: str, version: str) -> LaunchTemplateData:
        self._call("launch_template", template, counted=False)
        if (template, version) not in self.launch:
            raise refusal(NotFound, "InvalidLaunchTemplate.NotFound")
        return self.launch[template, version]

    def scale(
        self, group: str, kind: str, value: int, *, token: str, at_once: bool, metadata: Mapping[str, str]
    ) -> Accepted:
        self._call("scale", f"{group} {kind} {value} {'now' if at_once else 'later'}")
        assert 0 < len(token) <= 64
        if token not in self.tokens:
            self.tokens[token] = self._scale(self.all[group], kind, value, at_once, json.dumps(dict(metadata)))
        return self._answered("scale", self.tokens[token])

    def remove(self, group: str, instances: Sequence[str], *, token: str, decrease: bool = True) -> Accepted:
        self._call("remove", f"{group} {' '.join(instances)}")
        assert len(instances) <= 20
        if token not in self.tokens:
            self.tokens[token] = self._remove(self.all[group], instances, decrease)
        return self._answered("remove", self.tokens[token])

    # behaviour of ESS

    def _call(self, method: str, text: str, *, counted: bool = True) -> None:
        if counted:
            self.calls.append(f"{method} {text}")
        if self.trouble.get(method) and method not in self.lost:
            raise self.trouble[method].pop(0)

    def _answered(self, method: str, accepted: Accepted) -> Accepted:
        if method in self.lost:
            self.lost.discard(method)
            raise Transient("the answer was lost")
        return accepted

    def _ready(self, group: FakeApiGroup) -> None:
        if group.more.get("lifecycle_state", "Active") != "Active":
            raise refusal(InvalidRequest, "IncorrectScalingGroupStatus")
        if group.busy():
            raise refusal(Conflict, "ScalingActivityInProgress")

    def _scale(self, group: FakeApiGroup, kind: str, value: int, at_once: bool, metadata: str) -> Accepted:
        self._ready(group)
        size = value if kind == "TotalCapacity" else group.size() + value
        size = max(group.least, min(group.most, size))
        if size == group.size():
            raise refusal(Conflict, "IncorrectCapacity.NoChange")
        if group.desired_mode:
            group.desired = size
            if not at_once:
                return Accepted(activity_type="CapacityChange", request_id="r")
        change = size - len(group.living())
        name = self.next_id("asa")
        group.activities.append(
            ScalingActivity(name, group.id, "InProgress", activity_metadata=metadata, status_message=str(change))
        )
        return Accepted(name, "ScaleOut", "r")

    def _remove(self, group: FakeApiGroup, names: Sequence[str], decrease: bool) -> Accepted:
        self._ready(group)
        ignored, going = [], []
        for name in names:
            if name not in group.instances:
                ignored.append(CodeAndMessage("InvalidInstanceId.NotFound", "no such instance", name))
            elif group.instances[name].lifecycle_state in (*LEAVING, "Protected"):
                ignored.append(CodeAndMessage("IncorrectInstanceStatus", "its state does not allow it", name))
            elif group.instances[name].health_status == "Locked":
                ignored.append(CodeAndMessage("OperationDenied.Locked", "it is locked", name))
            else:
                going.append(name)
        if len(group.living()) - len(going) < group.least:
            raise refusal(InvalidRequest, "IncorrectCapacity.MinSize")
        for name in going:
            self.set_state(group.id, name, "Removing")
        self.removed += going
        if decrease and group.desired_mode:
            group.desired -= len(going)
        if not going:
            return Accepted(ignored_instances=ignored)
        activity = self.next_id("asa")
        group.activities.append(ScalingActivity(activity, group.id, "InProgress"))
        return Accepted(activity, "ScaleIn", "r", ignored)

    def step(self) -> None:
        """Ends the activities in progress; then ESS adjusts its groups."""
        for group in self.all.values():
            for place, each in enumerate(group.activities):
                if not each.over:
                    group.activities[place] = self._finish(group, each)
            for name in [each.instance_id for each in group.instances.values() if each.lifecycle_state == "Removing"]:
                del group.instances[name]
            surplus = len(group.living()) - group.desired
            if group.desired_mode and surplus > 0:
                for name in sorted(each.instance_id for each in group.living())[:surplus]:
                    self.scaled_in.append(name)
                    del group.instances[name]

    def _finish(self, group: FakeApiGroup, activity: ScalingActivity) -> ScalingActivity:
        asked = int(activity.status_message or 0)
        if asked <= 0:
            return msgspec.structs.replace(activity, status_code="Successful", progress=100)
        count = asked if group.stock is None else min(asked, group.stock)
        group.stock = None if group.stock is None else group.stock - count
        before = group.desired
        names = self.fill(
            group.id,
            count,
            "Pending:Wait" if group.wait_hook else "InService",
            scaling_activity_id=activity.scaling_activity_id,
        )
        group.desired = before if group.desired_mode else 0
        self.made[group.id] = self.made.get(group.id, 0) + count
        status = "Successful" if count == asked else ("Warning" if count else "Failed")
        reason = {} if count == asked else {"error_code": group.code, "error_message": "not available"}
        return msgspec.structs.replace(
            activity, status_code=status, progress=100, created_capacity=count, created_instances=names, **reason
        )

    def _describe(self, group: FakeApiGroup) -> ScalingGroup:
        states = [each.lifecycle_state for each in group.instances.values()]
        fields: dict[str, object] = {
            "total_capacity": len(states),
            "active_capacity": states.count("InService"),
            "pending_capacity": states.count("Pending"),
            "pending_wait_capacity": states.count("Pending:Wait"),
            "protected_capacity": states.count("Protected"),
            "standby_capacity": states.count("Standby"),
            "removing_capacity": states.count("Removing"),
            "stopped_capacity": states.count("Stopped"),
            "active_scaling_configuration_id": group.configuration,
            "v_switch_ids": ["vsw-1"],
            "enable_desired_capacity": group.desired_mode,
            "desired_capacity": group.desired if group.desired_mode else 0,
            "min_size": group.least,
            "max_size": group.most,
            "region_id": "cn-hangzhou",
            **group.more,
        }
        return msgspec.structs.replace(ScalingGroup(group.id), **fields)


def overrides(*types: str) -> list[TemplateOverride]:
    """LaunchTemplateOverrides of a group."""
    return [TemplateOverride(each) for each in types]


def tags(pairs: Mapping[str, str]) -> list[Tag]:
    """Returns tags in the form of a scaling group."""
    return [Tag(tag_key=key, tag_value=value) for key, value in pairs.items()]


REGION = "cn-hangzhou"


def provider(api: FakeAlicloudApi, *specs: str, kube: KubeLists | None = None, **settings: str) -> AliCloud:
    """A new provider on the fake; specs in upstream's form, 0:10 for every group if none is given."""
    nodes = "\n".join(specs or [f"0:10:{name}" for name in api.all])
    fields = {"region": REGION, "credentialsSecret": "ali", "nodes": nodes, **settings}
    return AliCloud(api, read_settings(fields), kube)


def operation(
    kind: OperationKind, group: str, from_size: int, to_size: int, *handles: str, plan: str = "p"
) -> Operation:
    targets = tuple(RemovalTarget(f"node-of-{handle}", f"{REGION}.{handle}", handle) for handle in handles)
    name = operation_id("ours", group, kind, from_size, to_size, handles, plan)
    return new_operation(name, "ours", "alicloud", group, kind, plan, 0.0, from_size, to_size, targets)


def grow(from_size: int, to_size: int, *, group: str = "asg-1", plan: str = "p") -> Operation:
    return operation(OperationKind.SCALE_UP, group, from_size, to_size, plan=plan)


def remove(
    from_size: int, *handles: str, group: str = "asg-1", kind: OperationKind = OperationKind.DELETE_NODES
) -> Operation:
    return operation(kind, group, from_size, from_size - len(handles), *handles)


def continued(asked: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as the executor passes it to the next step."""
    assert isinstance(outcome, InProgress), outcome
    return asked.with_status(data=outcome.data, step=outcome.step)


def node(name: str, provider_id: str, **labels: str) -> Node:
    return Node(name, dict(labels), {}, provider_id=provider_id)
