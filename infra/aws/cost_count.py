"""What a minute of a quiet cluster asks of AWS, counted on the emulation: 100 nodes, 1,500 pods, Cluster API.

The cluster is quiet, but not at rest: many of its nodes are not needed and wait for their time, so that every pass
confirms their timers. Virtual time makes the counts the same in each run.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from chalicelib.model.policy import Metrics
from chalicelib.model.secret import PARAMETER
from chalicelib.runtime.log import logger
from infra.emulators.aws_services import QuickServices
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.emulators.request_units import Metered

NODES, PODS, MINUTES = 100, 1500, 10
_GZIP_FROM = 128 * 1024  # bytes from which an API server compresses
_ENV = [{"name": "SETTINGS", "value": "".join(f"{number * 7919 % 65_536:04x}" for number in range(750))}]


class Counts(msgspec.Struct, frozen=True):
    """Of one minute, with one tick and one pass. calls: of functions, by name. reads, writes: request units of the
    tables. sent: messages. log: bytes that the functions write. series: of metrics in CloudWatch. secret_reads: of all
    secrets, in ten minutes. lists, packed: bytes of the cluster's lists in a pass, plain and as a server compresses
    them. written: writes by row."""

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


def count(*, metrics: Metrics = Metrics.SUMMARY, parameters: bool = False) -> Counts:
    """Play a quiet cluster and count. parameters: whether its secret is a parameter of SSM. AssertionError where two
    minutes differ in more than what each ten minutes bring."""
    with _quiet_cluster(metrics, parameters=parameters) as (world, meter):
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
            (tuple(sorted(item for item in line.items() if item[0] in directive["Dimensions"][0])), each["Name"])
            for line in world.metrics[said:]
            for directive in line["_aws"]["CloudWatchMetrics"]
            for each in directive["Metrics"]
        }
        metric_bytes = sum(len(json.dumps(line, separators=(",", ":"))) + 1 for line in world.metrics[said:])
        assert isinstance(world.services, QuickServices)
        asked = [*world.services.secrets.asked, *world.services.parameters.asked]
        assert world.memory().nodes, "no timer runs"
        assert not world.operations()
        return Counts(
            calls={name: each // MINUTES for name, each in calls.items()},
            reads=meter.reads / MINUTES,
            writes=meter.writes / MINUTES,
            sent=(len(world.queues.sent) - sent) // MINUTES,
            log=(sum(map(len, lines)) + metric_bytes) // MINUTES,
            series=len(series),
            secret_reads=-(-len(asked) * 10 // MINUTES),
            lists=bodies.plain // MINUTES,
            packed=bodies.packed // MINUTES,
            written={row: units // MINUTES for row, units in sorted(meter.written.items()) if units >= MINUTES},
        )


@contextmanager
def _quiet_cluster(metrics: Metrics, *, parameters: bool) -> Iterator[tuple[LocalWorld, Metered]]:
    """A cluster that has come to rest."""
    world = LocalWorld(quick=True, grain=60.0)
    assert isinstance(world.services, QuickServices)
    meter = Metered(world.services.dynamodb)
    world.services.dynamodb = meter  # type: ignore[assignment]  # it has the same methods
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
    """Bytes of the bodies that the cluster answers with. An API server compresses by gzip's first level."""

    def __init__(self) -> None:
        self.plain = self.packed = 0
        self._known: dict[int, int] = {}

    def note(self, body: bytes) -> bytes:
        """Count it; the same body comes out."""
        self.plain += len(body)
        self.packed += len(body) if len(body) < _GZIP_FROM else self._packed(body)
        return body

    def _packed(self, body: bytes) -> int:
        """How long it is, packed; lists of one cluster at rest differ in nothing but their length."""
        if len(body) not in self._known:
            self._known[len(body)] = len(gzip.compress(body, 1, mtime=0))
        return self._known[len(body)]


@contextmanager
def _log() -> Iterator[list[str]]:
    """The lines that the functions log meanwhile."""
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
