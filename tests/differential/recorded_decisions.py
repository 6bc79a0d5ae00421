"""Decisions that a real kube-scheduler recorded: the pod, every plugin's score for every node that
it fitted, the node that was chosen, and the cluster before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, read_pod
from tests.reference_data import SHARED

Json = Any
RECORDED = SHARED / "data" / "scheduler-scores"
ZONE = "topology.kubernetes.io/zone"


class RecordedDecision(msgspec.Struct, frozen=True):
    """order: positions of the feasible nodes in the order scored; scores: plugin -> weighted score
    of each of these nodes, by position; total: sums of the same; node: the position of the choice,
    None for a refusal; evaluated: nodes that were looked at."""

    pod: PodView
    order: tuple[int, ...]
    scores: Mapping[str, tuple[int, ...]]
    total: tuple[int, ...]
    node: int | None
    evaluated: int


class RecordedRun:
    """One run of the scheduler: the cluster, and its decisions one after the other."""

    def __init__(self, file: str, run: str) -> None:
        held = _read("nodes.json")
        sizes = held["images"]
        raws = [_node(node, sizes) for node in held["nodes"]]
        self._bound = _read("bound.json")
        self._file = RECORDED / file
        self.added: Sequence[int] = _read("runs.json")[run]["added"]
        self.world = ClusterView.of(raws, _bound_pods(self._bound, raws), _around(self._bound))
        self.nodes: tuple[NodeView, ...] = tuple(self.world.nodes.values())

    def decisions(self) -> Iterator[RecordedDecision]:
        """Yield the decisions; `world` is the cluster before the one that was yielded last."""
        for line in self._file.read_bytes().splitlines():
            row = msgspec.json.decode(line)
            namespace, _, name = row["pod"].partition("/")
            pod = read_pod(_pod(name, namespace, row["labels"], row["spec"], row["owner"]))
            yield RecordedDecision(
                pod,
                tuple(row["order"]),
                {plugin: tuple(scores) for plugin, scores in row.get("scores", {}).items()},
                tuple(row.get("sum", ())),
                row["node"],
                row["evaluated"],
            )
            if row["node"] is not None:
                self.world.place(pod, self.nodes[row["node"]].name)


def _read(file: str) -> Json:
    return msgspec.json.decode(Path(RECORDED / file).read_bytes())


def _node(node: Json, sizes: Mapping[str, int]) -> Json:
    images = [{"names": [name], "sizeBytes": sizes[name]} for name in node["images"]]
    return {
        "metadata": {"name": node["name"], "labels": node["labels"]},
        "spec": {"taints": node["taints"]},
        "status": {"allocatable": node["allocatable"], "images": images},
    }


def _pod(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    spec: Json,
    owner: str | None,
    on: str = "",
) -> Json:
    meta: Json = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if owner:
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    return {"metadata": meta, "spec": {**spec, **({"nodeName": on} if on else {})}}


def _bound_pods(bound: Json, nodes: Sequence[Json]) -> Iterator[Json]:
    for name, number, at in bound["pods"]:
        owner = bound["replicasets"][number]
        on = nodes[at]["metadata"]["name"]
        yield _pod(name, owner["namespace"], owner["labels"], owner["spec"], owner["name"], on)


def _around(bound: Json) -> Surroundings:
    def meta(thing: Json) -> Json:
        return {"name": thing["name"], "namespace": thing["namespace"]}

    return Surroundings(
        namespaces=tuple(
            {"metadata": {"name": name, "labels": labels}}
            for name, labels in bound["namespaces"].items()
        ),
        services=tuple(
            {"metadata": meta(service), "spec": {"selector": service["selector"]}}
            for service in bound["services"]
        ),
        replica_sets=tuple(
            {"metadata": meta(owner), "spec": {"selector": {"matchLabels": owner["selector"]}}}
            for owner in bound["replicasets"]
        ),
    )
