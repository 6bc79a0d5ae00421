"""A cloud in a dictionary as a bench: it shows that every requirement of the suite can be met."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from chalicelib.model.group import InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.kit.base import Observation, Provider
from chalicelib.providers.kit.errors import (
    Conflict,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.fake_provider import InMemoryProvider
from tests.providers.suite.faults import Troubles
from tests.providers.suite.provider_fixture import Misfortune, Trouble

START = 1_800_000_000.0
SECRETS = ("memory-key-of-good-XYZ0123456789", "memory-key-of-rotated-XYZ9876543210")

T = TypeVar("T")

_RAISES: dict[Trouble, Callable[[str], ProviderError]] = {
    Trouble.UNAUTHORIZED: Unauthorized,
    Trouble.FORBIDDEN: Unauthorized,
    Trouble.NOT_FOUND: NotFound,
    Trouble.CONFLICT: Conflict,
    Trouble.THROTTLED: Throttled,
    Trouble.THROTTLED_FOR: lambda text: Throttled(text, retry_after=7.0),
}
_ERRORS = {
    Misfortune.OUT_OF_STOCK: InstanceError("OutOfStock", "NoStock", "none of these is left"),
    Misfortune.QUOTA: InstanceError("QuotaExceeded", "Quota", "the account has enough"),
    Misfortune.NEVER_COMES: InstanceError("Unknown", "Create", "it could not be made"),
}


class MemoryBench:
    """See Bench."""

    name = "memory"
    repeatable = False

    def __init__(self) -> None:
        self.lacks = {"tls": "nothing goes over a wire", "pace": "nobody counts the calls"}
        self.differs: dict[str, str] = {}
        self.clock = ManualClock(START)
        self.ours, self.theirs = (InMemoryProvider(self.name, polls=2) for _ in range(2))
        self.rotated = False
        self._log: list[str] = []
        self._troubles = Troubles()

    def __enter__(self) -> Self:
        """See Bench."""
        return self

    def __exit__(self, *_: object) -> None:
        """See Bench."""

    def now(self) -> float:
        """See Bench."""
        return self.clock.now()

    def most_calls(self, groups: int, machines: int) -> int:
        """See Bench."""
        del groups, machines
        return 1

    def add_group(
        self,
        name: str,
        *,
        size: int = 0,
        least: int = 0,
        most: int = 10,
        cluster: str = "ours",
        instance_type: str = "",
    ) -> str:
        """See Bench."""
        template = Node(
            f"template-{name}", {"type": instance_type or "plain"}, {"cpu": 4000, "pods": 110}
        )
        cloud = self.ours if cluster == "ours" else self.theirs
        return cloud.add_pool(name, size=size, least=least, most=most, template_node=template).id

    def nodes(self) -> tuple[Node, ...]:
        """See Bench."""
        return tuple(
            Node(machine.node, {}, {"cpu": 4000}, provider_id=machine.id)
            for pool in self.ours.pools.values()
            for machine in pool.machines.values()
            if machine.node
        )

    def provider(self, *, credential: str = "good") -> Provider:
        """See Bench."""
        self.rotated = self.rotated or credential == "rotated"
        return _Door(self, good=credential != "wrong")

    def untrusted(self) -> Provider:
        """See Bench."""
        raise AssertionError(self.lacks["tls"])

    def machines(self, group: str) -> list[str]:
        """See Bench."""
        cloud = self.ours if group in self.ours.pools else self.theirs
        return [
            handle
            for handle, machine in cloud.pools[group].machines.items()
            if machine.state is not InstanceState.DELETING
        ]

    def target(self, group: str) -> int:
        """See Bench."""
        return (self.ours if group in self.ours.pools else self.theirs).pools[group].target

    def settle(self, seconds: float = 600.0) -> None:
        """See Bench."""
        self.clock.advance(seconds)
        self.ours.boot()

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """See Bench."""
        self._troubles.order(kind, on, times)

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """See Bench."""
        self.ours.spoil(group, _ERRORS[kind], times=times)

    def calm(self) -> None:
        """See Bench."""
        self._troubles.clear()

    def calls(self) -> list[str]:
        """See Bench."""
        seen, self._log = self._log, []
        return seen

    def writes(self) -> list[str]:
        """See Bench."""
        return [call for call in self.calls() if call.startswith("write ")]

    def secrets(self) -> Sequence[str]:
        """See Bench."""
        return SECRETS

    def slept(self) -> float:
        """See Bench."""
        return 0.0

    def pass_through(self, verb: str, of: str, call: Callable[[], T], *, good: bool) -> T:
        """Runs one call with its configured faults. of: `read` or `write`."""
        self._log.append(f"{of} {verb}")
        if not good:
            raise Unauthorized(f"{verb}: the key is refused", code="401")
        kind = self._troubles.met(of)
        if kind is None:
            return call()
        if kind is Trouble.LOST_ANSWER:
            call()
        raise _RAISES.get(kind, Transient)(f"{verb}: {kind.value}")


class _Door:
    """One provider object: access to the shared cloud through the injected faults."""

    def __init__(self, bench: MemoryBench, *, good: bool) -> None:
        self._bench, self._cloud, self._good = bench, bench.ours, good

    @property
    def name(self) -> str:
        """See Provider."""
        return self._cloud.name

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """See Provider."""
        return self._read("observe", lambda: self._cloud.observe(nodes))

    def scale_up(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._written("scale_up", self._cloud.scale_up, operation)

    def has_requested(self, operation: Operation) -> bool:
        """See Provider."""
        return self._read("has_requested", lambda: self._cloud.has_requested(operation))

    def delete_nodes(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._written("delete_nodes", self._cloud.delete_nodes, operation)

    def cancel_delete(self, operation: Operation) -> bool:
        """See Provider."""
        return self._read("cancel_delete", lambda: self._cloud.cancel_delete(operation))

    def decrease_target(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._written("decrease_target", self._cloud.decrease_target, operation)

    def poll(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._read("poll", lambda: self._cloud.poll(operation))

    def _read(self, verb: str, call: Callable[[], T]) -> T:
        return self._bench.pass_through(verb, "read", call, good=self._good)

    def _written(
        self, verb: str, call: Callable[[Operation], Outcome], operation: Operation
    ) -> Outcome:
        """Simulates a cloud that validates first: a call that will be
        refused is refused as a read."""
        of = "write" if _changes(self._cloud, verb, operation) else "read"
        return self._bench.pass_through(verb, of, lambda: call(operation), good=self._good)


def _changes(cloud: InMemoryProvider, verb: str, operation: Operation) -> bool:
    """Tells whether a call would change a size, by trying it on a copy."""
    twin = copy.deepcopy(cloud)
    getattr(twin, verb)(operation)
    return [pool.target for pool in twin.pools.values()] != [
        pool.target for pool in cloud.pools.values()
    ]
