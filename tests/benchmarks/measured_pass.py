"""`python -m tests.benchmarks.measured_pass`: a process that makes passes, as a function
does, and measures them.

Its first line of input is a job as JSON. Then each line is answered by one line: `pass` makes a
whole pass, `bare` reads the same lists as a plain client does, page after page, without decoding
them, `react` sends an event to the webhook and makes what follows until the provider is asked for a
machine.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from tests.benchmarks.object_shapes import Json
from tests.benchmarks.pass_memory import passes

PAGE = 500
EVENT = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "web.1", "namespace": "default"},
    "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
    "reason": "FailedScheduling",
    "type": "Warning",
}
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: bench}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/bench/kubeconfig}
  providers: {clusterapi: {}}
  webhook: {secret: outscaler/bench/webhook}
"""


class MeasuredJob(msgspec.Struct, frozen=True):
    """kubeconfig: of the served cluster; nodes: its number of nodes; keep: bytes in which lists are
    kept; shared: see pass_memory.passes."""

    kubeconfig: str
    nodes: int
    keep: int
    shared: str = ""


def _bare(kubeconfig: str) -> Iterator[Json]:
    """Reads the lists with `requests` alone: one connection, pages in turn."""
    import base64
    import tempfile

    import requests
    import yaml

    from chalicelib.cluster.listed_resources import RESOURCES

    config: Any = yaml.safe_load(kubeconfig)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    with tempfile.NamedTemporaryFile(suffix=".pem") as authority, requests.Session() as session:
        authority.write(base64.b64decode(cluster["certificate-authority-data"]))
        authority.flush()
        session.trust_env = False  # another authority in the environment would come first
        session.verify = authority.name
        session.headers["Authorization"] = f"Bearer {user['token']}"
        while True:
            cpu, wall, volume = time.process_time(), time.perf_counter(), 0
            for resource in RESOURCES:
                ask: dict[str, str] | None = {**resource.query, "limit": str(PAGE)}
                while ask is not None:
                    body = session.get(
                        cluster["server"] + resource.path, params=ask, timeout=60
                    ).content
                    volume += len(body)
                    token = msgspec.json.decode(body, type=_Head).metadata.token
                    ask = (
                        {**resource.query, "limit": str(PAGE), "continue": token} if token else None
                    )
            yield {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
                "plain": volume,
            }


class _Meta(msgspec.Struct):
    token: str = msgspec.field(default="", name="continue")


class _Head(msgspec.Struct):
    metadata: _Meta


class _Queues:
    """Gives each message to a thread at once, as queues give them to
    functions. handlers: by queue."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[str], None]] = {}
        self._threads: list[threading.Thread] = []

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """See Sender; a delayed message is not delivered, because it would come
        during the next measurement."""
        if delay:
            return
        thread = threading.Thread(target=self.handlers[queue], args=(body.decode(),))
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        """Wait until all messages are processed."""
        while self._threads:
            self._threads.pop().join()


def _reactions(job: MeasuredJob) -> Iterator[Json]:
    """Yields the seconds from the arrival of an event to the request to the provider, and those in
    which the pass waited for further pods."""
    from chalicelib.cluster.connect import connect
    from chalicelib.functions import webhook
    from chalicelib.model.group import Instance, InstanceState
    from chalicelib.model.node import Node
    from chalicelib.model.operation import Operation
    from chalicelib.model.outcome import Outcome
    from chalicelib.model.timestamps import format_time
    from chalicelib.operations import runner
    from chalicelib.passes import reconciler
    from chalicelib.runtime.runtime import build, keeping
    from chalicelib.store.debounce import PROMPT
    from infra.emulators.aws_services import QuickServices
    from infra.emulators.fake_provider import InMemoryProvider

    class TimedProvider(InMemoryProvider):
        """Notes when it is asked for machines."""

        asked = 0.0

        def scale_up(self, operation: Operation) -> Outcome:
            self.asked = time.perf_counter()
            return super().scale_up(operation)

    services, provider, queues, waited = QuickServices(), TimedProvider(), _Queues(), [0.0]
    store = services.dynamodb.store(services.table, clock=time.time)

    def sleep(seconds: float) -> None:
        waited[0] += seconds
        time.sleep(seconds)

    store.policies.put("bench", POLICY, "digest", None, webhook="outscaler/bench/webhook")
    room = {"cpu": 8_000, "memory": 32 << 30, "pods": 110}
    pool = provider.add_pool("g", size=0, most=10 * job.nodes)
    pool.template = Node(name="template", labels={}, allocatable=room, capacity=room)
    for at in range(job.nodes):
        pool.machines[f"node-{at}"] = Instance(
            id=f"memory://node-{at}", node=f"node-{at}", state=InstanceState.RUNNING
        )
    pool.target = job.nodes
    runtime = build(
        clock=time.time,
        store=store,
        sender=queues,
        sleep=sleep,
        read_secret=lambda _: "a-token-of-the-webhook",
        connect=lambda policy: connect(
            policy.kubernetes,
            lambda _: job.kubeconfig,
            clock=time.time,
            sleep=time.sleep,
            jitter=lambda: 0.5,
        ),
        providers=lambda *_: (provider,),
    )
    runtime = replace(runtime, kept_lists=keeping(job.keep))
    queues.handlers = {
        "reconcile": lambda body: reconciler.handle(body, runtime),
        "act_clusterapi": lambda body: runner.handle(body, runtime),
    }
    headers = {"Authorization": "Bearer a-token-of-the-webhook"}
    webhook_runtime = replace(runtime, owner=lambda: "webhook")
    while True:
        waited[0] = 0.0
        bought, began = len(provider.purchases), time.perf_counter()
        event = EVENT | {"firstTimestamp": format_time(time.time())}
        webhook.handle("bench", headers, json.dumps(event).encode(), webhook_runtime)
        queues.finish()
        yield {
            "seconds": provider.asked - began if len(provider.purchases) > bought else None,
            "waited": waited[0],
        }
        store.debounce.forget_wake("bench", key=PROMPT, by="webhook")


def main() -> int:
    """Answer until the input ends."""
    job = msgspec.json.decode(sys.stdin.readline(), type=MeasuredJob)
    made = {
        "pass": passes(job.nodes, job.kubeconfig, 1_000_000, keep=job.keep, shared=job.shared),
        "bare": _bare(job.kubeconfig),
        "react": _reactions(job),
    }
    for line in sys.stdin:
        print("result " + json.dumps(next(made[line.strip()])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
