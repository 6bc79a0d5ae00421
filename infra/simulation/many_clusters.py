"""Prints how a deployment with many clusters behaves, and what a cluster costs there:
`python -m infra.simulation.many_clusters [--clusters N …]`.

Without arguments it prints the tables behind docs/scale.md.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import logging
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.policy_permissions import STRICT
from chalicelib.passes import scan_scheduler
from chalicelib.passes.lease_renewal import LONGEST_PASS
from chalicelib.passes.scan_scheduler import is_superseded
from chalicelib.policy.compiled import compiled
from chalicelib.runtime.active_policy import read
from chalicelib.runtime.log import logger
from chalicelib.runtime.messages import decode_reconcile
from chalicelib.runtime.runtime import Runtime, build
from chalicelib.store import Store
from chalicelib.store.errors import LeaseHeld
from chalicelib.store.leases import Lease
from infra.aws.cost import PASSES, per_cluster, ways
from infra.aws.cost_count import LIST, Counts, count
from infra.emulators.memory_table import Json, MemoryAccount, MemoryTable
from infra.emulators.request_units import Metered
from infra.tools.interruptible import run

IDLE_FOR = 420.0
"""Seconds until Lambda ends an idle process. AWS does not document it; five
to ten minutes are common."""
KEPT_FOR = 600.0
"""Seconds for which lists are followed (chalicelib/cluster/live_cluster.py)."""
FRESH_FOR = 75.0
"""Seconds after which a process asks for the lists of others
(chalicelib/cluster/live_cluster.py)."""


class SeenLists(msgspec.Struct, frozen=True):
    """When a cluster's lists were read in full, and when they were last up to date; seconds."""

    read_at: float
    followed_at: float

    def usable(self, now: float) -> bool:
        return now - self.read_at < KEPT_FOR


class PoolProcess:
    """One process. room: clusters whose lists it has memory for."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._lists: OrderedDict[str, SeenLists] = OrderedDict()
        self.idle_since = 0.0

    def lists(self, cluster: str) -> SeenLists | None:
        return self._lists.get(cluster)

    def keep(self, cluster: str, lists: SeenLists) -> None:
        self._lists[cluster] = lists
        self._lists.move_to_end(cluster)
        while len(self._lists) > self._room:
            self._lists.popitem(last=False)


class LambdaPool:
    """The processes. most: at the same time."""

    def __init__(self, most: int, room: int, draws: random.Random) -> None:
        self._most, self._room, self._draws = most, room, draws
        self._idle: list[PoolProcess] = []
        self._busy = 0
        self.peak = self.started = 0

    @property
    def size(self) -> int:
        return self._busy + len(self._idle)

    def take(self, now: float) -> tuple[PoolProcess, bool] | None:
        """Return a process for a message, and whether it has to start first;
        None where all are busy."""
        if self._busy >= self._most:
            return None
        self._idle = [each for each in self._idle if now - each.idle_since < IDLE_FOR]
        self._busy += 1
        self.peak = max(self.peak, self._busy)
        if self._idle:
            return self._idle.pop(self._draws.randrange(len(self._idle))), False
        self.started += 1
        return PoolProcess(self._room), True

    def give_back(self, process: PoolProcess, now: float) -> None:
        process.idle_since = now
        self._busy -= 1
        self._idle.append(process)


START = 1_790_000_000.0
MINUTE = 60.0
_SCHEDULE = "schedule"


class SimulatedDeployment(msgspec.Struct, frozen=True):
    """What is simulated. concurrency: passes at the same time. shared: whether processes share
    lists. full, changes, stored: seconds of a pass that reads everything, of one that reads changes
    since a pass of its own process, and of one that follows stored lists. starts: seconds until a
    new process has its first message. tick_call: seconds of one request of the tick. room: clusters
    that a process keeps. unmeasured: minutes at the beginning that do not count, in which every
    cluster is read for the first time."""

    clusters: int = 500
    minutes: int = 30
    concurrency: int = 20
    shared: bool = False
    full: float = 1.4
    changes: float = 1.0
    stored: float = 1.4
    starts: float = 1.5
    tick_call: float = 0.016
    room: int = 60
    interval: str = "60s"
    seed: int = 1
    unmeasured: int = 12


class Outcome(msgspec.Struct, frozen=True):
    """late: seconds after its slot at which each measured pass began, sorted. first: the same of
    the last cluster that had its first pass. followed: share of the measured passes that read
    changes. busy: seconds of passes per measured minute. peak: most passes at the same time.
    started: processes. tick: seconds of the longest tick. queued: most messages waiting. reads,
    writes: units of the tables, per cluster and measured minute."""

    passes: int
    late: tuple[float, ...]
    first: float
    followed: float
    busy: float
    peak: int
    started: int
    tick: float
    queued: int
    reads: float
    writes: float
    keys: tuple[BusyKey, ...]

    def late_at(self, share: float) -> float:
        """Return the lateness that this share of the passes does not exceed."""
        return self.late[min(len(self.late) - 1, int(share * len(self.late)))] if self.late else 0.0


class _Account(Metered):
    """Counts by key, and takes the tick's time."""

    def __init__(
        self, client: MemoryAccount, keys: KeyedRequests, passed: Callable[[], None]
    ) -> None:
        super().__init__(client, keys.note)
        self._passed = passed

    def __getattr__(self, method: str) -> Callable[..., Json]:
        call = super().__getattr__(method)

        def timed(**arguments: Any) -> Json:
            self._passed()
            return call(**arguments)

        return timed


class _Message(msgspec.Struct, frozen=True):
    body: str


class Simulation:
    """One deployment. Its events are in the order of their instants; those of the same instant in
    the order in which they were made."""

    def __init__(self, what: SimulatedDeployment) -> None:
        self._what, self._random = what, random.Random(what.seed)
        self._now, self._order = START, itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._waiting: deque[_Message] = deque()
        self._pool = LambdaPool(what.concurrency, what.room, self._random)
        self._shared: dict[str, SeenLists] = {}
        self._in_tick = False
        self._keys = KeyedRequests(self.clock)
        self._account = _Account(self._memory(), self._keys, self._spend)
        self.runtime = self._runtime()
        self._late: list[float] = []
        self._firsts: list[float] = []
        self._passes = self._followed = self._longest_queue = 0
        self._busy = self._longest_tick = 0.0
        self._known: set[str] = set()

    def clock(self) -> float:
        """Return the virtual time, epoch seconds."""
        return self._now

    def run(self) -> Outcome:
        for number in range(self._what.clusters):
            self._add_policy(f"c{number:05d}")
        self._account.reset()
        self._keys.reset()
        for minute in range(self._what.minutes):
            self._at(START + minute * MINUTE, self._tick)
        measured = START + self._what.unmeasured * MINUTE
        self._at(measured, self._account.reset)
        while self._events:
            at, _, happen = heapq.heappop(self._events)
            self._now = at
            happen()
        minutes = max(1, self._what.minutes - self._what.unmeasured)
        cluster_minutes = minutes * self._what.clusters
        return Outcome(
            passes=self._passes,
            late=tuple(sorted(self._late)),
            first=max(self._firsts, default=0.0),
            followed=self._followed / max(1, self._passes),
            busy=self._busy / minutes,
            peak=self._pool.peak,
            started=self._pool.started,
            tick=self._longest_tick,
            queued=self._longest_queue,
            reads=self._account.reads / cluster_minutes,
            writes=self._account.writes / cluster_minutes,
            keys=self._keys.busiest(),
        )

    # --- the deployment

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Take a message of the tick, as the sender of the runtime."""
        self._spend()
        assert queue == "reconcile", queue
        message = _Message(body.decode())
        self._at(self._now + delay, lambda: self._arrive(message))

    def _memory(self) -> MemoryAccount:
        made = MemoryAccount()
        made.create("outscaler")
        return made

    def _runtime(self) -> Runtime:
        store = Store(
            "outscaler",
            client=self._account,
            region="us-east-1",
            table=MemoryTable,
            clock=self.clock,
        )
        return build(
            clock=self.clock, store=store, sender=self, read_secret=lambda _: "", owner=self._owner
        )

    def _owner(self) -> str:
        return f"owner-{next(self._order)}"

    def _add_policy(self, name: str) -> None:
        text = json.dumps(
            {
                "apiVersion": "outscaler.dev/v1",
                "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {
                    "mode": "active",
                    "scanInterval": self._what.interval,
                    "providers": {"clusterapi": {}},
                    "kubernetes": {"kubeconfigSecret": f"outscaler/{name}/kubeconfig"},
                },
            }
        )
        form = compiled(read(text, name, 1, None, STRICT), text)
        self.runtime.store.policies.put(name, text, "digest", None, compiled=form)

    # --- events

    def _at(self, instant: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (instant, next(self._order), happen))

    def _spend(self) -> None:
        if self._in_tick:
            self._now += self._what.tick_call

    def _tick(self) -> None:
        began, self._in_tick = self._now, True
        try:
            scan_scheduler.run(self.runtime)
        finally:
            self._in_tick = False
        self._longest_tick = max(self._longest_tick, self._now - began)

    def _arrive(self, message: _Message) -> None:
        self._waiting.append(message)
        self._hand_out()
        self._longest_queue = max(self._longest_queue, len(self._waiting))

    def _hand_out(self) -> None:
        while self._waiting and (taken := self._pool.take(self._now)) is not None:
            process, new = taken
            message = self._waiting.popleft()
            self._at(
                self._now + (self._what.starts if new else 0.0),
                partial(self._begin, message, process),
            )

    def _begin(self, message: _Message, process: PoolProcess) -> None:
        asked, store = decode_reconcile(message.body), self.runtime.store
        policy = self.runtime.policy(asked.cluster)
        assert policy is not None
        assert asked.reason == _SCHEDULE
        if is_superseded(
            asked.at, store.scan_states.due(policy.name).last_pass, policy.scan_interval
        ):
            self._end(process)
            return
        try:
            # Nothing dies here, so a lease that is not renewed does.
            lease = store.leases.acquire(policy.name, self.runtime.owner(), LONGEST_PASS)
        except LeaseHeld:
            store.scan_states.clear_queued(policy.name)
            self._end(process)
            return
        late, began = self._now - asked.at, self._now
        store.memory.load(policy.name)
        followed, middle = self._read(policy.name, process)
        seconds = middle * self._random.lognormvariate(0.0, 0.25)
        if began >= START + self._what.unmeasured * MINUTE:
            self._passes += 1
            self._followed += followed
            self._busy += seconds
            self._late.append(late)
        if policy.name not in self._known:
            self._known.add(policy.name)
            self._firsts.append(late)
        self._at(began + seconds, lambda: self._finish(lease, began, process))

    def _read(self, cluster: str, process: PoolProcess) -> tuple[bool, float]:
        """Return whether a pass follows changes, and its usual seconds, and note what it has
        read."""
        now, found, seconds = self._now, process.lists(cluster), self._what.changes
        if found is None or not found.usable(now) or now - found.followed_at >= FRESH_FOR:
            other = self._shared.get(cluster) if self._what.shared else None
            if other is not None and (found is None or other.followed_at > found.followed_at):
                found, seconds = other, self._what.stored
        followed = found is not None and found.usable(now)
        lists = SeenLists(found.read_at if found is not None and followed else now, now)
        process.keep(cluster, lists)
        self._shared[cluster] = lists
        return followed, seconds if followed else self._what.full

    def _finish(self, lease: Lease, began: float, process: PoolProcess) -> None:
        store = self.runtime.store
        store.memory.save(lease.cluster, Memory(), Memory(), (), lease)
        store.leases.release(lease, passed_at=began, succeeded=True)
        self._end(process)

    def _end(self, process: PoolProcess) -> None:
        self._pool.give_back(process, self._now)
        self._hand_out()


def simulated(what: SimulatedDeployment) -> Outcome:
    level = logging.getLogger(logger.name).level
    logger.setLevel(logging.ERROR)
    try:
        return Simulation(what).run()
    finally:
        logger.setLevel(level)


MOST_READ, MOST_WRITTEN = 3_000, 1_000
"""Units a second of one partition key."""


class BusyKey(msgspec.Struct, frozen=True):
    """A partition key. reads, writes: units in its busiest second. requests: of the whole time."""

    key: str
    reads: float
    writes: float
    requests: int

    @property
    def share(self) -> float:
        """Return the share of what DynamoDB serves from one key, of reads or
        writes, whichever is larger."""
        return max(self.reads / MOST_READ, self.writes / MOST_WRITTEN)


class KeyedRequests:
    """Counts. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Count from 0."""
        self._seconds: dict[str, dict[tuple[int, str], float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._requests: Counter[str] = Counter()

    def note(self, key: str, kind: str, units: float) -> None:
        """Count units of a request. kind: read or write."""
        self._seconds[key][int(self._clock()), kind] += units
        self._requests[key] += 1

    def busiest(self) -> tuple[BusyKey, ...]:
        """Return the keys that all clusters share, and the busiest one of a
        cluster, the busiest first."""
        found = [self._busy(key) for key in self._seconds]
        shared = [each for each in found if each.key.startswith("!")]
        own = sorted(
            (each for each in found if not each.key.startswith("!")), key=lambda each: -each.share
        )[:1]
        return tuple(sorted([*shared, *own], key=lambda each: -each.share))

    def _busy(self, key: str) -> BusyKey:
        seconds = self._seconds[key]

        def most(kind: str) -> float:
            return max((units for (_, each), units in seconds.items() if each == kind), default=0.0)

        return BusyKey(key, most("read"), most("write"), self._requests[key])


FULL_BYTES, CHANGED_BYTES = 280_000, 24_000
"""Compressed bytes that a pass reads of 100 nodes and 1,500 pods
(tests/benchmarks/test_pass.py)."""
TIMEOUT = 60.0
"""Seconds that the tick may take (.chalice/config.json)."""

SCENARIOS: tuple[tuple[str, SimulatedDeployment], ...] = (
    ("100 clusters", SimulatedDeployment(clusters=100)),
    ("500 clusters", SimulatedDeployment()),
    ("500, lists shared", SimulatedDeployment(shared=True)),
    ("500, passes of 4 to 5 s", SimulatedDeployment(full=5.0, changes=4.0, stored=4.4)),
    (
        "the same, concurrency 60",
        SimulatedDeployment(full=5.0, changes=4.0, stored=4.4, concurrency=60),
    ),
    (
        "1,000 clusters, tick with 1,769 MB",
        SimulatedDeployment(clusters=1_000, tick_call=0.0075, concurrency=40),
    ),
)


def dollars(what: SimulatedDeployment, outcome: Outcome, counts: Counts) -> tuple[float, float]:
    """Return the monthly dollars of one cluster: AWS, and the traffic of the cluster's cloud.
    counts: of a quiet minute."""
    minutes = what.minutes - what.unmeasured
    passes = outcome.passes / minutes / what.clusters * PASSES
    way = ways(counts, seconds=outcome.busy * minutes / max(1, outcome.passes))[-2]
    shared = passes * (LIST.put + LIST.get) if what.shared else 0.0
    read = FULL_BYTES * (1.0 - outcome.followed) + CHANGED_BYTES * outcome.followed
    return sum(per_cluster(way).values()) + shared, passes * read / 1e9 * LIST.egress


def _table(rows: Sequence[tuple[str, SimulatedDeployment, Outcome]], counts: Counts) -> list[str]:
    lines = [
        (
            "| | Passes made | Late: half / 99 % / all | Tick | Processes | Read changes | "
            "Dollars: AWS | traffic |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, what, outcome in rows:
        minutes = what.minutes - what.unmeasured
        made = outcome.passes / minutes / what.clusters
        late = " / ".join(f"{outcome.late_at(share):.0f} s" for share in (0.5, 0.99, 1.0))
        tick = f"{outcome.tick:.0f} s" + (", too long" if outcome.tick >= TIMEOUT else "")
        aws, traffic = dollars(what, outcome, counts)
        lines.append(
            f"| {name} | {made:.0%} | {late} | {tick} | {outcome.started} | {outcome.followed:.0%} "
            f"| {aws:.2f} | {traffic:.2f} |"
        )
    return lines


def _keys(what: SimulatedDeployment, outcome: Outcome) -> list[str]:
    lines = [
        (
            f"| Partition, {what.clusters} clusters | Units read, busiest second | written | Share "
            "of its limit |"
        ),
        "|---|---|---|---|",
    ]
    for each in outcome.keys:
        name = f"`{each.key}`" if each.key.startswith("!") else "the busiest cluster"
        lines.append(f"| {name} | {each.reads:.0f} | {each.writes:.0f} | {each.share:.1%} |")
    return [
        *lines,
        "",
        f"A partition serves {MOST_READ:,} units read and {MOST_WRITTEN:,} written in a second.",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    fields = {name: value for name, value in vars(given).items() if value is not None}
    scenarios = SCENARIOS if not fields else (("as asked", SimulatedDeployment(**fields)),)
    counts = count()
    rows = [(name, what, simulated(what)) for name, what in scenarios]
    shown = next((row for row in rows if row[1] == SimulatedDeployment()), rows[-1])
    sys.stdout.write("\n".join([*_table(rows, counts), "", *_keys(shown[1], shown[2])]) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.simulation.many_clusters", description=__doc__
    )
    for field in msgspec.structs.fields(SimulatedDeployment):
        flag = "--" + field.name.replace("_", "-")
        if field.type is bool:
            parser.add_argument(flag, action="store_true", default=None)
        else:
            parser.add_argument(flag, type=field.type)
    return parser


if __name__ == "__main__":
    run(main)
