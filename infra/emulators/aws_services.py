"""The services of one emulated account for a world, each with its
own table and secrets: three implementations.

FullServices    moto, in this process: every request is signed and serialized (aws_server.py)
QuickServices   the in-memory table (memory_table.py) and a dict: requests are function calls
EngineServices  the same, with the table on the engine whose address is in OUTSCALER_TEST_DYNAMODB
"""

from __future__ import annotations

import dataclasses
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError
from moto.core.botocore_stubber import BotocoreStubber

from chalicelib.aws.secrets_manager import SecretsManagerReader
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.transport import Dial, open_connection
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.secret import PARAMETER, parameter_name
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.runtime.memory_usage import MemoryGauge
from chalicelib.runtime.runtime import ReadSecret, Runtime, SecretCache, build
from chalicelib.runtime.senders import RECONCILE_LARGE, LargeFunction, Sender
from chalicelib.store import Store
from chalicelib.store.table_client import Table
from infra.emulators.aws import LocalAws, client, create_table, drop_table
from infra.emulators.aws_faults import AwsFaults, Life, Mortal
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.deployed_functions import AsyncLambda, of_lambda
from infra.emulators.dynamodb_local import VARIABLE as ENGINE
from infra.emulators.iam import IamRequest, Judge, Judged, JudgedSender, of_dynamodb, of_secrets
from infra.emulators.lambda_events import REGION
from infra.emulators.memory_table import MemoryAccount, MemoryTable
from infra.emulators.moto_gaps import close

_LOCK = threading.RLock()  # moto's tables have none (aws_server.py)
_STUBBER = BotocoreStubber()
_STUBBER.enabled = True


def in_process(service: str) -> Any:
    close()
    made = client(service, f"https://{service}.{REGION}.amazonaws.com")
    made.meta.events.register("before-send", _answer)
    return made


def _answer(event_name: str, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
    with _LOCK:
        return _STUBBER(event_name, request)


class Services(Protocol):
    """dynamodb, secrets, parameters: clients. table: the world's own. kind: the store's class for
    it. endpoint: for an ordinary client, if there is one."""

    dynamodb: Any
    secrets: Any
    parameters: Any
    table: str
    kind: type[Table]
    endpoint: str | None

    def create(self) -> None:
        """Create the table."""

    def drop(self) -> None:
        """Delete the table."""

    def put_secret(self, name: str, text: str) -> None:
        """Store a secret that only this world sees."""


class FullServices:
    """aws must be running. Many worlds may share it, so table and secrets have unique names."""

    kind: type[Table] = Table

    def __init__(self, aws: LocalAws) -> None:
        self._aws, self.table, self.endpoint = (
            aws,
            f"world-{uuid.uuid4().hex[:12]}",
            aws.endpoint or None,
        )
        self.dynamodb = in_process("dynamodb")
        self.secrets = _Prefixed(in_process("secretsmanager"), self.table)
        self.parameters = _PrefixedParameters(in_process("ssm"), self.table)

    def create(self) -> None:
        self._aws.create_table(self.table)

    def drop(self) -> None:
        """See Services. Tables are always deleted, because moto copies all existing
        tables for every transaction."""
        drop_table(self.dynamodb, self.table)

    def put_secret(self, name: str, text: str) -> None:
        kind, path = (
            (PARAMETER, name.removeprefix(PARAMETER)) if name.startswith(PARAMETER) else ("", name)
        )
        self._aws.put_secret(f"{kind}{self.table}/{path}", text)


class _Prefixed:
    """Secrets Manager as one world sees it: names get the world's prefix."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def get_secret_value(self, SecretId: str) -> Any:  # noqa: N803 - the API's word
        return self._client.get_secret_value(SecretId=f"{self._prefix}/{SecretId}")


class _PrefixedParameters:
    """SSM as one world sees it: names get the world's prefix."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def get_parameter(self, Name: str, WithDecryption: bool) -> Any:  # noqa: N803, FBT001 - the API's words
        return self._client.get_parameter(
            Name=f"/{self._prefix}{Name}", WithDecryption=WithDecryption
        )


class QuickServices:
    """Shares nothing with other worlds."""

    kind: type[Table] = MemoryTable
    endpoint: str | None = None

    def __init__(self) -> None:
        self.table = "world"
        self.dynamodb: Any = MemoryAccount()
        self.secrets = MemorySecrets()
        self.parameters = MemoryParameters()

    def create(self) -> None:
        self.dynamodb.create(self.table)

    def drop(self) -> None:
        self.dynamodb.drop(self.table)

    def put_secret(self, name: str, text: str) -> None:
        if name.startswith(PARAMETER):
            self.parameters.texts[parameter_name(name)] = text
        else:
            self.secrets.texts[name] = text


class EngineServices(QuickServices):
    """The quick services with tables on another engine, for `make test-strict`."""

    kind = Table

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.table, self.endpoint = f"world-{uuid.uuid4().hex[:12]}", endpoint
        self.dynamodb = _EngineClient(endpoint)

    def create(self) -> None:
        create_table(self.dynamodb, self.table, expires=False)

    def drop(self) -> None:
        drop_table(self.dynamodb, self.table)


class _EngineClient:
    """A client of the engine. changes: number of requests so far that may have changed
    something."""

    def __init__(self, endpoint: str) -> None:
        self._client = _engine(endpoint)
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._client, name)
        if name not in _CHANGES:
            return member

        def change(**request: Any) -> Any:
            self.changes += 1
            return member(**request)

        return change


_CHANGES = frozenset({"put_item", "update_item", "delete_item", "transact_write_items"})


@cache
def _engine(endpoint: str) -> Any:
    """Return the one client of this process, because making one takes longer than most requests."""
    return client("dynamodb", endpoint)


def quick_services() -> QuickServices:
    """Return the services of a quick world, on the engine that the
    environment names, if it names one."""
    endpoint = os.environ.get(ENGINE)
    return EngineServices(endpoint) if endpoint else QuickServices()


class MemorySecrets:
    """A client of Secrets Manager. texts: by name. asked: the requested names, oldest first."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.asked: list[str] = []

    def get_secret_value(self, SecretId: str) -> Any:  # noqa: N803 - the API's word
        """Respond as AWS does. Raises ClientError if there is no such secret."""
        self.asked.append(SecretId)
        if SecretId not in self.texts:
            message = "Secrets Manager can't find the specified secret."
            raise ClientError(
                {"Error": {"Code": "ResourceNotFoundException", "Message": message}},
                "GetSecretValue",
            )
        return {"Name": SecretId, "SecretString": self.texts[SecretId]}


class MemoryParameters:
    """A client of SSM, all of whose parameters are encrypted. texts: by name.
    asked: the requested names."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.asked: list[str] = []

    def get_parameter(self, Name: str, WithDecryption: bool) -> Any:  # noqa: N803, FBT001 - the API's words
        """Respond as AWS does. Raises ClientError if there is no such parameter."""
        self.asked.append(Name)
        assert WithDecryption
        if Name not in self.texts:
            raise ClientError(
                {"Error": {"Code": "ParameterNotFound", "Message": ""}}, "GetParameter"
            )
        return {"Parameter": {"Name": Name, "Type": "SecureString", "Value": self.texts[Name]}}


class AccountTopics:
    """SNS topics that accept every message that the judge permits. published: (topic,
    text), the oldest first."""

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge
        self.published: list[tuple[str, str]] = []

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        del attributes
        if self._judge is not None:
            self._judge.ask(IamRequest("sns:Publish", topic))
        self.published.append((topic, text))


class Account:
    """dial: opens the functions' connections to a cluster. judge: rejects what a function's policy
    does not allow. faults: injected between the functions and the table. deployment: limits what
    policies may name. gauge: measures passes. large: names of functions that passes can be handed
    to; tests may change it. Every wait in here advances the clock instead."""

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

    def runtime(
        self, sender: Sender, life: Life, owner: Callable[[], str], emit: Callable[[str], None]
    ) -> Runtime:
        """Build a runtime as a new process does. Its clients fail once `life` has ended."""
        services, queues = self._services, sender
        invoke: Any = AsyncLambda(
            self.large, lambda function, event: queues.send(function, event, 0)
        )
        read, parameters = services.secrets, services.parameters
        rows = self.faults.wrap(services.dynamodb)
        if self._judge is not None:
            read, rows = (
                Judged(read, self._judge, of_secrets),
                Judged(rows, self._judge, of_dynamodb),
            )
            parameters = Judged(parameters, self._judge, of_secrets)
            invoke = Judged(invoke, self._judge, of_lambda)
            sender = JudgedSender(sender, self._judge)
        secrets = SecretCache(
            SecretsManagerReader(Mortal(read, life), Mortal(parameters, life)), self._clock
        )

        def reached(access: KubernetesAccess, secret: ReadSecret) -> KubeClient:
            life.check()
            return connect(
                access,
                secret,
                clock=self._clock,
                sleep=self._clock.advance,
                jitter=_even,
                dial=self._dial,
            )

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
            repeat=self._clock.repeat,
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
