"""Clusters on the simulated API server for the tests of `outscaler capture`, and
what a plan says about them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chalicelib.cluster.listed_resources import RESOURCES
from infra.emulators.kube.auth import MASTERS, RbacRule, User
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore

SECRET = "hunter2-of-the-shop"
"""A marker that must not be captured."""
_PLACES = {resource.kind: (resource.plural, resource.group) for resource in RESOURCES}
_CONTAINER = {
    "image": f"registry.test/{SECRET}",
    "command": [SECRET],
    "args": [f"--password={SECRET}"],
    "env": [{"name": "PASSWORD", "value": SECRET}],
    "livenessProbe": {"exec": {"command": [SECRET]}},
}


@contextmanager
def served(
    folder: Path, objects: Sequence[Mapping[str, Any]], rules: Sequence[RbacRule] | None = None
) -> Iterator[tuple[ApiServer, Path]]:
    """A server with these objects, and the kubeconfig of an administrator or, with rules, of an
    account limited to them."""
    store = ObjectStore(lambda: 1_800_000_000.0)
    for each in objects:
        kind = str(each["kind"])
        if kind in _PLACES:
            plural, group = _PLACES[kind]
            store.load(plural, [copy.deepcopy(dict(each))], group)
    users = (User("admin", "token-of-admin", (MASTERS,)), User("limited", "token-of-limited"))
    with ApiServer(store, users=users, rbac={"limited": rules or ()}) as server:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig("admin" if rules is None else "limited"))
        yield server, kubeconfig


def saved_objects(folder: Path) -> list[dict[str, Any]]:
    """All objects of a saved cluster."""
    return [
        item
        for path in sorted(folder.glob("*.json"))
        if path.name != "manifest.json"
        for item in json.loads(path.read_text())["items"]
    ]


def confidential(objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies with a marker in every place that no plan reads: containers, annotations,
    managed fields, volumes."""
    marked = []
    for each in copy.deepcopy(list(objects)):
        made: dict[str, Any] = dict(each)
        meta = made["metadata"]
        meta["annotations"] = {**(meta.get("annotations") or {}), "team.test/note": SECRET}
        meta["managedFields"] = [{"manager": SECRET}]
        if made["kind"] == "Pod":
            spec = made["spec"]
            spec["containers"] = [{**container, **_CONTAINER} for container in spec["containers"]]
            spec["initContainers"] = [{"name": "init", **_CONTAINER}]
            spec["volumes"] = [
                *(spec.get("volumes") or ()),
                {
                    "name": "v",
                    "csi": {"driver": "d.test", "volumeAttributes": {"password": SECRET}},
                },
            ]
        marked.append(made)
    return marked


def decisions(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's JSON without its id and what depends on the machine's speed."""
    return {key: value for key, value in plan.items() if key not in {"plan", "at", "timings"}}
