"""Test client of the routes: the real app on an emulated table, with a
clock that the test controls.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from chalice.test import Client, HTTPResponse

from app import app
from chalicelib.aws.secrets_manager import SecretsManagerReader
from chalicelib.model.secret import PARAMETER, parameter_name
from chalicelib.policy.load import digest
from chalicelib.runtime.messages import ReconcileMessage, decode_reconcile
from chalicelib.runtime.runtime import Runtime, SecretCache, build
from chalicelib.runtime.senders import NotSent
from chalicelib.runtime.webhook_authentication import sign
from chalicelib.store import Store
from infra.emulators.aws import LocalAws
from infra.emulators.aws_services import in_process
from infra.emulators.controllers.clock import ManualClock

EVENTS = Path(__file__).resolve().parents[1] / "events"
HMAC = "hmac-value-for-tests"
BEARER = "bearer-value-for-tests"
START = 1_795_245_654.0


def sample(name: str) -> bytes:
    """A request body from tests/events."""
    return (EVENTS / f"{name}.json").read_bytes()


@dataclass
class Outbox:
    """A sender that records messages; `full`: queues that reject them."""

    sent: list[tuple[str, bytes, int]] = field(default_factory=list)
    full: set[str] = field(default_factory=set)

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Records a message; see Sender."""
        if queue in self.full:
            raise NotSent(queue, "Full")
        self.sent.append((queue, body, delay))

    def scans(self) -> list[tuple[ReconcileMessage, int]]:
        """Reconcile messages with their delays."""
        return [
            (decode_reconcile(body), delay)
            for queue, body, delay in self.sent
            if queue == "reconcile"
        ]


class Premises:
    """Objects that a module's tests share because they are slow to create: a table, clients, a
    clock that only advances."""

    def __init__(self, aws: LocalAws, clock: ManualClock | None = None) -> None:
        self.aws = aws
        self.table = f"outscaler-{uuid.uuid4().hex[:12]}"
        aws.create_table(self.table)
        self.clock = clock or ManualClock(START)
        self.store = Store(
            self.table,
            clock=self.clock,
            region="us-east-1",
            endpoint=aws.endpoint,
            client=in_process("dynamodb"),
        )
        # the same emulation without a socket; test_package_*.py uses HTTP
        self.secrets = in_process("secretsmanager")
        self.parameters = in_process("ssm")

    def desk(self) -> AppClient:
        """A new app client."""
        outbox = Outbox()
        secrets = SecretCache(SecretsManagerReader(self.secrets, self.parameters), self.clock)
        runtime = build(clock=self.clock, store=self.store, sender=outbox, read_secret=secrets)
        self.store.deployment_settings().publish(runtime.deployment)
        return AppClient(self, self.store, self.clock, outbox, runtime)


@dataclass
class AppClient:
    """One deployment. Every test has its own clusters in the module's table."""

    premises: Premises
    store: Store
    clock: ManualClock
    outbox: Outbox
    runtime: Runtime
    client: Client = field(default_factory=lambda: Client(app))

    def cluster(
        self,
        *,
        mode: str = "active",
        secret: object = None,
        spec: Mapping[str, object] | None = None,
    ) -> str:
        """Creates a cluster with a stored policy; secret: its webhook secret, by
        default with both types of key."""
        name = f"shop-{uuid.uuid4().hex[:10]}"
        secret = {"hmac": HMAC, "bearer": BEARER} if secret is None else secret
        self.put_secret(f"outscaler/{name}/webhook", secret)
        self.apply(name, mode=mode, spec=spec)
        return name

    def put_secret(self, name: str, secret: object) -> None:
        """Creates a secret or changes its value: a text, or a value to be encoded as JSON."""
        text = secret if isinstance(secret, str) else json.dumps(secret)
        if name.startswith(PARAMETER):
            self.premises.parameters.put_parameter(
                Name=parameter_name(name), Value=text, Type="SecureString", Overwrite=True
            )
            return
        client = self.premises.secrets
        try:
            client.create_secret(Name=name, SecretString=text)
        except client.exceptions.ResourceExistsException:
            client.put_secret_value(SecretId=name, SecretString=text)

    def apply(
        self, name: str, *, mode: str = "active", spec: Mapping[str, object] | None = None
    ) -> None:
        """Stores a policy, as the next version if there is one already."""
        document = {
            "apiVersion": "outscaler.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {
                "mode": mode,
                "kubernetes": {"kubeconfigSecret": f"outscaler/{name}/kubeconfig"},
                "providers": {"clusterapi": {"namespace": "capi"}},
                "nodeGroups": [{"provider": "clusterapi", "id": "workers", "min": 1, "max": 9}],
                "webhook": {"secret": f"outscaler/{name}/webhook"},
                **(spec or {}),
            },
        }
        self.store_text(name, json.dumps(document))  # JSON is valid YAML

    def store_text(self, name: str, text: str) -> None:
        """Stores any text as the policy, unchecked."""
        current = self.store.policies.current(name)
        self.store.policies.put(name, text, digest(text), current.version if current else None)

    def signed(
        self, name: str, body: bytes, *, key: str = HMAC, at: float | None = None
    ) -> dict[str, str]:
        """Headers with a signature for this cluster, made now or at that instant."""
        timestamp = str(int(self.clock() if at is None else at))
        return {
            "X-Outscaler-Timestamp": timestamp,
            "X-Outscaler-Signature": sign(key.encode(), name, timestamp, body),
        }

    def post(
        self, name: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        """POST /clusters/{name}/events, signed unless headers are given."""
        given = {
            "Content-Type": "application/json",
            **(self.signed(name, body) if headers is None else headers),
        }
        return self.client.http.post(f"/clusters/{name}/events", headers=given, body=body)

    def get(self, path: str) -> HTTPResponse:
        """Sends GET to a route."""
        return self.client.http.get(path)


def line(response: HTTPResponse) -> str:
    """The single line of an error response."""
    body: dict[str, str] = msgspec.json.decode(response.body)
    assert list(body) == ["error"]
    assert "\n" not in body["error"]
    return body["error"]
