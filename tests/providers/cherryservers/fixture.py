"""Cherry Servers' bench: the real provider over HTTP, and the emulated API with its token,
stock, rate limit and clock."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self, cast

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.node_decoding import node_from_wire
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.providers import registry
from chalicelib.providers.cherryservers.pool_definition import fingerprint
from chalicelib.providers.cherryservers.provider import CherryServers
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from chalicelib.providers.kit.services import ProviderServices, RateLimit, RateLimiter
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.attached_account import (
    BOOTSTRAP_NAME,
    CLOUD_INIT,
    DEFINITION,
    PREFIX,
    SECRET_NAME,
    TOKEN_ID,
    TOKEN_SECRET,
    CherryRegistrationOptions,
    gcfg,
    joined,
    node_object,
)
from infra.emulators.cherryservers.models import NO_CREDIT, NO_STOCK, NOT_DEPLOYED, CherryDurations
from infra.emulators.cherryservers.serializers import PASSWORD
from infra.emulators.cherryservers.server import CherryHttpServer, CherryLoggedRequest
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.objects import KubeObject
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask, new_operation
from tests.providers.managed import UID, IdentifiedWorkload
from tests.providers.suite.kubelets import Kubelets
from tests.providers.suite.provider_fixture import Misfortune, Trouble
from tests.providers.suite.shared_services import shared

START = 1_800_000_000.0
_ON_THE_WAY = 0.25  # upper limit in wall-clock seconds for a request on loopback
QUICK = CherryDurations(accept=5.0, deploy=60.0, virtual=30.0, fail=20.0, terminate=30.0)
_MOST = 80  # steps of an operation
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
_FATES = {
    Misfortune.OUT_OF_STOCK: NO_STOCK,
    Misfortune.QUOTA: NO_CREDIT,
    Misfortune.NEVER_COMES: NOT_DEPLOYED,
}
_LACKS = {
    "discovery": "pools are named in the policy, and none is looked for",
    "shrink": "a pool has no target apart from its servers",
    "sizes": "a pool has no size that could be asked for",
    Trouble.CONFLICT.value: "the vendor has no 409, for no change of a server is in another's way",
    Trouble.NOT_FOUND.value: "404 to a deletion says that the server is gone, which is what was "
    "asked for; what 404 "
    "means otherwise is tried in tests/providers/cherryservers",
}


class NodesPage(msgspec.Struct, frozen=True):
    """A page of a list, as the cluster's client returns it."""

    body: bytes
    first: bool = True


class Workload:
    """Stands in for the cluster's client; implements only the list of Nodes
    that this provider uses."""

    def __init__(self, nodes: Callable[[], Sequence[KubeObject]]) -> None:
        self._nodes = nodes

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterable[NodesPage]:
        """Yields one page with all Nodes, or with those that have a label."""
        assert path == "/api/v1/nodes"
        label = (query or {}).get("labelSelector", "")
        items = [node for node in self._nodes() if not label or label in node["metadata"]["labels"]]
        return [NodesPage(json.dumps({"kind": "NodeList", "items": items}).encode())]


class MemoryCache:
    """See services.Cache: shared by all functions until the entries expire."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._rows = clock, dict[str, tuple[bytes, float]]()

    def get(self, key: str) -> bytes | None:
        """See services.Cache."""
        value, until = self._rows.get(key, (b"", 0.0))
        return value if self._clock() < until else None

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """See services.Cache."""
        self._rows[key] = (value, self._clock() + seconds)


class CountingPacer:
    """See services.RateLimiter. booked: calls that may be in flight or have arrived."""

    def __init__(self, pacer: RateLimiter) -> None:
        self._pacer, self.booked = pacer, 0

    def take(self, pace: RateLimit, calls: int) -> float:
        """See services.RateLimiter."""
        wait = self._pacer.take(pace, calls)
        self.booked += 0 if wait else calls
        return wait

    def hold(self, pace: RateLimit, seconds: float) -> None:
        """See services.RateLimiter."""
        self._pacer.hold(pace, seconds)


class CherryBench:
    """See Bench. Tests of Cherry Servers alone may also set up cloud and server directly.

    ways: how servers join; cap: the maximum number of rows in one answer; lag, delete_lag: seconds
    by which lists are late with new and with deleted servers. default, pools: definitions in
    addition to those that a bench needs; texts: secrets in
    addition to the token. nameless: the cloud controller has not run yet, so that
    no Node has a providerID. managed_pools: the policy's; uid: of the cluster.
    """

    name = "cherryservers"
    repeatable = False

    def __init__(
        self,
        *,
        ways: CherryRegistrationOptions | None = None,
        times: CherryDurations = QUICK,
        cap: int | None = None,
        lag: float = 0.0,
        delete_lag: float = 0.0,
        prefix: str = PREFIX,
        pools: Sequence[ManagedPool] = (),
    ) -> None:
        self.lacks, self.differs = dict(_LACKS), dict[str, str]()
        self.clock = ManualClock(START)
        self.kubelets = Kubelets()
        self.cloud = CherryCloud(self.clock, times=times)
        self.cloud.lag, self.cloud.delete_lag = lag, delete_lag
        self.server = CherryHttpServer(self.cloud, in_process=True)
        self.server.front.actions.cap = cap
        self.ways = ways or CherryRegistrationOptions(boot=0.0, prefix=prefix)
        self.default: dict[str, object] = {
            **DEFINITION,
            "cloudinit": base64.b64encode(CLOUD_INIT.encode()).decode(),
        }
        self.pools: dict[str, dict[str, object]] = {}
        self.settings: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.shared_cache = MemoryCache(self.clock)
        self.managed_pools, self.uid = tuple(pools), UID
        self._bounds: dict[str, GroupPolicy] = {}
        self._clusters: dict[str, str] = {}
        self.nameless = False
        self._tokens, self._slept, self._looked = 0, 0.0, 0
        self._pacer = CountingPacer(shared(self.clock))
        self._untrusted: CherryHttpServer | None = None
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
        """The servers in one list, and the plans in use (here one for all groups)."""
        del groups
        cap = self.server.front.actions.cap
        return 2 + (machines // cap if cap else 0)

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
        """See Bench. instance_type: the plan's slug."""
        self._clusters[name] = cluster
        plan = instance_type or str(self.default["plan"])
        if instance_type:
            self.pools[name] = {"plan": plan}
        for _ in range(size):
            self.cloud.add_server(name, cluster=cluster, plan=plan)
        if cluster == "ours":
            self.bind(name, least, most)
        return name

    def add_spot_group(
        self, name: str, *, size: int = 0, least: int = 0, cluster: str = "ours"
    ) -> str:
        """See NodeLifeFixture."""
        self.pools[name] = {"spot-market": "true"}
        for _ in range(size):
            self.cloud.add_server(name, cluster=cluster, spot=True)
        return self.add_group(name, least=least, cluster=cluster)

    def interrupt(self, machine: str) -> float:
        """See NodeLifeFixture."""
        self.cloud.give_notice(int(machine))
        return self.cloud.servers[int(machine)].reclaimed

    def redefine(self, group: str) -> None:
        """See NodeLifeFixture. The servers that the pool has bear the tag of the definition from
        which they were ordered."""
        made_from = fingerprint(cast(CherryServers, self.provider()).context.definition(group))
        for server in self.cloud.members(group):
            server.tags["outscaler-definition"] = made_from
        self.pools[group] = {**self.pools.get(group, {}), "plan": "e3_1240v3"}

    def reboots(self, machine: str) -> int:
        """See NodeLifeFixture."""
        return len(self.cloud.servers[int(machine)].reboots)

    def bind(self, group: str, least: int, most: int) -> None:
        """Adds a pool to the policy, with these bounds."""
        self._bounds[group] = GroupPolicy(self.name, group, least, most)

    def kube_nodes(self) -> list[KubeObject]:
        """Returns the cluster's Nodes as its API returns them."""
        self.cloud.step()
        with self.cloud.lock:
            return self.kubelets.say_raw(
                [
                    self._object(node_object(self.cloud, server, self.ways), server.created)
                    for server in joined(self.cloud, self.clock(), self.ways).values()
                ]
            )

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        return tuple(
            node_from_wire(msgspec.convert(each, api_types.ApiNode)) for each in self.kube_nodes()
        )

    def _object(self, raw: KubeObject, created: float) -> KubeObject:
        at, meta = format_time(created), raw["metadata"]
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastTransitionTime": at,
        }
        spec = {} if self.nameless else {"providerID": raw["spec"]["providerID"]}
        return {
            "metadata": {**meta, "uid": f"uid-{meta['name']}", "creationTimestamp": at},
            "spec": spec,
            "status": {**raw["status"], "conditions": [ready]},
        }

    def provider(self, *, credential: str = "good") -> Provider:
        """See Bench."""
        if credential == "rotated":
            self._rotate()
        return registry.build(
            self.name, self.connection(self.server.root, wrong=credential == "wrong")
        )

    def connection(self, root: str, *, wrong: bool = False) -> Connection:
        """Returns the arguments that a provider is built from. wrong: its secret
        contains an invalid token."""
        settings = {
            "credentialsSecret": SECRET_NAME,
            "clusterName": "ours",
            "endpoint": root,
            "cloudConfig": gcfg({"default": self.default, **self.pools}),
            "bootstrapTokenSecret": BOOTSTRAP_NAME,
            **self.settings,
        }
        means = ProviderServices(
            deployment=LOOPBACK,
            sleep=self._sleep,
            chance=lambda: 0.5,
            rate_limiter=self._pacer,
            cache=self.shared_cache,
        )
        return Connection(
            "ours",
            settings,
            tuple(self._bounds.values()),
            lambda name: self.read_secret(name, wrong=wrong),
            IdentifiedWorkload(Workload(self.kube_nodes), self.uid),
            self.clock,
            means=means,
            pools=self.managed_pools,
        )

    def read_secret(self, name: str, *, wrong: bool = False) -> str:
        """Returns the newest text of a secret: the token, or one that a test has put into texts."""
        if name in self.texts:
            return self.texts[name]
        if name == BOOTSTRAP_NAME:
            return json.dumps({"tokenId": TOKEN_ID, "tokenSecret": TOKEN_SECRET})
        assert name == SECRET_NAME
        return "CHERRY-EXAMPLE-NOT-A-TOKEN" if wrong else self.token

    @property
    def token(self) -> str:
        """Returns the token that is valid now."""
        return f"CHERRY-EXAMPLE-SUITE-TOKEN-{self._tokens:04d}"

    def _rotate(self) -> None:
        if self._tokens:
            self.server.front.tokens[self.token].active = False
        self._tokens += 1
        self.server.add_token(self.token)

    def untrusted(self) -> Provider:
        """See Bench."""
        self._untrusted = CherryHttpServer(
            self.cloud, tls=CertificateAuthority("nobody's").server()
        )
        self._untrusted.add_token(self.token)
        self._untrusted.start()
        return registry.build(self.name, self.connection(self._untrusted.root))

    def machines(self, group: str) -> list[str]:
        """See Bench."""
        self.cloud.step()
        return [
            str(each.id)
            for each in self.cloud.members(group, self._clusters.get(group, "ours"))
            if not each.leaving
        ]

    def target(self, group: str) -> int:
        """See Bench."""
        return len(self.machines(group))

    def settle(self, seconds: float = 600.0) -> None:
        """See Bench."""
        self.clock.advance(seconds)
        self.cloud.step()

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """See Bench."""
        self.server.faults.next(_FAULTS[kind], on=on, times=times)

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """See Bench."""
        self.cloud.spoil(group, _FATES[kind], times)

    def calm(self) -> None:
        """See Bench."""
        self.server.faults.clear()
        self.cloud.relent()

    def calls(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look()]

    def writes(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look() if call.writes]

    def look(self) -> list[CherryLoggedRequest]:
        """Returns the calls since the previous call of this method."""
        log = self.server.log
        seen, self._looked = log[self._looked :], len(log)
        return seen

    def secrets(self) -> Sequence[str]:
        """See Bench. The user data of created servers contain the bootstrap token."""
        reported = {
            server.order.user_data for server in (*self.cloud.servers.values(), *self.cloud.dropped)
        }
        return [
            *self.server.front.tokens,
            "CHERRY-EXAMPLE-NOT-A-TOKEN",
            TOKEN_SECRET,
            PASSWORD,
            *sorted(reported - {""}),
        ]

    def slept(self) -> float:
        """See Bench."""
        return self._slept

    def _sleep(self, seconds: float) -> None:
        """Does not advance the clock while requests of other threads are in
        flight, because they are short."""
        front = self.server.front
        with front.arrived:
            if not front.arrived.wait_for(
                lambda: len(front.log) >= self._pacer.booked, _ON_THE_WAY
            ):
                self._pacer.booked = len(front.log)  # a call that was booked but not made
        self._slept += seconds
        self.clock.advance(seconds)


def order(
    bench: CherryBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *targets: RemovalTarget,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. targets: the instances to remove."""
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="cherryservers",
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


def target(instance: Instance) -> RemovalTarget:
    """Returns the removal target that a plan makes of an instance."""
    return RemovalTarget(instance.node, instance.id, instance.handle)


def answer(bench: CherryBench, operation: Operation) -> Outcome | ProviderError:
    """Like `ask`, with a new provider; an error that it raises is returned as the answer."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


def follows(operation: Operation, outcome: InProgress) -> Operation:
    """Returns the operation as the table stores it after that step."""
    return operation.with_status(step=outcome.step, data=outcome.data)


def claimed(operation: Operation) -> Operation:
    """Returns the operation as the next attempt claims it; an attempt that died in
    between has been counted."""
    return operation.with_status(attempt=operation.status.attempt + 1)


def drive(bench: CherryBench, operation: Operation) -> Outcome:
    """Runs an operation to its end; each step uses a newly built provider, as after a cold start.
    Temporary errors are retried after ten seconds."""
    for _ in range(_MOST):
        operation = claimed(operation)
        try:
            outcome = ask(bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            bench.settle(max(10.0, error.retry_after))
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        operation = follows(operation, outcome)
        bench.settle(outcome.after)
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: CherryBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def orders(bench: CherryBench) -> list[str]:
    """Returns the create requests that have reached the vendor so far, granted
    or refused, by hostname."""
    return [
        call.about.partition(" ")[0] for call in bench.server.log if call.action == "create_server"
    ]
