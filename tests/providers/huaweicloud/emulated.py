"""The emulated CCE in process, with the scale groups that a test names, and
operations as a plan builds them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Outcome
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.vendors.huaweicloud import read_settings
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.credentials import Sessions
from chalicelib.providers.huaweicloud.provider import HuaweiCloud, build, open_api
from chalicelib.providers.kit.services import UnlimitedRateLimiter
from infra.emulators.huaweicloud import models
from infra.emulators.huaweicloud.account import example_id
from infra.emulators.huaweicloud.mutations import CceMutations
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.operations import ask
from tests.providers.emulated import OPENED
from tests.providers.huaweicloud.fixture import HuaweiBench, carried, order

CLUSTER = example_id("cluster", 1)
POOL, OTHER = (example_id("pool", number) for number in (1, 2))  # in the order of their creation
A, B = f"{POOL}/default", f"{POOL}/c7-az2"
FLAVOR, AZ1, AZ2 = "c7.xlarge.2", "cn-north-4a", "cn-north-4b"


def uid(number: int) -> str:
    """The node that was made as the first, second …"""
    return example_id("node", number)


class EmulatedCce(HuaweiBench):
    """A cluster, with a pool `pool-a` if sizes are given: of its scale groups `default` and
    `c7-az2`. more: fields of the pool.

    answers: what the vendor's answers say about a pool or a node: uid -> dotted path -> value, ...
    for nothing. joined: the cluster's nodes, by default every machine that is active.
    """

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(times=models.CceDurations(job=float("inf")))
        self.answers: dict[str, dict[str, Any]] = {}
        self.joined: tuple[Node, ...] | None = None
        self.sessions = Sessions()
        self.rate_limiter = UnlimitedRateLimiter()
        self.server.edit = self._edited
        OPENED.enter_context(self)
        if sizes:
            self.cloud.add_pool(self.cluster, "pool-a", size=sizes[0], **more)
        for size in sizes[1:]:
            self.cloud.add_group(POOL, "c7-az2", size=size, priority=5, most=6)

    def _edited(self, body: bytes) -> bytes:
        def hook(item: dict[str, Any]) -> dict[str, Any]:
            meta = item.get("metadata")
            for path, value in (
                self.answers.get(meta["uid"], {}).items() if isinstance(meta, dict) else ()
            ):
                item = bent(item, path, value)
            return item

        return (
            json.dumps(json.loads(body, object_hook=hook)).encode()
            if self.answers and body
            else body
        )

    # -- setup

    def status(self, group: str, **fields: Any) -> None:
        """Sets fields that the vendor's answers have in the status of a scale group of `pool-a`."""
        number = list(self.pool(group).groups).index(self.group(group).name)
        self.answers.setdefault(POOL, {}).update(
            {f"status.scaleGroupStatuses.{number}.{name}": value for name, value in fields.items()}
        )

    def node(self, name: str) -> models.Node:
        machine = self.cloud.node(name)
        assert machine is not None
        return machine

    def nodes(self) -> tuple[Node, ...]:
        return super().nodes() if self.joined is None else self.joined

    def resize(self, group: str, size: int) -> None:
        """Sets a group's size as another user does in CCE's console."""
        pool, name = self.pool(group), self.group(group).name
        spec = {
            "desiredNodeCount": pool.desired + size - pool.groups[name].desired,
            "scaleGroups": [name],
        }
        CceMutations(self.cloud).scale(self.cloud.clusters[self.cluster], pool, spec)

    def lack(self, count: int, group: str = A) -> None:
        """Raises a group's size by nodes that do not come, which CCE does not know yet."""
        self.cloud.sell_out(self.group(group).flavor, self.group(group).az)
        self.resize(group, self.target(group) + count)

    def fail(self, requests: str, status: int = 502, code: str = "", times: int = 3) -> None:
        """Refuses the next requests of a method and path, by default as
        often as a read is attempted."""
        self.server.reply(requests, *[refusal(status, code)] * times)

    # -- the provider

    def build(self, *entries: GroupPolicy, **settings: str) -> HuaweiCloud:
        """Returns a new provider; without an entry, all pools are discovered."""
        self.settings, self._bounds = settings, {bounds.id: bounds for bounds in entries}
        return build(self.connection(self.server.url))

    def api(self, read_secret: Callable[[str], str] | None = None, **settings: str) -> CceApi:
        """Returns a new client of the API. read_secret: the account's key by default."""
        self.settings = settings
        connection = self.connection(self.server.url)
        if read_secret is not None:
            connection = msgspec.structs.replace(connection, read_secret=read_secret)
        return open_api(connection, read_settings(connection.settings), sessions=self.sessions)

    def step(self, operation: Operation, *entries: GroupPolicy) -> Outcome:
        """Makes one call of a new provider."""
        return ask(self.build(*entries), operation)

    def next(self, operation: Operation) -> Operation:
        """Returns the operation as it is after one call, which has not ended it."""
        return carried(operation, self.step(operation))

    def announced(self, operation: Operation) -> Operation:
        """Returns a scale-up after its first call, which sends nothing."""
        operation = self.next(operation)
        assert (operation.status.step, self.changes()) == ("announce", [])
        return operation

    def groups(
        self, *entries: GroupPolicy, nodes: Sequence[Node] | None = None, **settings: str
    ) -> dict[str, NodeGroup]:
        """Returns the groups of one pass by id. nodes: as `joined` by default."""
        observation = self.build(*entries, **settings).observe(
            self.nodes() if nodes is None else nodes
        )
        return {group.id: group for group in observation.groups}

    def warnings(self, *entries: GroupPolicy, **settings: str) -> str:
        """Returns the warnings of one pass."""
        gaps = self.build(*entries, **settings).observe(self.nodes()).gaps
        return "\n".join(f"{gap.name}: {gap.detail}" for gap in gaps)

    # -- what the vendor got

    def changes(self) -> list[str]:
        """Returns all changes that were requested, as `scale TOTAL GROUP`, `delete
        UID` and `restart SERVER`."""
        return [_word(request) for request in self.server.requests if request.method != "GET"]

    @property
    def chosen(self) -> set[str]:
        """The nodes that the vendor chose to delete."""
        deleted = {job.resource for job in self.cloud.jobs.values() if job.type == "DeleteNode"}
        return deleted - {change.removeprefix("delete ") for change in self.changes()}


def _word(request: Incoming) -> str:
    if request.method == "DELETE":
        return f"delete {request.path.rpartition('/')[2]}"
    body = json.loads(request.body)
    if "reboot" in body:
        return f"restart {body['reboot']['servers'][0]['id']}"
    spec = body["spec"]
    return f"scale {spec['desiredNodeCount']} {' '.join(spec['scaleGroups'])}"


def script(*answers: Answer) -> EmulatedCce:
    """Returns an empty cluster that gives these answers first."""
    cce = EmulatedCce()
    cce.server.reply(".", *answers)
    return cce


def refusal(status: int, code: str = "", message: str = "no", **headers: str) -> Answer:
    """An error in CCE's form."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return scripted(status, {"errorCode": code, "errorMessage": message}, named)


def bent(thing: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Returns the value with another one at a dotted path; ... removes it."""
    made: Any = copy.deepcopy(thing)
    *way, last = path.split(".")
    part = made
    for name in way:
        part = part[int(name) if name.isdigit() else name]
    if value is ...:
        del part[last]
    else:
        part[int(last) if last.isdigit() else last] = value
    return dict(made)


def true(kind: str, reason: str = "") -> dict[str, str]:
    """A condition as the vendor's answers have it."""
    return {"type": kind, "status": "True", "reason": reason}


SOLD_OUT, NO_QUOTA = true("ResourceInsufficient", "SoldOut"), true("QuotaInsufficient")
NOT_SCALABLE = {"type": "Scalable", "status": "False"}


def node(
    machine: models.Node, provider_id: str | None = None, name: str = "", **labels: str
) -> Node:
    """Returns a machine as the cluster's node."""
    name = name or machine.ip
    provider_id = machine.uid if provider_id is None else provider_id
    return Node(name, {HOSTNAME_LABEL: name, **labels}, {}, provider_id=provider_id)


def entry(
    name: str, least: int | None = None, most: int | None = None, priority: int = 0
) -> GroupPolicy:
    return GroupPolicy("huaweicloud", name, least, most, priority)


def grow(cce: EmulatedCce, from_size: int, to_size: int, group: str = A) -> Operation:
    return order(cce, OperationKind.SCALE_UP, group, from_size, to_size)


def shrink(cce: EmulatedCce, from_size: int, to_size: int, group: str = A) -> Operation:
    return order(cce, OperationKind.DECREASE_TARGET, group, from_size, to_size)


def remove(
    cce: EmulatedCce,
    from_size: int,
    *handles: str,
    group: str = A,
    kind: OperationKind = OperationKind.DELETE_NODES,
) -> Operation:
    return order(cce, kind, group, from_size, from_size - len(handles), *handles)


def discard(cce: EmulatedCce, from_size: int, *handles: str) -> Operation:
    """The removal of machines that never joined, and of placeholders."""
    return remove(cce, from_size, *handles, kind=OperationKind.DELETE_INSTANCES)
