"""The live emulation: all parts of a deployment and a cluster, on this
machine and with a fast clock.

    this process                                    a process each
      moto: DynamoDB, SQS, Secrets Manager            tick, reconcile, act_*  (called as Lambda
                                                                              calls them)
      the simulated cluster and its controllers       the app, behind the HTTP front
      the emulated clouds
      EventBridge, event sources, HTTP front, event exporter

It uses free ports. Its files are in one directory: the functions' log and,
while it runs, a kubeconfig.
"""

from __future__ import annotations

import base64
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from chalicelib.model.policy_permissions import SHARED_SECRETS
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import digest, load
from chalicelib.runtime.runtime import BATCH_FAILURES, REPORTED
from chalicelib.store import Store
from infra.emulators import deployed_functions
from infra.emulators.api_gateway import ApiGatewayFront
from infra.emulators.aws import LocalAws, Queue
from infra.emulators.cloud_account import CloudBeside, permitted
from infra.emulators.controllers.clock import Clock
from infra.emulators.controllers.manager import ClusterSimulation, Pace
from infra.emulators.controllers.objects import apply_shipped
from infra.emulators.event_exporter import LiveExporter
from infra.emulators.events import KEPT, QueueSource, Schedule
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.lambda_events import REGION, Json
from infra.emulators.live.lambda_processes import Functions, Result, Worker, logged
from infra.emulators.live.lambda_worker import CLOCK, EVENTS, LOG

ROOT = Path(__file__).resolve().parents[3]
TABLE = "outscaler"
API = "api_handler"
CONTROLLERS_EVERY = 0.1  # wall seconds
AT_WORK = 4.0
"""Virtual seconds per second while a function or the cluster's controllers work."""


class Setting(msgspec.Struct, frozen=True):
    """cluster: its name. start: virtual epoch seconds. speed: virtual seconds per wall second, of
    which AT_WORK remain while a function or a controller works, so that a busy machine takes longer
    and the story stays the same. place:
    the directory for its files. warm: functions that are started first. present: the real time at
    the start, which virtual time does not pass; both are epoch seconds."""

    cluster: str
    start: float
    speed: float
    place: Path
    pace: Pace = Pace()
    warm: tuple[str, ...] = ("tick", "reconcile", API)
    present: float = math.inf


class Emulation:
    """A context manager. on_result: called with every invocation's result and
    event, from several threads.

    clouds: further accounts with machines of the cluster. clock, kube, server, cluster: the
    simulated cluster. store: the table as an observer sees it. functions, front, exporter: parts of
    the emulation. dead_letters(): their messages. ended: a line for each thread that ended with an
    exception; its work is missing since then.
    """

    def __init__(
        self,
        setting: Setting,
        on_result: Callable[[Result, Json], None],
        wall: Callable[[], float],
        clouds: Sequence[CloudBeside] = (),
    ) -> None:
        self.setting, self._clouds = setting, tuple(clouds)
        setting.place.mkdir(parents=True, exist_ok=True)
        self._clock_path = setting.place / f"clock-{os.getpid()}"
        self.clock = Clock(
            setting.start, setting.speed, wall, present=setting.present, at_work=AT_WORK
        )
        self.kube = ObjectStore(self.clock)
        apply_shipped(self.kube)
        self.server = ApiServer(self.kube, tls=True)
        self.cluster = ClusterSimulation(
            self.kube,
            self.clock,
            setting.pace,
            more=[cloud.attach(self.clock, self.kube) for cloud in self._clouds],
        )
        self.aws = LocalAws()
        self._on_result = on_result
        self._stopping = threading.Event()
        self.ended: list[str] = []
        self._cleanup: list[Callable[[], object]] = []

    def __enter__(self) -> Emulation:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- start

    def _start(self) -> None:
        self.log_path = self.setting.place / "run.log"
        self.log_path.write_text("", "utf-8")
        self._cleanup.append(lambda: self._clock_path.unlink(missing_ok=True))
        self.clock.share(self._clock_path)
        self._cleanup.append(self.aws.stop)
        self.aws.start()
        self.aws.create_table(TABLE)
        self._cleanup.append(self.server.stop)
        self.server.start()
        for cloud in self._clouds:
            self._cleanup.append(cloud.stop)
            cloud.start()
        self.deployment = permitted(self._clouds)
        self.store = Store(
            TABLE, clock=self.clock, region=REGION, client=self.aws.client("dynamodb")
        )
        self.store.deployment_settings().publish(self.deployment)
        self._kubeconfig()
        self._webhook()
        for cloud in self._clouds:
            for name, text in cloud.secrets().items():
                self.aws.put_secret(name, text)
        self._functions()
        thread = Worker(
            self.cluster.run,
            args=(self._stopping, CONTROLLERS_EVERY, self.clock.working),
            name="controllers",
            ended=self._end,
        )
        thread.start()
        self._cleanup.append(thread.join)

    def _kubeconfig(self) -> None:
        self.kubeconfig = self.server.kubeconfig()
        self.kubeconfig_path = self.setting.place / f"kubeconfig-{os.getpid()}"
        self.kubeconfig_path.touch(mode=0o600)
        self.kubeconfig_path.write_text(self.kubeconfig, "utf-8")
        self._cleanup.append(lambda: self.kubeconfig_path.unlink(missing_ok=True))
        self.aws.put_secret(f"outscaler/{self.setting.cluster}/kubeconfig", self.kubeconfig)

    def _webhook(self) -> None:
        self.webhook_key = secrets.token_urlsafe(24)
        self.aws.put_secret(
            f"outscaler/{self.setting.cluster}/webhook", json.dumps({"hmac": self.webhook_key})
        )

    def _functions(self) -> None:
        self._behaviour = deployed_functions.queues() | deployed_functions.invocations()
        self.queue_urls = self.aws.create_queues(
            {
                name: Queue(KEPT, queue.max_receives)
                for name, queue in deployed_functions.queues().items()
            }
        )
        self._event_urls = self.aws.create_queues(
            {
                name: Queue(KEPT, queue.max_receives)
                for name, queue in deployed_functions.invocations().items()
            }
        )
        made = deployed_functions.functions()
        handlers = {function.name: function.handler for function in made} | {API: "app.app"}
        self.functions = Functions(
            handlers,
            self._environment(),
            self.clock,
            self._on_result,
            {function.name: function.memory for function in made},
            self.clock.working,
        )
        self._cleanup.append(self.functions.stop)
        self.functions.warm(*self.setting.warm)
        self.front = ApiGatewayFront(self._through_app, secrets.token_urlsafe(24), self._end)
        self._cleanup.append(self.front.stop)
        self.front.start()
        self._exporter()

    def _environment(self) -> dict[str, str]:
        urls = {f"OUTSCALER_QUEUE_{name.upper()}": url for name, url in self.queue_urls.items()}
        events = {f"{EVENTS}{name.upper()}": url for name, url in self._event_urls.items()}
        return {
            **os.environ,
            **self.aws.env,
            **urls,
            **events,
            "OUTSCALER_TABLE": TABLE,
            "OUTSCALER_READ_AUTH": "api-key",
            SHARED_SECRETS: ",".join(sorted(self.deployment.shared_secrets)),
            BATCH_FAILURES: REPORTED,
            "POWERTOOLS_SERVICE_NAME": "outscaler",
            "POWERTOOLS_LOG_LEVEL": "INFO",
            CLOCK: str(self._clock_path),
            LOG: str(self.log_path),
            "PYTHONPATH": str(ROOT),
        }

    def _exporter(self) -> None:
        known = yaml.safe_load(self.kubeconfig)["clusters"][0]["cluster"]
        ca = base64.b64decode(known["certificate-authority-data"]).decode()
        self.exporter = LiveExporter(
            self.server.url,
            ca,
            self.server.headers(),
            self.front.url,
            self.setting.cluster,
            self.webhook_key,
            self.clock,
            self._stopping,
            self._end,
        )
        self._cleanup.append(self.exporter.join)
        self.exporter.start()

    def begin(self) -> None:
        sqs = self.aws.client("sqs")
        for function in deployed_functions.functions():
            if function.source:
                url = (self.queue_urls | self._event_urls)[function.source]
                source = QueueSource(
                    function,
                    self._behaviour[function.source],
                    url,
                    sqs,
                    self.clock,
                    self.functions.invoke,
                    self._stopping,
                    self._end,
                )
                source.start()
                self._cleanup.append(source.join)
            else:
                schedule = Schedule(
                    function, self.clock, self.functions.invoke, self._stopping, self._end
                )
                schedule.start()
                self._cleanup.append(schedule.join)

    def _end(self, name: str, error: BaseException) -> None:
        logged(name, error)
        self.ended.append(f"thread {name} has ended: {type(error).__name__}: {error}")

    # -- stop

    def stop(self) -> None:
        """Stop everything, the newest first. Only the log file stays."""
        self._stopping.set()
        if hasattr(self, "functions"):
            self.functions.stop()
        while self._cleanup:
            self._cleanup.pop()()

    # -- actions of a person

    def apply_policy(self, text: str) -> int:
        """Apply a policy as `outscaler apply` does and return its version."""
        policy, _ = load(text, place="policy", admission=Admission(self.deployment))
        current = self.store.policies.current(policy.name)
        return self.store.policies.put(
            policy.name,
            text,
            digest(text),
            current.version if current else None,
            webhook=policy.webhook.secret,
        )

    def prune_pools(self, cluster: str) -> None:
        """Ask for the deletion of empty groups of managed pools as `outscaler pools prune` does."""
        stored = self.store.policies.current(cluster)
        if stored is None:
            raise KeyError(cluster)
        policy, _ = load(stored.text, place=cluster, admission=Admission(self.deployment))
        pools = [pool.name for pool in policy.managed_pools]
        self.store.prunes.request(cluster, dict.fromkeys(pools, self.clock()))

    def scale(self, deployment_name: str, replicas: int, namespace: str = "default") -> None:
        """Scale a Deployment as `kubectl scale deployment` does."""
        with self.kube.transaction():
            found = self.kube.get("deployments", deployment_name, namespace, "apps")
            if found is None:
                raise KeyError(deployment_name)
            found["spec"]["replicas"] = replicas
            self.kube.update("deployments", found, "apps")

    # -- observations

    def dead_letters(self) -> dict[str, int]:
        sqs = self.aws.client("sqs")
        counts: dict[str, int] = {}
        for name, url in (self.queue_urls | self._event_urls).items():
            answer = sqs.get_queue_attributes(
                QueueUrl=f"{url}-dead", AttributeNames=["ApproximateNumberOfMessages"]
            )
            if number := int(answer["Attributes"]["ApproximateNumberOfMessages"]):
                counts[name] = number
        return counts

    def _through_app(self, event: Json) -> Json:
        made: Result = self.functions.invoke(API, event)
        if not made.finished:
            return {"statusCode": 502, "body": json.dumps({"message": "Internal server error"})}
        answer: Any = made.answer
        return dict(answer)
