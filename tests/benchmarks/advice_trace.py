"""Schedules of `outscaler advise` on days that it has not seen: waiting time
and cost before and after.

    python -m tests.benchmarks.advice_trace

Two kinds of traces: generated weeks with busy mornings from Monday to Friday, quiet weekends, noise
and a holiday; and the openb trace, whose tasks come at any time. A simple queue serves them, not
the planner: one group of equal nodes, pods that need a share of a node, first fit in the order of
arrival, a decision a minute, and purchases as many as the pods without room need. A node is ready
after LEAD and goes after ten minutes without a pod. A schedule's minimum is bought when it opens.
The simulated purchases are the history from which the advice is made.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from chalicelib.cli.advise.backtest import Advice, advise
from chalicelib.cli.advise.history import DAY, GroupFacts, RecordSpan, group_histories
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.schedules.cron import occurrences
from tests.operations import new_operation
from tests.reference_data import SHARED

MINUTE, HOUR = 60.0, 3600.0
LEAD = 4 * MINUTE
UNNEEDED = 10 * MINUTE
MONDAY = datetime(2026, 10, 5, tzinfo=UTC).timestamp()
GROUP = "workers"
_MACHINE = {"cpu_milli": 96_000.0, "memory_mib": 786_432.0, "num_gpu": 8.0}
_BUSIEST = 3504.0  # hours after which openb has the most tasks (consolidation_trace.py)


class QueuedPod(msgspec.Struct, frozen=True, order=True):
    """A pod: when it arrives and ends (epoch seconds), and the share of a node that it needs."""

    arrives: float
    ends: float
    share: float


class TraceResult(msgspec.Struct, frozen=True):
    """What a span of the queue has cost. waited: minutes of pods. hours: of nodes, ready or on
    their way. operations: what was done, as the table would have it."""

    waited: float
    hours: float
    bought: int
    operations: tuple[Operation, ...]


class _Node:
    """A node of the queue."""

    def __init__(self, ready_at: float) -> None:
        self.ready_at, self.idle_since = ready_at, ready_at
        self.pods: list[tuple[float, float]] = []  # (end, share)

    @property
    def free(self) -> float:
        return 1.0 - sum(share for _, share in self.pods)


class Queue:
    """The simulated group. schedules: in force from `since` on."""

    def __init__(
        self, pods: Iterable[QueuedPod], schedules: Sequence[Schedule] = (), since: float = 0.0
    ) -> None:
        self._arrivals = sorted(pods, reverse=True)
        self._schedules, self._since = schedules, since
        self._nodes: list[_Node] = []
        self._pending: list[QueuedPod] = []
        self._operations: list[Operation] = []

    def run(self, begin: float, until: float) -> TraceResult:
        """The result of the time from `since` on, with the operations of all of it."""
        waited = hours = 0.0
        bought, openings = 0, self._openings(begin, until)
        for number in range(int((until - begin) // MINUTE)):
            now = begin + number * MINUTE
            while self._arrivals and self._arrivals[-1].arrives <= now:
                self._pending.append(self._arrivals.pop())
            for node in self._nodes:
                if node.pods and not (pods := [pod for pod in node.pods if pod[0] > now]):
                    node.pods, node.idle_since = pods, now
                else:
                    node.pods = [pod for pod in node.pods if pod[0] > now]
            self._bind(now)
            least = max(
                (schedule.min or 0 for at, end, schedule in openings if at <= now < end), default=0
            )
            new = self._buy(now, least)
            self._remove(now, least)
            if now >= self._since:
                waited += len(self._pending) * MINUTE / 60
                hours += len(self._nodes) * MINUTE / HOUR
                bought += new
        return TraceResult(waited, hours, bought, tuple(self._operations))

    def _openings(self, begin: float, until: float) -> list[tuple[float, float, Schedule]]:
        result = []
        for schedule in self._schedules:
            for at in occurrences(
                schedule.cron, ZoneInfo(schedule.time_zone), max(begin, self._since) - 1
            ):
                if at >= until:
                    break
                result.append((at, at + schedule.duration, schedule))
        return result

    def _bind(self, now: float) -> None:
        ready = [node for node in self._nodes if node.ready_at <= now]
        pending = []
        for pod in self._pending:
            if pod.ends <= now:
                continue
            node = next((node for node in ready if node.free >= pod.share - 1e-9), None)
            if node is None:
                pending.append(pod)
            else:
                node.pods.append((pod.ends, pod.share))
        self._pending = pending

    def _buy(self, now: float, least: int) -> int:
        """Buys for the pods that fit on no upcoming node, and up to the
        minimum; returns how many."""
        free = [1.0 for node in self._nodes if node.ready_at > now]
        upcoming, homeless = len(free), 0
        for pod in self._pending:
            place = next((at for at, room in enumerate(free) if room >= pod.share - 1e-9), None)
            if place is None:
                free.append(1.0)
                place = len(free) - 1
            homeless += place >= upcoming
            free[place] -= pod.share
        size, for_pods = len(self._nodes), len(free) - upcoming
        total = max(for_pods, least - size)
        for part, pods in ((for_pods, homeless), (total - for_pods, 0)):
            if part > 0:
                self._record(
                    OperationKind.SCALE_UP, now, len(self._nodes), len(self._nodes) + part, pods
                )
                self._nodes += [_Node(now + LEAD) for _ in range(part)]
        return max(0, total)

    def _remove(self, now: float, least: int) -> None:
        idle = [node for node in self._nodes if not node.pods and now - node.idle_since >= UNNEEDED]
        idle = idle[: max(0, len(self._nodes) - least)]
        if idle:
            self._record(
                OperationKind.DELETE_NODES, now, len(self._nodes), len(self._nodes) - len(idle), 0
            )
            self._nodes = [node for node in self._nodes if node not in idle]

    def _record(self, kind: OperationKind, now: float, old: int, new: int, pods: int) -> None:
        number = len(self._operations)
        self._operations.append(
            new_operation(
                id=f"{kind.value}-{number:06}",
                cluster="trace",
                provider="test",
                group=GROUP,
                kind=kind,
                plan="p",
                created_at=now,
                from_size=old if kind is OperationKind.SCALE_UP else 0,
                to_size=new if kind is OperationKind.SCALE_UP else 0,
                targets=tuple(
                    RemovalTarget(f"n-{at}", f"n-{at}") for at in range(max(0, old - new))
                ),
                pods=tuple(f"front/web-{at}" for at in range(min(pods, 50))),
                state=OperationState.SUCCEEDED,
                updated_at=now,
            )
        )


def office_weeks(
    weeks: int = 3, *, seed: int = 7, holidays: Sequence[int] = ()
) -> tuple[QueuedPod, ...]:
    """Weeks from MONDAY with 40 pods about 08:10 UTC from Monday to Friday, of which some
    are missing on some days, a few pods at any time, and a base load. holidays: numbers
    of days without a morning."""
    draw = random.Random(seed)
    pods = [QueuedPod(MONDAY, MONDAY + weeks * 7 * DAY + HOUR, 0.25) for _ in range(6)]
    for day in range(weeks * 7):
        begin = MONDAY + day * DAY
        if day % 7 < 5 and day not in holidays:
            for _ in range(draw.randint(32, 44)):
                arrives = begin + 8 * HOUR + draw.gauss(10, 6) * MINUTE
                pods.append(QueuedPod(arrives, arrives + draw.gauss(8.5, 0.5) * HOUR, 0.25))
        for _ in range(draw.randint(3, 8)):
            arrives = begin + draw.random() * DAY
            pods.append(QueuedPod(arrives, arrives + draw.uniform(0.2, 1.5) * HOUR, 0.25))
    return tuple(sorted(pods))


def bursts(weeks: int = 3, *, seed: int = 7) -> tuple[QueuedPod, ...]:
    """Weeks from MONDAY with a burst of 20 pods on every day, at any time of it."""
    draw = random.Random(seed)
    pods = [QueuedPod(MONDAY, MONDAY + weeks * 7 * DAY + HOUR, 0.25) for _ in range(6)]
    for day in range(weeks * 7):
        arrives = MONDAY + (day + draw.random()) * DAY
        pods += [
            QueuedPod(arrives + number, arrives + draw.uniform(1, 3) * HOUR, 0.25)
            for number in range(20)
        ]
    return tuple(sorted(pods))


def openb(days: float) -> tuple[QueuedPod, ...]:
    """Days of the openb trace up to the end of its busiest 72 hours, as shares of a
    machine of 96 cores and 8 GPUs."""
    origin = _BUSIEST * HOUR + 3 * DAY - days * DAY
    pods = []
    with (Path(SHARED) / "data" / "openb" / "openb_pod_list_default.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            begins, ends = float(row["creation_time"]), float(row["deletion_time"] or "inf")
            share = min(1.0, max(float(row[name] or 0) / size for name, size in _MACHINE.items()))
            if begins < origin + days * DAY and ends > max(origin, begins):
                pods.append(
                    QueuedPod(MONDAY + max(0.0, begins - origin), MONDAY + ends - origin, share)
                )
    return tuple(sorted(pods))


class AdviceComparison(msgspec.Struct, frozen=True):
    """A trace before and after the advice, on its unseen days."""

    advice: Advice
    days: float
    before: TraceResult
    after: TraceResult


def compared(pods: Sequence[QueuedPod], days: float, unseen: float) -> AdviceComparison:
    """What the advice from the days before the last `unseen` ones does on those."""
    split, until = MONDAY + (days - unseen) * DAY, MONDAY + days * DAY
    before = Queue(pods, since=split).run(MONDAY, until)
    facts = {GROUP: GroupFacts(GROUP, GROUP, LEAD, learned=True, price=1.0, unneeded=UNNEEDED)}
    known = [operation for operation in before.operations if operation.status.updated_at < split]
    advice = advise(group_histories(known, facts), RecordSpan(MONDAY, split), "UTC")
    schedules = [proposal.schedule for proposal in advice.proposals]
    after = Queue(pods, schedules, split).run(MONDAY, until) if schedules else before
    return AdviceComparison(advice, unseen, before, after)


def report(comparisons: dict[str, AdviceComparison]) -> str:
    """A table of comparisons."""
    columns = ("Trace", "Schedules", "Needless, as tested", "Waiting before, pod-minutes a day",
               "after",
               "Node hours before, a day", "after", "Bought before, a day", "after")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, result in comparisons.items():
        proposals = result.advice.proposals
        shown = "; ".join(f"{item.schedule.cron}: min {item.schedule.min}" for item in proposals)
        shown = shown or (
            result.advice.refusals[0].problem if result.advice.refusals else "no pattern"
        )
        tested = [f"{item.tested.needless} of {item.tested.openings}" for item in proposals]
        figures = [
            f"{figure / result.days:,.1f}"
            for figure in (
                result.before.waited,
                result.after.waited,
                result.before.hours,
                result.after.hours,
                result.before.bought,
                result.after.bought,
            )
        ]
        lines.append(f"| {' | '.join((name, shown, '; '.join(tested) or '-', *figures))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.advice_trace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=7, help="of the generated weeks (7)")
    args = parser.parse_args(arguments)
    comparisons = {
        "weeks, holiday among the first days": compared(
            office_weeks(seed=args.seed, holidays=(9,)), 21, 7
        ),
        "weeks, holiday among the unseen days": compared(
            office_weeks(seed=args.seed, holidays=(16,)), 21, 7
        ),
        "a burst a day, at any time": compared(bursts(seed=args.seed), 21, 7),
    }
    if (SHARED / "data" / "openb").is_dir():
        comparisons |= {
            "openb, 72 hours": compared(openb(3), 3, 1),
            "openb, 21 days": compared(openb(21), 21, 7),
        }
    print(report(comparisons))


if __name__ == "__main__":
    main()
