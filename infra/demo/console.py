"""The output of the demonstration: one line per event, with virtual and wall time, and on a
terminal a status below.

Without a terminal (a pipe, a CI log) only the lines are printed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chalicelib.reasons.words import some

STYLES = {
    "cluster": "cyan",
    "outscaler": "green",
    "provider": "yellow",
    "you": "bold white",
    "killed": "bold red",
    "time": "magenta",
}


class Account(Protocol):
    """The interface for the demonstration's output."""

    def chapter(self, number: int, title: str, words: str) -> None:
        """Start a chapter. words: what it shows."""

    def say(self, who: str, words: str) -> None:
        """Print one line. who: one of STYLES."""

    def status(self, lines: Sequence[tuple[str, str]]) -> None:
        """Show the status, as (name, value)."""


Say = Callable[[str, str], None]
"""The type of Account.say."""


def names(found: Iterable[str], most: int = 3) -> str:
    """Return `a, b, c and 4 more`, in order and without duplicates."""
    return some(sorted(set(found)), most)


def span(seconds: float) -> str:
    """Return a duration as `04:07`, or `6:04:07` from an hour on."""
    minutes = f"{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
    return f"{int(seconds) // 3600}:{minutes}" if seconds >= 3600 else minutes


class OneLineParser(argparse.ArgumentParser):
    """Reports an invalid argument in one line, without the usage that argparse puts before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


class Screen:
    """An Account on a console; a context manager. elapsed: (virtual, wall)
    seconds since the beginning."""

    def __init__(self, console: Console, elapsed: Callable[[], tuple[float, float]]) -> None:
        self._console, self._elapsed = console, elapsed
        self._lines: Sequence[tuple[str, str]] = ()
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.still()

    def still(self) -> None:
        """Remove the status; from now on only lines are printed."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def chapter(self, number: int, title: str, words: str) -> None:
        self._console.print()
        self._console.print(Text(f"{number}. {title}", style="bold"))
        self._console.print(Text(words, style="dim"), width=min(110, self._console.width))

    def say(self, who: str, words: str) -> None:
        virtual, wall = self._elapsed()
        head = Text.assemble(
            (f"{span(virtual)} ", "bold"), (f"{wall:5.1f}s ", "dim"), (f"{who:>9}", STYLES[who])
        )
        if self._console.is_terminal:  # continuation lines are indented below the text
            line = Table.grid(padding=(0, 1))
            line.add_row(head, words)
            self._console.print(line)
        else:
            self._console.print(Text.assemble(head, " ", words), soft_wrap=True)

    def status(self, lines: Sequence[tuple[str, str]]) -> None:
        """See Account; shown only on a terminal."""
        if self._live is None or lines == self._lines:
            return
        self._lines = lines
        grid = Table.grid(padding=(0, 2))
        for what, how in lines:
            grid.add_row(Text(what, style="dim"), how)
        self._live.update(Group(Text("─" * 40, style="dim"), grid), refresh=True)


QUIET_WRITES = 8
"""Maximum number of items that a quiet pass may write: 4, and one for each of the four accounts
whose calls are counted."""
AT_ONCE = "the second bought at once"
CALLED_OFF = "called off"


@dataclass(frozen=True)
class Acted:
    """A rule that added nodes. at: time of the plan. groups: names. due: the occurrence of a cron
    rule, otherwise 0.0. rate: of a metric rule in percent, over that many ready nodes."""

    rule: str
    at: float
    groups: tuple[str, ...]
    nodes: int
    due: float = 0.0
    rate: float | None = None
    ready: int = 0

    def rate_with(self, more: int) -> float:
        """Return the rate with this number of additional nodes like the existing ones."""
        return (self.rate or 0.0) * self.ready / max(1, self.ready + more)


@dataclass
class Consolidated:
    """What consolidation did. applied: whether its workloads were. shadowed: moves of plans in
    shadow mode, as (nodes, bought groups). changes: steps as in Ledger; changes_in_shadow: their
    number in shadow mode. before, after, bound: the bill and its lower bound, per hour. saves: what
    the ledger says. stays: node -> why it is not consolidated."""

    applied: bool = False
    shadowed: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    changes_in_shadow: int = 0
    before: float = 0.0
    after: float = 0.0
    bound: float = 0.0
    saves: float = 0.0
    stays: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, str]:
        """Return one node for each reason -> the reason."""
        first: dict[str, str] = {}
        for node, why in sorted(self.stays.items()):
            first.setdefault(why, node)
        return {node: why for why, node in first.items()}


@dataclass
class Departures:
    """How nodes left that pods needed; instants are virtual epoch seconds. steps: as in Ledger.
    leaves_at: when the vendor takes the spot node back; moved_at: when its pods ran elsewhere;
    gone_at: when its Node was gone. node: the old one; held: what held it first, a code. opens_at:
    of its window; asked_at: when its successor was asked for."""

    steps: list[str] = field(default_factory=list)
    leaves_at: float = 0.0
    moved_at: float = 0.0
    gone_at: float = 0.0
    opens_at: float = 0.0
    asked_at: float = 0.0
    held: str = ""
    node: str = ""


@dataclass
class Opened:
    """What became of groups that Outscaler makes. is_applied: whether their workloads were. kills:
    how often a function that creates one is to be killed; interrupted: for which. ran: nodes by
    group when all pods ran. made: successful creations of Nodepools, existing: Nodepools, by group,
    at that time. kept: sizes of Nodepools without nodes before they were pruned, servers: servers
    then. left: Nodepools at the end."""

    kills: int = 0
    is_applied: bool = False
    interrupted: set[str] = field(default_factory=set)
    ran: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)
    existing: Counter[str] = field(default_factory=Counter)
    kept: dict[str, int] = field(default_factory=dict)
    servers: int = 0
    is_pruned: bool = False
    left: int = -1


@dataclass
class Ledger:
    """Counters and observations. asked: changes of a group's size (group, from, to). planned: what
    plans wanted of each group. bought: machines created for it. refused: unavailable machines. why:
    the vendor's text for that. second_choice: what the first pass that knew of it did. joined,
    gone: Nodes. lost: machines returned without having joined. broken: expected number of those.
    pending_at, answered_at: (virtual, wall) seconds of the first unschedulable pod and of the first
    provider call. least_room: healthy pods above a budget's minimum. strike: when the cron rule is
    due. rules_seen: evaluated rules. rules_wrong: why one was not in force. acted: results of
    rules. beside: rates of a pool when its cron rule added nodes, by metric rule. notices:
    notifications that a subscriber received, as `type state subject`. failed: groups, or nodes, of
    failed operations. steps: "asked lean", "ready lean", "drained legacy" in their order, of the
    current chapter. renewed: requests for successors of nodes that are sick or old, by group.
    consolidated, departed, opened: of the last chapters."""

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
    failed: set[str] = field(default_factory=set)
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
    notices: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    renewed: Counter[str] = field(default_factory=Counter)
    consolidated: Consolidated = field(default_factory=Consolidated)
    departed: Departures = field(default_factory=Departures)
    opened: Opened = field(default_factory=Opened)

    @property
    def writes_per_quiet_pass(self) -> int:
        """Return the lower quartile, 0 without such passes. On a busy machine more virtual
        time passes between two passes, so that more of them have something new to store; the
        median would depend on it."""
        return sorted(self.quiet_writes)[len(self.quiet_writes) // 4] if self.quiet_writes else 0

    @property
    def reaction(self) -> tuple[float, float] | None:
        """Return (virtual, wall) seconds from the first unschedulable pod to
        the first provider call."""
        if self.pending_at is None or self.answered_at is None:
            return None
        return self.answered_at[0] - self.pending_at[0], self.answered_at[1] - self.pending_at[1]
