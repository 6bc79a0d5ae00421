"""LocalWorld with I/O interceptors: every I/O of every function can be hit by a fault, and the
audit checks its effect."""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.memory import Horizon, Replacement
from chalicelib.model.operation import BROKEN, Operation
from chalicelib.model.quantity import parse_duration
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import logger
from chalicelib.runtime.messages import decode_act
from chalicelib.runtime.runtime import Runtime, build
from chalicelib.runtime.senders import NotSent
from chalicelib.store import Store
from infra.emulators.aws_faults import Life, lost_answer
from infra.emulators.aws_services import QuickServices
from infra.emulators.cloud_account import CloudBeside
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.machines import outdated_sets
from infra.emulators.controllers.manager import Pace
from infra.emulators.invocation import Invocation
from infra.emulators.kube.api import Api
from infra.emulators.kube.request import Response
from infra.emulators.lambda_events import Json
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from infra.emulators.vendor_common.server import AttachedAccount, connect
from infra.emulators.virtual_sqs import Message
from tests.faults import cluster
from tests.faults.audit import Audit
from tests.faults.due_nodes_audit import DueNodesAudit, DueNodesLimits
from tests.faults.fault_schedule import API, QUEUE, TABLE, Io, Strike, Weather
from tests.faults.faulty_topic import FaultyTopic
from tests.faults.io_interceptor import Doors, IoInterceptor, Process
from tests.faults.objects import NOTICE, conditions_of, created_at, is_ready, taint_of
from tests.faults.replacement_audit import AuditedNode, ReplacementAudit, ReplacementLimits
from tests.faults.stalls import Stalls
from tests.faults.steering_audit import SteeringAudit
from tests.faults.watched_vendor import WatchedVendor

_TABLE_READS = frozenset({"get_item", "batch_get_item", "query", "scan"})


_LOG = (tuple(logging.getLogger(logger.name).handlers), logging.getLogger(logger.name).level)
"""How the functions' log was before any of these worlds: they are not always closed in
the order they were opened."""


class FaultWorld(LocalWorld):
    """weather: the faults; audit: the checks; trace: what happened, as text; process:
    the running process; topic: receives notifications; accounts: of vendors that are
    attached to the cluster; around_vendor: carries out their requests. own_group: that of a node,
    "" if it has none."""

    def __init__(
        self,
        dice: Random,
        *,
        pace: Pace,
        grain: float,
        accounts: Sequence[AttachedAccount[Any, Any]] = (),
    ) -> None:
        self.trace: list[str] = []
        self.process: Process | None = None
        self.topic = FaultyTopic(Random(7))
        self._rows: tuple[int, Mapping[str, Replacement]] = -1, {}
        self._audited: tuple[tuple[int, ...], Mapping[str, AuditedNode]] = (), {}
        self._left = -1, set[str]()
        self._planned: tuple[int, tuple[list[Operation], Horizon | None]] = -1, ([], None)
        self._accounts = tuple(accounts)
        self.around_vendor: Callable[[Incoming, Callable[[], Answer]], Answer] = lambda _, answer: (
            answer()
        )
        self.own_group: Callable[[str], str] = lambda _: ""
        super().__init__(
            quick=True, pace=pace, grain=grain, clouds=cast(Sequence[CloudBeside], self._accounts)
        )
        self.weather = Weather(self.clock, dice)
        self.audit = Audit(self.kube, self.clock, lambda: self.process)
        self.audit.planned, self.audit.leaving = self.planned_operation, self.leaving_nodes
        self.stalls = Stalls(
            self.clock, self._stored, lambda: self.queues.sent, self.audit.fault, self.audit.count
        )
        self.queues.tamper = self._tampered
        self._watched = WatchedApi(self.server.api, self)
        self.server.api = cast(Api, self._watched)

    def audit_replacements(self) -> None:
        """Lets the audit follow replacements."""
        limits = ReplacementLimits(
            surge=int(cluster.CONSOLIDATION["maxSurge"]),
            min_node_age=parse_duration(cluster.CONSOLIDATION["minNodeAge"]),
            moves=int(cluster.CONSOLIDATION["movesPerPodPerDay"]),
        )
        audit = self.audit
        audit.replacements = ReplacementAudit(
            self.clock, audit.fault, audit.count, limits, self._replacements
        )
        lifecycle = cluster.LIFECYCLE
        due = DueNodesLimits(
            self.name,
            parse_duration(lifecycle["maxNodeAge"]),
            float(lifecycle["jitter"].rstrip("%")) / 100,
            {
                rule["condition"]: (
                    frozenset(rule.get("status", ["True"])),
                    parse_duration(rule["after"]),
                )
                for rule in lifecycle["repair"]
            },
            float(lifecycle["maxUnhealthy"].rstrip("%")) / 100,
        )
        audit.due_nodes = DueNodesAudit(self.clock, audit.fault, due, self.audited_nodes)

    def audit_steering(self) -> None:
        """Lets the audit follow horizons and marks."""
        self.audit.steering = SteeringAudit(
            self.clock, self.audit.fault, self.audit.count, self.audited_nodes, self._horizon
        )

    def _horizon(self) -> tuple[list[Operation], Horizon | None]:
        if self._planned[0] != self.changes:
            horizon = self.store.memory.look(self.name).consolidation.horizon
            self._planned = self.changes, (list(self.operations()), horizon)
        return self._planned[1]

    def _replacements(self) -> tuple[Mapping[str, Replacement], Mapping[str, AuditedNode]]:
        if self._rows[0] != self.changes:
            self._rows = self.changes, self.store.memory.look(self.name).replacements
        return self._rows[1], self.audited_nodes()

    def audited_nodes(self) -> Mapping[str, AuditedNode]:
        """The Nodes of all groups as they are now, by name."""
        kinds = (("nodes", ""), ("machines", fields.GROUP), ("machinesets", fields.GROUP))
        versions = tuple(self.kube.latest(plural, group) for plural, group in kinds)
        if self._audited[0] != versions:
            self._audited = versions, self._read_nodes()
        return self._audited[1]

    def _read_nodes(self) -> Mapping[str, AuditedNode]:
        outdated = outdated_sets(self.kube.list("machinesets", group=fields.GROUP))
        machines = {
            fields.node_name(each): each for each in self.kube.list("machines", group=fields.GROUP)
        }
        nodes = {}
        for node in self.kube.list("nodes"):
            name = node["metadata"]["name"]
            if machines.get(name) is None and (group := self.own_group(name)):
                nodes[name] = AuditedNode(
                    group,
                    created_at(node),
                    ready=is_ready(node),
                    conditions=conditions_of(node),
                )
            if (machine := machines.get(name)) is not None:
                nodes[name] = AuditedNode(
                    machine["metadata"]["labels"][fields.DEPLOYMENT_NAME],
                    min(created_at(node), created_at(machine)),
                    ready=is_ready(node),
                    outdated=any(
                        owner["uid"] in outdated for owner in machine["metadata"]["ownerReferences"]
                    ),
                    noticed=taint_of(node, NOTICE) is not None,
                    conditions=conditions_of(node),
                )
        return nodes

    @property
    def changes(self) -> int:
        """An upper bound on the number of changes to the table so far."""
        return int(cast(QuickServices, self.services).dynamodb.changes)

    def planned_operation(self, operation: str) -> dict[str, Any] | None:
        """An operation as the audit reads it, None if there is none of that id."""
        found = self.store.operations.get(self.name, operation)
        if found is None:
            return None
        handles = [
            (target.handle or target.instance).rpartition("/")[2] for target in found.spec.targets
        ]
        return {
            "kind": found.spec.kind.value,
            "group": found.spec.group,
            "nodes": [target.node for target in found.spec.targets],
            "from": found.spec.from_size,
            "to": found.spec.to_size,
            "handles": handles,
            "broken": BROKEN in found.status.data,
            "pods": found.spec.pods,
            "replacement": found.spec.replacement,
            "reason": found.spec.reason,
            "planned_at": found.spec.created_at,
            "leaves_at": found.spec.leaves_at,
            "id": found.spec.id,
            "plan": found.spec.plan,
        }

    def leaving_nodes(self) -> set[str]:
        """The nodes that open operations remove. Cached, because every list of pods queries it,
        while the table changes far less often."""
        changes = self.changes
        if self._left[0] != changes:
            nodes = {
                target.node for operation in self.operations() for target in operation.spec.targets
            }
            self._left = changes, nodes
        return self._left[1]

    def tell(self, text: str) -> None:
        """Adds one line to the trace."""
        self.trace.append(f"{self.clock() - self.audit.start:9.1f}  {text}")

    # -- processes

    def invoke(self, function: str, event: Json) -> Invocation:
        """See LocalWorld; within another invocation this starts a concurrent process."""
        outer, runtime, current = self.process, self._runtime, self.invoker.current
        self.process = Process(
            function,
            _operation(event),
            self.clock(),
            self.weather.new_skew(),
            first_message=len(self.queues.sent),
        )
        self.stalls.skew = max(self.stalls.skew, abs(self.process.skew))
        if outer is not None:
            self._runtime = None
        try:
            made = super().invoke(function, event)
            # A paused process does not keep others from running.
            lasted = (
                0.0
                if outer is not None or self.process.disturbed
                else self.clock() - self.process.began
            )
            self.stalls.ended(self.process, lasted, killed=bool(made.killed_at))
            self.audit.look()
        finally:
            self.process, self.invoker.current = outer, current
            if outer is not None:
                self._runtime = runtime
        self.tell(f"{'  ' if outer else ''}{function} {_operation(event)} {_how(made)}")
        return made

    def start(self) -> None:
        """See LocalWorld. The log is only captured."""
        base = logging.getLogger(logger.name)
        base.handlers = [_Listener(self.audit)]
        base.setLevel(logging.ERROR)
        super().start()
        for account in self._accounts:
            watched = WatchedVendor(
                account.server, self.weather, lambda: self._watched.gate, self._at_vendor
            )
            connect(account.server.host, watched.answer)

    def _at_vendor(self, incoming: Incoming, answer: Callable[[], Answer]) -> Answer:
        return self.around_vendor(incoming, answer)

    def close(self) -> None:
        """See LocalWorld."""
        base = logging.getLogger(logger.name)
        base.handlers, level = list(_LOG[0]), _LOG[1]
        base.setLevel(level)
        super().close()

    def new_runtime(self) -> Runtime:
        """See LocalWorld: with I/O interceptors and a clock that may be wrong."""
        base, life = super().new_runtime(), Life(self._dies_at)
        gate = IoInterceptor(
            self.weather, life, self.clock, lambda: self.process, self._interlude, self.tell
        )
        self._watched.gate = gate
        table = self.store.table
        client = Doors(
            table.client,
            gate,
            TABLE,
            _TABLE_READS,
            self.weather.table_refusal,
            lambda _: lost_answer(),
        )
        store = Store(
            table.name,
            clock=self._skewed,
            client=client,
            sleep=self.clock.advance,
            chance=lambda: 0.5,
            region="us-east-1",
            table=type(table),
        )
        sender = Doors(base.sender, gate, QUEUE, frozenset(), _not_sent, _not_sent)

        def connect(policy: Policy) -> KubeClient:
            life.check()
            return base.kube_client(policy)

        made = build(
            clock=self._skewed,
            store=store,
            sender=cast(Any, sender),
            read_secret=base.read_secret,
            connect=connect,
            deployment=base.deployment,
            owner=base.owner,
            sleep=self.clock.advance,
            chance=lambda: 0.5,
        )
        return dataclasses.replace(
            made,
            checkpoint=life.checkpoint,
            emit=self._emit,
            batch_failures_reported=True,
            topics=self.topic,
            decisions="/dev/null",  # a place in which nothing can be stored
            repeat=self._repeat,
        )

    def _repeat(self, seconds: float, work: Callable[[], bool]) -> AbstractContextManager[None]:
        """See ManualClock.repeat. A thread of a paused process pauses, too."""
        process = self.process
        return self.clock.repeat(seconds, lambda: work() if self.process is process else True)

    def _tampered(self, message: Message) -> Sequence[Message]:
        made = self.weather.tamper(message)
        if list(made) != [message]:
            self.stalls.disturb(_operation({"Records": [{"body": message.body}]}))
        return made

    def _stored(self, operation: str) -> Operation | None:
        return self.store.operations.get(self.name, operation)

    def _emit(self, line: str) -> None:
        self.metrics.append(msgspec.json.decode(line))

    def _skewed(self) -> float:
        return self.clock() + (self.process.skew if self.process else 0.0)

    def _interlude(self, strike: Strike) -> None:
        """Events and time while a process is paused. Only one process is paused at a time."""
        if self.process is not None:
            self.stalls.disturb(self.process.operation)
        if strike.meanwhile is not None:
            process, self.process, gate = self.process, None, self._watched.gate
            strike.meanwhile()
            self.process, self._watched.gate = process, gate
        if self._inside or not strike.seconds:
            return
        self._inside, gate = True, self._watched.gate
        try:
            self.step(strike.seconds)
        finally:
            self._inside, self._watched.gate = False, gate

    _inside = False


class WatchedApi:
    """The simulated API server behind the interceptor and the audit. gate: of the calling
    process."""

    def __init__(self, api: Api, world: FaultWorld) -> None:
        self._api, self._world = api, world
        self.gate: IoInterceptor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def handle(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        certificate: Any = None,
    ) -> Response:
        """See Api.handle."""
        audit, weather = self._world.audit, self._world.weather

        def call() -> Response:
            if method == "PATCH" and (refusal := weather.admission(target, body)) is not None:
                return refusal
            watch = audit.watch(method, target, body)
            made = self._api.handle(method, target, headers, body, certificate)
            audit.saw(watch, made)
            return made

        if self.gate is None:
            return call()
        io = Io(self.gate.function, API, method, target, method != "GET")
        return self.gate.through(io, call, lambda: weather.refusal(io), weather.lost)


class _Listener(logging.Handler):
    """Collects logged errors: those without an expected class are findings, the others
    come from injected faults."""

    def __init__(self, audit: Audit) -> None:
        super().__init__(logging.ERROR)
        self._audit = audit

    def emit(self, record: logging.LogRecord) -> None:
        """Handles one log record."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OutscalerError):
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._audit.fault(
                f"an error without a name: {type(error).__name__}: {error}, at "
                f"{Path(place.filename).name}:{place.lineno}"
            )


def _how(made: Invocation) -> str:
    """The outcome in one word."""
    if made.killed_at:
        return f"died at {made.killed_at}"
    return made.error or ("gave it back" if made.failed_messages else "ok")


def _operation(event: Json) -> str:
    """The operation that a message concerns."""
    for record in event.get("Records", ()):
        try:
            return decode_act(record["body"]).operation
        except BadInput:
            return ""
    return ""


def _not_sent(_: str) -> NotSent:
    return NotSent("a queue", "ServiceUnavailable")
