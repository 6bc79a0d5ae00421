"""The emulated Alibaba Cloud in process, with short ids, and operations as
the executor passes them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cluster.errors import Unavailable
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.model.policy_permissions import Deployment
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.credentials import Sessions
from chalicelib.providers.alicloud.provider import AliCloud, build, open_api
from chalicelib.providers.alicloud.settings import read_settings
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.services import Cache, NullCache, RateLimiter, UnlimitedRateLimiter
from infra.emulators.alicloud.dispatcher import AlicloudLoggedRequest
from infra.emulators.alicloud.models import GONE_SOON, AlicloudDurations, AlicloudGroup
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from infra.emulators.vendor_common.server import Scripted
from tests.providers.alicloud.fixture import AlicloudBench, order
from tests.providers.emulated import OPENED, changed

REGION, GROUP = "cn-hangzhou", "asg-1"
KEY_ID, KEY_SECRET = "LTAI-EXAMPLE-KEY-ID", "example-key-secret-0123456789"
KEY = json.dumps({"accessKeyId": KEY_ID, "accessKeySecret": KEY_SECRET})


class EmulatedEss(AlicloudBench):
    """Scaling groups `asg-1`, `asg-2` … of these sizes, with instances `i-0001` …, each of which is
    a node. A policy that names no group has them all, with 0:10.

    answers: fields that the vendor's answers have about a group or an instance, by its id. down:
    whether the cluster is. skew: seconds by which the program's clock is ahead of the vendor's.
    group: see AlicloudCloud.add_group.
    """

    def __init__(
        self,
        *sizes: int,
        desired: bool = True,
        times: AlicloudDurations | None = None,
        most: int = 20,
        **group: Any,
    ) -> None:
        super().__init__(desired=desired, times=times)
        self.answers: dict[object, dict[str, Any]] = {}
        self.down, self.skew = False, 0.0
        self.server.edit = self._changed
        counters = {kind: itertools.count(1) for kind in ("asg", "asc", "asa", "i", "lt")}
        self.cloud.number = lambda kind: (  # type: ignore[method-assign]
            f"{kind}-{next(counters[kind]):0{4 if kind == 'i' else 1}d}"
        )
        for number, size in enumerate(sizes, 1):
            self.cloud.add_group(f"asg-{number}", size=size, desired=desired, most=most, **group)
        OPENED.enter_context(self)

    def _changed(self, body: bytes) -> bytes:
        return changed(changed(body, "ScalingGroupName", self.answers), "InstanceId", self.answers)

    @property
    def group(self) -> AlicloudGroup:
        """The first group."""
        return self.cloud.groups[GROUP]

    def fill(
        self, count: int, state: str = "InService", *, group: str = GROUP, **fields: Any
    ) -> list[str]:
        """Adds instances, with these fields in the vendor's answers, and raises the
        desired capacity accordingly."""
        names = self.cloud.add_machines(group, count, state=state)
        self.answers |= {name: fields for name in names if fields}
        found = self.cloud.groups[group]
        if found.desired is not None and state not in (*GONE_SOON, "Stopped"):
            found.desired += count
        return names

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        if self.down:
            raise Unavailable("no answer")
        return super().nodes()

    def connection(self, url: str, *, wrong: bool = False) -> Connection:
        """See AlicloudBench."""
        made = super().connection(url, wrong=wrong)
        settings = {
            "nodes": "\n".join(f"0:10:{name}" for name in self.cloud.groups),
            **made.settings,
        }
        return msgspec.structs.replace(
            made, settings=settings, now=lambda: self.clock() + self.skew
        )

    def build(self, *specs: str, **settings: str) -> AliCloud:
        """Returns a new provider; specs in upstream's form."""
        self.settings = {**({"nodes": "\n".join(specs)} if specs else {}), **settings}
        return build(self.connection(self.server.url))

    def api(
        self,
        *,
        read_secret: Callable[[str], str] | None = None,
        limits: RateLimiter | None = None,
        cache: Cache | None = None,
        sessions: Sessions | None = None,
        deployment: Deployment = LOOPBACK,
        **settings: str,
    ) -> AlicloudApi:
        """Returns a new client of the API. Its credentials are those that the settings name,
        by default the key in the secret; read_secret: returns KEY by default, which only
        scripted answers accept."""
        self.settings = {"credentialsSecret": "" if settings else "key", **settings}
        made = self.connection(self.server.url)
        means = msgspec.structs.replace(
            made.means,
            rate_limiter=limits or UnlimitedRateLimiter(),
            cache=cache or NullCache(),
            deployment=deployment,
        )
        made = msgspec.structs.replace(
            made, means=means, read_secret=read_secret or (lambda _: KEY)
        )
        return open_api(
            made,
            read_settings(made.settings),
            sessions=Sessions() if sessions is None else sessions,
        )

    def groups(self, *specs: str, nodes: Sequence[Node] = ()) -> list[NodeGroup]:
        """Returns the groups of one pass; by default there are no nodes."""
        return list(self.build(*specs).observe(nodes).groups)

    def warnings(self, *specs: str, nodes: Sequence[Node] = ()) -> str:
        """Returns the warnings of one pass."""
        return "\n".join(gap.detail for gap in self.build(*specs).observe(nodes).gaps)

    def fail(self, action: str, code: str, times: int = 1, status: int = 400) -> None:
        """Refuses the next calls of an action; the client repeats one that fails
        temporarily, three times in all."""
        self.server.reply(f" {action}$", *[refusal(code, status)] * times)

    def actions(self) -> list[str]:
        """Returns the actions that the vendor has received since the last look at the log."""
        return [call.action for call in self.look()]

    def changes(self) -> list[str]:
        """Returns the changes since the last look at the log: `scale asg-1 TotalCapacity 5 true`
        (SyncActivity), `remove asg-1 i-0001 i-0002`."""
        return [_change(call) for call in self.look() if call.writes]

    def queries(self) -> list[dict[str, str]]:
        """Returns the parameters of all requests."""
        return [request.parameters() for request in self.server.requests]

    def chosen_by_ess(self) -> list[str]:
        """Returns the instances that ESS has selected for removal by itself, now
        and at its next two checks."""
        self.settle(2.0 * self.cloud.times.check + 100.0)
        own = [each for each in self.group.activities if each.trigger == "Ess" and not each.grows]
        return [name for each in own for name in each.machines]


def _change(call: AlicloudLoggedRequest) -> str:
    sent = call.parameters
    if call.action == "RemoveInstances":
        names = [value for name, value in sent.items() if name.startswith("InstanceIds.")]
        return " ".join(("remove", sent["ScalingGroupId"], *names))
    names = ["ScalingGroupId", "AdjustmentType", "AdjustmentValue", "SyncActivity"]
    return " ".join(("scale", *(sent[name] for name in names)))


def answering(*answers: Scripted) -> EmulatedEss:
    """An account with one empty group, whose first requests get these answers. A
    function answers all of them."""
    ess = EmulatedEss(0)
    ess.server.reply("", *answers, always=callable(answers[0]))
    return ess


def grow(
    ess: EmulatedEss, from_size: int, to_size: int, group: str = GROUP, op: str = "grow"
) -> Operation:
    return order(ess, OperationKind.SCALE_UP, group, from_size, to_size, op=op)


def shrink(ess: EmulatedEss, from_size: int, to_size: int, group: str = GROUP) -> Operation:
    return order(ess, OperationKind.DECREASE_TARGET, group, from_size, to_size, op="shrink")


def remove(
    ess: EmulatedEss, from_size: int, *handles: str, group: str = GROUP, op: str = "remove"
) -> Operation:
    return order(
        ess, OperationKind.DELETE_NODES, group, from_size, from_size - len(handles), *handles, op=op
    )


def discard(ess: EmulatedEss, from_size: int, *handles: str, op: str = "discard") -> Operation:
    return order(
        ess,
        OperationKind.DELETE_INSTANCES,
        GROUP,
        from_size,
        from_size - len(handles),
        *handles,
        op=op,
    )


def continued(operation: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as the executor passes it to the next step."""
    assert isinstance(outcome, InProgress), outcome
    return operation.with_status(data=outcome.data, step=outcome.step)


def node(name: str, provider_id: str, **labels: str) -> Node:
    return Node(name, dict(labels), {}, provider_id=provider_id)


# -- answers in the vendor's form


def refusal(
    code: str, status: int = 400, message: str = "Said.", headers: Mapping[str, str] | None = None
) -> Answer:
    return scripted(
        status, {"RequestId": "r-1", "HostId": "h", "Code": code, "Message": message}, headers
    )


def instances_page(numbers: range, total: int) -> Answer:
    """A page of DescribeScalingInstances."""
    found = [{"InstanceId": f"i-{number:04d}", "LifecycleState": "InService"} for number in numbers]
    return scripted(200, {"RequestId": "r", "TotalCount": total, "ScalingInstances": found})


def groups_page(*ids: str) -> Answer:
    """A page of DescribeScalingGroups."""
    return scripted(
        200, {"TotalCount": len(ids), "ScalingGroups": [{"ScalingGroupId": each} for each in ids]}
    )


def action(request: Incoming) -> str:
    return request.headers.get("x-acs-action") or request.parameters().get("Action", "")


def ids_in(request: Incoming, name: str) -> list[str]:
    """Returns the values of a numbered parameter: `InstanceIds.1`, `InstanceIds.2` …"""
    return [value for key, value in request.parameters().items() if key.startswith(f"{name}.")]
