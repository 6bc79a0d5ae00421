"""`python -m tests.benchmarks.pass_memory`: peak memory and CPU seconds of
whole passes by cluster size.

Each pass runs in its own process, as in Lambda: the client reads a cluster over HTTP, and the table
is in memory. The parent process serves the cluster, so the cluster's objects are not part of any
figure. Pods have realistic sizes (managed fields, probes, volumes, conditions), because the memory
of a pass depends on the pages it reads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.benchmarks.object_shapes import node, pod, replica_set

Json = dict[str, Any]

SIZES = ((100, 15), (100, 34), (1000, 15), (1000, 34), (5000, 15), (5000, 34))
GROUPS = 10
PENDING = 20
START = 1_795_245_660.0
MEGABYTE = float(1 << 20)  # Lambda's definition of a MB
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: bench}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: outscaler/bench/kubeconfig}
  providers: {clusterapi: {}}
"""


# -- the cluster


class ServedObjects:
    """Lists of a cluster with `nodes` nodes and `per_node` pods on each. Every object is
    rendered when it is sent."""

    def __init__(self, nodes: int, per_node: int) -> None:
        self.nodes, self.pods = nodes, nodes * per_node
        self._node, self._pod, self._set = (json.dumps(each()) for each in (node, pod, replica_set))

    def rendered(self, plural: str, begin: int, most: int) -> tuple[list[str], int]:
        """Returns up to `most` objects of a list from `begin` on, and the total number."""
        shapes: dict[str, tuple[int, Callable[[int], str]]] = {
            "nodes": (self.nodes, lambda at: self._node.replace("@N", str(at))),
            "pods": (self.pods + PENDING, self._pod_at),
            "replicasets": (max(1, self.pods // 10), lambda at: self._set.replace("@R", str(at))),
        }
        count, at = shapes.get(plural, (0, str))
        return [at(number) for number in range(begin, min(begin + most, count))], count

    def _pod_at(self, at: int) -> str:
        text = self._pod.replace("@P", str(at)).replace("@R", str(at % max(1, self.pods // 10)))
        if at < self.pods:
            return text.replace("@N", str(at % self.nodes))
        pending = json.loads(text)
        del pending["spec"]["nodeName"]
        pending["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "99"
        pending["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }
        return json.dumps(pending)


class _PassMemoryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ServedObjects

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        query = parse_qs(split.query)
        plural = split.path.rpartition("/")[2]
        if "/configmaps/" in split.path:
            self._answer(
                404,
                json.dumps(
                    {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
                ),
            )
            return
        begin, most = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
        items, count = self.objects.rendered(plural, begin, most)
        end = begin + len(items)
        metadata = {"resourceVersion": "1"} | ({"continue": str(end)} if end < count else {})
        kind = json.dumps({"kind": "List", "apiVersion": "v1", "metadata": metadata})
        self._answer(200, f'{kind[:-1]}, "items": [{",".join(items)}]}}')

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a pass that has stopped
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def served(objects: ServedObjects) -> tuple[ThreadingHTTPServer, str]:
    """Serve objects on a port of this machine; return the server and its kubeconfig."""
    handler = type("Handler", (_PassMemoryHandler,), {"objects": objects})
    # a pass opens a dozen connections
    many = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 128})
    server: ThreadingHTTPServer = many(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [
            {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    return server, yaml.safe_dump(kubeconfig)


# -- the pass


def passes(
    nodes: int, kubeconfig: str, count: int, *, keep: int = 0, shared: str = "", size: int = 0
) -> Iterator[Json]:
    """Runs passes in this process, the first one cold: peak MB (of the process so far), CPU and
    wall seconds. keep: bytes in which lists are kept between passes. shared: a folder from which
    each pass takes the lists, as a pass of another process does. size: MB of the function, beyond
    which a pass stops; 0 for any."""
    from chalicelib.cluster.connect import connect
    from chalicelib.model.errors import MemoryExceeded
    from chalicelib.model.group import Instance, InstanceState
    from chalicelib.passes.reconciler import handle
    from chalicelib.runtime.memory_usage import MemoryGauge
    from chalicelib.runtime.messages import ReconcileMessage, encode
    from chalicelib.runtime.runtime import build, keeping
    from infra.emulators.aws_services import QuickServices
    from infra.emulators.controllers.clock import ManualClock
    from infra.emulators.fake_provider import InMemoryProvider

    services, clock, provider = QuickServices(), ManualClock(START), InMemoryProvider()
    store = services.dynamodb.store(services.table, clock=clock)
    store.policies.put("bench", POLICY, "digest", None)
    for group in range(GROUPS):
        pool = provider.add_pool(f"g{group}", size=0, most=nodes)
        for at in range(group, nodes, GROUPS):
            pool.machines[f"node-{at}"] = Instance(
                id=f"memory://node-{at}", node=f"node-{at}", state=InstanceState.RUNNING
            )
        pool.target = len(pool.machines)
    runtime = build(
        clock=clock,
        store=store,
        sender=_Nowhere(),
        read_secret=lambda _: "",
        connect=lambda policy: connect(
            policy.kubernetes,
            lambda _: kubeconfig,
            clock=time.time,
            sleep=time.sleep,
            jitter=lambda: 0.5,
        ),
        providers=lambda *_: (provider,),
    )
    if size:
        runtime = replace(runtime, memory_usage=MemoryGauge(), memory_size=size)
    if keep:
        runtime = replace(runtime, kept_lists=keeping(keep, shared, time.time))
    base = _peak()
    for _ in range(count):
        clock.advance(60)
        if shared and runtime.kept_lists is not None:
            runtime.kept_lists().drop("bench")
        cpu, wall = time.process_time(), time.perf_counter()
        stopped = ""
        try:
            handle(encode(ReconcileMessage("bench", "schedule", clock())).decode(), runtime)
        except MemoryExceeded as error:
            stopped = str(error)
        yield {
            "stopped": stopped,
            "base": base,
            "peak": _peak(),
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
            "timers": len(store.memory.load("bench").nodes),
        }


class _Nowhere:
    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Discards messages."""


def _peak() -> float:
    """Returns the peak since the program began; ru_maxrss would include that of the
    process that started it."""
    status = Path("/proc/self/status").read_text("ascii")
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        * 1024
        / MEGABYTE
    )


def main(arguments: list[str]) -> int:
    """Runs the command: one line for each size, or one size in this process (--child)."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pass_memory")
    parser.add_argument("--child", type=int, metavar="NODES", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, metavar="MB", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        for made in passes(given.child, sys.stdin.read(), 1 if given.size else 2, size=given.size):
            print(json.dumps(made), flush=True)
        return 0
    for nodes, per_node in SIZES:
        server, kubeconfig = served(ServedObjects(nodes, per_node))
        command = [sys.executable, "-m", "tests.benchmarks.pass_memory", "--child", str(nodes)]
        done = subprocess.run(
            command, input=kubeconfig, capture_output=True, text=True, check=False
        )
        server.shutdown()
        lines = [
            json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"stopped"')
        ]
        if not lines:
            print(done.stdout, done.stderr)
            return 1
        for made in lines:
            print(
                f"{nodes:>5} nodes {nodes * per_node:>7} pods: peak {made['peak']:.0f} MB "
                f"(before the first {made['base']:.0f}), {made['cpu']:.2f} CPU s, "
                f"{made['wall']:.2f} s, "
                f"{made['timers']} timers",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
