"""Cluster API as a bench: the emulated API server and the emulated controllers, without a
socket or TLS between them.

Groups are MachineDeployments. The management cluster is also the workload cluster unless they
are `apart`: then Nodes live in another cluster, and the provider reaches the management cluster
with its own kubeconfig.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

import yaml

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.transport import Dial, open_connection
from chalicelib.model.node import Node
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.services import ProviderServices
from chalicelib.providers.registry import build
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.controllers.capi.controller import ClusterApi
from infra.emulators.controllers.capi.machines import FAULTS
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.kubelet import Kubelets
from infra.emulators.kube.auth import MASTERS, KubeAuthority, User
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.in_process_transport import DirectLine
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.providers.clusterapi.management import finalized
from tests.providers.clusterapi.objects import (
    GROUP,
    bounds,
    capacity,
    deployment,
    machine,
    machine_set,
)
from tests.providers.suite.faults import Troubles
from tests.providers.suite.provider_fixture import Misfortune, Trouble
from tests.providers.suite.shared_services import shared

START = 1_800_000_000.0
TOKENS = ("suite-token-of-good-0123456789", "suite-token-of-rotated-9876543210")
WRONG = "suite-token-that-is-wrong-55555"
PAGE = 500
ACCESS = KubernetesAccess(kubeconfig_secret="kubeconfig")

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
}
_HAPPENS: dict[Trouble, KubeFault] = {
    Trouble.CUT_OFF: KubeFault(truncate=20),
    Trouble.WEB_PAGE: KubeFault(
        status=200,
        body=b"<html><body>Welcome to the proxy</body></html>",
        headers={"Content-Type": "text/html"},
    ),
    Trouble.HANGS: KubeFault(delay=3600.0),
    Trouble.LOST_ANSWER: KubeFault(close=True, late=True),
    Trouble.THROTTLED_FOR: KubeFault(status=429, headers={"Retry-After": "7"}),
}
_FAULTS = {
    Misfortune.OUT_OF_STOCK: "out-of-stock",
    Misfortune.QUOTA: "quota",
    Misfortune.NEVER_COMES: "provisioning-failure",
}


def _fault(kind: Trouble) -> KubeFault:
    made = _HAPPENS.get(kind) or KubeFault(status=int(kind.value))
    if made.status < 300:
        return made
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "by the suite",
        "reason": _REASONS[made.status],
        "code": made.status,
    }
    return KubeFault(status=made.status, headers=made.headers, body=json.dumps(body).encode())


class ClusterApiBench:
    """See Bench."""

    name = "clusterapi"
    repeatable = False

    def __init__(self, *, apart: bool = False) -> None:
        self.lacks = {
            "pace": (
                "an API server keeps its own order (priority and fairness), per user and not per "
                "account"
            )
        }
        self.lacks |= {
            kind.value: "the emulated controllers do not know it"
            for kind, fault in _FAULTS.items()
            if fault not in FAULTS
        }
        # Discovery comes first; a group whose API does not exist is an error in the settings.
        self.differs = {f"{Trouble.NOT_FOUND.value} read": "InvalidRequest"}
        self.clock = ManualClock(START)
        self.store = ObjectStore(self.clock)
        self.server = ApiServer(self.store, users=_users(TOKENS[0]))
        self.line = DirectLine(self.server, self.clock.advance)
        self.workload, self.workload_line = self.store, self.line
        self._apart = apart
        if apart:
            self.workload = ObjectStore(self.clock)
            there = ApiServer(self.workload, users=_users(TOKENS[0]))
            there.stay_inside()
            self.workload_line = DirectLine(there, self.clock.advance)
        self.controllers = ClusterApi(self.store, self.clock, workload=self.workload)
        self.kubelets = Kubelets(self.workload, self.clock)
        self.pacer = shared(self.clock)
        self._token, self._slept, self._stack = TOKENS[0], 0.0, ExitStack()
        self._log: list[str] = []
        self._troubles = Troubles()

    def __enter__(self) -> Self:
        """See Bench."""
        self.server.stay_inside()
        self.line.ask = self.workload_line.ask = self._ask
        return self

    def __exit__(self, *_: object) -> None:
        """See Bench."""
        self._stack.close()

    def now(self) -> float:
        """See Bench."""
        return self.clock.now()

    def most_calls(self, groups: int, machines: int) -> int:
        """See Bench: two calls for discovery, and a list of each kind (deployments, sets,
        pools, Machines, Clusters)."""
        return 2 + 2 * _pages(groups) + 2 * _pages(1) + _pages(machines)

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
        marks = {**bounds(least, most), **capacity(cpu="4", memory="16Gi")}
        if instance_type:
            marks["capacity.cluster-autoscaler.kubernetes.io/labels"] = f"type={instance_type}"
        self._load(
            "machinedeployments",
            deployment(name, cluster=cluster, replicas=size, annotations=marks),
        )
        of = f"{name}-set"
        labels = {f"{GROUP}/deployment-name": name}
        self._load(
            "machinesets",
            machine_set(
                of,
                of=name,
                cluster=cluster,
                replicas=size,
                annotations=marks,
                template={"labels": labels},
            ),
        )
        for index in range(size):
            self._add_machine(f"{name}-{index}", of, cluster)
        return f"MachineDeployment/default/{name}"

    def redefine(self, group: str) -> None:
        """See NodeLifeFixture. Only with this strategy do outdated Machines wait for
        somebody to replace them."""
        self._update(group, {"rollout": {"strategy": {"type": "OnDelete"}}})
        self._roll(group)

    def occupy(self, group: str) -> None:
        """A user changes the template, and the rollout replaces all Machines."""
        self._roll(group)

    def _roll(self, group: str) -> None:
        self.controllers.step()
        self.controllers.change_template(group, "v1.99.0")
        self.settle(0.0)

    def _update(self, group: str, spec: KubeObject) -> None:
        held = self.store.get("machinedeployments", group.rpartition("/")[2], "default", GROUP)
        assert held is not None
        self.store.update("machinedeployments", {**held, "spec": {**held["spec"], **spec}}, GROUP)

    def _add_machine(self, name: str, of: str, cluster: str) -> None:
        there = cluster == "ours"
        made = finalized(
            machine(
                name,
                of,
                cluster=cluster,
                provider_id=f"suite:///{name}",
                node=name if there else "",
                phase="Running",
            )
        )
        self._load("machines", made)
        if there:
            self.workload.load(
                "nodes",
                [
                    {
                        "metadata": {
                            "name": name,
                            "labels": {"kubernetes.io/hostname": name},
                            "annotations": {
                                f"{GROUP}/cluster-name": cluster,
                                f"{GROUP}/cluster-namespace": "default",
                                f"{GROUP}/machine": name,
                            },
                        },
                        "spec": {"providerID": f"suite:///{name}"},
                        "status": {
                            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                            "conditions": [{"type": "Ready", "status": "True"}],
                        },
                    }
                ],
            )

    def _load(self, plural: str, obj: KubeObject) -> None:
        self.store.load(plural, [obj], GROUP)

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        return tuple(
            Node(
                each["metadata"]["name"],
                dict(each["metadata"].get("labels") or {}),
                {"cpu": 4000, "pods": 110},
                provider_id=each["spec"].get("providerID", ""),
                annotations=dict(each["metadata"].get("annotations") or {}),
            )
            for each in self.workload.list("nodes")
        )

    def provider(self, *, credential: str = "good") -> Provider:
        """See Bench."""
        if credential == "rotated":
            self._token = TOKENS[1]
            self.server.api.authority = KubeAuthority(_users(self._token), {})
        text = self._kubeconfig(WRONG) if credential == "wrong" else ""
        return self._built(lambda _: text or self._kubeconfig(self._token), self.line.dial)

    def _built(self, read: Callable[[str], str], dial: Dial) -> Provider:
        def to(access: KubernetesAccess) -> KubeClient:
            return connect(
                access, read, clock=self.clock, sleep=self._sleep, jitter=_even, dial=dial
            )

        means = ProviderServices(
            connect=to, sleep=self._sleep, chance=_even, rate_limiter=self.pacer
        )
        settings = {"namespace": "default", "clusterName": "ours", "stuckAfter": "30s"}
        kube = to(ACCESS)
        if self._apart:
            settings["kubeconfigSecret"] = "management"  # the name of the secret, not its text
            kube = connect(
                ACCESS,
                lambda _: self.workload_line.server.kubeconfig("suite"),
                clock=self.clock,
                sleep=self._sleep,
                jitter=_even,
                dial=self.workload_line.dial,
            )
        return build(
            "clusterapi", Connection("suite", settings, (), read, kube, self.clock, ACCESS, means)
        )

    def _kubeconfig(self, token: str) -> str:
        return self.server.kubeconfig("suite").replace(self._token, token)

    def untrusted(self) -> Provider:
        """See Bench."""
        server = self._stack.enter_context(
            ApiServer(self.store, users=_users(self._token), tls=True)
        )
        config = yaml.safe_load(server.kubeconfig("suite"))
        another = base64.b64encode(CertificateAuthority().pem).decode()
        config["clusters"][0]["cluster"]["certificate-authority-data"] = another
        return self._built(lambda _: yaml.safe_dump(config), open_connection)

    def machines(self, group: str) -> list[str]:
        """See Bench."""
        name, all_sets = group.rpartition("/")[2], self.store.list("machinesets", group=GROUP)
        sets = {each["metadata"]["name"] for each in all_sets if _owner(each) == name}
        alive = [
            each["metadata"]
            for each in self.store.list("machines", group=GROUP)
            if _owner(each) in sets and "deletionTimestamp" not in each["metadata"]
        ]
        alive.sort(key=lambda meta: (meta["creationTimestamp"], meta["name"]))
        return [f"default/{meta['name']}" for meta in alive]

    def target(self, group: str) -> int:
        """See Bench."""
        found = self.store.get("machinedeployments", group.rpartition("/")[2], "default", GROUP)
        assert found is not None
        size: int = found["spec"]["replicas"]
        return size

    def settle(self, seconds: float = 600.0) -> None:
        """See Bench."""
        left = seconds
        while True:
            for _ in range(3):
                self.controllers.step()
            self.kubelets.step()
            if left <= 0:
                return
            self.clock.advance(min(left, 25.0))
            left -= 25.0

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """See Bench."""
        self._troubles.order(kind, on, times)

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """See Bench."""
        self.controllers.fail_next(group, _FAULTS[kind], times)

    def calm(self) -> None:
        """See Bench."""
        self._troubles.clear()

    def calls(self) -> list[str]:
        """See Bench."""
        seen, self._log = self._log, []
        return seen

    def writes(self) -> list[str]:
        """See Bench."""
        return [call for call in self.calls() if not call.startswith("GET ")]

    def secrets(self) -> Sequence[str]:
        """See Bench."""
        return (*TOKENS, WRONG)

    def slept(self) -> float:
        """See Bench."""
        return self._slept

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        self.clock.advance(seconds)

    def _ask(self, method: str, target: str) -> KubeFault | None:
        self._log.append(f"{method} {target}")
        kind = self._troubles.met("read" if method == "GET" else "write")
        return _fault(kind) if kind is not None else None


def _users(token: str) -> tuple[User, ...]:
    return (User("suite", token, (MASTERS,)),)


def _pages(items: int) -> int:
    return max(1, math.ceil(items / PAGE))


def _owner(obj: KubeObject) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", ""))


def _even() -> float:
    return 0.5
