"""One world's part of the emulated AWS account: its own table and secrets, and runtimes that use them.

Decisions depend neither on the table's name nor on what serves it, so two worlds of the same name can be compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from chalicelib.aws.secrets_manager import SecretsManagerReader
from chalicelib.dispatch.senders import RECONCILE_LARGE, LargeFunction, Sender
from chalicelib.kube.client import KubeClient
from chalicelib.kube.connect import connect
from chalicelib.kube.transport import Dial, open_connection
from chalicelib.model.policy import KubernetesAccess
from chalicelib.model.policy_permissions import Deployment
from chalicelib.runtime.memory_usage import MemoryGauge
from chalicelib.runtime.runtime import ReadSecret, Runtime, SecretCache, build
from chalicelib.store import Store
from infra.emulators.aws_faults import AwsFaults, Life, Mortal
from infra.emulators.aws_services import Services
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.deployed_functions import AsyncLambda, of_lambda
from infra.emulators.iam import IamRequest, Judge, Judged, JudgedSender, of_dynamodb, of_secrets
from infra.emulators.lambda_events import REGION


class AccountTopics:
    """SNS topics that accept every message that the judge permits. published: (topic, text), the oldest first."""

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge
        self.published: list[tuple[str, str]] = []

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        del attributes
        if self._judge is not None:
            self._judge.ask(IamRequest("sns:Publish", topic))
        self.published.append((topic, text))


class Account:
    """dial: opens the functions' connections to a cluster. judge: rejects what a function's policy does not allow.
    faults: injected between the functions and the table. deployment: limits what policies may name. gauge: measures
    passes. large: names of functions that passes can be handed to; tests may change it. Every wait in here advances
    the clock instead."""

    def __init__(
        self,
        services: Services,
        clock: ManualClock,
        dial: Dial = open_connection,
        deployment: Deployment = LOOPBACK,
        judge: Judge | None = None,
        gauge: MemoryGauge | None = None,
    ) -> None:
        self.deployment = deployment
        self._services, self._clock, self._dial, self.faults = services, clock, dial, AwsFaults()
        self._judge, self._gauge = judge, gauge or MemoryGauge(None)
        self.topics = AccountTopics(judge)
        self.large = frozenset({RECONCILE_LARGE})

    def create(self) -> None:
        self._services.create()

    def drop(self) -> None:
        self._services.drop()

    def put_secret(self, name: str, text: str) -> None:
        self._services.put_secret(name, text)

    def store(self) -> Store:
        """Return the store for an observer, which does not end when a function crashes."""
        return self._store(self._services.dynamodb)

    def runtime(self, sender: Sender, life: Life, owner: Callable[[], str], emit: Callable[[str], None]) -> Runtime:
        """Build a runtime as a new process does. Its clients fail once `life` has ended."""
        services, queues = self._services, sender
        invoke: Any = AsyncLambda(self.large, lambda function, event: queues.send(function, event, 0))
        read, parameters = services.secrets, services.parameters
        rows = self.faults.wrap(services.dynamodb)
        if self._judge is not None:
            read, rows = Judged(read, self._judge, of_secrets), Judged(rows, self._judge, of_dynamodb)
            parameters = Judged(parameters, self._judge, of_secrets)
            invoke = Judged(invoke, self._judge, of_lambda)
            sender = JudgedSender(sender, self._judge)
        secrets = SecretCache(SecretsManagerReader(Mortal(read, life), Mortal(parameters, life)), self._clock)

        def reached(access: KubernetesAccess, secret: ReadSecret) -> KubeClient:
            life.check()
            return connect(access, secret, clock=self._clock, sleep=self._clock.advance, jitter=_even, dial=self._dial)

        store = self._store(Mortal(rows, life))
        made = build(
            clock=self._clock,
            store=store,
            sender=Mortal(sender, life),
            read_secret=secrets,
            reach=reached,
            deployment=self.deployment,
            owner=owner,
            sleep=self._clock.advance,
            chance=_even,
        )
        return dataclasses.replace(
            made,
            checkpoint=life.checkpoint,
            emit=emit,
            batch_failures_reported=True,
            memory_usage=self._gauge,
            hand_over=LargeFunction(RECONCILE_LARGE, Mortal(invoke, life)),
            topics=Mortal(self.topics, life),
        )

    def _store(self, client: Any) -> Store:
        return Store(
            self._services.table,
            clock=self._clock,
            client=client,
            region=REGION,
            endpoint=self._services.endpoint,
            sleep=self._clock.advance,
            chance=_even,
            table=self._services.kind,
        )


def _even() -> float:
    return 0.5
