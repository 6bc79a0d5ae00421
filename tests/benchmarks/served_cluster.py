"""`python -m tests.benchmarks.served_cluster`: an emulated cluster in a process of its
own, behind a shaped line.

It prints one line of JSON with a kubeconfig and then answers each line of its input with one line:
`change N` changes N pods, `pend N` adds N pending ones, `settle` waits until no watch is open,
`count` returns the requests, the bytes and the connections since the last time.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import yaml

from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.tcp_servers import ShapedLink
from tests.benchmarks.object_shapes import Json, node, pod, replica_set

PENDING = 20
_SET = 10  # pods of a ReplicaSet


def _nodes(count: int) -> Iterator[Json]:
    text = json.dumps(node())
    for at in range(count):
        yield json.loads(text.replace("@N", str(at)))


def _sets(count: int) -> Iterator[Json]:
    shape = replica_set()
    for at in range(count):
        made = json.loads(
            json.dumps(shape["metadata"] | {"managedFields": []}).replace("@R", str(at))
        )
        spec = {"replicas": _SET, "selector": {"matchLabels": {"app": f"web-{at}"}}}
        yield {
            **shape,
            "metadata": made | {"managedFields": shape["metadata"]["managedFields"]},
            "spec": spec,
        }


class Pods:
    """Makes pods that share what is equal, so that 450,000 of them fit into the memory."""

    def __init__(self, nodes: int) -> None:
        self._nodes, self._shape = nodes, pod()

    def made(self, at: int, *, pending: bool = False, restarts: int = 0, cpu: str = "99") -> Json:
        """Return pod number `at`. restarts: of its container, which only its status shows."""
        shape, owner = self._shape, at // _SET
        meta, spec, status = dict(shape["metadata"]), dict(shape["spec"]), dict(shape["status"])
        hour, minute = divmod(at // 60 % 1440, 60)
        suffix = f"{at % 100_000:05d}"
        meta |= {
            "name": f"web-{owner}-{suffix}",
            "uid": f"uid-pod-{at}",
            "labels": {"app": f"web-{owner}", "pod-template-hash": str(owner)},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"web-{owner}",
                    "uid": f"uid-set-{owner}",
                }
                | {"controller": True}
            ],
            "creationTimestamp": (
                f"2026-11-{1 + at % 20:02d}T{hour:02d}:{minute:02d}:{at % 60:02d}Z"
            ),
        }
        token = {"name": f"kube-api-access-{suffix}"}
        container = spec["containers"][0]
        container = container | {"volumeMounts": [container["volumeMounts"][0] | token]}
        spec = {
            "volumes": [spec["volumes"][0] | token],
            "containers": [container],
            **_rest(spec, f"node-{at % self._nodes}"),
        }
        if pending:
            del spec["nodeName"]
            spec["containers"] = [container | {"resources": {"requests": {"cpu": cpu}}}]
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status = {"phase": "Pending", "conditions": [condition]}
        else:
            known = status["containerStatuses"][0]
            status["containerStatuses"] = [
                known | {"restartCount": restarts, "containerID": f"containerd://{at:064d}"}
            ]
        return {"metadata": meta, "spec": spec, "status": status}


def _rest(spec: Json, node_name: str) -> Json:
    rest = {
        key: value
        for key, value in spec.items()
        if key not in {"volumes", "containers", "nodeName"}
    }
    return {"nodeName": node_name, **rest}


class ServedCluster:
    def __init__(self, nodes: int, pods: int) -> None:
        self.store = ObjectStore(time.time)
        self.pods, self._changed, self._pending = Pods(nodes), 0, 0
        self._count = pods
        self.store.load("nodes", _nodes(nodes))
        self.store.load("replicasets", _sets(max(1, pods // _SET)), "apps")
        self.store.load("pods", (self.pods.made(at) for at in range(pods)))
        self.store.load("pods", (self.pods.made(pods + at, pending=True) for at in range(PENDING)))

    def change(self, count: int) -> None:
        """Change the status of pods, each another one than the time before."""
        chosen = [(self._changed + at) * 37 % self._count for at in range(count)]
        self._changed += count
        self.store.load("pods", [self.pods.made(at, restarts=self._changed) for at in chosen])

    def pend(self, count: int) -> None:
        """Add pods that need a node of their own, created now."""
        for _ in range(count):
            self._pending += 1
            made = self.pods.made(10_000_000 + self._pending, pending=True, cpu="7")
            del made["metadata"]["creationTimestamp"]  # now
            self.store.load("pods", [made])


def main(arguments: list[str]) -> int:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.served_cluster")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--round-trip", type=float, default=0.08, help="seconds")
    parser.add_argument("--bandwidth", type=float, default=1e8, help="bits per second")
    given = parser.parse_args(arguments)
    served = ServedCluster(given.nodes, given.pods)
    with ApiServer(served.store, tls=True) as server:
        address = urlsplit(server.url)
        target = (str(address.hostname), int(address.port or 0))
        with ShapedLink(target, round_trip=given.round_trip, bandwidth=given.bandwidth) as link:
            config: Any = yaml.safe_load(server.kubeconfig())
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
            _say({"kubeconfig": yaml.safe_dump(config)})
            for line in sys.stdin:
                word, _, number = line.strip().partition(" ")
                if word in ("change", "pend"):
                    (served.change if word == "change" else served.pend)(int(number))
                    _say({})
                elif word == "settle":
                    _say({"settled": server.wait_for_watches(10.0)})
                else:
                    _say(
                        {
                            "requests": len(server.requests),
                            "bytes": link.sent,
                            "connections": link.connections,
                        }
                    )
                    server.api.requests.clear()
                    link.reset_counters()
    return 0


def _say(what: Json) -> None:
    print(json.dumps(copy.copy(what)), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
