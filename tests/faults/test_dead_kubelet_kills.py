"""Functions are killed while a node is repaired whose kubelet does not answer, at each vendor: its
pod is evicted once, the machine goes at its vendor before its Node, once, and nothing is deleted by
force (docs/reference/node-lifecycle.md "Dead kubelets")."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest

from infra.emulators.controllers import objects
from infra.emulators.kube.objects import clone
from infra.emulators.virtual_sqs import Message
from tests.faults import cluster
from tests.faults.fault_schedule import API, KILL, LOSE, PAUSE, VENDOR, Io, Strike
from tests.faults.faulty_world import FaultWorld
from tests.faults.objects import is_ready, taint_of
from tests.faults.run_state import HARD
from tests.faults.vendor_groups import NAME, SIZE, VENDORS

OPTIONS = {**cluster.OPTIONS, "scaleDownUnneededTime": "3h", "scaleDownUnreadyTime": "3h"}
LIFECYCLE = {
    "maxNodeAge": "720h",
    "jitter": "10%",
    "drift": "off",
    "repair": [{"condition": "Ready", "status": ["False", "Unknown"], "after": "1m"}],
    "maxUnhealthy": "100%",
}
STEP, LIMIT, AFTERWARDS = 10.0, 1200.0, 90.0
"""Virtual seconds: between two looks, until the machine is gone, and for which all
stays at rest afterwards."""
OF_VENDORS = (("request", False), ("request", True), ("poll", False), ("end", True))
KILLS = [
    *(("clusterapi", *kill) for kill in (("taint", True), ("eviction", False), *OF_VENDORS)),
    *((provider, *kill) for provider in VENDORS if provider != "clusterapi" for kill in OF_VENDORS),
]
"""Kills of `make test`: provider, at which call, and whether after it. What happens before the
vendor is asked is the same at each vendor. `make test-slow` has all calls."""
AGAIN = 3
"""Calls of executors from a kill to the next one: it hits the executor that takes over."""


class Calls(Strike):
    """A strike that hits nothing. It lists the calls of executors."""

    made: list[Io] = msgspec.field(default_factory=list)

    def meets(self, io: Io) -> bool:
        """See Strike."""
        if io.function.startswith("act_"):
            self.made.append(io)
        return False


class DeadKubelet:
    """The repair of one node of two, as a context manager. Each of them is full with one pod.

    dead: the node; pod: uid of its pod; others: Nodes with a machine before the repair, without it.
    """

    def __init__(self, provider: str, *strikes: Strike) -> None:
        self.group = VENDORS[provider]()
        accounts = [self.group.account] if self.group.account is not None else []
        self.world = FaultWorld(Random(1), pace=cluster.PACE, grain=20.0, accounts=accounts)
        self._strikes, self.calls = strikes, Calls(KILL, 1)
        self._was_leaving = False

    def __enter__(self) -> Self:
        world = self.world
        world.start()
        self.group.begin(world)
        world.apply_policy(self.group.policy(world, OPTIONS, nodeLifecycle=LIFECYCLE))
        pods = objects.deployment(NAME, replicas=SIZE, cpu="2500m", memory="1Gi")
        world.seed(objects.node("system", cpu="1"), pods, objects.pdb(NAME, max_unavailable=1))
        world.step(120.0)
        victim = min(
            world.kube.list("pods", "default"), key=lambda pod: str(pod["spec"]["nodeName"])
        )
        self.dead, self.pod = victim["spec"]["nodeName"], victim["metadata"]["uid"]
        self.pod_name = victim["metadata"]["name"]
        self.others = self.machines() - {self.dead}
        assert len(self.others) == SIZE - 1
        world.weather.strikes.extend([self.calls, *self._strikes])
        world.cluster.kubelets.silence(self.dead)
        self.began = world.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.world.close()

    def machines(self) -> set[str]:
        return self.group.machines(self.world)

    def node(self) -> dict[str, Any] | None:
        return self.world.kube.peek("nodes", self.dead)

    def step(self) -> None:
        """Lets time pass. As long as the machine is there, nothing of its node is deleted."""
        self.world.step(STEP)
        self.world.stalls.check()
        self.world.audit.look()
        assert self.world.audit.faults == [], self.world.trace
        assert self.others <= self.machines(), "another machine goes"
        is_leaving = any(
            target.node == self.dead for op in self.world.operations() for target in op.spec.targets
        )
        if self.dead in self.machines():
            assert self.node() is not None, "its machine is there"
            assert self._pod_stays() or is_ready(self.node() or {}), (
                "a partitioned node still runs it"
            )
            ended = self._was_leaving and not is_leaving
            assert not ended or self.is_given_back(), (
                "the operation has ended, and its machine is there"
            )
        self._was_leaving = is_leaving

    def _pod_stays(self) -> bool:
        return any(pod["metadata"]["uid"] == self.pod for pod in self.world.kube.pods_on(self.dead))

    def is_given_back(self) -> bool:
        node = self.node()
        return (
            node is not None
            and taint_of(node, HARD) is None
            and not node["spec"].get("unschedulable")
        )

    def play(self, until: Callable[[], bool], limit: float = LIMIT) -> float:
        """Steps until something is true. Returns the seconds since the kubelet died."""
        while not until():
            assert self.world.clock() - self.began < limit, "\n".join(self.world.trace[-40:])
            self.step()
        return self.world.clock() - self.began

    def is_gone(self) -> bool:
        return self.dead not in self.machines()

    def is_evicted(self) -> bool:
        return self.world.audit.counts.get("evicted", 0) > 0

    def rest(self, machines: int = SIZE) -> None:
        """Lets time pass. Then nothing is open, and all pods run."""
        end = self.world.clock() + AFTERWARDS
        while self.world.clock() < end:
            self.step()
        assert self.world.operations() == ()
        assert len(self.machines()) == machines
        assert self.world.audit.counts.get("evicted", 0) <= 1
        names = {node["metadata"]["name"] for node in self.world.kube.list("nodes")}
        assert names == self.machines() | {"system"}
        assert [
            taint for node in self.world.kube.list("nodes") if (taint := taint_of(node, HARD))
        ] == []
        running = [
            pod
            for pod in self.world.kube.list("pods", "default")
            if pod["status"].get("phase") == "Running"
        ]
        assert len(running) == SIZE

    def spend_budget(self) -> None:
        """Lets the pods' budget allow no eviction."""
        budget = clone(
            self.world.kube.peek("poddisruptionbudgets", NAME, "default", "policy") or {}
        )
        budget["spec"]["maxUnavailable"] = 0
        self.world.kube.update("poddisruptionbudgets", budget, "policy")
        self.world.settle()

    def failures(self) -> list[tuple[object, str]]:
        """Class and message of the operations that have failed."""
        entries = self.world.store.journal.recent(self.world.name, 100)
        facts = [entry.facts for entry in entries if entry.kind == "operation"]
        return [
            (fact["class"], str(fact["message"])) for fact in facts if fact["state"] == "failed"
        ]

    def killed(self) -> int:
        return len([made for made in self.world.invocations if made.killed_at])


def repaired(provider: str, *strikes: Strike, tricks: int = 0, limit: float = 900.0) -> DeadKubelet:
    """Plays a repair to its end. tricks: so many messages are delivered twice."""
    with DeadKubelet(provider, *strikes) as run:
        run.world.weather.tricks.extend([twice] * tricks)
        seconds = run.play(run.is_gone)
        assert 60.0 < seconds <= limit
        run.rest()
        assert len(run.world.weather.strikes) == 1, "each fault but the list of calls has hit"
        return run


def twice(message: Message) -> Sequence[Message]:
    return message, message


@functools.cache
def undisturbed(provider: str) -> tuple[Io, ...]:
    """The calls of the executors of a repair without faults."""
    run = repaired(provider, limit=480.0)
    assert run.killed() == 0
    return tuple(run.calls.made)


def number_of(provider: str, kind: str) -> int:
    """The number of the executors' first call of a kind, from the removal on."""
    calls = undisturbed(provider)
    taint = _number(
        calls, 0, lambda io: io.door == API and io.verb == "PATCH" and "/nodes/" in io.what
    )
    request = _number(calls, taint, _asks_the_vendor)
    kinds = {
        "taint": lambda: taint,
        "eviction": lambda: _number(calls, taint, lambda io: io.what.endswith("/eviction")),
        "request": lambda: request,
        "poll": lambda: _number(
            calls, request, lambda io: io.door in (API, VENDOR) and not io.writes
        ),
        "end": lambda: _number(calls, request, lambda io: io.verb == "transact_write_items"),
    }
    return kinds[kind]()


def _asks_the_vendor(io: Io) -> bool:
    is_machine = "/machines/" in io.what or io.what.partition("?")[0].endswith("/scale")
    return io.writes and (io.door == VENDOR or (io.door == API and is_machine))


def _number(calls: Sequence[Io], after: int, is_it: Callable[[Io], bool]) -> int:
    return next(number for number, io in enumerate(calls, 1) if number > after and is_it(io))


def kill(provider: str, number: int, *, after: bool) -> Strike:
    return Strike(KILL, number, function=f"act_{provider}", after=after)


@pytest.mark.parametrize("provider", VENDORS)
def test_a_young_node_whose_kubelet_died_is_repaired_in_minutes(provider: str) -> None:
    assert undisturbed(provider)


@pytest.mark.parametrize(
    ("provider", "kind", "after"),
    KILLS,
    ids=lambda value: {False: "at", True: "after"}.get(value, value),
)
def test_a_repair_of_a_dead_node_killed_twice_evicts_and_deletes_once(
    provider: str, kind: str, *, after: bool
) -> None:
    number = number_of(provider, kind)
    run = repaired(
        provider, kill(provider, number, after=after), kill(provider, number + AGAIN, after=after)
    )
    assert run.killed() == 2


@pytest.mark.parametrize("provider", VENDORS)
def test_a_repair_whose_messages_come_twice_evicts_and_deletes_once(provider: str) -> None:
    repaired(provider, tricks=500)


@pytest.mark.parametrize("provider", VENDORS)
def test_a_paused_request_that_another_executor_makes_too_deletes_no_other_machine(
    provider: str,
) -> None:
    number = number_of(provider, "request")
    repaired(provider, Strike(PAUSE, number, function=f"act_{provider}", seconds=55.0))


@pytest.mark.slow
@pytest.mark.parametrize("provider", VENDORS)
def test_a_lost_answer_of_the_vendor_deletes_no_other_machine(provider: str) -> None:
    number = number_of(provider, "request")
    repaired(provider, Strike(LOSE, number, function=f"act_{provider}"))


@pytest.mark.parametrize("provider", VENDORS)
def test_a_kubelet_that_answers_during_its_drain_keeps_its_machine(provider: str) -> None:
    with DeadKubelet(provider) as run:
        run.play(run.is_evicted)
        run.world.cluster.kubelets.revive(run.dead)
        run.play(lambda: not run.world.operations())
        assert run.is_given_back()
        # its successor, which is removed when nobody has needed it for long
        run.rest(machines=SIZE + 1)
        assert run.dead in run.machines()


def held_by(run: DeadKubelet) -> dict[str, Any]:
    """Why the last plan does not repair the node."""
    [verdict] = [
        verdict for verdict in run.world.plans()[-1]["lifecycle"] if verdict["node"] == run.dead
    ]
    held: dict[str, Any] = verdict["held"]
    return held


@pytest.mark.parametrize("provider", VENDORS)
def test_a_budget_without_room_holds_a_dead_node_and_the_reason_names_pod_and_budget(
    provider: str,
) -> None:
    with DeadKubelet(provider) as run:
        run.spend_budget()
        run.play(lambda: run.world.clock() - run.began >= 240.0)
        key = f"default/{run.pod_name}"
        params = {
            "pod": key,
            "rule": "NotEnoughPdb",
            "budget": f"default/{NAME}",
            "required": SIZE,
        }
        assert held_by(run) == {"code": "BlockedByPod", "params": params}
        assert (run.is_evicted(), run.is_given_back(), run.calls.made) == (False, True, [])
        assert run.machines() == {run.dead, *run.others}


@pytest.mark.parametrize("provider", VENDORS)
def test_a_budget_that_is_spent_before_the_eviction_gives_the_dead_node_back(provider: str) -> None:
    pause = Strike(PAUSE, number_of(provider, "eviction"), function=f"act_{provider}")
    with DeadKubelet(provider, pause) as run:
        pause.meanwhile = run.spend_budget
        run.play(lambda: not run.world.weather.strikes[1:])
        run.play(lambda: not run.world.operations())
        assert (run.is_evicted(), run.is_given_back()) == (False, True)
        [(error_class, message)] = run.failures()
        assert error_class == "EvictionBlocked"
        assert (
            f"pod default/{run.pod_name} holds it: NotEnoughPdb (budget default/{NAME})" in message
        )
        assert run.machines() >= {run.dead, *run.others}


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["at", "after"])
@pytest.mark.parametrize("provider", VENDORS)
def test_a_repair_killed_at_any_call_of_its_removal_evicts_and_deletes_once(
    provider: str, *, after: bool
) -> None:
    first, last = number_of(provider, "taint"), number_of(provider, "end")
    assert last - first > 50
    for number in range(first, last + 1):
        repaired(provider, kill(provider, number, after=after))
