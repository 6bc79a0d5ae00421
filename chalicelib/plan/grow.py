"""Which groups are grown, by how much and for whom: the whole backlog in one pass (architecture §4).

Every group that may grow is asked what it could do for all pods that are left; the expander takes one option; its pods
are taken out and the rest is asked again, until nothing more fits or a limit is met. A group that cannot be read, has
no template, is sick, backed off or already growing is left out with its reason and stops nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.plan import GroupVerdict, PodVerdict, ScaleUp
from chalicelib.model.reason import Code, Reason
from chalicelib.plan.choose import choose
from chalicelib.plan.choose.least_waste import waste
from chalicelib.plan.demand import Demand
from chalicelib.plan.fit import reasons as fit_reasons
from chalicelib.plan.fit import static_mask
from chalicelib.plan.limits import Ledger
from chalicelib.plan.option import Option
from chalicelib.plan.pack import pack
from chalicelib.plan.place import Room
from chalicelib.plan.readiness import Bucket
from chalicelib.plan.table import NodeTable
from chalicelib.plan.world import GroupFacts, World


class Growth(msgspec.Struct, frozen=True):
    """The growing half of a plan."""

    scale_ups: tuple[ScaleUp, ...]
    unschedulable: tuple[PodVerdict, ...]
    groups: tuple[GroupVerdict, ...]


def grow(world: World, room: Room, demands: tuple[Demand, ...]) -> Growth:
    """Plan the growth for demands that fit nowhere yet."""
    search = _Search(world, room)
    left = search.run(demands)
    return Growth(scale_ups=search.scale_ups(), unschedulable=tuple(search.verdict(demand) for demand in left),
                  groups=tuple(search.group_verdict(facts) for facts in world.groups.values()))


class _Search:
    """One pass over the backlog; everything it learns on the way is what the explanations are made of."""

    def __init__(self, world: World, room: Room) -> None:
        self.world, self.room = world, room
        self.ledger = Ledger(world)
        self.skipped = {facts.id: reason for facts in world.groups.values()
                        if (reason := _skip(facts)) is not None}
        self.able = [facts for facts in world.groups.values() if facts.id not in self.skipped]
        self.table = _template_table(self.able, room)
        self.masks: dict[int, dict[str, bool]] = {}
        self.grown: dict[str, int] = {}
        self.pods: dict[str, list[str]] = {}
        self.first: dict[str, Option] = {}
        self.stops: dict[str, Reason] = {}

    def run(self, demands: tuple[Demand, ...]) -> list[Demand]:
        """Take the best option until there is none; returns what is left."""
        left = list(demands)
        while left:
            options = [option for facts in self.able if (option := self.option(facts, left)) is not None]
            for option in options:
                self.first.setdefault(option.group, option)
            best = choose(options, self.world.options.expander)
            if best is None:
                break
            left = self.take(best, left)
        return left

    def fits(self, facts: GroupFacts, cls: int) -> bool:
        """Whether one pod of a class passes every filter on an empty new node of a group."""
        verdicts = self.masks.get(cls)
        if verdicts is None:
            mask = static_mask(cls, self.room.classes[cls], self.table)
            verdicts = {other.id: bool(mask[row]) and not self.room.unsure.reasons(cls)
                        and not fit_reasons(cls, self.room.classes[cls], self.table, row)
                        for row, other in enumerate(self.able)}
            self.masks[cls] = verdicts
        return verdicts[facts.id]

    def option(self, facts: GroupFacts, demands: list[Demand]) -> Option | None:
        """What a group could do for these demands, None if nothing."""
        allowance = self.ledger.allowance(facts, self.grown.get(facts.id, 0))
        fitting = [demand for demand in demands if self.fits(facts, demand.cls)]
        if not fitting or facts.template is None:
            return None
        if allowance.nodes <= 0:
            self.stops[facts.id] = allowance.stop
            return None
        packing = pack(facts.template, fitting, self.room.classes, self.table.columns, allowance.nodes)
        if packing.refused:
            self.stops[facts.id] = allowance.stop
        if not packing.placed:
            return None
        requested: dict[str, int] = {}
        for cls, count in packing.placed.items():
            for name, amount in self.room.classes[cls].requests.items():
                requested[name] = requested.get(name, 0) + amount * count
        return Option(facts.id, packing.nodes, packing.placed, facts.template.node, requested)

    def take(self, option: Option, demands: list[Demand]) -> list[Demand]:
        """Grow by an option; returns the demands without its pods."""
        self.ledger.take(option.template, option.nodes)
        self.grown[option.group] = self.grown.get(option.group, 0) + option.nodes
        left = []
        for demand in demands:
            count = option.pods.get(demand.cls, 0)
            self.pods.setdefault(option.group, []).extend(pod.key for pod in demand.pods[:count])
            if count < len(demand.pods):
                left.append(Demand(demand.cls, demand.pods[count:]))
        return left

    def scale_ups(self) -> tuple[ScaleUp, ...]:
        """The growth per group, in the order of group ids."""
        groups: Mapping[str, GroupFacts] = self.world.groups
        return tuple(
            ScaleUp(group=name, provider=groups[name].group.provider, from_size=groups[name].target,
                    to_size=groups[name].target + nodes, max=groups[name].group.max,
                    pods=tuple(sorted(self.pods.get(name, ()))))
            for name, nodes in sorted(self.grown.items())
        )

    def verdict(self, demand: Demand) -> PodVerdict:
        """Why pods of a class get nothing, group by group."""
        unsure = self.room.unsure.reasons(demand.cls)
        cls = self.room.classes[demand.cls]
        why: dict[str, tuple[Reason, ...]] = {}
        for row, facts in enumerate(self.able):
            found = fit_reasons(demand.cls, cls, self.table, row) + unsure
            why[facts.id] = found or (self.stops.get(facts.id) or Reason.of(Code.GROUP_MAX_SIZE, max=facts.group.max),)
        for name, reason in self.skipped.items():
            why[name] = (reason, *unsure)
        return PodVerdict(pods=tuple(sorted(pod.key for pod in demand.pods)), reasons=dict(sorted(why.items())))

    def group_verdict(self, facts: GroupFacts) -> GroupVerdict:
        """What a group could have done in this pass, or why it was not asked."""
        option = self.first.get(facts.id)
        return GroupVerdict(
            group=facts.id, provider=facts.group.provider, min=facts.group.min, max=facts.group.max,
            target=facts.target,
            ready=facts.counts[Bucket.READY], upcoming=facts.upcoming, option_nodes=option.nodes if option else 0,
            option_pods=option.pod_count if option else 0, waste=waste(option) if option else None,
            skipped=self.skipped.get(facts.id),
        )


def _template_table(able: list[GroupFacts], room: Room) -> NodeTable:
    """One row per group: an empty new node, its DaemonSet pods on it."""
    table = NodeTable([facts.template.node for facts in able if facts.template is not None], room.table.columns)
    for row, facts in enumerate(able):
        for cls in facts.template.daemons if facts.template else ():
            table.take(row, cls, 1, room.classes[cls].ports)
    return table


def _skip(facts: GroupFacts) -> Reason | None:
    """Why a group is not asked, in the order of scale-up.md §6; None if it is."""
    mine = facts.memory.backoff
    checks: tuple[tuple[bool, Reason], ...] = (
        (bool(facts.group.error), Reason.of(Code.GROUP_UNREADABLE, detail=facts.group.error)),
        (not facts.healthy, Reason.of(Code.GROUP_UNHEALTHY, detail=f"{facts.missing} nodes are missing")),
        (facts.backed_off, Reason.of(Code.GROUP_BACKOFF, until=mine.until if mine else 0.0,
                                     error=_error(mine.cls, mine.code, mine.message) if mine else "")),
        (facts.growing, Reason.of(Code.GROUP_UNHEALTHY, detail="an earlier increase is still being carried out")),
        (facts.target >= facts.group.max, Reason.of(Code.GROUP_MAX_SIZE, max=facts.group.max)),
        (facts.template is None, Reason.of(Code.NO_TEMPLATE, detail=facts.group.template_error or "none known")),
    )
    return next((reason for failed, reason in checks if failed), None)


def _error(cls: str, code: str, message: str) -> str:
    return " ".join(part for part in (cls, code, message) if part)
