"""All external dependencies of a handler in one frozen bundle, built once per process.

Lambda gives a function only an event and a context, so a process needs one place for its clients.
This is the only one: `runtime()` builds the bundle from the environment at first use, `install()`
replaces it (the local emulation, the tests). All code below the handlers receives its dependencies
as parameters.

Packages are imported when they are first used: the webhook needs no HTTP client, tick no planner.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import STRICT, Deployment, deployment_of
from chalicelib.model.resource_names import (
    DECISIONS,
    LISTS,
    PAGE_KEY,
    POLICY_TABLE,
    TABLE,
    state_table,
)
from chalicelib.model.secret import SecretUnavailable
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.runtime.active_policy import in_force, read
from chalicelib.runtime.memory_usage import MemoryGauge
from chalicelib.runtime.messages import ReconcileMessage
from chalicelib.runtime.senders import LargeFunction, Sender, SqsSender
from chalicelib.runtime.tracing import Tracing, tracing_of
from chalicelib.runtime.webhook_credentials import WebhookCredentials

if TYPE_CHECKING:
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.aws.sns import Publisher
    from chalicelib.cluster.client import KubeClient
    from chalicelib.cluster.live_cluster import KeptLists
    from chalicelib.providers.kit.base import Provider
    from chalicelib.store import Store

#: Set by Lambda in every function's environment, and nowhere else.
LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
MEMORY_SIZE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"  # MB

#: Set by the deployment where the event source has ReportBatchItemFailures
#: (functions/lambda_entry.py).
BATCH_FAILURES, REPORTED = "OUTSCALER_BATCH_FAILURES", "reported"

#: How long a secret is used before it is read again, unless its content is refused
#: earlier (SecretCache.fresh).
SECRET_KEPT_FOR = 600.0

#: Share of the function's memory in which lists of clusters are kept between
#: passes; a pass needs the rest.
KEPT_SHARE = 0.25

ReadSecret = Callable[[str], str]
Connect = Callable[[Policy], "KubeClient"]
Reach = Callable[[KubernetesAccess, ReadSecret], "KubeClient"]
Build = Callable[[Policy, "KubeClient", ReadSecret], Sequence["Provider"]]


def _to_stdout(line: str) -> None:
    sys.stdout.write(line + "\n")


@dataclass(frozen=True)
class Runtime:
    """clock: epoch seconds. kube_client: a client of a cluster's API, by the cluster's policy.
    providers: the policy's providers, for one pass. owner: creates a new name for each lease or
    claim. webhook_credentials: the webhook's cache of policies and keys. batch_failures_reported:
    whether the function's event source has ReportBatchItemFailures. checkpoint: called between a
    change and its record, so that a test can stop the process there. emit: writes one line of
    metrics. deployment: what policies may name. memory_size: MB that this function has, 0 where
    unknown. memory_usage: measures a pass. hand_over: gives a message of the reconcile queue to the
    large function, raises NotInvoked; None where there is no large function. tracing: for X-Ray; it
    does nothing where Lambda does not trace. decisions: the place in which decisions are recorded
    (replay/decision_place.py), "" for none. topics: publishes notifications, None: SNS does.
    page_key: name of the secret with the keys of the hosted page, "" where there is no such page.
    kept_lists: returns what earlier passes of this process have read of clusters; None: every pass
    reads everything. lists: where lists of clusters are (cluster/list_archive.py), "" for nowhere.
    sleep: waits seconds within a pass. repeat: calls something every so many seconds inside a
    context, until it returns False; None: a thread does.
    """

    clock: Callable[[], float]
    store: Store
    sender: Sender
    read_secret: ReadSecret
    kube_client: Connect
    providers: Build
    owner: Callable[[], str]
    webhook_credentials: WebhookCredentials
    batch_failures_reported: bool = False
    checkpoint: Callable[[str], None] = lambda _: None
    emit: Callable[[str], None] = _to_stdout
    deployment: Deployment = STRICT
    memory_size: int = 0
    memory_usage: MemoryGauge = field(default_factory=lambda: MemoryGauge(None))
    hand_over: Callable[[ReconcileMessage], None] | None = None
    tracing: Tracing = field(default_factory=lambda: tracing_of({}, time.time, _new_trace_id))
    decisions: str = ""
    topics: Publisher | None = None
    page_key: str = ""
    kept_lists: Callable[[], KeptLists] | None = None
    lists: str = ""
    sleep: Callable[[float], None] = time.sleep
    repeat: Callable[[float, Callable[[], bool]], AbstractContextManager[None]] | None = None

    def policy(self, cluster: str) -> Policy | None:
        """Return the policy of a cluster in force now, with the pauses in force, None if there is
        no such cluster; raises InputErrors, StoreError."""
        stored = self.store.policies.current(cluster)
        if stored is None:
            return None
        policy, pauses = (
            in_force(stored, self.clock(), self.deployment),
            self.store.pauses.current(cluster),
        )
        return msgspec.structs.replace(policy, pauses=pauses) if pauses else policy


def build(
    *,
    clock: Callable[[], float],
    store: Store,
    sender: Sender,
    read_secret: ReadSecret,
    connect: Connect | None = None,
    providers: Build | None = None,
    owner: Callable[[], str] | None = None,
    reach: Reach | None = None,
    deployment: Deployment = STRICT,
    sleep: Callable[[float], None] = time.sleep,
    chance: Callable[[], float] = random.random,
    hosted: bool = False,
) -> Runtime:
    """Build a runtime from these parts; parts not given are those that Lambda uses.

    reach: connects to a cluster by its connection settings, with a reader of the secrets that may
    be used for it; a provider may need other settings than the policy's own. sleep and chance
    (uniform in [0, 1)): how passes and clients of clusters and vendors wait, and their jitter.
    deployment: what policies may name, by default the least. hosted: whether this is a Lambda
    function, which connects to no loopback address and ignores proxies of the environment.
    """

    connections = _Connections(clock, store, read_secret, reach, deployment, sleep, chance, hosted)
    return Runtime(
        clock=clock,
        store=store,
        sender=sender,
        read_secret=read_secret,
        kube_client=connect or connections.of_policy,
        providers=providers or connections.providers,
        owner=owner or (lambda: uuid.uuid4().hex),
        webhook_credentials=WebhookCredentials(
            webhooks=lambda: store.policies.webhooks(),  # noqa: PLW0108 - the store is used by webhooks only
            current=lambda name: store.policies.current(name, consistent=False),
            load=functools.partial(read, deployment=deployment),
            read_secret=read_secret,
            clock=clock,
            deployment=deployment,
        ),
        deployment=deployment,
        sleep=sleep,
    )


@dataclass(frozen=True)
class _Connections:
    """The connections to clusters and vendors that Lambda uses. For the fields see `build`."""

    clock: Callable[[], float]
    store: Store
    read_secret: ReadSecret
    reach: Reach | None
    deployment: Deployment
    sleep: Callable[[float], None]
    chance: Callable[[], float]
    hosted: bool

    def client(self, access: KubernetesAccess, secret: ReadSecret) -> KubeClient:
        """Return a client by connection settings. secret: reads the secrets
        that may be used for it."""
        if self.reach is not None:
            return self.reach(access, secret)
        from chalicelib.cluster.connect import connect

        return connect(
            access,
            secret,
            clock=self.clock,
            sleep=self.sleep,
            jitter=self.chance,
            hosted=self.hosted,
        )

    def of_policy(self, policy: Policy) -> KubeClient:
        """Return a client of a policy's cluster."""
        from chalicelib.policy.secret_names import KUBECONFIG, ClusterSecrets

        secrets = ClusterSecrets(self.read_secret, policy.name, (KUBECONFIG,), self.deployment)
        return self.client(policy.kubernetes, secrets)

    def providers(self, policy: Policy, kube: KubeClient, secret: ReadSecret) -> Sequence[Provider]:
        """Return the policy's providers."""
        from chalicelib.policy.secret_names import KUBECONFIG, ClusterSecrets
        from chalicelib.providers.kit.services import ProviderServices
        from chalicelib.providers.registry import providers

        def reader(*uses: str) -> ReadSecret:
            return ClusterSecrets(secret, policy.name, uses, self.deployment)

        services = ProviderServices(
            connect=lambda access: self.client(access, reader("clusterapi", KUBECONFIG)),
            sleep=self.sleep,
            chance=self.chance,
            rate_limiter=self.store.rate_limits,
            cache=self.store.cache,
            deployment=self.deployment,
        )
        return tuple(
            provider
            for name, settings in sorted(policy.providers.items())
            for provider in providers(
                msgspec.structs.replace(policy, providers={name: settings}),
                kube,
                reader(name),
                self.clock,
                services,
            )
        )


def from_environment(
    environment: Mapping[str, str], clock: Callable[[], float] = time.time
) -> Runtime:
    """Build the runtime of a deployed function; raises BadInput that names the missing variable."""
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.store import Store

    table = state_table(environment)
    if not table:
        raise BadInput(
            "environment", f"{TABLE} is not set", "set it to the name of Outscaler's DynamoDB table"
        )
    tracing = tracing_of(environment, clock, _new_trace_id)
    sender = SqsSender.from_environment(environment, tracing.header)
    secrets = SecretCache(SecretsManagerReader(), clock)
    store = Store(table, clock=clock, policy_table=environment.get(POLICY_TABLE, ""))
    runtime = build(
        clock=clock,
        store=store,
        sender=sender,
        read_secret=secrets,
        deployment=deployment_of(environment),
        hosted=bool(environment.get(LAMBDA)),
    )
    runtime = replace(
        runtime,
        batch_failures_reported=environment.get(BATCH_FAILURES, "") == REPORTED,
        tracing=tracing,
        decisions=environment.get(DECISIONS, ""),
        page_key=environment.get(PAGE_KEY, ""),
        lists=environment.get(LISTS, ""),
    )
    size = environment.get(MEMORY_SIZE, "")
    if not (size.isascii() and size.isdigit()):
        return runtime
    return replace(  # what decides which function makes a pass
        runtime,
        memory_size=int(size),
        memory_usage=MemoryGauge(),
        hand_over=LargeFunction.from_environment(environment),
        kept_lists=keeping(int(int(size) * KEPT_SHARE) << 20, runtime.lists, clock),
    )


def keeping(
    most: int, place: str = "", clock: Callable[[], float] = time.time
) -> Callable[[], KeptLists]:
    """Return what a process keeps of clusters, at most this many bytes; made when it is first
    asked for, because only passes need it. place: where processes share lists
    (cluster/list_archive.py), "" for nowhere."""

    @functools.cache
    def kept() -> KeptLists:
        from chalicelib.cluster.live_cluster import KeptLists

        if not place:
            return KeptLists(most, time.monotonic)
        from chalicelib.cluster.list_archive import ListArchive, list_place

        return KeptLists(most, time.monotonic, archive=ListArchive(list_place(place), clock))

    return kept


class SecretCache:
    """Reads secrets and caches each for ten minutes. Clients of clusters and vendors, and the
    webhook, read a secret again at once when its content is refused, so that a rotated secret
    works at the first refusal.

    While AWS does not respond, the last value is used. Raises BadInput, SecretUnavailable.
    """

    def __init__(self, reader: SecretsManagerReader, clock: Callable[[], float]) -> None:
        self._reader, self._clock = reader, clock
        self._until: dict[str, float] = {}

    def __call__(self, name: str) -> str:
        """Return the secret's text, at most ten minutes old."""
        until = self._until.get(name)
        if until is not None and until > self._clock():
            return self._reader(name)
        try:
            return self.fresh(name)
        except SecretUnavailable:
            if until is None:
                raise
            return self._reader(name)

    def fresh(self, name: str) -> str:
        """Return the secret's current text, for callers whose credential was refused."""
        text = self._reader.fresh(name)
        self._until[name] = self._clock() + SECRET_KEPT_FOR
        return text


def _new_trace_id() -> str:
    return uuid.uuid4().hex[:16]


class _Cell:
    """Holds the process-wide runtime (see the module)."""

    runtime: Runtime | None = None


def runtime() -> Runtime:
    """Return the runtime of this process."""
    if _Cell.runtime is None:
        _Cell.runtime = from_environment(os.environ)
    return _Cell.runtime


def install(runtime: Runtime | None) -> None:
    """Replace this process's runtime; None: build it from the environment when it is next
    needed."""
    _Cell.runtime = runtime
