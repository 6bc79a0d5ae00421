"""All external dependencies of a handler in one frozen bundle, built once per process.

Lambda gives a function only an event and a context, so a process needs one place for its clients. This is the only one:
`runtime()` builds the bundle from the environment at first use, `install()` replaces it (the local emulation, the
tests). All code below the handlers receives its dependencies as parameters.

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from chalicelib.dispatch.senders import LargeFunction, Sender, SqsSender
from chalicelib.model.errors import BadInput
from chalicelib.model.pass_footprint import Reading
from chalicelib.model.policy import KubernetesAccess, Policy
from chalicelib.model.policy_permissions import STRICT, Deployment, deployment_of
from chalicelib.model.resource_names import DECISIONS, LISTS, PAGE_KEY, POLICY_TABLE, TABLE, state_table
from chalicelib.model.secret import SecretUnavailable
from chalicelib.runtime.active_policy import read
from chalicelib.runtime.tracing import Tracing, tracing_of
from chalicelib.runtime.webhook_credentials import Document, WebhookCredentials

if TYPE_CHECKING:
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.aws.sns import Publisher
    from chalicelib.kube.client import KubeClient
    from chalicelib.providers.base import Provider
    from chalicelib.snapshot.live_cluster import KeptLists
    from chalicelib.store import Store
    from chalicelib.store.policies import StoredWebhook

#: Set by Lambda in every function's environment, and nowhere else.
LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
MEMORY_SIZE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"  # MB

#: Set by the deployment where the event source has ReportBatchItemFailures (handlers/lambda_entry.py).
BATCH_FAILURES, REPORTED = "OUTSCALER_BATCH_FAILURES", "reported"

#: How long a secret is used before it is read again, unless its content is refused earlier (SecretCache.fresh).
SECRET_KEPT_FOR = 600.0

#: Share of the function's memory in which lists of clusters are kept between passes; a pass needs the rest.
KEPT_SHARE = 0.25

ReadSecret = Callable[[str], str]
Connect = Callable[[Policy], "KubeClient"]
Reach = Callable[[KubernetesAccess, ReadSecret], "KubeClient"]
Build = Callable[[Policy, "KubeClient", ReadSecret], Sequence["Provider"]]


class PassGauge(Protocol):
    """Measures the memory of one pass at a time."""

    def begin(self) -> None:
        """Start measuring a pass."""

    def check(self, size: int) -> None:
        """Raise MemoryExceeded where the pass has grown beyond its share of the function's memory. size: MB."""

    def end(self) -> Reading | None:
        """Return the peak since then; None where it is not measured."""


class NoGauge:
    """Measures nothing: outside Lambda a process's memory does not belong to its passes alone."""

    def begin(self) -> None:
        """See PassGauge."""

    def check(self, size: int) -> None:
        """See PassGauge."""

    def end(self) -> Reading | None:
        """See PassGauge."""
        return None


def _nobody_stops(place: str) -> None:
    del place


def _to_stdout(line: str) -> None:
    sys.stdout.write(line + "\n")


@dataclass(frozen=True)
class Runtime:
    """clock: epoch seconds. connect: the cluster's API by its policy. providers: the policy's providers, for one pass.

    owner: creates a new name for each lease or claim. doors: the webhook's cache of policies and keys.
    batch_failures_reported: whether the function's event source has ReportBatchItemFailures. checkpoint: called between
    a change and its record, so that a test can stop the process there. emit: writes one line of metrics. deployment:
    what policies may name. memory_size: MB that this function has, 0 where unknown. gauge: measures a pass. hand_over:
    gives a message of the reconcile queue to the large function, raises NotInvoked; None where there is no large
    function. tracing: for X-Ray; it does nothing where Lambda does not trace. decisions: the place in which decisions
    are recorded (replay/decision_place.py), "" for none. topics: publishes notifications, None: SNS does.
    page_key: name of the secret with the keys of the hosted page, "" where there is no such page. kept_lists: returns
    what earlier passes of this process have read of clusters; None: every pass reads everything. lists: where lists of
    clusters are (snapshot/list_archive.py), "" for nowhere. sleep: waits seconds within a pass.
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
    checkpoint: Callable[[str], None] = _nobody_stops
    emit: Callable[[str], None] = _to_stdout
    deployment: Deployment = STRICT
    memory_size: int = 0
    memory_usage: PassGauge = field(default_factory=NoGauge)
    hand_over: Callable[[bytes], None] | None = None
    tracing: Tracing = field(default_factory=lambda: tracing_of({}, time.time, _new_trace_id))
    decisions: str = ""
    topics: Publisher | None = None
    page_key: str = ""
    kept_lists: Callable[[], KeptLists] | None = None
    lists: str = ""
    sleep: Callable[[float], None] = time.sleep


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

    reach: connects to a cluster by its connection settings, with a reader of the secrets that may be used for it; a
    provider may need other settings than the policy's own. sleep and chance (uniform in [0, 1)): how passes and
    clients of clusters and vendors wait, and their jitter. deployment: what policies may name, by default the least.
    hosted: whether this is a Lambda function, which connects to no loopback address and ignores proxies of the
    environment.
    """

    def reached(access: KubernetesAccess, secret: ReadSecret) -> KubeClient:
        from chalicelib.kube.connect import connect as to_cluster

        return to_cluster(access, secret, clock=clock, sleep=sleep, jitter=chance, hosted=hosted)

    to = reach or reached

    def connected(policy: Policy) -> KubeClient:
        from chalicelib.policy.secret_names import KUBECONFIG, ClusterSecrets

        return to(policy.kubernetes, ClusterSecrets(read_secret, policy.name, (KUBECONFIG,), deployment))

    def registered(policy: Policy, kube: KubeClient, secret: ReadSecret) -> Sequence[Provider]:
        from chalicelib.policy.secret_names import KUBECONFIG, ClusterSecrets
        from chalicelib.providers.registry import providers as for_policy
        from chalicelib.providers.services import ProviderServices

        def reader(*uses: str) -> ReadSecret:
            return ClusterSecrets(secret, policy.name, uses, deployment)

        means = ProviderServices(
            connect=lambda access: to(access, reader("clusterapi", KUBECONFIG)),
            sleep=sleep,
            chance=chance,
            rate_limiter=store.rate_limits,
            cache=store.cache,
            deployment=deployment,
        )
        return tuple(
            provider
            for name, settings in sorted(policy.providers.items())
            for provider in for_policy(
                msgspec.structs.replace(policy, providers={name: settings}), kube, reader(name), clock, means
            )
        )

    def loaded(text: str, name: str, version: int, compiled: bytes | None) -> Policy:
        return read(text, name, version, compiled, deployment)

    def webhooks() -> Mapping[str, StoredWebhook]:
        return store.policies.webhooks()

    def current(name: str) -> Document | None:
        stored = store.policies.current(name, consistent=False)
        return Document(stored.text, stored.version, stored.compiled) if stored else None

    return Runtime(
        clock=clock,
        store=store,
        sender=sender,
        read_secret=read_secret,
        kube_client=connect or connected,
        providers=providers or registered,
        owner=owner or _new_owner,
        webhook_credentials=WebhookCredentials(
            webhooks=webhooks, current=current, load=loaded, read_secret=read_secret, clock=clock, deployment=deployment
        ),
        deployment=deployment,
        sleep=sleep,
    )


def from_environment(environment: Mapping[str, str], clock: Callable[[], float] = time.time) -> Runtime:
    """Build the runtime of a deployed function; raises BadInput that names the missing variable."""
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.store import Store

    table = state_table(environment)
    if not table:
        raise BadInput("environment", f"{TABLE} is not set", "set it to the name of Outscaler's DynamoDB table")
    tracing = tracing_of(environment, clock, _new_trace_id)
    sender = SqsSender.from_environment(environment, tracing.header)
    secrets = SecretCache(SecretsManagerReader(), clock)
    store = Store(table, clock=clock, policy_table=environment.get(POLICY_TABLE, ""))
    made = build(
        clock=clock,
        store=store,
        sender=sender,
        read_secret=secrets,
        deployment=deployment_of(environment),
        hosted=bool(environment.get(LAMBDA)),
    )
    reported = environment.get(BATCH_FAILURES, "") == REPORTED
    made = replace(
        made,
        batch_failures_reported=reported,
        tracing=tracing,
        decisions=environment.get(DECISIONS, ""),
        page_key=environment.get(PAGE_KEY, ""),
        lists=environment.get(LISTS, ""),
    )
    return _sized(made, environment, clock)


def _sized(runtime: Runtime, environment: Mapping[str, str], clock: Callable[[], float]) -> Runtime:
    """Add what decides which function makes a pass, in a function whose memory is known."""
    from chalicelib.runtime.memory_usage import Gauge

    size = environment.get(MEMORY_SIZE, "")
    if not (size.isascii() and size.isdigit()):
        return runtime
    return replace(
        runtime,
        memory_size=int(size),
        memory_usage=Gauge(),
        hand_over=LargeFunction.from_environment(environment),
        kept_lists=keeping(int(int(size) * KEPT_SHARE) << 20, runtime.lists, clock),
    )


def keeping(most: int, place: str = "", clock: Callable[[], float] = time.time) -> Callable[[], KeptLists]:
    """Return what a process keeps of clusters, at most this many bytes; made when it is first asked for, because only
    passes need it. place: where processes share lists (snapshot/list_archive.py), "" for nowhere."""

    @functools.cache
    def kept() -> KeptLists:
        from chalicelib.snapshot.live_cluster import KeptLists

        if not place:
            return KeptLists(most, time.monotonic)
        from chalicelib.snapshot.list_archive import ListArchive, list_place

        return KeptLists(most, time.monotonic, archive=ListArchive(list_place(place), clock))

    return kept


class SecretCache:
    """Reads secrets and caches each for ten minutes. Clients of clusters and vendors, and the webhook, read a secret
    again at once when its content is refused, so that a rotated secret works at the first refusal.

    While AWS does not respond, the last value is used. Raises BadInput, SecretUnavailable.
    """

    def __init__(self, reader: SecretsManagerReader, clock: Callable[[], float]) -> None:
        self._reader, self._clock = reader, clock
        self._until: dict[str, float] = {}

    def __call__(self, name: str) -> str:
        """Return the secret's text, at most ten minutes old."""
        until = self._until.get(name)
        if until is None:
            return self.fresh(name)
        if until > self._clock():
            return self._reader(name)
        try:
            return self.fresh(name)
        except SecretUnavailable:
            return self._reader(name)

    def fresh(self, name: str) -> str:
        """Return the secret's current text, for callers whose credential was refused."""
        text = self._reader.fresh(name)
        self._until[name] = self._clock() + SECRET_KEPT_FOR
        return text


def _new_owner() -> str:
    return uuid.uuid4().hex


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
    """Replace this process's runtime; None: build it from the environment when it is next needed."""
    _Cell.runtime = runtime
