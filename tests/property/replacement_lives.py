"""A cluster in which replacements live through many passes: nodes come late or never,
operations fail, nodes vanish, the mode changes, the judge changes its mind. The invariants are
stated here from the outside."""

from __future__ import annotations

import random

import msgspec

from chalicelib.model.memory import NOT_BEGUN, Replacement, ReplacementState
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.replacement_rows import UNDER_WAY, with_operations
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW, OLD, ClusterBuilder, cluster, node
from tests.operations import new_operation
from tests.unit.plan.replacement_story import COST, FakeJudge, Turn, turn

PASS = 60.0
SURGE, REPLACEMENTS = 3, 2
POLICY = Consolidation(
    mode=ConsolidationMode.FULL,
    max_surge=NodeLimit(nodes=SURGE),
    max_replacements=REPLACEMENTS,
    replace_timeout=600.0,
)
REASONS = (
    Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod="default/p", what="no node takes it"),
    Reason.of(ReasonCode.DO_NOT_DISRUPT, pod="default/p"),
    Reason.of(ReasonCode.PROMISED, pod="default/p"),
)


class LifeNode(msgspec.Struct):
    """group: m (old) or s (bought). ready_at: epoch seconds."""

    group: str
    created: float
    ready_at: float


class ReplacementLives:
    """One cluster over many passes. quiet: no faults any more. counts: what has happened."""

    def __init__(self, seed: int) -> None:
        self.dice, self.now, self.quiet = random.Random(seed), NOW, False
        self.nodes = {f"m-{at}": LifeNode("m", OLD, OLD) for at in range(6)}
        self.rows: dict[str, Replacement] = {}
        self.operations: dict[str, Operation] = {}
        self.bought: dict[tuple[str, str], int] = {}
        self.counts = dict.fromkeys(("bought", "drained", "done", "failed"), 0)
        self.made = 0

    def step(self) -> None:
        """Let time pass, then make a pass and check what it does."""
        self.now += PASS
        self._work()
        if not self.quiet:
            self._events()
        before, played = dict(self.rows), self._turn()
        self._check_nodes(played)
        planned = self._planned(played)
        self.rows = with_operations(played.result.rows, planned)
        self.operations |= {operation.spec.id: operation for operation in planned}
        self._count(before)

    def _turn(self) -> Turn:
        mode = ConsolidationMode.FULL
        if not self.quiet and self.dice.random() < 0.03:
            mode = self.dice.choice(list(ConsolidationMode))
        refuses = {name for name in self.nodes if not self.quiet and self.dice.random() < 0.05}
        why = self.dice.choice(REASONS)
        judge = FakeJudge(lambda nodes: why if refuses.intersection(nodes) else None)
        return turn(
            self._build(),
            *self.rows.values(),
            consolidation=msgspec.structs.replace(POLICY, mode=mode),
            judge=judge,
            judged=self.quiet or self.dice.random() < 0.95,
            operations=tuple(self.operations.values()),
            now=self.now,
            propose=self._wanted(),
            max_drain_parallelism=2,
        )

    def _build(self) -> ClusterBuilder:
        build = cluster()
        for name, each in sorted(self.nodes.items()):
            size = ("4", "16Gi") if each.group == "m" else ("2", "8Gi")
            build.node(
                name, *size, group=each.group, created=each.created, ready=each.ready_at <= self.now
            )
            if each.group == "m":
                build.running(name, 1, "500m", "1Gi")
        build.group("m", max=20)
        return build.group("s", max=20, template=node("s", "2", "8Gi", group="s"))

    def _wanted(self) -> list[str]:
        old = sorted(name for name, each in self.nodes.items() if each.group == "m")
        if self.quiet or not old or self.dice.random() < 0.6:
            return []
        return self.dice.sample(old, min(len(old), self.dice.randint(1, 2)))

    def _work(self) -> None:
        """Operations end: each notes its end in its row, if that is still there."""
        for name, operation in list(self.operations.items()):
            if self.dice.random() < 0.5:
                continue
            spec, why = operation.spec, ""
            if not self.quiet and self.dice.random() < 0.15:
                why = self.dice.choice(("it failed", NOT_BEGUN))
                if why == NOT_BEGUN and spec.kind is OperationKind.SCALE_UP:
                    del self.bought[spec.replacement, spec.group]
            elif spec.kind is OperationKind.SCALE_UP:
                for _ in range(spec.to_size - spec.from_size):
                    self._arrives()
            else:
                self.nodes.pop(spec.targets[0].node, None)
            del self.operations[name]
            row = self.rows.get(spec.replacement)
            if row is not None:
                self.rows[row.id] = msgspec.structs.replace(row, ends={**row.ends, name: why})

    def _arrives(self) -> None:
        if not self.quiet and self.dice.random() < 0.1:
            return  # it never joins
        self.made += 1
        late = self.dice.choice((0.0, 90.0, 200.0, 2000.0))
        self.nodes[f"s-{self.made}"] = LifeNode("s", self.now, self.now + late)

    def _events(self) -> None:
        if self.nodes and self.dice.random() < 0.04:
            del self.nodes[self.dice.choice(sorted(self.nodes))]
        if self.dice.random() < 0.1:
            self.made += 1
            self.nodes[f"m-{self.made + 100}"] = LifeNode("m", self.now, self.now)

    def _planned(self, played: Turn) -> list[Operation]:
        """The operations of the pass. Each purchase is planned once, each node is drained only if
        all that was bought for it is ready."""
        planned = []
        for command in played.result.commands:
            for up in command.replacements:
                purchase = up.replacement, up.group
                assert purchase not in self.bought, f"{purchase} is bought twice"
                self.bought[purchase] = up.to_size - up.from_size
                self.counts["bought"] += 1
                planned.append(
                    self._operation(
                        up.group, OperationKind.SCALE_UP, up.replacement, up.from_size, up.to_size
                    )
                )
            for removal in command.candidates:
                row = played.result.rows[removal.replacement]
                assert removal.node in row.nodes
                assert len(row.new_nodes) == sum(purchase.nodes for purchase in row.purchases)
                for name in row.new_nodes:
                    assert self.nodes[name].ready_at <= self.now, (
                        f"{removal.node} is drained before {name} is ready"
                    )
                assert not any(
                    target.node == removal.node
                    for open_one in self.operations.values()
                    for target in open_one.spec.targets
                )
                self.counts["drained"] += 1
                target = RemovalTarget(
                    removal.node, f"test://m/{removal.node}", evict=removal.evict
                )
                planned.append(
                    self._operation("m", OperationKind.DELETE_NODES, row.id, 1, 0, target)
                )
        return planned

    def _operation(
        self,
        group: str,
        kind: OperationKind,
        replacement: str,
        before: int,
        after: int,
        *targets: RemovalTarget,
    ) -> Operation:
        self.made += 1
        return new_operation(
            id=f"{kind.value}-{self.made}",
            cluster="test",
            provider="test",
            group=group,
            kind=kind,
            plan="p",
            created_at=self.now,
            from_size=before,
            to_size=after,
            targets=targets,
            state=OperationState.WAITING,
            replacement=replacement,
        )

    def _check_nodes(self, played: Turn) -> None:
        rows = [
            row for row in played.result.rows.values() if row.state is not ReplacementState.FAILED
        ]
        names = [name for row in rows for name in (*row.nodes, *row.new_nodes)]
        assert len(names) == len(set(names)), f"a node is in two rows: {sorted(names)}"
        under_way = [row for row in rows if row.state in UNDER_WAY]
        assert len(under_way) <= REPLACEMENTS
        assert (
            sum(max(0, sum(p.nodes for p in row.purchases) - len(row.gone)) for row in under_way)
            <= SURGE
        )
        for row in under_way:
            assert row.nodes, "a row without old nodes is done"
            assert row.price >= 0
            assert row.cost == COST
        assert played.budgets.breaker.trip is None

    def _count(self, before: dict[str, Replacement]) -> None:
        for name, row in before.items():
            if row.state in UNDER_WAY:
                after = self.rows.get(name)
                self.counts["done"] += after is None
                self.counts["failed"] += (
                    after is not None and after.state is ReplacementState.FAILED
                )

    @property
    def under_way(self) -> list[Replacement]:
        """Rows that are neither over nor only proposed."""
        return [row for row in self.rows.values() if row.state in UNDER_WAY]
