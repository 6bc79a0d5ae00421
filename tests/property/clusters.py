"""Small random clusters that mix every predicate, one per seed, for the planner and for the
scheduler that checks it.

python -m tests.property.clusters --seed N --out DIR     files for `outscaler plan
                                                         --snapshot DIR`, and the command
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cli import plan_inputs
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.timestamps import format_time
from tests.property import objects
from tests.property.constraints import ConstraintsFixture, labels, wish
from tests.property.objects import (
    CORDONED,
    DISK_ZONE,
    LEAVING,
    NOW,
    READY,
    REGION,
    STARTING,
    UNREADY,
    ZONE,
    Json,
)
from tests.property.storage_objects import Disks

MOST_NODES = 8
_PRIORITIES = ("10: [g0]\n20: [g.]", "10: [.*]\n20: [g1, g2]", "5: [nobody]")
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: generated}
spec:
  mode: shadow
  kubernetes: {kubeconfigFile: kubeconfig}
  providers: {clusterapi: {}}
  prices: {cpu: 0.03, memory: 0.004, node: 0.01}
"""


class RandomCluster(msgspec.Struct):
    """One case. lists: objects by file; settings: options in the form of `--option`;
    requested: upcoming nodes."""

    seed: int
    lists: dict[str, list[Json]]
    manifest: Json
    settings: tuple[str, ...]
    requested: dict[str, int]

    def memory(self) -> Memory:
        """The memory: scale-up requests that are still open."""
        return Memory(
            groups={
                name: GroupMemory(request=ScaleUpRequest(count, NOW - 60.0, NOW + 600.0))
                for name, count in self.requested.items()
            },
            first_seen=NOW - 86_400.0,
        )


def make(seed: int) -> RandomCluster:
    """The cluster of a seed; equal for every call and machine."""
    return draw_cluster(random.Random(seed), seed)


def draw_cluster(draw: random.Random, seed: int = -1) -> RandomCluster:
    """A cluster from any random source; hypothesis has one that it can shrink."""
    return _ClustersMaker(draw).cluster(seed)


class _ClustersMaker:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.zones = ("z-a", "z-b", "z-c")[: draw.choice((1, 2, 3, 3))]
        self.lists: dict[str, list[Json]] = {
            name: [] for name in ("nodes", "pods", "workloads", "namespaces")
        }
        self.groups: list[Json] = []
        self.requested: dict[str, int] = {}
        self.free: dict[str, list[int]] = {}  # node -> free millicores, MiB and pods
        self.disks = Disks(draw, self.zones)

    def chance(self, share: float) -> bool:
        return objects.chance(self.draw, share)

    def cluster(self, seed: int) -> RandomCluster:
        self.make_groups()
        self.make_daemons()
        apps = [f"app{at}" for at in range(self.draw.randint(1, 3))]
        self.make_running(apps)
        self.make_pending(apps)
        self.lists["namespaces"] = [
            objects.namespace("ns0", {"team": "red"}),
            objects.namespace("ns1", {"team": "blue"}),
            objects.namespace("kube-system", {}),
        ]
        self.lists.update(self.disks.lists([n["metadata"]["name"] for n in self.lists["nodes"]]))
        self.lists["configmaps"] = (
            [objects.priorities(self.draw.choice(_PRIORITIES))] if self.chance(0.5) else []
        )
        return RandomCluster(
            seed,
            self.lists,
            {"nodeGroups": [self.entry(group) for group in self.groups]},
            self.settings(),
            self.requested,
        )

    # -- groups and nodes

    def make_groups(self) -> None:
        room = MOST_NODES
        for at in range(self.draw.choice((1, 2, 2, 3, 3, 4, 5))):
            group = (
                self.shape(at)
                if not self.groups or not self.chance(0.25)
                else {
                    **self.draw.choice(self.groups),
                    "id": f"g{at}",
                    "labels": dict(self.groups[-1]["labels"]),
                }
            )
            self.place(group)
            size = min(room, self.draw.choice((0, 0, 1, 1, 2, 3)))
            room -= size
            group["size"] = size
            self.groups.append(group)
            for number in range(size):
                self.add_node(group, f"{group['id']}-n{number}")
            if size and self.chance(0.08):  # requested instances that are not nodes yet
                coming = self.draw.choice((1, 1, 2))
                group["size"] += coming
                self.requested[group["id"]] = self.requested.get(group["id"], 0) + coming
            group["max"] = group["size"] + self.draw.choice((0, 1, 2, 4, 10))
        if self.chance(0.1):
            self.add_node({**self.shape(9), "id": "static"}, "static-0")

    def shape(self, at: int) -> Json:
        draw, cpu = self.draw, self.draw.choice((1, 2, 4, 8))
        group: Json = {
            "id": f"g{at}",
            "labels": {"tier": draw.choice(("web", "batch", "any"))},
            "taints": [],
            "offer": {
                "cpu": str(cpu),
                "memory": f"{cpu * draw.choice((2, 4, 8))}Gi",
                "pods": str(draw.choice((110, 110, 8, 5))),
                "ephemeral-storage": "50Gi",
            },
        }
        if self.chance(0.25):
            group["taints"] = [
                {
                    "key": "dedicated",
                    "value": draw.choice(("a", "b")),
                    "effect": draw.choice(("NoSchedule", "NoExecute", "PreferNoSchedule")),
                }
            ]
        if self.chance(0.25):
            group["offer"]["example.com/gpu"] = str(draw.choice((1, 2, 4)))
        if self.chance(0.35):
            group["labels"]["gen"] = str(draw.randint(1, 9))
        return group

    def place(self, group: Json) -> None:
        zone = self.draw.choice(self.zones)
        group["labels"].update(
            {"kubernetes.io/os": "linux", REGION: "r", ZONE: zone, DISK_ZONE: zone}
        )
        if self.chance(0.06):
            for key in (ZONE, DISK_ZONE):
                del group["labels"][key]

    def add_node(self, group: Json, name: str) -> None:
        state = self.draw.choice((READY,) * 14 + (CORDONED, UNREADY, STARTING, LEAVING))
        if group["id"] == "static":
            state = READY
        if state == STARTING:
            self.requested[group["id"]] = self.requested.get(group["id"], 0) + 1
        node = objects.node(
            name, group["id"], group["offer"], group["labels"], group["taints"], state
        )
        self.lists["nodes"].append(node)
        offer = node["status"]["allocatable"]
        if state not in (STARTING, LEAVING):
            self.free[name] = [
                int(offer["cpu"][:-1]),
                int(offer["memory"][:-2]),
                int(offer["pods"]),
            ]

    def entry(self, group: Json) -> Json:
        template = objects.node(
            f"{group['id']}-template", group["id"], group["offer"], group["labels"], group["taints"]
        )
        return {
            "id": group["id"],
            "min": 0,
            "max": group["max"],
            "size": group["size"],
            "template": template,
        }

    # -- pods

    def make_daemons(self) -> None:
        for at in range(self.draw.choice((0, 0, 1, 1, 2))):
            spec: Json = {
                "containers": [
                    objects.container(self.draw.choice((50, 100, 200)), self.draw.choice((0, 64)))
                ]
            }
            if not self.chance(0.3):
                spec["tolerations"] = [{"operator": "Exists"}]
            if self.chance(0.2):
                spec["nodeSelector"] = {"tier": self.draw.choice(("web", "any"))}
            if self.chance(0.15):
                spec["containers"][0]["ports"] = [{"containerPort": 9100, "hostPort": 9100}]
            name, marks = f"agent{at}", {"app": f"agent{at}"}
            self.lists["workloads"].append(
                objects.workload("DaemonSet", name, "kube-system", None, spec, marks)
            )
            for node in self.lists["nodes"]:
                if _daemon_runs(spec, node):
                    on = node["metadata"]["name"]
                    self.run(
                        objects.pod(
                            f"{name}-{on}", "kube-system", spec, marks, ("DaemonSet", name), on
                        )
                    )

    def run(self, pod: Json) -> None:
        """Adds a pod to the named node and subtracts its plain containers' cpu and memory there."""
        self.lists["pods"].append(pod)
        free = self.free.get(pod["spec"]["nodeName"])
        if free is not None:
            cpu, memory = _asks(pod)
            free[0], free[1], free[2] = free[0] - cpu, free[1] - memory, free[2] - 1

    def make_running(self, apps: Sequence[str]) -> None:
        """Adds some pods of each app, sometimes with rules between pods, and plain pods that fill
        most of the remaining room."""
        for app in apps:
            scene = self.scene(app, apps)
            cpu, memory = self.draw.choice((100, 250, 500)), self.draw.choice((128, 512))
            spec: Json = {"containers": [objects.container(cpu, memory)]}
            if self.chance(0.4):
                rule = wish(scene)
                kept = {
                    kind: rules
                    for kind, rules in rule.get("affinity", {}).items()
                    if kind != "nodeAffinity"
                }
                spec.update({"affinity": kept} if kept else {})
            priority = self.draw.choice((None, None, None, None, -11))
            if priority is not None:
                spec["priority"] = priority
            marks, space, count = labels(scene, app), self.draw.choice(("ns0", "ns0", "ns1")), 0
            for name in self.free:
                for _ in range(self.draw.choice((0, 0, 1, 1, 2))):
                    made = objects.pod(
                        f"{app}-r{count}", space, spec, marks, ("ReplicaSet", app), name
                    )
                    cpu, memory = _asks(made)
                    if (
                        self.free[name][0] >= cpu
                        and self.free[name][1] >= memory
                        and self.free[name][2] > 0
                    ):
                        if self.chance(0.05):
                            made["metadata"]["deletionTimestamp"] = objects.instant(5)
                        self.run(made)
                        count += 1
            self.lists["workloads"].append(
                objects.workload("ReplicaSet", app, space, count, spec, marks)
            )
        self.disks.run(self)
        for name, free in self.free.items():
            share = self.draw.choice((0.0, 0.6, 1.0))
            cpu, memory = int(free[0] * share), int(free[1] * share)
            if free[2] > 0 and cpu > 0 and memory > 0:
                spec = {"containers": [objects.container(cpu, memory)]}
                self.run(
                    objects.pod(
                        f"filler-{name}",
                        "ns1",
                        spec,
                        {"app": "filler"},
                        ("ReplicaSet", "filler"),
                        name,
                    )
                )

    def scene(self, own: str, apps: Sequence[str]) -> ConstraintsFixture:
        rev = self.draw.choice(("1", "2")) if self.chance(0.3) else ""
        return ConstraintsFixture(
            self.draw,
            own,
            rev,
            apps,
            self.zones,
            list(self.free),
            self.draw.choice((8001, 8002, 9100)),
        )

    def make_pending(self, apps: Sequence[str]) -> None:
        for at in range(self.draw.choice((1, 1, 2, 2, 3, 4, 5, 6))):
            name, space = f"new{at}", self.draw.choice(("ns0", "ns0", "ns1"))
            scene = self.scene(self.draw.choice((name, name, self.draw.choice(apps))), apps)
            spec, marks = wish(scene), labels(scene, name)
            if self.chance(0.35):
                spec["priority"] = self.draw.choice((0, 100, 1000, -10, -11))
            kind = "StatefulSet" if self.chance(0.2) else "ReplicaSet"
            asks = self.disks.wish()
            count, age = self.draw.randint(1, 8), self.draw.choice((600.0, 60.0, 60.0, 61.0))
            self.lists["workloads"].append(objects.workload(kind, name, space, count, spec, marks))
            for number in range(count):
                own = (
                    spec
                    if asks is None
                    else {**spec, "volumes": self.disks.claim(asks, space, name, number)}
                )
                owner = None if self.chance(0.01) else (kind, name)
                self.lists["pods"].append(
                    self.odd(objects.pod(f"{name}-{number}", space, own, marks, owner, age=age))
                )

    def odd(self, pod: Json) -> Json:
        """Makes a few pending pods special: nominated, gated, terminating, not yet seen, or
        with anti-affinity to all."""
        chosen, said = 1.0 - self.draw.random(), pod["status"]["conditions"][0]
        if chosen < 0.02 and self.free:
            pod["status"]["nominatedNodeName"] = self.draw.choice(list(self.free))
        elif chosen < 0.03:
            pod["spec"]["schedulingGates"], said["reason"] = [{"name": "wait"}], "SchedulingGated"
        elif chosen < 0.04:
            pod["metadata"]["deletionTimestamp"] = objects.instant(1)
        elif chosen < 0.05:
            pod["status"]["conditions"] = []
        return pod

    # -- options

    def settings(self) -> tuple[str, ...]:
        cores = sum(int(node["status"]["capacity"]["cpu"]) for node in self.lists["nodes"])
        memory = sum(int(node["status"]["capacity"]["memory"][:-2]) for node in self.lists["nodes"])
        chosen = []
        if self.chance(0.12):
            chosen.append(f"maxNodesTotal={len(self.lists['nodes']) + self.draw.choice((1, 2, 5))}")
        if self.chance(0.08):
            chosen.append(f"coresTotal=0:{cores + self.draw.choice((3, 8, 16))}")
        if self.chance(0.08):
            chosen.append(f"memoryTotal=0:{memory + self.draw.choice((8, 32))}")
        if self.chance(0.06):
            chosen.append(f"maxNodesPerScaleup={self.draw.choice((1, 2, 3))}")
        if self.chance(0.5):
            chain = self.draw.choice(
                (
                    "most-pods",
                    "least-nodes",
                    "random",
                    "most-pods, least-waste",
                    "least-cost",
                    "least-nodes, random",
                    "priority, least-waste",
                    "price",
                )
            )
            chosen.append(f"expander=[{chain}]")
        if self.chance(0.25):
            chosen.append("balanceSimilarNodeGroups=true")
        return tuple(chosen)


def _asks(pod: Json) -> tuple[int, int]:
    asked = [container["resources"]["requests"] for container in pod["spec"]["containers"]]
    return (
        sum(int(each.get("cpu", "0m")[:-1]) for each in asked),
        sum(int(each.get("memory", "0Mi")[:-2]) for each in asked),
    )


def _daemon_runs(spec: Json, node: Json) -> bool:
    """Whether a DaemonSet's pod runs on the node; these need a label at most and tolerate
    everything or only the default taints."""
    fits = spec.get("nodeSelector", {}).items() <= node["metadata"]["labels"].items()
    barred = any(
        taint["effect"] != "PreferNoSchedule" and not taint["key"].startswith("node.kubernetes.io/")
        for taint in node["spec"].get("taints", ())
    )
    return fits and ("tolerations" in spec or not barred)


def write(cluster: RandomCluster, folder: Path) -> list[str]:
    """Writes the files of a cluster; returns the command that plans for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, items in cluster.lists.items():
        (folder / f"{name}.json").write_bytes(
            msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
        )
    (folder / "manifest.json").write_bytes(msgspec.json.encode(cluster.manifest))
    (folder / "policy.yaml").write_text(POLICY)
    command = ["outscaler", "plan", "--snapshot", str(folder), "--now", format_time(NOW)]
    command += ["--policy", str(folder / "policy.yaml")]
    if cluster.requested:
        plan_inputs.write_memory(folder / "remembered", cluster.memory())
        command += ["--memory", str(folder / "remembered")]
    return [
        *command,
        *(word for setting in cluster.settings for word in ("--option", f"'{setting}'")),
    ]


def main(arguments: Sequence[str] | None = None) -> Any:
    """Writes one cluster."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.property.clusters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    print(" ".join(write(make(args.seed), args.out)))


if __name__ == "__main__":
    main()
