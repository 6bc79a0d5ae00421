"""Counts the AWS requests of one minute of a quiet cluster on the emulation: 100 nodes,
1,500 pods, Cluster API.

The cluster is quiet but not idle: many of its nodes are unneeded and wait for their timers, so
every pass confirms these timers. Virtual time makes the counts the same in every run.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from chalicelib.model.secret import PARAMETER
from chalicelib.policy.settings.cluster_policy import Metrics
from chalicelib.runtime.log import logger
from chalicelib.store.memory_rows import CONFIRMED_FOR
from infra.emulators.aws_services import QuickServices
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.emulators.request_units import Metered

NODES, PODS, MINUTES = 100, 1500, 10
SELDOM = {
    "gauges": 2 / 60,
    "gauges#hours": 1 / 60,
    "overview": 0.0,
    "memory#nodes#000": 60 / CONFIRMED_FOR,
}
"""Units a minute of rows that a quiet cluster writes twice an hour, once an hour, never and every
ten minutes: ten minutes show too few of them, or one too many."""
_TOPIC = "arn:aws:sns:us-east-1:123456789012:outscaler-events"
_GZIP_FROM = 128 * 1024  # bytes from which an API server compresses a response
_ENV = [
    {"name": "SETTINGS", "value": "".join(f"{number * 7919 % 65_536:04x}" for number in range(750))}
]


class Counts(msgspec.Struct, frozen=True):
    """Counts of one minute with one tick and one pass. calls: function invocations by name. reads,
    writes: request units of the tables. sent: queue messages. log: bytes that the functions log.
    series: CloudWatch metric series. secret_reads: of all secrets, in ten minutes. lists, packed:
    bytes of the cluster's lists in a pass, uncompressed and compressed by the server. read,
    written: units by row. tick_reads, tick_log: units and bytes of a tick without clusters, which
    `reads` and `log` contain."""

    calls: dict[str, int]
    reads: float
    writes: float
    sent: int
    log: int
    series: int
    secret_reads: int
    lists: int
    packed: int
    written: dict[str, int]
    read: dict[str, float] = {}
    tick_reads: float = 0.0
    tick_log: int = 0


def count(
    *, metrics: Metrics = Metrics.SUMMARY, parameters: bool = False, notified: bool = False
) -> Counts:
    """Run a quiet cluster and return its counts. parameters: whether the cluster's secret is an SSM
    parameter. notified: whether its policy has a topic for notifications. Raises AssertionError if
    two minutes differ by more than the reads that occur every ten minutes."""
    tick_reads, tick_log = count_tick()
    with _quiet_cluster(metrics, parameters=parameters, notified=notified) as (world, meter):
        begun, said = len(world.invocations), len(world.metrics)
        meter.reset()
        bodies = _Bodies()
        world.line.edit = bodies.note
        sent = len(world.queues.sent)
        with _log() as lines:
            world.step(60.0 * MINUTES)
        calls: dict[str, int] = {}
        for made in world.invocations[begun:]:
            calls[made.function] = calls.get(made.function, 0) + 1
        series = {
            (
                tuple(
                    sorted(item for item in line.items() if item[0] in directive["Dimensions"][0])
                ),
                each["Name"],
            )
            for line in world.metrics[said:]
            for directive in line["_aws"]["CloudWatchMetrics"]
            for each in directive["Metrics"]
        }
        metric_bytes = sum(
            len(json.dumps(line, separators=(",", ":"))) + 1 for line in world.metrics[said:]
        )
        assert isinstance(world.services, QuickServices)
        asked = [*world.services.secrets.asked, *world.services.parameters.asked]
        assert world.memory().nodes, "no timer runs"
        assert not world.operations()
        assert meter.written["memory#nodes#000"] <= 2, "timers are written more often"
        seldom = sum(units for row, units in meter.written.items() if row in SELDOM)
        return Counts(
            calls={name: each // MINUTES for name, each in calls.items()},
            reads=meter.reads / MINUTES,
            writes=round((meter.writes - seldom) / MINUTES + sum(SELDOM.values()), 2),
            sent=(len(world.queues.sent) - sent) // MINUTES,
            log=(sum(map(len, lines)) + metric_bytes) // MINUTES,
            series=len(series),
            secret_reads=-(-len(asked) * 10 // MINUTES),
            lists=bodies.plain // MINUTES,
            packed=bodies.packed // MINUTES,
            written={
                row: units // MINUTES
                for row, units in sorted(meter.written.items())
                if units >= MINUTES
            },
            read={
                row: units / MINUTES
                for row, units in sorted(meter.read.items())
                if row not in SELDOM
            },
            tick_reads=tick_reads,
            tick_log=tick_log,
        )


def count_tick() -> tuple[float, int]:
    """Return the units that a tick reads and the bytes that it logs in a
    deployment without clusters."""
    world = LocalWorld(quick=True, grain=60.0)
    assert isinstance(world.services, QuickServices)
    meter = Metered(world.services.dynamodb)
    world.services.dynamodb = meter  # it has the same methods
    with world:
        world.step(120.0)
        meter.reset()
        with _log() as lines:
            world.step(60.0 * MINUTES)
        assert not meter.writes
        return meter.reads / MINUTES, sum(map(len, lines)) // MINUTES


@contextmanager
def _quiet_cluster(
    metrics: Metrics, *, parameters: bool, notified: bool
) -> Iterator[tuple[LocalWorld, Metered]]:
    """Yield a cluster that has reached a steady state."""
    world = LocalWorld(quick=True, grain=60.0)
    assert isinstance(world.services, QuickServices)
    meter = Metered(world.services.dynamodb)
    world.services.dynamodb = meter  # it has the same methods
    secret = f"{PARAMETER if parameters else ''}outscaler/{world.name}/kubeconfig"
    with world:
        world.put_secret(secret, world.server.kubeconfig())
        world.seed(objects.machine_deployment("workers", NODES, 1, 2 * NODES))
        world.step(120.0)
        container = {
            "name": "main",
            "image": "registry.example/web:1.0",
            "env": _ENV,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }
        world.seed(objects.deployment("web", replicas=PODS, containers=[container]))
        world.step(60.0)
        world.apply_policy(
            json.dumps(
                {
                    "apiVersion": "outscaler.dev/v1",
                    "kind": "Cluster",
                    "metadata": {"name": world.name},
                    "spec": {
                        "mode": "active",
                        "metrics": metrics.value,
                        "providers": {"clusterapi": {}},
                        "options": {"scaleDownUnneededTime": "24h"},
                        "kubernetes": {"kubeconfigSecret": secret},
                        **({"notifications": {"topic": _TOPIC}} if notified else {}),
                    },
                }
            )
        )
        world.step(600.0)
        world.services.secrets.asked.clear()
        world.services.parameters.asked.clear()
        assert len(world.nodes()) == NODES
        assert not world.pending()
        yield world, meter


class _Bodies:
    """Counts the bytes of the cluster's response bodies. An API server
    compresses with gzip level 1."""

    def __init__(self) -> None:
        self.plain = self.packed = 0
        self._known: dict[int, int] = {}

    def note(self, body: bytes) -> bytes:
        """Count a body and return it unchanged."""
        self.plain += len(body)
        self.packed += len(body) if len(body) < _GZIP_FROM else self._packed(body)
        return body

    def _packed(self, body: bytes) -> int:
        """Return the compressed length of a body. Results are cached by length, because lists of a
        cluster at rest differ only in their length."""
        if len(body) not in self._known:
            self._known[len(body)] = len(gzip.compress(body, 1, mtime=0))
        return self._known[len(body)]


@contextmanager
def _log() -> Iterator[list[str]]:
    """Collect the lines that the functions log in the meantime."""
    lines: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record) + "\n")

    handler = Keeps()
    handler.setFormatter(logger.registered_formatter)
    under = logging.getLogger(logger.name)
    under.addHandler(handler)
    try:
        yield lines
    finally:
        under.removeHandler(handler)


AS_OF = "November 2026"


class Prices(msgspec.Struct, frozen=True):
    """Prices in US dollars. second_x86, second_arm: of a gigabyte-second of a function. call: of a
    function invocation. read, write: of a DynamoDB on-demand request unit. queue: of an SQS
    request. secret, secret_read: of a secret per month, and of a call. decrypt: of a KMS request,
    one per parameter that is read. series: of a custom metric per month. alarm: of a metric that an
    alarm watches, per month. dashboard: per month. ingest, keep: of a gigabyte of ingested logs,
    and of stored logs per month. put, get: of an S3 request. egress: of a gigabyte that leaves a
    cloud, charged by the cluster's cloud."""

    second_x86: float = 0.0000166667
    second_arm: float = 0.0000133334
    call: float = 0.20 / 1e6
    read: float = 0.125 / 1e6
    write: float = 0.625 / 1e6
    queue: float = 0.40 / 1e6
    secret: float = 0.40
    secret_read: float = 0.05 / 10_000
    decrypt: float = 0.03 / 10_000
    series: float = 0.30
    alarm: float = 0.10
    dashboard: float = 3.00
    ingest: float = 0.50
    keep: float = 0.03
    put: float = 0.005 / 1000
    get: float = 0.0004 / 1000
    egress: float = 0.09


LIST = Prices()
