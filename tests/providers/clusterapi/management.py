"""A simulated API server with Cluster API objects, the real client, and a log of the writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.registry import build
from infra.emulators.controllers.capi.controller import ClusterApi
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.auth import MASTERS, RbacRule, User
from infra.emulators.kube.crds import HEALTH_CHECKS, load
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.operations import new_operation
from tests.providers.clusterapi.objects import GROUP, Json, deployment, machine, machine_set, node

NOW = 1_800_000_000.0
PLURALS = {
    "MachineDeployment": "machinedeployments",
    "MachineSet": "machinesets",
    "MachinePool": "machinepools",
    "Machine": "machines",
    "Cluster": "clusters",
    "MachineHealthCheck": "machinehealthchecks",
}
LIMITED = "system:serviceaccount:outscaler:outscaler"


class Management:
    """The server, its store and a provider's access to it."""

    def __init__(self, rules: Sequence[RbacRule] | None = None, crds: Path | None = None) -> None:
        self.clock = ManualClock(NOW)
        self.store = ObjectStore(self.clock)
        users = (User("admin", "token-of-admin", (MASTERS,)), User(LIMITED, "token-of-limited"))
        more: dict[str, Any] = {} if crds is None else {"crd_directory": crds}
        self.server = ApiServer(self.store, users=users, rbac={LIMITED: rules or ()}, **more)
        if crds is None:
            load(self.store, HEALTH_CHECKS)
        self.user = "admin" if rules is None else LIMITED
        self.controllers = ClusterApi(self.store, self.clock)
        self.version = ""  # the version that providers are configured to use
        self._seen = 0

    def add(self, *objects: Json) -> None:
        """Stores Cluster API objects unchanged."""
        for obj in objects:
            self.store.load(PLURALS[obj["kind"]], [obj], GROUP)

    def join(self, *nodes: Node) -> None:
        """Stores Nodes."""
        for each in nodes:
            meta = {"name": each.name, "annotations": dict(each.annotations)}
            self.store.load("nodes", [{"metadata": meta, "spec": {"providerID": each.provider_id}}])

    def kube(self) -> KubeClient:
        """Returns the real client, which never waits."""
        access = KubernetesAccess(kubeconfig_secret="kubeconfig")
        config = self.server.kubeconfig(self.user)
        return connect(
            access, lambda _: config, clock=self.clock, sleep=lambda _: None, jitter=lambda: 0.5
        )

    def provider(
        self, policies: Sequence[GroupPolicy] = (), settings: Mapping[str, str] | None = None
    ) -> Provider:
        """Builds the provider as a reconcile pass does."""
        settings = {**({"version": self.version} if self.version else {}), **(settings or {})}
        connection = Connection(
            "test", settings, tuple(policies), lambda name: name, self.kube(), self.clock
        )
        return build("clusterapi", connection)

    def fault(self, method: str, path: str, status: int = 0, **more: Any) -> None:
        """Makes the next request of that kind fail. path: a regular expression."""
        reason = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 429: "TooManyRequests"}.get(
            status, ""
        )
        body = {
            "kind": "Status",
            "status": "Failure",
            "message": "by the test",
            "reason": reason,
            "code": status,
        }
        text = json.dumps(body).encode() if status else b""
        self.server.faults.add(KubeFault(method, path, status=status, body=text, **more))

    def requests(self) -> list[str]:
        """Returns the requests since the previous call, shortened: `GET
        machinedeployments/md-0/scale 200`."""
        logged = self.server.requests[self._seen :]
        self._seen += len(logged)
        return [f"{each.method} {_short(each.path)} {each.status}" for each in logged]

    def writes(self) -> list[str]:
        """Returns those requests that change something."""
        return [each for each in self.requests() if not each.startswith("GET ")]

    def size(self, name: str = "md-0", kind: str = "MachineDeployment") -> int:
        found = self.store.get(PLURALS[kind], name, "default", GROUP)
        assert found is not None
        replicas: int = found["spec"]["replicas"]
        return replicas

    def resize(self, size: int, name: str = "md-0") -> None:
        """Resizes as `kubectl scale` does."""
        found = self.store.get("machinedeployments", name, "default", GROUP)
        assert found is not None
        self.store.update(
            "machinedeployments", {**found, "spec": {**found["spec"], "replicas": size}}, GROUP
        )

    def change(self, name: str, kind: str = "MachineDeployment", **spec: Any) -> None:
        """Edits as `kubectl edit` does."""
        found = self.store.get(PLURALS[kind], name, "default", GROUP)
        assert found is not None
        self.store.update(PLURALS[kind], {**found, "spec": {**found["spec"], **spec}}, GROUP)

    def touch(self, name: str = "md-0", kind: str = "MachineDeployment") -> None:
        """Changes the status, as controllers do all the time."""
        found = self.store.get(PLURALS[kind], name, "default", GROUP)
        assert found is not None
        status = found.get("status") or {}
        changed = {**status, "observedGeneration": status.get("observedGeneration", 0) + 1}
        self.store.update(PLURALS[kind], {**found, "status": changed}, GROUP)

    def marked(self) -> dict[str, str]:
        """Machine -> its delete-machine annotation."""
        return {
            each["metadata"]["name"]: each["metadata"]["annotations"][f"{GROUP}/delete-machine"]
            for each in self.store.list("machines", group=GROUP)
            if f"{GROUP}/delete-machine" in (each["metadata"].get("annotations") or {})
        }

    def work(self, seconds: float = 0.0) -> None:
        """Lets the controllers work for that long."""
        for _ in range(3 + int(seconds // 10)):
            self.controllers.step()
            self.clock.advance(min(10.0, seconds))
            seconds = max(0.0, seconds - 10.0)

    def nodes(self) -> list[Node]:
        """Returns the Nodes as a reconcile pass lists them."""
        return [
            Node(
                each["metadata"]["name"],
                {},
                {},
                provider_id=each["spec"].get("providerID", ""),
                annotations=each["metadata"].get("annotations") or {},
            )
            for each in self.store.list("nodes")
        ]

    def machines(self) -> list[str]:
        """Returns the names of Machines whose deletion has not begun."""
        found = self.store.list("machines", group=GROUP)
        return sorted(
            each["metadata"]["name"]
            for each in found
            if "deletionTimestamp" not in each["metadata"]
        )

    def begin_deletion(self, name: str) -> None:
        """Begins a deletion as the MachineSet controller or `kubectl delete` does."""
        self.store.delete("machines", name, "default", GROUP)


def _short(path: str) -> str:
    bare = path.partition("?")[0].removeprefix(f"/apis/{GROUP}")
    return (
        bare.removeprefix("/v1beta1/").removeprefix("/v1beta2/").removeprefix("namespaces/default/")
        or "discovery"
    )


@contextmanager
def management(
    rules: Sequence[RbacRule] | None = None, crds: Path | None = None
) -> Iterator[Management]:
    """A running server."""
    made = Management(rules, crds)
    with made.server:
        yield made


def fill(
    there: Management, size: int, *, joined: int | None = None, name: str = "md-0", **more: Any
) -> list[Node]:
    """Adds a MachineDeployment with one MachineSet and the Machines m-0…; returns the Nodes
    n-0… of the first `joined`."""
    there.add(
        deployment(name, replicas=size, **more), machine_set(f"{name}-ms", of=name, replicas=size)
    )
    nodes = []
    for index in range(size):
        here = joined is None or index < joined
        there.add(
            finalized(
                machine(
                    f"m-{index}",
                    f"{name}-ms",
                    provider_id=f"c:///i-{index}" if here else "",
                    node=f"n-{index}" if here else "",
                )
            )
        )
        if here:
            nodes.append(node(f"n-{index}", f"c:///i-{index}", of=f"m-{index}"))
    there.join(*nodes)
    return nodes


def finalized(obj: Json) -> Json:
    """Adds the finalizer that keeps a Machine until its server is gone."""
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [f"machine.{GROUP}"]}}


def operation(
    kind: OperationKind, start: int, end: int, *indices: int, op: str = "op", group: str = ""
) -> Operation:
    """An operation on md-0; indices: the machines that it removes."""
    targets = tuple(RemovalTarget(f"n-{at}", f"c:///i-{at}", f"default/m-{at}") for at in indices)
    return new_operation(
        id=op,
        cluster="test",
        provider="clusterapi",
        group=group or "MachineDeployment/default/md-0",
        kind=kind,
        plan="plan",
        created_at=NOW,
        from_size=start,
        to_size=end,
        targets=targets,
    )
