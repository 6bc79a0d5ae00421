"""A cloud in a dictionary: implements the Provider protocol
(providers/kit/base.py), with faults on request.

It is for tests and scenarios that do not depend on a vendor. Its log of purchases and deletions
shows whether anything was bought twice. Machines stay CREATING until `boot` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import ProviderError


@dataclass(slots=True)
class FakePool:
    """One node group of the cloud. machines: by handle, in the order of creation. spoilt: faults of
    the next machines, see InMemoryProvider.spoil."""

    id: str
    min: int = 0
    max: int = 10
    target: int = 0
    machines: dict[str, Instance] = field(default_factory=dict)
    template: Node | None = None
    made: int = 0
    options: GroupOptions = field(default_factory=GroupOptions)
    spoilt: list[InstanceError | str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Purchase:
    """One increase of a target, which costs money."""

    operation: str
    group: str
    count: int


@dataclass(frozen=True, slots=True)
class FakeFault:
    """The fault of the next call of a verb. late: the change is made and
    only the response is lost."""

    error: ProviderError
    late: bool = False


class InMemoryProvider:
    """purchases, deleted, restarted: logs of changes. polls: number of InProgress responses
    before a change has Succeeded. on_restart: called for a machine that starts again, when the
    last poll has succeeded."""

    def __init__(
        self,
        name: str = "clusterapi",
        *,
        polls: int = 0,
        on_delete: Callable[[Instance], None] | None = None,
        on_restart: Callable[[Instance], None] | None = None,
    ) -> None:
        self._name, self.polls, self.on_delete, self.on_restart = name, polls, on_delete, on_restart
        self.restarted: list[str] = []
        self.claim = ""  # identity of all its groups, as in NodeGroup.claim
        self.pools: dict[str, FakePool] = {}
        self.purchases: list[Purchase] = []
        self.deleted: list[str] = []
        self.calls: list[str] = []
        self._faults: dict[str, list[FakeFault | None]] = {}

    @property
    def name(self) -> str:
        return self._name

    # -- for tests

    def add_pool(
        self,
        name: str,
        *,
        size: int = 0,
        least: int = 0,
        most: int = 10,
        template_node: Node | None = None,
    ) -> FakePool:
        """Add a group with `size` running machines, whose nodes are called `<group>-<n>`."""
        pool = self.pools[name] = FakePool(name, least, most, size, template=template_node)
        for _ in range(size):
            self._make(pool, InstanceState.RUNNING)
        return pool

    def fail_next(
        self, verb: str, error: ProviderError, *, times: int = 1, late: bool = False
    ) -> None:
        """Let the next calls of `verb` (grow, remove, shrink_target, poll, observe) raise this."""
        self._faults.setdefault(verb, []).extend([FakeFault(error, late)] * times)

    def spoil(self, group: str, how: InstanceError | str, *, times: int = 1) -> None:
        """Let the next machines of a group fail: created with this error, `dead` (created, but
        never a node) or `phantom` (counted in the target, but never created)."""
        self.pools[group].spoilt.extend([how] * times)

    def let_pass(self, verb: str, *, times: int = 1) -> None:
        """Let this number of calls succeed between the faults added so far and the next fault."""
        self._faults.setdefault(verb, []).extend([None] * times)

    def boot(self) -> list[Instance]:
        """Set all machines being created to running, except those that never will. Returns the
        machines that became running."""
        booted = []
        for pool in self.pools.values():
            for handle, machine in pool.machines.items():
                if (
                    machine.state is InstanceState.CREATING
                    and machine.error is None
                    and handle not in pool.dead
                ):
                    pool.machines[handle] = Instance(machine.id, handle=handle, node=handle)
                    booted.append(pool.machines[handle])
        return booted

    # -- the protocol

    def observe(self, nodes: Sequence[Node]) -> Observation:
        del nodes
        with _Call(self, "observe"):
            return Observation(
                tuple(
                    NodeGroup(
                        id=pool.id,
                        provider=self._name,
                        min=pool.min,
                        max=pool.max,
                        target=pool.target,
                        instances=tuple(pool.machines.values()),
                        template=pool.template,
                        options=pool.options,
                        claim=self.claim,
                    )
                    for pool in self.pools.values()
                )
            )

    def scale_up(self, operation: Operation) -> Outcome:
        with _Call(self, "scale_up"):
            pool = self.pools.get(operation.spec.group)
            if pool is None:
                return Failed("NotFound", f"no group {operation.spec.group}")
            if pool.target == operation.spec.to_size:
                return self._accepted(operation)
            if operation.spec.to_size > pool.max:
                return Failed(
                    "InvalidRequest", f"{operation.spec.to_size} is above the maximum of {pool.max}"
                )
            if pool.target != operation.spec.from_size:
                return Failed(
                    "Conflict", f"target is {pool.target}, not {operation.spec.from_size}"
                )
            count = operation.spec.to_size - pool.target
            for _ in range(count):
                self._make(pool, InstanceState.CREATING)
            pool.target = operation.spec.to_size
            self.purchases.append(Purchase(operation.spec.id, pool.id, count))
            return self._accepted(operation)

    def has_requested(self, operation: Operation) -> bool:
        pool = self.pools.get(operation.spec.group)
        return pool is not None and pool.target == operation.spec.to_size

    def delete_nodes(self, operation: Operation) -> Outcome:
        with _Call(self, "delete_nodes"):
            pool = self.pools.get(operation.spec.group)
            if pool is None:
                return Failed("NotFound", f"no group {operation.spec.group}")
            handles = [target.handle or target.node for target in operation.spec.targets]
            others = [other for other in self.pools.values() if other is not pool]
            elsewhere = [
                handle for handle in handles if any(handle in other.machines for other in others)
            ]
            if elsewhere:
                return Failed("InvalidRequest", f"{elsewhere[0]} belongs to another group")
            present = [handle for handle in handles if handle in pool.machines]
            discards = operation.spec.kind is OperationKind.DELETE_INSTANCES
            joined = [handle for handle in present if discards and pool.machines[handle].node]
            if joined:
                return Failed("Conflict", f"{joined[0]} has joined as a node meanwhile")
            if not discards and pool.target - len(present) < pool.min:
                return Failed(
                    "InvalidRequest", f"group {pool.id} would fall below its minimum of {pool.min}"
                )
            for handle in present:
                self._delete(pool, handle)
            return self._accepted(operation)

    def cancel_delete(self, operation: Operation) -> bool:
        """See Provider. This cloud removes machines at once: a removal that arrived is done, and
        one that did not arrive has no effect."""
        pool = self.pools.get(operation.spec.group)
        return pool is None or any(
            (target.handle or target.node) in pool.machines for target in operation.spec.targets
        )

    def restart(self, operation: Operation) -> Outcome:
        with _Call(self, "restart"):
            pool = self.pools.get(operation.spec.group)
            handle = operation.spec.targets[0].handle or operation.spec.targets[0].node
            if pool is None or handle not in pool.machines:
                return Failed("NotFound", f"no machine {handle} in group {operation.spec.group}")
            left = operation.status.data.get("polls")
            if left is None:
                self.restarted.append(handle)
            if int(left or self.polls + 1) > 1:
                return InProgress(5.0, "working", {"polls": str(int(left or self.polls + 1) - 1)})
            if self.on_restart:
                self.on_restart(pool.machines[handle])
            return Succeeded()

    def decrease_target(self, operation: Operation) -> Outcome:
        with _Call(self, "decrease_target"):
            pool = self.pools[operation.spec.group]
            running = sum(
                machine.state is InstanceState.RUNNING for machine in pool.machines.values()
            )
            if operation.spec.to_size < running:
                return Failed("Conflict", f"{running} machines are running")
            pool.target = min(pool.target, operation.spec.to_size)
            for handle in [
                h for h, machine in pool.machines.items() if machine.state is InstanceState.CREATING
            ]:
                if len(pool.machines) > pool.target:
                    del pool.machines[handle]
            return Succeeded({"to": pool.target})

    def poll(self, operation: Operation) -> Outcome:
        with _Call(self, "poll"):
            left = int(operation.status.data.get("polls", "0"))
            return (
                InProgress(5.0, "working", {"polls": str(left - 1)})
                if left > 1
                else Succeeded(_facts(operation))
            )

    def _accepted(self, operation: Operation) -> Outcome:
        if self.polls:
            return InProgress(5.0, "working", {"polls": str(self.polls)})
        return Succeeded(_facts(operation))

    def _delete(self, pool: FakePool, handle: str) -> None:
        machine = pool.machines.pop(handle)
        pool.target -= 1
        self.deleted.append(handle)
        if self.on_delete:
            self.on_delete(machine)

    def _make(self, pool: FakePool, state: InstanceState) -> None:
        pool.made += 1
        handle = f"{pool.id}-{pool.made}"
        how = pool.spoilt.pop(0) if pool.spoilt else ""
        if how == "phantom":
            return
        if how == "dead":
            pool.dead.add(handle)
        node = handle if state is InstanceState.RUNNING else ""
        made = Instance(f"memory://{handle}", state, handle=handle, node=node)
        pool.machines[handle] = (
            msgspec.structs.replace(made, error=how) if isinstance(how, InstanceError) else made
        )

    def take_fault(self, verb: str) -> FakeFault | None:
        due = self._faults.get(verb)
        return due.pop(0) if due else None


class _Call:
    """One call of a verb: logged, and failing before or after its effect if a fault is due."""

    def __init__(self, provider: InMemoryProvider, verb: str) -> None:
        self._provider, self._verb = provider, verb
        self._fault: FakeFault | None = None

    def __enter__(self) -> None:
        self._provider.calls.append(self._verb)
        self._fault = self._provider.take_fault(self._verb)
        if self._fault and not self._fault.late:
            raise self._fault.error

    def __exit__(self, *exc: object) -> None:
        if self._fault and self._fault.late:
            raise self._fault.error


def _facts(operation: Operation) -> dict[str, str | int]:
    return (
        {"from": operation.spec.from_size, "to": operation.spec.to_size}
        if operation.spec.to_size
        else {}
    )
