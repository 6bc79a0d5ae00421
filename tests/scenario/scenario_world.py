"""The world of a scenario: LocalWorld with hooks for interference and counters.

All hooks concern the environment: actions at a checkpoint, a second cluster, an in-memory
cloud instead of Cluster API, the number of requests of a function. Nothing here changes
the functions' behaviour.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.memory import GroupMemory, NodeMemory
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.journal import JournalEntry
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects as cluster_objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.fake_provider import InMemoryProvider
from infra.emulators.invocation import Invocation
from infra.emulators.kube.auth import KubeAuthority, User
from infra.emulators.kube.objects import KubeObject, clone
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.local_world import LocalWorld

Json = dict[str, Any]

SAVED = "reconcile:saved"


class Neighbour:
    """Another cluster of the same deployment with its own API server,
    controllers and kubeconfig."""

    def __init__(self, name: str, world: ScenarioWorld) -> None:
        self.name = name
        self.kube = ObjectStore(world.clock, seed=1 + len(world.neighbours))
        cluster_objects.apply_shipped(self.kube)
        self.server = ApiServer(self.kube)
        self.cluster = ClusterSimulation(self.kube, world.clock)
        self.server.start()
        world.put_secret(f"outscaler/{name}/kubeconfig", self.server.kubeconfig())

    def seed(self, *objects: KubeObject) -> None:
        """Adds objects and runs its controllers until they are idle."""
        cluster_objects.apply(self.kube, *objects)
        self.cluster.step()


class Requests(msgspec.Struct):
    """DynamoDB requests of the functions. reads, writes: requests; items: rows written,
    without condition checks."""

    reads: int = 0
    writes: int = 0
    items: int = 0

    def count(self, method: str, arguments: Json) -> None:
        """Counts one request, by its name in the API."""
        if method in {"GetItem", "BatchGetItem", "Query"}:
            self.reads += 1
            return
        self.writes += 1
        parts = arguments.get("TransactItems", [{"Put": {}}])
        self.items += sum("ConditionCheck" not in part for part in parts)


class ScenarioWorld(LocalWorld):
    """A LocalWorld with hooks. cloud: an in-memory provider used as `clusterapi`, where set.

    passes: the memory of each cluster, as stored, after each pass. requests: since the last
    `requests = Requests()`. lines: the functions' log. runtimes: the number of runtimes created.
    """

    def __init__(self, aws: LocalAws | None, **settings: Any) -> None:
        self.requests = Requests()
        self.passes: list[Json] = []
        self.lines = io.StringIO()
        self.runtimes = 0
        self._passed_at: list[float] = []
        self.cloud: InMemoryProvider | None = None
        self.neighbours: dict[str, Neighbour] = {}
        self._actions: dict[str, list[Callable[[], object]]] = {}
        super().__init__(aws, **settings)

    def start(self) -> None:
        """See LocalWorld."""
        super().start()
        self.store.table.client.meta.events.register(
            "before-parameter-build.dynamodb", self._counted
        )

    def close(self) -> None:
        """See LocalWorld."""
        for neighbour in self.neighbours.values():
            neighbour.server.stop()
        super().close()

    # -- interference

    def at(self, checkpoint: str, *actions: Callable[[], object]) -> None:
        """Runs these actions, one each, the next times a function reaches this checkpoint."""
        self._actions.setdefault(checkpoint, []).extend(actions)

    def when_step(self, step: str, action: Callable[[], object]) -> None:
        """Runs this once, when an act function has claimed an operation
        whose next step is this one."""

        def look() -> None:
            if any(operation.status.step == step for operation in self.operations()):
                action()
            else:
                self.at("act:claimed", look)

        self.at("act:claimed", look)

    def add_neighbour(self, name: str) -> Neighbour:
        """Adds another cluster and starts it."""
        self.neighbours[name] = Neighbour(name, self)
        return self.neighbours[name]

    def pause(self, seconds: float) -> None:
        """Stops the schedule and all deliveries for that long, and then resumes."""
        self.clock.advance(seconds)
        self._next_tick = max(self._next_tick, self.clock() - self.clock() % 60.0 + 60.0)

    def minutes(self, count: float) -> None:
        """Advances that many minutes."""
        self.step(count * 60.0)

    def redeliver(self, queue: str, body: str) -> Invocation:
        """Delivers a message again now, whatever its previous result was."""
        record = sqs_record(
            queue,
            f"again-{len(self.invocations)}",
            "receipt",
            body,
            {"ApproximateReceiveCount": "2"},
        )
        return self.invoke(self._functions[queue].name, sqs_event(record))

    def settle(self) -> None:
        """See LocalWorld."""
        for neighbour in self.neighbours.values():
            neighbour.cluster.step()
        super().settle()

    def new_runtime(self) -> Runtime:
        """See LocalWorld."""
        self.runtimes += 1
        made = super().new_runtime()
        dies = made.checkpoint

        def checkpoint(place: str) -> None:
            self._passed(place)
            dies(place)

        made = dataclasses.replace(made, checkpoint=checkpoint)
        cloud = self.cloud
        return made if cloud is None else dataclasses.replace(made, providers=lambda *_: (cloud,))

    def _passed(self, place: str) -> None:
        if actions := self._actions.get(place):
            actions.pop(0)()
        if place == SAVED:
            self._passed_at.append(self.clock())
            names = self.store.policies.names()
            self.passes.append(
                {name: msgspec.to_builtins(self.store.memory.load(name)) for name in names}
            )

    def _counted(self, params: Json, model: Any, **_: object) -> None:
        if self.invoker.current:  # lookups by a scenario itself are not counted
            self.requests.count(model.name, params)

    # -- the cluster

    def scale(self, name: str, replicas: int, namespace: str = "default") -> None:
        """Changes the number of replicas of a Deployment."""
        self._edit(
            "deployments", name, namespace, "apps", lambda spec: spec | {"replicas": replicas}
        )

    def budget(self, name: str, bound: Json, namespace: str = "default") -> None:
        """Changes the bound of a PodDisruptionBudget."""
        self._edit(
            "poddisruptionbudgets",
            name,
            namespace,
            "policy",
            lambda spec: {"selector": spec["selector"], **bound},
        )

    def _edit(
        self, plural: str, name: str, namespace: str, group: str, change: Callable[[Json], Json]
    ) -> None:
        found = self.kube.get(plural, name, namespace, group)
        assert found is not None, name
        found = clone(found)
        found["spec"] = change(found["spec"])
        self.kube.update(plural, found, group)
        self.settle()

    def bind_pod(self, name: str, node: str, like: str = "web") -> None:
        """Adds a pod to Deployment `like`, bound there by a scheduler that
        has not seen a taint yet."""
        model = next(
            pod for pod in self.kube.list("pods") if pod["metadata"]["labels"].get("app") == like
        )
        meta = {
            key: clone(model["metadata"][key]) for key in ("namespace", "labels", "ownerReferences")
        }
        self.kube.create(
            "pods",
            {
                "metadata": {"name": name, **meta},
                "spec": {"nodeName": node, "containers": clone(model["spec"]["containers"])},
            },
        )
        self._edit(
            "deployments",
            like,
            "default",
            "apps",
            lambda spec: spec | {"replicas": spec["replicas"] + 1},
        )

    def node(self, name: str) -> KubeObject:
        """A Node in its current state."""
        found = self.kube.peek("nodes", name)
        assert found is not None, name
        return found

    def is_marked(self, name: str) -> bool:
        """Whether it is tainted for deletion or cordoned."""
        spec = self.node(name)["spec"]
        taints = {taint["key"] for taint in spec.get("taints") or ()}
        return "ToBeDeletedByClusterAutoscaler" in taints or bool(spec.get("unschedulable"))

    def machines(self, group: str) -> list[str]:
        """Names of the Machines of a MachineDeployment, including those being deleted."""
        return [
            m["metadata"]["name"]
            for m in self.kube.list("machines", "default", fields.GROUP)
            if m["metadata"]["labels"].get("cluster.x-k8s.io/deployment-name") == group
        ]

    def pods_on(self, node: str) -> list[str]:
        """Names of the pods bound to it."""
        return [pod["metadata"]["name"] for pod in self.kube.pods_on(node)]

    def join(self) -> None:
        """Registers a Node for every running instance of `cloud`."""
        assert self.cloud is not None
        for pool in self.cloud.pools.values():
            for machine in pool.machines.values():
                if machine.node and self.kube.peek("nodes", machine.node) is None:
                    amounts = pool.template.allocatable if pool.template else {}
                    made = cluster_objects.node(
                        machine.node, f"{amounts['cpu']}m", str(amounts["memory"])
                    )
                    made["spec"]["providerID"] = machine.id
                    cluster_objects.apply(self.kube, made)
        self.settle()

    def pods_ready(self, app: str) -> int:
        """How many pods labelled app=<app> are ready."""
        return sum(
            condition["type"] == "Ready" and condition["status"] == "True"
            for pod in self.kube.list("pods")
            if pod["metadata"]["labels"].get("app") == app
            and "deletionTimestamp" not in pod["metadata"]
            for condition in pod.get("status", {}).get("conditions", ())
        )

    def rotate_credentials(self) -> None:
        """Changes the cluster's token and the kubeconfig in the secret; the old
        token is rejected at once."""
        known = self.server.api.authority.user("admin")
        self.server.api.authority = KubeAuthority(
            (User("admin", f"rotated-{known.token}", known.groups),), {}
        )
        self.put_secret(self.kubeconfig_secret, self.server.kubeconfig())

    @property
    def token(self) -> str:
        """The token that must not appear in any log; a rotated one ends with the previous one."""
        return self.server.api.authority.user("admin").token

    # -- records

    def journal(self, cluster: str = "") -> list[JournalEntry]:
        """Every journal entry, oldest first."""
        return list(reversed(self.store.journal.recent(cluster or self.name, 2000)))

    def ended(self, kind: str = "") -> list[Json]:
        """The facts of finished operations, oldest first."""
        return [
            entry.facts | {"group": entry.group, "operation": entry.operation, "at": entry.at}
            for entry in self.journal()
            if entry.kind == "operation" and kind in ("", entry.facts["kind"])
        ]

    def last_plan(self, cluster: str = "") -> Json:
        """The newest decision that differed from the one before it."""
        entry = next(entry for entry in reversed(self.journal(cluster)) if entry.kind == "plan")
        plan: Json = json.loads(entry.body)
        return plan

    def group_memory(self, group: str) -> GroupMemory:
        """The memory of a group."""
        return self.memory().groups[group]

    def plans_with(self, part: str, cluster: str = "") -> list[Json]:
        """The decisions with any entry under this key, oldest first."""
        found = (json.loads(entry.body) for entry in self.journal(cluster) if entry.kind == "plan")
        return [plan for plan in found if plan.get(part)]

    def last_known_nodes(self) -> dict[str, NodeMemory]:
        """The memory of unneeded nodes."""
        return {name: known for name, known in self.memory().nodes.items() if known.unneeded_since}

    def group_verdict(self, group: str) -> Json:
        """The reason why the last decision skipped a group."""
        verdict: Json = next(each for each in self.last_plan()["groups"] if each["group"] == group)[
            "skipped"
        ]
        return verdict

    def calls(self, function: str) -> int:
        """The number of invocations of a function."""
        return sum(invocation.function == function for invocation in self.invocations)

    def writes(self, *but: str) -> list[str]:
        """Every request that changed the cluster, except to paths that contain any of these."""
        return [
            f"{request.method} {request.path}"
            for request in self.server.requests
            if request.method != "GET" and not any(each in request.path for each in but)
        ]

    @property
    def log(self) -> list[Json]:
        """The functions' log."""
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def passed_at(self) -> list[float]:
        """The instants of all passes that reached a decision."""
        return self._passed_at

    def rows(self) -> dict[str, Json]:
        """The whole table: `cluster item` -> attributes as DynamoDB has them."""
        table, rows = self.store.table, dict[str, Json]()
        client: Any = table.client
        start: Json = {}
        while True:
            page: Json = client.scan(TableName=table.name, ConsistentRead=True, **start)
            for raw in page["Items"]:
                rows[f"{raw['cluster']['S']} {raw['item']['S']}"] = {
                    name: _value(value) for name, value in raw.items()
                }
            if "LastEvaluatedKey" not in page:
                return rows
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def deaths(self) -> list[str]:
        """The checkpoints at which functions died."""
        return [invocation.killed_at for invocation in self.invocations if invocation.killed_at]


def _value(typed: Json) -> Any:
    """An attribute without its type. DynamoDB writes numbers without superfluous zeros;
    moto leaves them unchanged."""
    ((kind, value),) = typed.items()
    return format(float(value), ".17g") if kind == "N" else value
