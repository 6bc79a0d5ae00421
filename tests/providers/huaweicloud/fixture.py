"""Huawei Cloud's bench: the real provider over HTTP, and the emulated CCE with
its keys, quota and clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Self

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from chalicelib.providers.kit.services import Cache, ProviderServices, RateLimiter
from chalicelib.store.vendor_calls import SharedCache
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.huaweicloud.account import REGION, CceCloud
from infra.emulators.huaweicloud.authentication import CceKey
from infra.emulators.huaweicloud.models import (
    DEFAULT,
    NOT_INSTALLED,
    SOLD_OUT,
    CceDurations,
    CcePool,
    ScaleGroup,
)
from infra.emulators.huaweicloud.mutations import CceMutations
from infra.emulators.huaweicloud.node_registration import (
    CceRegistrationOptions,
    joined,
    node_object,
)
from infra.emulators.huaweicloud.server import HuaweiServer
from infra.emulators.memory_table import MemoryAccount
from infra.emulators.vendor_common.dispatcher import LoggedOperation
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask, new_operation
from tests.providers.cherryservers.fixture import MemoryCache
from tests.providers.suite.kubelets import Kubelets
from tests.providers.suite.provider_fixture import Misfortune, Trouble
from tests.providers.suite.shared_services import shared
from tests.providers.suite.workload import Workload, ready_node

START = 1_800_000_000.0
SECRET = "outscaler/huaweicloud/credentials"
BESIDE, EXTRA = 2, "az2"  # foreign nodes in the default scale group, and the name of our group
_MOST = 60  # steps of an operation
_FAULTS = {
    Trouble.UNAUTHORIZED: VendorFault.UNAUTHORIZED,
    Trouble.FORBIDDEN: VendorFault.FORBIDDEN,
    Trouble.NOT_FOUND: VendorFault.NOT_FOUND,
    Trouble.CONFLICT: VendorFault.CONFLICT,
    Trouble.THROTTLED: VendorFault.THROTTLED,
    Trouble.THROTTLED_FOR: VendorFault.THROTTLED_FOR,
    Trouble.SERVER_ERROR: VendorFault.SERVER_ERROR,
    Trouble.CUT_OFF: VendorFault.CUT_OFF,
    Trouble.WEB_PAGE: VendorFault.WEB_PAGE,
    Trouble.HANGS: VendorFault.HANGS_UP,
    Trouble.LOST_ANSWER: VendorFault.LOST_ANSWER,
}
_FATES = {Misfortune.OUT_OF_STOCK: SOLD_OUT, Misfortune.NEVER_COMES: NOT_INSTALLED}


class RestartCache(MemoryCache):
    """Keeps which restarts were requested, and no answers to reads: every
    observation makes all of its calls."""

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """See services.Cache."""
        if "/once/" in key:
            super().put(key, value, seconds)


class HuaweiBench:
    """See Bench. Tests of CCE alone may also set up cloud and server directly.

    grouped: each group is the second of two scale groups of a pool; the nodes of the first one are
    not ours. ways: how nodes join; actions: the actions that the keys allow, None for all.
    settings: policy settings in addition to those that a bench needs; shared_cache: the cache that
    its providers share.
    """

    name = "huaweicloud"
    # the request names the pool's whole size: applied late, it would undo the changes of others
    repeatable = False

    def __init__(
        self,
        *,
        grouped: bool = False,
        times: CceDurations | None = None,
        ways: CceRegistrationOptions | None = None,
        actions: frozenset[str] | None = None,
    ) -> None:
        self.lacks: dict[str, str] = {}
        # for a list: the cluster or the project does not belong to this account
        self.differs = {"404 read": "InvalidRequest"}
        self.clock = ManualClock(START)
        self.kubelets = Kubelets()
        self.cloud = CceCloud(self.clock, times=times)
        self.cluster = self.cloud.add_cluster("ours").uid
        self.theirs = self.cloud.add_cluster("theirs").uid
        self.server = HuaweiServer(self.cloud, in_process=True)
        self.settings: dict[str, str] = {}
        self.shared_cache: Cache = RestartCache(self.clock)
        self.ways = ways or CceRegistrationOptions(boot=0.0, taint=0.0)
        self._grouped, self._actions, self._strangers = grouped, actions, set[str]()
        self._bounds: dict[str, GroupPolicy] = {}
        self._keys, self._slept, self._looked = 0, 0.0, 0
        self.rate_limiter: RateLimiter = shared(self.clock)
        self._untrusted: HuaweiServer | None = None
        self._rotate()

    def __enter__(self) -> Self:
        """See Bench."""
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """See Bench."""
        self.server.stop()
        if self._untrusted is not None:
            self._untrusted.stop()

    def now(self) -> float:
        """See Bench."""
        return self.clock.now()

    def most_calls(self, groups: int, machines: int) -> int:
        """Pools, the flavours of the one zone that all groups are in, the add-ons,
        and nodes in pages of 1000."""
        return 3 + max(1, -(-machines // 1000))

    def add_group(
        self,
        name: str,
        *,
        size: int = 0,
        least: int = 0,
        most: int = 10,
        cluster: str = "ours",
        instance_type: str = "",
    ) -> str:
        """See Bench."""
        flavor = instance_type or "c7.xlarge.2"
        place = self.cluster if cluster == "ours" else self.theirs
        if not self._grouped:
            pool = self.cloud.add_pool(
                place, name, size=size, flavor=flavor, least=least, most=most
            )
            return f"{pool.uid}/{DEFAULT}"
        pool = self.cloud.add_pool(
            place, name, size=BESIDE, flavor="c7.large.2", most=most + BESIDE
        )
        self.cloud.add_group(pool.uid, EXTRA, size=size, flavor=flavor)
        self._strangers.add(f"{pool.uid}/{DEFAULT}")
        if cluster == "ours":
            self.bind(f"{pool.uid}/{EXTRA}", least, most)
        return f"{pool.uid}/{EXTRA}"

    def redefine(self, group: str) -> None:
        """See NodeLifeFixture. Not the flavour: by it CCE's nodes are known to
        be of their scale group."""
        self.cloud.change_template(group.partition("/")[0], os="Ubuntu 22.04")

    def occupy(self, group: str) -> None:
        """A user deletes a node and keeps the size, so CCE creates another one."""
        node = next(iter(self.group(group).nodes.values()))
        CceMutations(self.cloud).delete(self.cloud.clusters[node.cluster], node, keeps_size=True)

    def reboots(self, machine: str) -> int:
        """See NodeLifeFixture."""
        node = self.cloud.node(machine)
        assert node is not None
        return node.reboots

    def bind(self, group: str, least: int, most: int) -> None:
        """Adds a group to the policy, with these bounds."""
        self._bounds[group] = GroupPolicy(self.name, group, least, most)

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        self.cloud.step()
        return self.kubelets.say(
            tuple(
                ready_node(node_object(self.cloud, node, self.ways), node.created)
                for node in joined(self.cloud, self.clock(), self.ways, cluster=self.cluster)
                if f"{node.pool}/{node.group}" not in self._strangers
            )
        )

    def provider(self, *, credential: str = "good") -> Provider:
        """See Bench."""
        if credential == "rotated":
            self._rotate()
        return registry.build(
            self.name, self.connection(self.server.url, wrong=credential == "wrong")
        )

    def connection(self, url: str, *, wrong: bool = False) -> Connection:
        """Returns the arguments that a provider is built from. wrong: its secret
        contains another key's secret."""
        means = ProviderServices(
            deployment=LOOPBACK,
            sleep=self._sleep,
            chance=lambda: 0.5,
            rate_limiter=self.rate_limiter,
            cache=self.shared_cache,
        )
        return Connection(
            "ours",
            self.policy(url),
            tuple(self._bounds.values()),
            lambda _: self.read_secret(wrong=wrong),
            Workload(self.nodes),
            self.clock,
            means=means,
        )

    def policy(self, url: str) -> Mapping[str, str]:
        """Returns the section `providers.huaweicloud`. Where a pool has several scale
        groups, it names only ours."""
        found = {
            "region": REGION,
            "projectId": self.cloud.project,
            "clusterId": self.cluster,
            "credentialsSecret": SECRET,
            "cceEndpoint": url,
            "ecsEndpoint": url,
            "iamEndpoint": url,
        }
        only = {"autodiscovery": "false"} if self._grouped and self._bounds else {}
        return {**found, **only, **self.settings}

    def read_secret(self, *, wrong: bool = False) -> str:
        """Returns the newest text of the secret."""
        secret = "SKEXAMPLEnotthesecretofthiskey0000000000" if wrong else self.key.secret
        return json.dumps({"accessKey": self.key.id, "secretKey": secret})

    @property
    def key(self) -> CceKey:
        """Returns the key that is valid now."""
        return self.server.ring.keys[self._key_id()]

    def _key_id(self) -> str:
        return f"AKIDEXAMPLE000000{self._keys:03d}"

    def _rotate(self) -> None:
        if self._keys:
            self.key.active = False
        self._keys += 1
        self.server.ring.add(
            self._key_id(), f"SKEXAMPLEsecretkeyofthesuitenumber{self._keys:06d}", self._actions
        )

    def untrusted(self) -> Provider:
        """See Bench."""
        self._untrusted = HuaweiServer(self.cloud, tls=CertificateAuthority("nobody's").server())
        self._untrusted.start()
        return registry.build(self.name, self.connection(self._untrusted.url))

    def pool(self, group: str) -> CcePool:
        """Returns a group's pool, advanced to the current time."""
        self.cloud.step()
        return self.cloud.pool(group.partition("/")[0])

    def group(self, group: str) -> ScaleGroup:
        """Returns a group's records."""
        return self.pool(group).groups[group.partition("/")[2]]

    def machines(self, group: str) -> list[str]:
        """See Bench."""
        return [node.uid for node in self.group(group).staying]

    def target(self, group: str) -> int:
        """See Bench."""
        return self.group(group).desired

    def settle(self, seconds: float = 600.0) -> None:
        """See Bench."""
        self.clock.advance(seconds)
        self.cloud.step()

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """See Bench."""
        self.server.faults.next(_FAULTS[kind], on=on, times=times)

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """See Bench. The quota belongs to the project, so it is exhausted for
        all groups until calm()."""
        if kind is Misfortune.QUOTA:
            self.cloud.limit = sum(
                1 for cluster in self.cloud.clusters.values() for _ in cluster.nodes()
            )
        else:
            self.group(group).fates += [_FATES[kind]] * times

    def calm(self) -> None:
        """See Bench."""
        self.server.faults.clear()
        self.cloud.limit = -1
        for pool in self.cloud.pools():
            for group in pool.groups.values():
                group.fates.clear()

    def calls(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look()]

    def writes(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look() if call.writes]

    def look(self) -> list[LoggedOperation]:
        """Returns the calls since the previous call of this method."""
        log = self.server.log
        seen, self._looked = log[self._looked :], len(log)
        return seen

    def secrets(self) -> Sequence[str]:
        """See Bench."""
        return [*self.server.ring.secrets(), *self.server.front.seen]

    def slept(self) -> float:
        """See Bench."""
        return self._slept

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        self.clock.advance(seconds)


def order(
    bench: HuaweiBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *handles: str,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. handles: the nodes to remove."""
    names = {node.provider_id: node.name for node in bench.nodes()}
    targets = tuple(RemovalTarget(names.get(each, ""), each, each) for each in handles)
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="huaweicloud",
        group=group,
        kind=kind,
        plan="plan",
        created_at=now,
        from_size=start,
        to_size=end,
        due_at=now,
        deadline=now + 7200.0,
        targets=targets,
    )


def tried(bench: HuaweiBench, operation: Operation) -> Outcome | ProviderError:
    """Calls a newly built provider; an error that it raises is returned as the answer."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


def carried(operation: Operation, outcome: object) -> Operation:
    """Returns the operation as the table stores it after InProgress."""
    assert isinstance(outcome, InProgress), outcome
    return operation.with_status(step=outcome.step, data=outcome.data)


def drive(bench: HuaweiBench, operation: Operation) -> Outcome:
    """Runs an operation to its end; each step uses a newly built provider, as after a cold start.
    Temporary errors are retried after ten seconds."""
    for _ in range(_MOST):
        try:
            outcome = ask(bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            bench.settle(max(10.0, error.retry_after))
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        operation = carried(operation, outcome)
        bench.settle(max(1.0, outcome.after))
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: HuaweiBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def scalings(bench: HuaweiBench) -> list[tuple[int, list[str]]]:
    """Returns the totals and groups that were requested since the previous call."""
    specs = [
        json.loads(call.body)["spec"] for call in bench.look() if call.operation == "scale-pool"
    ]
    return [(spec["desiredNodeCount"], spec["scaleGroups"]) for spec in specs]


def shared_cache(bench: HuaweiBench) -> SharedCache:
    """Returns a cache in a table, as all functions of a deployment share it."""
    store = MemoryAccount().store(
        "huaweicloud", clock=bench.clock, sleep=lambda _: None, chance=lambda: 0.5
    )
    return store.cache
