"""Test doubles for the services that record writes to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.cluster.errors import ClusterError, Conflict, NotFound
from chalicelib.cluster.objects import ConfigMap
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.events import Event
from chalicelib.journal.operation_events import OperationStep
from chalicelib.journal.recorder import Recorder, record_outcome, record_plan, record_step
from chalicelib.model.machine_offers import MachineOffers
from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.model.plan import Plan, TaintUpdate, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics
from chalicelib.store.codec import fingerprint
from chalicelib.store.journal import CounterTotals, JournalEntry
from tests.operations import new_operation

NOW = 1_795_245_654.0
STATUS = "cluster-autoscaler-status"


class Pages:
    """A journal in a list, and its ledger. tables: reads and writes. overtaken: how often a
    write finds a newer ledger."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.book = CounterTotals()
        self.reads = self.writes = self.overtaken = 0
        self.error: Exception | None = None
        self.offers: dict[str, MachineOffers] = {}
        self.offers_error: Exception | None = None

    def append(self, cluster: str, entry: JournalEntry) -> None:
        if self.error:
            raise self.error
        self.writes += 1
        self.entries.append(entry)

    def put_offers(self, cluster: str, name: str, offers: MachineOffers, at: float) -> None:
        if self.offers_error:
            raise self.offers_error
        self.writes += 1
        self.offers[name] = offers

    def ledger(self, cluster: str) -> CounterTotals:
        if self.error:
            raise self.error
        self.reads += 1
        return self.book

    def count(self, cluster: str, counts: Mapping[str, float]) -> None:
        self.writes += 1
        total = {name: self.book.counts.get(name, 0.0) + more for name, more in counts.items()}
        self.book = msgspec.structs.replace(self.book, counts=self.book.counts | total)

    def tell(
        self, cluster: str, counts: Mapping[str, float], reported: bytes, *, expected: str
    ) -> bool:
        if self.overtaken:
            self.overtaken -= 1
            return False
        assert expected == self.book.version
        self.count(cluster, counts)
        self.book = msgspec.structs.replace(
            self.book, state=reported, version=fingerprint(reported)
        )
        return True


class Wall:
    """A cluster to write to. gone: objects that do not exist; error: what the next posts raise, by
    object or for all; maps: ConfigMaps by name; conflicts: how many writes of them conflict."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.gone: set[str] = set()
        self.errors: dict[str, ClusterError] = {}
        self.maps: dict[str, dict[str, Any]] = {
            STATUS: {"metadata": {"uid": "u", "resourceVersion": "1"}}
        }
        self.calls: list[str] = []
        self.conflicts = 0

    def uid_of(self, kind: str, namespace: str, name: str) -> str:
        self.calls.append(f"uid {name}")
        if name in self.gone:
            raise NotFound(f"{name} not found")
        return f"uid-{name}"

    def post(self, event: Event, now: float) -> None:
        self.calls.append("post")
        if error := self.errors.get(event.name) or self.errors.get("*"):
            raise error
        self.posted.append(event)

    def find(self, namespace: str, name: str) -> ConfigMap:
        self.calls.append("find")
        self._refuse()
        if name not in self.maps:
            raise NotFound(f"{name} not found")
        return msgspec.convert(self.maps[name], ConfigMap)

    def change(
        self,
        namespace: str,
        name: str,
        found: ConfigMap,
        data: dict[str, str],
        annotations: dict[str, str],
    ) -> None:
        self.calls.append("change")
        self._collide()
        assert found.metadata.resource_version == self.maps[name]["metadata"]["resourceVersion"]
        self.maps[name]["data"] = (self.maps[name].get("data") or {}) | data
        self.maps[name]["metadata"]["annotations"] = annotations

    def _refuse(self) -> None:
        if "maps" in self.errors:
            raise self.errors["maps"]

    def _collide(self) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("changed meanwhile", reason="Conflict")


class RecordFixture:
    """A recorder, its output, and the state that the last pass left. now: the clock. metrics:
    the output for CloudWatch."""

    def __init__(
        self,
        *,
        wall: bool = True,
        now: float = NOW,
        metrics: Metrics = Metrics.FULL,
        **options: Any,
    ) -> None:
        self.journal, self.wall, self.now = Pages(), Wall(), now
        self.lines: list[dict[str, Any]] = []
        self.left, self.decision, self.trouble = CarryOver(), "", ""
        self.recorder = Recorder(
            journal=self.journal,
            board=self.wall if wall else None,
            clock=lambda: self.now,
            metrics=metrics,
            options=Options(**options),
            emit=lambda line: self.lines.append(json.loads(line)),
        )

    def passes(
        self,
        decided: Plan,
        *,
        marks: tuple[TaintUpdate, ...] = (),
        snapshot: Snapshot | None = None,
        seconds: Mapping[str, float] | None = None,
        state: ClusterState | None = None,
    ) -> None:
        """Records a pass; the state it leaves is input of the next one."""
        seen = snapshot or Snapshot("c", decided.at)
        self.now = decided.at
        reported = record_plan(
            decided,
            seen,
            self.recorder,
            self.left,
            self.decision,
            marks=marks,
            seconds=seconds or {"main": 0.1},
            state=state,
        )
        self.left, self.decision, self.trouble = (
            reported.left,
            reported.decision,
            "; ".join(reported.trouble),
        )

    def ends(self, operation: Operation, outcome: Succeeded | Failed, **values: Any) -> str:
        """Records the end of an operation."""
        return record_outcome(operation, outcome, self.recorder, **values)

    def steps(self, operation: Operation, outcome: InProgress, why: str = "") -> str:
        """Records a step of an operation."""
        return record_step(OperationStep(operation, outcome, why), self.recorder)

    def reported(self, *kinds: str) -> list[tuple[str, str, str, str]]:
        """Returns the events posted about objects of these kinds: name, reason, type, message."""
        return [
            (event.name, event.reason, event.type, event.message)
            for event in self.wall.posted
            if event.kind in (kinds or ("Pod", "Node", "ConfigMap"))
        ]

    def values(self, name: str) -> dict[str, float]:
        """Returns the values emitted for this metric, by its labels without the cluster."""
        found: dict[str, float] = {}
        for line in self.lines:
            if f"cluster_autoscaler_{name}" in line:
                [dimensions] = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
                labels = ",".join(str(line[each]) for each in dimensions if each != "cluster")
                found[labels] = line[f"cluster_autoscaler_{name}"]
        return found


def plan(at: float = NOW, **parts: Any) -> Plan:
    return Plan(id=f"plan-{at}", cluster="c", at=at, **parts)


def refused(*pods: str, groups: int = 2) -> UnschedulablePods:
    """Pods that fit no group: one group lacks cpu, the others are at their maximum."""
    lacks_cpu = Reason.of(ReasonCode.INSUFFICIENT, resource="cpu", needs=8000, offers=3900)
    reasons: dict[str, tuple[Reason, ...]] = {"g0": (lacks_cpu,)}
    reasons |= {f"g{n}": (Reason.of(ReasonCode.GROUP_MAX_SIZE, max=3),) for n in range(1, groups)}
    return UnschedulablePods(tuple(pods), reasons)


def ended(
    kind: OperationKind, state: OperationState = OperationState.SUCCEEDED, **parts: Any
) -> Operation:
    given: dict[str, Any] = {
        "id": f"{kind}-1",
        "cluster": "c",
        "provider": "clusterapi",
        "group": "g",
        "plan": "p",
        "created_at": NOW - 30.0,
    }
    return new_operation(kind=kind, state=state, **given | parts)
