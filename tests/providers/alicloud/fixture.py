"""Alibaba Cloud's bench: the real provider over HTTP, and the emulated ESS with
its keys, stock and clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Self

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from chalicelib.providers.kit.services import Cache, NullCache, ProviderServices
from infra.emulators.alicloud.account import REGION, AlicloudCloud
from infra.emulators.alicloud.dispatcher import AlicloudLoggedRequest
from infra.emulators.alicloud.models import (
    GONE_SOON,
    NO_STOCK,
    NOT_STARTING,
    QUOTA,
    AlicloudDurations,
)
from infra.emulators.alicloud.node_registration import (
    AlicloudRegistrationOptions,
    joined,
    node_object,
)
from infra.emulators.alicloud.server import AlicloudServer
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask, new_operation
from tests.providers.suite.kubelets import Kubelets
from tests.providers.suite.provider_fixture import Misfortune, Trouble
from tests.providers.suite.shared_services import shared
from tests.providers.suite.workload import Workload, ready_node

START = 1_800_000_000.0
SECRET = "outscaler/alicloud/credentials"
_CHECK = 7200.0  # ESS retries only long after a test is over
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
_FATES = {
    Misfortune.OUT_OF_STOCK: NO_STOCK,
    Misfortune.QUOTA: QUOTA,
    Misfortune.NEVER_COMES: NOT_STARTING,
}


class AlicloudBench:
    """See Bench. Tests of Alibaba Cloud alone may also set up cloud and server directly.

    desired: whether groups have a desired capacity; prefix: of the Nodes' providerIDs; settings:
    policy settings in addition to those that a bench needs; texts: secrets in addition to the key;
    shared_cache: the cache that its providers share.
    """

    name = "alicloud"
    repeatable = True

    def __init__(
        self, *, desired: bool = True, prefix: str = "", times: AlicloudDurations | None = None
    ) -> None:
        self.lacks = {"discovery": "scaling groups are named in the policy, and none is looked for"}
        if not desired:
            self.lacks["shrink"] = (
                "a group without a desired capacity has no target apart from its instances"
            )
        self.differs: dict[str, str] = {}
        self.clock = ManualClock(START)
        self.kubelets = Kubelets()
        self.cloud = AlicloudCloud(self.clock, times=times or AlicloudDurations(check=_CHECK))
        self.server = AlicloudServer(self.cloud, in_process=True)
        self.settings: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.shared_cache: Cache = NullCache()
        self._desired, self._prefix, self._theirs = desired, prefix, set[str]()
        self._bounds: dict[str, GroupPolicy] = {}
        self._keys, self._slept, self._looked = 0, 0.0, 0
        self._pacer = shared(self.clock)
        self._untrusted: AlicloudServer | None = None
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
        """Groups in batches of 20, instances in pages of 50 per group, configurations in batches of
        10, and the instance types."""
        return math.ceil(groups / 20) + groups + machines // 50 + math.ceil(groups / 10) + 2

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
        made = self.cloud.add_group(
            name,
            size=size,
            least=least,
            most=most,
            desired=self._desired,
            types=(instance_type or "ecs.g7.xlarge",),
        )
        if cluster == "ours":
            self.bind(made.id, least, most)
        else:
            self._theirs.add(made.id)
        return made.id

    def add_spot_group(
        self, name: str, *, size: int = 0, least: int = 0, cluster: str = "ours"
    ) -> str:
        """See NodeLifeFixture."""
        made = self.cloud.add_group(
            name, size=size, least=least, desired=self._desired, spot="SpotAsPriceGo"
        )
        if cluster == "ours":
            self.bind(made.id, least, made.max)
        else:
            self._theirs.add(made.id)
        return made.id

    def interrupt(self, machine: str) -> float:
        """See NodeLifeFixture."""
        return self.cloud.interrupt(machine)

    def redefine(self, group: str) -> None:
        """See NodeLifeFixture."""
        self.cloud.redefine(group)

    def occupy(self, group: str) -> None:
        """A machine does not run any more, and ESS replaces it."""
        self.cloud.sicken(self.machines(group)[0], at_once=True)

    def reboots(self, machine: str) -> int:
        """See NodeLifeFixture."""
        return self.cloud.machine(machine).reboots

    def bind(self, group: str, least: int, most: int) -> None:
        """Adds a group of the account to the policy, with these bounds."""
        self._bounds[group] = GroupPolicy(self.name, group, least, most)

    @property
    def ways(self) -> AlicloudRegistrationOptions:
        """Returns how instances join this cluster: as soon as they run, because
        these tests are about ESS."""
        return AlicloudRegistrationOptions(
            prefix=self._prefix, boot=0.0, never=frozenset(self._theirs)
        )

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        self.cloud.step()
        due = joined(self.cloud, self.clock(), self.ways)
        return self.kubelets.say(
            tuple(
                ready_node(node_object(self.cloud, group, machine, self.ways), machine.created)
                for group, machine in due.values()
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
        settings = {
            "region": REGION,
            "credentialsSecret": SECRET,
            "essEndpoint": url,
            "ecsEndpoint": url,
            "stsEndpoint": url,
            "vpcEndpoint": url,
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
            Workload(self.nodes),
            self.clock,
            means=means,
        )

    def read_secret(self, name: str, *, wrong: bool = False) -> str:
        """Returns the newest text of a secret: the access key, or one that a
        test has put into texts."""
        if name in self.texts:
            return self.texts[name]
        key = self.key_id
        secret = "not-the-secret-of-this-key-000000" if wrong else self.server.ring.keys[key].secret
        return json.dumps({"accessKeyId": key, "accessKeySecret": secret})

    @property
    def key_id(self) -> str:
        """Returns the key that is valid now."""
        return f"LTAI-SUITE-KEY-{self._keys:09d}"

    def _rotate(self) -> None:
        if self._keys:
            self.server.ring.keys[self.key_id].active = False
        self._keys += 1
        self.server.ring.add(self.key_id, f"suite-secret-number-{self._keys:09d}")

    def untrusted(self) -> Provider:
        """See Bench."""
        self._untrusted = AlicloudServer(self.cloud, tls=CertificateAuthority("nobody's").server())
        return registry.build(self.name, self.connection(self._untrusted.start()))

    def machines(self, group: str) -> list[str]:
        """See Bench."""
        self.cloud.step()
        return [
            each.id
            for each in self.cloud.groups[group].machines.values()
            if each.state not in GONE_SOON
        ]

    def target(self, group: str) -> int:
        """See Bench."""
        self.cloud.step()
        held = self.cloud.groups[group]
        return held.total - held.count(*GONE_SOON) if held.desired is None else held.desired

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
        for group in self.cloud.groups.values():
            group.fates.clear()

    def calls(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look()]

    def writes(self) -> list[str]:
        """See Bench."""
        return [call.line for call in self.look() if call.writes]

    def look(self) -> list[AlicloudLoggedRequest]:
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
    bench: AlicloudBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *handles: str,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. handles: the instances to remove."""
    nodes = {node.name for node in bench.nodes()}
    targets = tuple(
        RemovalTarget(each if each in nodes else "", f"cn-hangzhou.{each}", each)
        for each in handles
    )
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="alicloud",
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


def drive(bench: AlicloudBench, operation: Operation) -> Outcome:
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
        operation = operation.with_status(step=outcome.step, data=outcome.data)
        bench.settle(max(1.0, outcome.after))
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: AlicloudBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]
