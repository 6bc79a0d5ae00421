"""What happened in the story, counted. What should have happened is a table of its own (expecting.py)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

QUIET_WRITES = 8
"""Items that a quiet pass may write at most: 4, and one for each of the four accounts whose calls are counted."""
AT_ONCE = "the second bought at once"
CALLED_OFF = "called off"


@dataclass(frozen=True)
class Acted:
    """A rule that added nodes. at: of the plan; groups: names; due: the occurrence of a cron rule, else 0.0; rate: of a
    metric rule, percent, over so many ready nodes."""

    rule: str
    at: float
    groups: tuple[str, ...]
    nodes: int
    due: float = 0.0
    rate: float | None = None
    ready: int = 0

    def rate_with(self, more: int) -> float:
        """What the rate is with so many more nodes like those that are there."""
        return (self.rate or 0.0) * self.ready / max(1, self.ready + more)


@dataclass
class Ledger:
    """asked: changes of a group's size (group, from, to). planned: what plans wanted of each group; bought: Machines
    that came to be for it; refused: machines that could not be had; why: the vendors' words for it; second_choice: what
    the first pass that knew of it did; joined, gone: Nodes; lost: machines that were given back without having joined;
    broken: how many were to be. pending_at, answered_at: (virtual, wall) seconds at which the first pod was refused and
    the first call at the provider was seen. least_room: healthy pods beyond what a budget wants. strike: when the cron
    rule is due; rules_seen: rules that were looked at; rules_wrong: why one was not in force; acted: what rules did;
    beside: the rates of a pool when its cron rule acted, by metric rule."""

    asked: list[tuple[str, int, int]] = field(default_factory=list)
    planned: Counter[str] = field(default_factory=Counter)
    bought: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    why: dict[str, str] = field(default_factory=dict)
    second_choice: dict[str, str] = field(default_factory=dict)
    joined: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    broken: int = 1
    killed: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    swept: int = 0
    woken: int = 0
    evicted: int = 0
    refused_evictions: int = 0
    least_room: int = 0
    invocations: Counter[str] = field(default_factory=Counter)
    cold_starts: int = 0
    errors: list[str] = field(default_factory=list)
    aws_requests: int = 0
    kube_requests: Counter[str] = field(default_factory=Counter)
    quiet_writes: list[int] = field(default_factory=list)
    pending_at: tuple[float, float] | None = None
    answered_at: tuple[float, float] | None = None
    why_not: list[str] = field(default_factory=list)
    dead_letters: dict[str, int] = field(default_factory=dict)
    open_operations: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    unfinished: str = ""
    strike: float = 0.0
    rules_seen: set[str] = field(default_factory=set)
    rules_wrong: list[str] = field(default_factory=list)
    acted: list[Acted] = field(default_factory=list)
    beside: dict[str, float] = field(default_factory=dict)

    @property
    def writes_per_quiet_pass(self) -> float:
        """The median; 0 where there was no such pass."""
        return median(self.quiet_writes) if self.quiet_writes else 0.0

    @property
    def reaction(self) -> tuple[float, float] | None:
        """(virtual, wall) seconds from the first refused pod to the first call at the provider."""
        if self.pending_at is None or self.answered_at is None:
            return None
        return self.answered_at[0] - self.pending_at[0], self.answered_at[1] - self.pending_at[1]
