"""Plans all scaling rules of one pass after the pending pods have been served: cron rules first, then metric rules."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import RuleMemory
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.plan.scale_up.scaling_rules import cron_rules, metric_rules
from chalicelib.plan.scale_up.scaling_rules.context import RuleContext, verdict
from chalicelib.plan.scale_up.scaling_rules.removal_guard import RuleRemovalGuard
from chalicelib.plan.scale_up.scaling_rules.sources import SourceBound, Sources, sources
from chalicelib.plan.scale_up.search import ScaleUpSearch


class RuleResults(msgspec.Struct, frozen=True):
    """The results of scaling rules. memory, objects: complete, for the next pass; by_group: group -> keys of the rules
    that want nodes of it; notes: for Plan.notes; needs: which nodes metric rules need, None if none is in force."""

    verdicts: tuple[RuleVerdict, ...] = ()
    memory: dict[str, RuleMemory] = {}
    objects: dict[str, RuleObject] = {}
    by_group: dict[str, tuple[str, ...]] = {}
    notes: tuple[Reason, ...] = ()
    needs: RuleRemovalGuard | None = None


def plan_rules(search: ScaleUpSearch, *, served: bool) -> RuleResults:
    """Add the nodes that rules want (search.add). served: pending pods got nodes in this pass, which blocks metric
    rules.

    Disabled rules are removed from memory, so that missed occurrences are not made up for when they are enabled again.
    """
    found = sources(search.state)
    if not search.state.policy.scale_up.rules:
        off = Reason.of(ReasonCode.RULES_OFF)
        return RuleResults(
            verdicts=tuple(verdict(each, off) for each in found.bound), objects=found.objects, notes=found.notes
        )
    turn = RuleContext(search)
    reported: dict[str, RuleVerdict] = {}
    for each in found.bound:
        if each.rule.metric is None:
            reported[each.key] = cron_rules.run(turn, each)
    for rules in _by_pool(found.bound).values():
        for each, said in zip(rules, metric_rules.run(turn, rules[0].pool, rules, served=served), strict=True):
            reported[each.key] = said
    return RuleResults(
        verdicts=(*(reported[each.key] for each in found.bound), *found.verdicts),
        memory=dict(sorted({**_unfound(search, found), **turn.memory}.items())),
        objects=found.objects,
        by_group={name: tuple(keys) for name, keys in sorted(turn.by_group.items())},
        notes=(*found.notes, *turn.notes),
        needs=_needs(turn, found.bound),
    )


def _needs(context: RuleContext, bound: tuple[SourceBound, ...]) -> RuleRemovalGuard | None:
    """Return the removal guard, None if no metric rule is in force: computing rates is expensive."""
    in_force = [each for each in bound if each.rule.metric is not None and not each.invalid]
    return RuleRemovalGuard(context.state, in_force, context.rates) if in_force else None


def _by_pool(bound: tuple[SourceBound, ...]) -> dict[str, list[SourceBound]]:
    """Return metric rules by the id of their pool; pools and rules are in the order of the rules."""
    found: dict[str, list[SourceBound]] = {}
    for each in bound:
        if each.rule.metric is not None:
            found.setdefault(each.pool.id, []).append(each)
    return found


def _unfound(search: ScaleUpSearch, sources: Sources) -> dict[str, RuleMemory]:
    """Return the memory of rules whose pools could not be sources: they may return in the next pass, with an occurrence
    that is still open, or with a handled one that must not be repeated."""
    if not sources.lost:
        return {}
    return {
        key: known
        for key, known in search.state.memory.rules.items()
        if any(key[:at] in sources.lost for at, letter in enumerate(key) if letter == "@")
    }
