"""Doubles for the rooms that record writes to."""

from __future__ import annotations

from typing import Any

from chalicelib.kube.errors import ClusterError, Missing
from chalicelib.model.operation import Kind, Operation, State
from chalicelib.model.plan import Plan, PodVerdict
from chalicelib.model.reason import Code, Reason
from chalicelib.record.events import Event
from chalicelib.record.record import Recorder
from chalicelib.store.journal import JournalEntry

NOW = 1_795_245_654.0


class Pages:
    """A journal in a list."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def append(self, cluster: str, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def recent(self, cluster: str, limit: int = 50) -> tuple[JournalEntry, ...]:
        return tuple(reversed(self.entries))[:limit]


class Wall:
    """A place for events. gone: pods that do not exist; error: what the next post raises."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.gone: set[str] = set()
        self.error: ClusterError | None = None

    def uid_of(self, namespace: str, pod: str) -> str:
        if pod in self.gone:
            raise Missing(f"{pod} not found")
        return f"uid-{pod}"

    def post(self, event: Event, now: float) -> None:
        if self.error:
            raise self.error
        self.posted.append(event)


class Scene:
    """A recorder and what it wrote."""

    def __init__(self, **parts: Any) -> None:
        self.journal, self.wall, self.used = Pages(), Wall(), set[str]()
        self.lines: list[str] = []
        self.recorder = Recorder(**{"journal": self.journal, "events": self.wall, "first_use": self._first,
                                    "emit": self.lines.append, **parts})

    def _first(self, key: str, seconds: float) -> bool:
        fresh = key not in self.used
        self.used.add(key)
        return fresh


def plan(at: float = NOW, **parts: Any) -> Plan:
    return Plan(id=f"plan-{at}", cluster="c", at=at, **parts)


def refused(*pods: str, groups: int = 2) -> PodVerdict:
    """Pods that fit no group: one lacks cpu, the others are at their maximum."""
    lacks_cpu = Reason.of(Code.INSUFFICIENT, resource="cpu", needs=8000, offers=3900)
    reasons: dict[str, tuple[Reason, ...]] = {"g0": (lacks_cpu,)}
    reasons |= {f"g{n}": (Reason.of(Code.GROUP_MAX_SIZE, max=3),) for n in range(1, groups)}
    return PodVerdict(tuple(pods), reasons)


def ended(kind: Kind, state: State = State.SUCCEEDED, **parts: Any) -> Operation:
    given: dict[str, Any] = {"id": f"{kind}-1", "cluster": "c", "provider": "clusterapi", "group": "g", "plan": "p",
                             "created_at": NOW - 30.0}
    return Operation(kind=kind, state=state, **given | parts)
