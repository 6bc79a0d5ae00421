"""Checks from outside that a node that goes as interrupted, sick, too old or outdated is so.

    interrupted     its vendor's notice held when its removal was planned; until the announced end,
                    and no longer, protected pods may be evicted
    repair          it had one of the conditions for the policy's time when its removal was planned,
                    and no more nodes of its group were sick than the policy allows
    expired         it was older than its own limit
    drifted         its group had another template

Nodes are seen at the end of each invocation and of each step, conditions with the instants of their
changes. All times are those of the cluster: a process whose clock is wrong may be SKEW early, and
one that was paused LATE late.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from tests.faults.replacement_audit import LATE, SKEW, AuditedNode


class DueNodesLimits(msgspec.Struct, frozen=True):
    """The policy. conditions: type -> (statuses, seconds), of conditions that make a node sick; an
    interruption that is no longer than flap does not count. most_sick: share of a group."""

    cluster: str
    max_age: float
    jitter: float
    conditions: Mapping[str, tuple[frozenset[str], float]]
    most_sick: float
    flap: float = 60.0

    def age(self, node: str) -> float:
        """Return the age of a node at which it has expired."""
        digest = hashlib.sha256(f"{self.cluster}/{node}".encode()).hexdigest()
        return self.max_age * (1 - self.jitter * int(digest[:16], 16) / 16**16)


class DueNodesAudit:
    """fault: as that of Audit. read: the Nodes by name."""

    def __init__(
        self,
        clock: Callable[[], float],
        fault: Callable[[str], None],
        limits: DueNodesLimits,
        read: Callable[[], Mapping[str, AuditedNode]],
    ) -> None:
        self._clock, self._fault, self._limits, self._read = clock, fault, limits, read
        self._created: dict[str, float] = {}
        self._outdated: dict[str, float] = {}  # node -> when it was last outdated
        self._noticed: dict[str, float] = {}  # node -> until when its notice has held
        self._at_risk: frozenset[str] = frozenset()
        # group -> when it was last seen without too many sick nodes node, condition -> begin, last
        # instant, whether it had ended then
        self._calm: dict[str, float] = {}
        self._sick: dict[tuple[str, str], tuple[float, float, bool]] = {}

    @property
    def at_risk(self) -> frozenset[str]:
        """The nodes whose notice held at the last look."""
        return self._at_risk

    def look(self) -> None:
        """Note the nodes as they are now."""
        nodes, now = self._read(), self._clock()
        at_risk = set()
        for name, node in nodes.items():
            self._created[name] = node.created
            if node.outdated:
                self._outdated[name] = now
            if node.noticed or (name in self._at_risk and not node.ready):
                self._noticed[name] = now
                at_risk.add(name)
            for condition in self._limits.conditions:
                self._note_condition(name, node, condition, now)
        self._at_risk = frozenset(at_risk)
        self._calm.update(
            (group, now)
            for group in {n.group for n in nodes.values()}
            if not self.too_many_sick(group)
        )

    def too_many_sick(self, group: str) -> bool:
        """Return whether more nodes of a group are sick than may be repaired."""
        nodes = [node for node in self._read().values() if node.group == group]
        sick = [
            node
            for node in nodes
            if any(
                node.conditions.get(each, ("",))[0] in on
                for each, (on, _) in self._limits.conditions.items()
            )
        ]
        return len(sick) > max(1, int(self._limits.most_sick * len(nodes)))

    def _note_condition(self, name: str, node: AuditedNode, condition: str, now: float) -> None:
        status, changed = node.conditions.get(condition, ("", 0.0))
        key, known = (name, condition), self._sick.get((name, condition))
        if status in self._limits.conditions[condition][0]:
            lasts = known is not None and changed - known[1] <= self._limits.flap + SKEW
            self._sick[key] = known[0] if known is not None and lasts else changed, now, False
        elif known is not None and status and not known[2]:
            self._sick[key] = known[0], max(known[1], min(changed, now)), True

    def sick_since(self, name: str) -> float | None:
        """Return since when the node should have been repaired, None if it is well now."""
        node = self._read().get(name)
        due = [
            self._sick[name, condition][0] + seconds
            for condition, (statuses, seconds) in self._limits.conditions.items()
            if node is not None and node.conditions.get(condition, ("", 0.0))[0] in statuses
            if (name, condition) in self._sick
        ]
        return min(due, default=None)

    def planned(self, reason: str, name: str, planned_at: float) -> None:
        """Check the begin of a drain with this reason. planned_at: when its removal was planned."""
        self.look()
        checks = {
            "interrupted": self._is_noticed,
            "repair": self._is_sick,
            "expired": self._is_old,
            "drifted": self._is_outdated,
        }
        if reason in checks and (problem := checks[reason](name, planned_at)):
            self._fault(f"node {name} is drained as {reason}, and {problem}")

    def _is_noticed(self, name: str, planned_at: float) -> str:
        return (
            "" if self._noticed.get(name, 0.0) >= planned_at - LATE else "no notice has held since"
        )

    def _is_sick(self, name: str, planned_at: float) -> str:
        node = self._read().get(name)
        if node is not None and self._calm.get(node.group, 0.0) < planned_at - LATE:
            return f"too many nodes of {node.group} were sick when that was planned"
        times = []
        for condition, (_, seconds) in self._limits.conditions.items():
            began, last, _ = self._sick.get((name, condition), (0.0, 0.0, True))
            if began and last >= planned_at - LATE:
                times.append(f"{condition} for {planned_at - began:.0f} s")
                if planned_at - began >= seconds - SKEW:
                    return ""
        return f"had {', '.join(times) or 'no condition'} when that was planned"

    def _is_old(self, name: str, planned_at: float) -> str:
        age, limit = planned_at - self._created.get(name, 0.0), self._limits.age(name)
        return (
            ""
            if age >= limit - SKEW
            else f"was {age:.0f} s old when that was planned; its limit is {limit:.0f} s"
        )

    def _is_outdated(self, name: str, planned_at: float) -> str:
        return (
            ""
            if self._outdated.get(name, 0.0) >= planned_at - LATE
            else "is as its group is defined"
        )
