"""Clusters for scale-down, generated as in tests/property: every rule
between pods and nodes is used.

The half-empty clusters of ../shared/differential use only a few rules. A single one of these
clusters is small; a herd of them is large.
"""

from __future__ import annotations

from typing import Any

from tests.property.clusters import make
from tests.property.objects import HOST, LEAVING, STARTING
from tests.property.scheduler_view import group_of, state_of
from tests.property.snapshot_reader import Lists

Json = Any
_PASSING = (LEAVING, STARTING)


def wild(seed: int) -> tuple[Lists, Json]:
    """A cluster of tests/property, which mixes every predicate, turned into a scale-down case:
    without pending pods, and without upcoming or leaving nodes."""
    cluster = make(seed)
    there = {
        node["metadata"]["name"]: node
        for node in cluster.lists["nodes"]
        if state_of(node) not in _PASSING
    }
    pods = [pod for pod in cluster.lists["pods"] if pod["spec"].get("nodeName") in there]
    groups = [
        {**group, "size": sum(group_of(node) == group["id"] for node in there.values())}
        for group in cluster.manifest["nodeGroups"]
    ]
    return {**cluster.lists, "nodes": list(there.values()), "pods": pods}, {
        **cluster.manifest,
        "nodeGroups": groups,
    }


def herd(first: int, count: int) -> tuple[Lists, Json]:
    """That many of these clusters as one, leaving out those with volumes. Their pods share labels
    and namespaces, so that rules reach from one to another; zones are shared as well."""
    whole: dict[str, list[Json]] = {"nodes": [], "pods": [], "workloads": [], "namespaces": []}
    groups: list[Json] = []
    for seed in range(first, first + count):
        lists, manifest = wild(seed)
        if lists["claims"] or not lists["nodes"]:
            continue
        whole["nodes"] += [_named(node, seed) for node in lists["nodes"]]
        for pod in lists["pods"]:
            spec = {**pod["spec"], "nodeName": f"{seed}-{pod['spec']['nodeName']}"}
            whole["pods"].append({**_named(pod, seed), "spec": spec})
        whole["workloads"] += lists["workloads"]
        whole["namespaces"] = list(lists["namespaces"])
        groups += [
            {**group, "id": f"{seed}-{group['id']}", "template": _named(group["template"], seed)}
            for group in manifest["nodeGroups"]
        ]
    return whole, {"nodeGroups": groups}


def _named(thing: Json, seed: int) -> Json:
    """Prefixes all names of a node or a pod with the seed."""
    meta = {
        **thing["metadata"],
        **{key: f"{seed}-{thing['metadata'][key]}" for key in ("name", "uid")},
    }
    if thing["kind"] == "Pod":
        return {**thing, "metadata": meta}
    scheme, _, rest = thing["spec"]["providerID"].partition("://")
    group = rest.partition("/")[0]
    return {
        **thing,
        "metadata": {**meta, "labels": {**meta["labels"], HOST: meta["name"]}},
        "spec": {**thing["spec"], "providerID": f"{scheme}://{seed}-{group}/{meta['name']}"},
    }
