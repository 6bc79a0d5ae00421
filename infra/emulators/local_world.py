"""One emulated world on virtual time: a simulated cluster, an emulated AWS, and the real functions.

    LocalWorld ─┬─ kube, server, cluster      the simulated API server, its
                                              store and its controllers
                ├─ queues                     standard SQS on virtual time
                ├─ store                      the table, as an observer sees it
                └─ step(seconds)              time passes: controllers, schedule and
                                              queues run in a fixed order

The functions are called as Lambda calls them, with Lambda's events. Two worlds with the same inputs
make identical plans, including ids: nothing here reads the wall clock or uses randomness on which a
plan could depend. A test that must exclude state in objects uses `forgetful=True`, which makes
every invocation a cold start.

A quick world (`quick=True`, or no `aws`) has its table in memory (memory_table.py) and no
socket between client and API server (kube/in_process_transport.py). Everything else is the
same, including the plans.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from typing import Any, Self, TypeVar

from chalicelib.cluster import list_state
from chalicelib.cluster.transport import open_connection
from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import digest, load
from chalicelib.runtime.messages import RECONCILE
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import RECONCILE_LARGE
from chalicelib.store.memory_rows import confirm
from chalicelib.store.pass_footprint import Reading
from infra.emulators import deployed_functions as deployed
from infra.emulators.aws import LocalAws
from infra.emulators.aws_faults import AwsFaults, Death, Life
from infra.emulators.aws_services import Account, FullServices, QuickServices, quick_services
from infra.emulators.cloud_account import LOOPBACK, CloudBeside, permitted
from infra.emulators.controllers import objects as cluster_objects
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation, Pace
from infra.emulators.controllers.objects import apply_shipped
from infra.emulators.event_exporter import Exporter, Heard
from infra.emulators.iam import Judge, roles
from infra.emulators.invocation import Invocation, Invoker
from infra.emulators.kube.in_process_transport import DirectLine
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.lambda_events import Json, schedule_event, sqs_event
from infra.emulators.scripted_http_server import ScriptedGauge
from infra.emulators.virtual_sqs import VirtualQueues

T = TypeVar("T")


class _Done(Future[T]):
    """A future that is finished from the beginning. It has none of the base class's locks,
    because nothing waits for it."""

    def __init__(self, result: T | None, error: BaseException | None) -> None:
        self._end, self._problem = result, error

    def done(self) -> bool:
        return True

    def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: ARG002 - the base's
        return self._problem

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - the base's
        if self._problem is not None:
            raise self._problem
        return self._end

    def cancel(self) -> bool:
        return False


class Inline(Executor):
    """Has the interface of ThreadPoolExecutor; work is done when submit returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept any arguments of a pool."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the work and return its result or Exception. Other BaseExceptions (the crash of a
        process) are raised at once."""
        try:
            return _Done(fn(*args, **kwargs), None)
        except Exception as error:
            return _Done(None, error)


@contextmanager
def inline() -> Iterator[None]:
    """Read snapshots sequentially within this context."""
    place = vars(list_state)
    pool, place["ThreadPoolExecutor"] = place["ThreadPoolExecutor"], Inline
    try:
        yield
    finally:
        place["ThreadPoolExecutor"] = pool


START = 1_795_245_660.0
"""Start time of a world in epoch seconds: a whole minute."""
MINUTE = 60.0
API = "api_handler"
WEBHOOK_KEY = "local-webhook-key-of-the-emulation"
_NEVER = (-1, 0.0)
_MOST_PLAYED = 10_000  # deliveries in one step; more indicate a loop


class LocalWorld:
    """A world with one cluster. A context manager; `aws` must be running and may
    be shared between worlds.

    quick: without the network protocols of AWS and the cluster, see the module; also without `aws`.
    name: the cluster's name in policies, messages and routes; start: epoch seconds at which the
    clock starts. pace: how fast the simulated cluster is; seed: of its uids and names.
    grain: virtual seconds between two steps of the controllers while nothing else happens.
    webhook: whether an emulated exporter posts the cluster's events to the webhook.
    forgetful: every invocation is a cold start, as if the last process had ended.
    judged: each function may do only what its deployed policy allows (`judge`); implies forgetful,
    because processes share nothing.
    clouds: vendors' accounts attached to the cluster, served on loopback while the world exists.
    deployment: what policies may name; by default this machine's hosts, and the clouds' secrets.

    Attributes for tests: scheduled (whether the schedule invokes the tick), takes (the memory of
    each pass that ends, None: not measured), reads (MB while it reads), clock, kube, server,
    cluster, queues, store, services (the emulated account), line (the connection to the API server
    of a quick world: `line.ask` injects faults into requests), invocations, metrics (lines that the
    functions emit), invoker (the running function).
    """

    def __init__(
        self,
        aws: LocalAws | None = None,
        *,
        quick: bool = False,
        name: str = "shop",
        start: float = START,
        pace: Pace | None = None,
        seed: int = 0,
        grain: float = 5.0,
        webhook: bool = False,
        forgetful: bool = False,
        clouds: Sequence[CloudBeside] = (),
        deployment: Deployment | None = None,
        judged: bool = False,
    ) -> None:
        self.name, self.clock, self._grain = name, ManualClock(start), grain
        self.forgetful = forgetful or judged
        self.kube = ObjectStore(self.clock, seed=seed)
        apply_shipped(self.kube)
        self.services: FullServices | QuickServices = (
            quick_services() if aws is None or quick else FullServices(aws)
        )
        self._quick = isinstance(self.services, QuickServices)
        self.server = ApiServer(self.kube, tls=not self._quick)
        self.line = DirectLine(self.server, self.clock.advance)
        self._clouds = tuple(clouds)
        more = [cloud.attach(self.clock, self.kube) for cloud in self._clouds]
        self.cluster = ClusterSimulation(self.kube, self.clock, pace, more=more)
        self.queues = VirtualQueues(
            self.clock,
            deployed.queues() | deployed.invocations(),
            dead={RECONCILE_LARGE: RECONCILE},
        )
        self.scheduled, self.reads = True, 0
        self.takes: Reading | None = None
        self.metrics: list[Json] = []
        self.judge = (
            Judge(
                roles(self.services.table, deployed.queues()), lambda: self.invoker.current or API
            )
            if judged
            else None
        )
        self._account = Account(
            self.services,
            self.clock,
            self.line.dial if self._quick else open_connection,
            deployment or LOOPBACK,
            self.judge,
            ScriptedGauge(lambda: self.takes, lambda: self.reads),
        )
        self._deployment = deployment
        self._functions = {function.source: function for function in deployed.functions()}
        self._memory = {function.name: function.memory for function in deployed.functions()}
        self._next_tick, self._owners = start, itertools.count(1)
        self._deaths: list[Death] = []
        self.invoker = Invoker()
        self._runtime: Runtime | None = None
        self._exporter = Exporter(name, WEBHOOK_KEY, self.clock, self._post) if webhook else None
        self._heard = Heard(self.kube)
        self._rested = _NEVER
        self.store = self._account.store()

    # -- start and stop

    def start(self) -> None:
        """Create the table, serve the APIs of the cluster and the clouds, store the secrets."""
        self._account.create()
        for cloud in self._clouds:
            cloud.start()
        self.permit(self._deployment or permitted(self._clouds))
        if self._quick:
            self.server.stay_inside()
        else:
            self.server.start()
        self.put_secret(self.kubeconfig_secret, self.server.kubeconfig())
        for cloud in self._clouds:
            for name, text in cloud.secrets().items():
                self.put_secret(name, text)
        self.put_secret(self.webhook_secret, json.dumps({"hmac": WEBHOOK_KEY}))

    def close(self) -> None:
        self.invoker.leave()
        for cloud in self._clouds:
            cloud.stop()
        self.server.stop()
        self._account.drop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- content

    @property
    def published(self) -> list[tuple[str, str]]:
        """Return what the SNS topics have received: (topic, text), the oldest first."""
        return self._account.topics.published

    def without_large_function(self) -> None:
        self._account.large = frozenset()
        self.restart()

    @property
    def faults(self) -> AwsFaults:
        """Return the faults between the functions and the table (aws_faults.py)."""
        return self._account.faults

    @property
    def kubeconfig_secret(self) -> str:
        return f"outscaler/{self.name}/kubeconfig"

    @property
    def webhook_secret(self) -> str:
        return f"outscaler/{self.name}/webhook"

    def put_secret(self, name: str, text: str) -> None:
        """Store a secret of this world. Other worlds of the same emulated account do not see it."""
        self._account.put_secret(name, text)

    def permit(self, deployment: Deployment) -> None:
        """Change what policies may name, if it is known only after the clouds are served."""
        self._account.deployment = deployment
        self.store.deployment_settings().publish(deployment)
        self.restart()

    def apply_policy(self, text: str) -> int:
        """Validate the document and activate it, as `outscaler apply` does. Returns its
        version. Raises InputErrors."""
        policy, _ = load(text, place="policy", admission=Admission(self._account.deployment))
        current = self.store.policies.current(policy.name)
        return self.store.policies.put(
            policy.name,
            text,
            digest(text),
            current.version if current else None,
            webhook=policy.webhook.secret,
        )

    def seed(self, *objects: KubeObject) -> list[KubeObject]:
        """Create objects (see infra/emulators/controllers/objects.py) in the cluster and run its
        controllers to a steady state."""
        made = cluster_objects.apply(self.kube, *objects)
        self.settle()
        return made

    def settle(self) -> None:
        """Run the controllers to a steady state at the current time; the
        exporter posts the events."""
        if (self.kube.version, self.clock()) != self._rested:
            self.cluster.step()
            self._rested = (self.kube.version, self.clock())
        if self._exporter is not None:
            self._exporter.tell(self._heard.poll())

    # -- time

    def step(self, seconds: float) -> None:
        """Advance the virtual time and run everything that becomes due: at each time the
        controllers, then the tick, then the messages. A function that waits also advances the time,
        so a little more may pass than requested."""
        end = self.clock() + seconds
        # a test may have changed a kubelet, which no object of the store shows
        self._rested = _NEVER
        self.settle()
        for _ in range(_MOST_PLAYED):
            due = self.queues.next_due()
            message_at = end + 1.0 if due is None else due
            at = min(self._next_tick, message_at, self._grain_after(self.clock()))
            if at > end:
                break
            self.clock.advance(max(0.0, at - self.clock()))
            self.settle()
            if self._next_tick <= self.clock():
                self._next_tick += MINUTE
                if self.scheduled:
                    self.tick()
            elif message_at <= self.clock():
                self.deliver()
        else:
            raise RuntimeError(
                f"{_MOST_PLAYED} deliveries in {seconds} s: the functions keep each other busy"
            )
        self.clock.advance(max(0.0, end - self.clock()))
        self.settle()

    def step_until(self, true: Callable[[], bool], *, limit: float, every: float = 10.0) -> float:
        """Step until a condition is true, for at most `limit` virtual seconds. Returns the elapsed
        seconds. Raises AssertionError after the limit."""
        began = self.clock()
        while not true():
            assert self.clock() - began < limit, f"not within {limit} s of virtual time"
            self.step(every)
        return self.clock() - began

    def _grain_after(self, now: float) -> float:
        return (now // self._grain + 1.0) * self._grain

    def tick(self) -> Invocation:
        function = self._functions[""]
        return self.invoke(
            function.name, schedule_event(function.name, self.clock(), len(self.invocations))
        )

    def deliver(self) -> Invocation | None:
        """Deliver the next visible message to its function; None if there is none. The message
        stays if the function fails or crashes."""
        message = self.queues.receive()
        if message is None:
            return None
        function = self._functions[message.queue]
        event = json.loads(message.body) if function.invoked else sqs_event(message.record())
        made = self.invoke(function.name, event)
        if made.finished and message.id not in made.failed_messages:
            self.queues.delete(message)
        return made

    # -- functions

    @property
    def invocations(self) -> list[Invocation]:
        return self.invoker.made

    def invoke(self, function: str, event: Json) -> Invocation:
        """Invoke a function with any event, as Lambda would."""
        self._awake(function)
        with inline() if self._quick else nullcontext():
            made = self.invoker.call(function, event, self.clock)
        if made.killed_at:
            self.restart()
        self.settle()
        return made

    def _awake(self, function: str = API) -> None:
        """Return a process for the next invocation: the existing one or a new one, with
        the function's memory size."""
        if self.forgetful:
            self.restart()
        if self._runtime is None:
            self._runtime = self.new_runtime()
        self.invoker.enter(
            dataclasses.replace(self._runtime, memory_size=self._memory.get(function, 0))
        )

    def post(self, events: object, *, key: str = WEBHOOK_KEY) -> Json:
        """Post events, signed, to the cluster's webhook. Returns API Gateway's
        response (`statusCode`, `body`)."""
        exporter = Exporter(self.name, key, self.clock, self._post)
        answer: Json = exporter.post(events)
        return answer

    def _post(self, path: str, headers: dict[str, str], body: bytes) -> Json:
        self._awake()
        return self.invoker.request("POST", path, headers, body)

    def get(self, target: str) -> Json:
        self._awake()
        return self.invoker.request("GET", target, {"x-api-key": "reader"}, b"", api_key="reader")

    def kill_at(self, place: str, *, function: str = "", times: int = 1) -> None:
        """Let the next `times` invocations that reach that checkpoint (`act:stepped`,
        `grow:called`, …) crash there.

        function: only invocations of it. The message of a crashed function becomes visible again
        after its queue's visibility timeout; received too often, it becomes a dead letter.
        """
        self._deaths.append(Death(place, function, times))

    def restart(self) -> None:
        """Discard the runtime with all its state (store, connections, caches), so that the next
        invocation is a cold start."""
        self._runtime = None
        self.invoker.leave()

    def new_runtime(self) -> Runtime:
        """Return a runtime as a new process builds it. It shares nothing with other runtimes."""
        return self._account.runtime(
            self.queues,
            Life(self._dies_at),
            lambda: f"owner-{next(self._owners)}",
            lambda line: self.metrics.append(json.loads(line)),
        )

    def _dies_at(self, place: str) -> bool:
        for death in self._deaths:
            if (
                death.times
                and death.place == place
                and death.function in ("", self.invoker.current)
            ):
                death.times -= 1
                return True
        return False

    # -- observations

    def plans(self) -> tuple[Json, ...]:
        """Return every recorded decision, oldest first, in the journal's form (`id`,
        `scale_ups`, `removals` …)."""
        entries = self.store.journal.recent(self.name, 1000)
        return tuple(json.loads(entry.body) for entry in reversed(entries) if entry.kind == "plan")

    def plan_ids(self) -> tuple[str, ...]:
        return tuple(plan["id"] for plan in self.plans())

    def memory(self) -> Memory:
        """Return the memory as the next pass reads it."""
        return confirm(
            self.store.memory.load(self.name), self.store.scan_states.due(self.name).last_success
        )

    def operations(self) -> tuple[Operation, ...]:
        return self.store.operations.list_open(self.name)

    def size(self, group: str, namespace: str = "default") -> int:
        found = self.kube.peek("machinedeployments", group, namespace, "cluster.x-k8s.io")
        if found is None:
            raise KeyError(group)
        return int(found["spec"]["replicas"])

    def nodes(self) -> tuple[str, ...]:
        return tuple(node["metadata"]["name"] for node in self.kube.list("nodes"))

    def pending(self) -> tuple[str, ...]:
        """Return the pods without a node, as `namespace/name`."""
        return tuple(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in self.kube.list("pods")
            if not pod["spec"].get("nodeName")
        )
