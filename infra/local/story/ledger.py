"""What happened in the story, counted; and what should have happened, as a table that is checked at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from infra.local.story.telling import count

QUIET_WRITES = 7
"""Items that a quiet pass may write at most: 4, and one for each of the three accounts whose calls are counted."""
MOST_OVERTAKEN = 5
"""Passes whose memory changed under them again and again. Time is short here: what takes a second on the wall takes
half a minute in the story, in which several operations may end."""
AT_ONCE = "the second bought at once"


@dataclass
class Ledger:
    """asked: changes of a group's size (group, from, to). planned: what plans wanted of each group; bought: Machines
    that came to be for it; refused: machines that could not be had; why: the vendors' words for it; second_choice: what
    the first pass that knew of it did; joined, gone: Nodes; lost: machines that were given back without having joined.
    overtaken: passes that others were quicker than.
    pending_at, answered_at: (virtual, wall) seconds at which the first pod was refused and the first call at the
    provider was seen. least_room: healthy pods beyond what a budget wants."""

    asked: list[tuple[str, int, int]] = field(default_factory=list)
    planned: Counter[str] = field(default_factory=Counter)
    bought: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    why: dict[str, str] = field(default_factory=dict)
    second_choice: dict[str, str] = field(default_factory=dict)
    joined: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
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
    overtaken: int = 0
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


@dataclass(frozen=True)
class Expectation:
    """words: what should have happened; met; seen: what did."""

    words: str
    met: bool
    seen: str


Check = Callable[[Ledger], tuple[bool, str]]


def _grown_once(ledger: Ledger) -> tuple[bool, str]:
    """As many were bought as plans wanted and the vendors had; a group was asked once, and once more where a machine of
    it never joined."""
    calls = Counter(group for group, before, after in ledger.asked if after > before)
    bought = {group: number for group, number in ledger.bought.items() if number}
    often = all(number == 1 + ledger.lost[group] for group, number in calls.items())
    right = bool(bought) and bought == +(ledger.planned - ledger.refused) and often
    missing = f"; not to be had {_amounts(ledger.refused)}" if ledger.refused else ""
    return right, f"planned {_amounts(ledger.planned)}{missing}; bought {_amounts(ledger.bought)}"


def _of_workers(reasons: str) -> str:
    """Of the reasons per group the one that says most."""
    return next((each for each in reasons.split("; ") if each.startswith("workers")), reasons)


def _ended_well(ledger: Ledger) -> tuple[bool, str]:
    """Those fail, and no others, that are for what cannot be had."""
    wanted = {"succeeded", "failed"} if ledger.refused else {"succeeded"}
    right = not ledger.open_operations and set(ledger.ended) == wanted and ledger.ended["failed"] == len(ledger.refused)
    return right, ", ".join(f"{number} {state}" for state, number in ledger.ended.items())


def _amounts(counts: Counter[str]) -> str:
    return ", ".join(f"{group} +{number}" for group, number in sorted(counts.items())) or "nothing"


def expectations(kills: int, smallest: Mapping[str, int], second: Mapping[str, str]) -> tuple[tuple[str, Check], ...]:
    """The story's. kills: how often the act function should have died; smallest: sizes at the end;
    second: what is bought instead of what."""
    return (
        ("the story came to its end", lambda led: (not led.unfinished, led.unfinished or "it did")),
        ("the webhook asked for a pass", lambda led: (led.woken > 0, f"{led.woken} times")),
        (f"act functions were killed between provider call and record, {kills} times",
         lambda led: (len(led.killed) == kills, f"{len(led.killed)} times")),
        ("nothing was bought twice", _grown_once),
        ("every machine became a node, but for the server that never joins and is given back",
         lambda led: (sum(led.lost.values()) == 1 and led.joined + led.lost == led.bought,
                      f"{_amounts(led.joined)}; never joined {_amounts(led.lost)}")),
        ("the pod that fits nowhere got a reason",
         lambda led: (bool(led.why_not), _of_workers(led.why_not[0]) if led.why_not else "none")),
        ("what was bought was given back", lambda led: (led.gone == led.joined and led.sizes == smallest,
                                                         ", ".join(f"{g} {n}" for g, n in led.sizes.items()))),
        ("pods were moved, and their disruption budget was kept", lambda led: (
            led.evicted > 0 and led.least_room >= 0,
            f"{count(led.evicted, 'eviction')}, {led.refused_evictions} refused for the moment")),
        ("a first choice cannot be had (no stock, no quota), and the pass that learns it buys the second", lambda led: (
            set(led.refused) == set(second) and list(led.second_choice.values()) == [AT_ONCE] * len(second),
            "; ".join(f"{group}: {led.why.get(group, '')}, {how}" for group, how in led.second_choice.items()))),
        ("every other operation ended well", _ended_well),
        ("no dead letters, no function failed", lambda led: (
            not (led.dead_letters or led.errors) and led.overtaken <= MOST_OVERTAKEN,
            led.errors[0] if led.errors else f"{led.overtaken} made again" if led.overtaken else "none")),
        (f"a quiet pass writes at most {QUIET_WRITES} items", lambda led: (
            bool(led.quiet_writes) and led.writes_per_quiet_pass <= QUIET_WRITES, f"{led.writes_per_quiet_pass:g}")),
    )


def checked(
    ledger: Ledger, kills: int, smallest: Mapping[str, int], second: Mapping[str, str]
) -> tuple[Expectation, ...]:
    """Every expectation with what was seen."""
    return tuple(Expectation(words, *check(ledger)) for words, check in expectations(kills, smallest, second))
