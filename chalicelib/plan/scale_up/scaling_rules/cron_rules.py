"""Cron rules: each occurrence is handled once, or dropped when it expires. See docs/reference/scaling-rules.md "Cron
rules".

    due ──► the pool is scaling ────────────────────────► pending until it is not
        ──► unhealthy, unreadable, all backed off ──────► pending, dropped half an hour after its instant
        ──► nodes are added (or limits reached) ────────► handled; target size: the pool's size with all of these nodes

While the target size is not reached, missing nodes are added in other groups of the pool, for half an hour. A pass is
saved with its memory and its operations, or not at all, so nothing is added twice and nothing is lost.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import RuleMemory
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.scaling_rules.allocation import FixedCount
from chalicelib.plan.scale_up.scaling_rules.context import RuleContext, verdict
from chalicelib.plan.scale_up.scaling_rules.sources import SourceBound

LATE = 1800.0  # seconds after which an occurrence is dropped and a target size abandoned
_BEFORE = 60.0  # seconds before a rule's first evaluation that still count
_WRONG = 3600.0  # an instant this far in the future was written by a wrong clock
_SCALING = "scaling"


def run(context: RuleContext, bound: SourceBound) -> RuleVerdict:
    """Run one cron rule on one pool. Stores its state in turn.memory."""
    times = context.clock.times(bound.rule.cron, bound.rule.time_zone)
    known = context.state.memory.rules.get(bound.key)
    problem = bound.invalid or times.problem
    if problem:
        if known is not None:
            context.memory[bound.key] = known
        return verdict(bound, Reason.of(ReasonCode.RULE_INVALID, rule=bound.rule.key, detail=problem))
    mine = _known(bound, known, context.state.now)
    due = times.last if times.last > mine.last_occurrence else 0.0
    after, reported = mine, None
    if due:
        after, reported = _due(context, bound, mine, due)
    elif mine.target_size:
        after, reported = _unfinished(context, bound, mine)
    context.memory[bound.key] = after
    if reported is None:
        until = {"until": times.following} if times.following else {}
        return verdict(bound, Reason.of(ReasonCode.RULE_NOT_DUE, **until))
    return reported


def _known(bound: SourceBound, rule_memory: RuleMemory | None, now: float) -> RuleMemory:
    """Return the stored state. A rule that is new, or whose time was changed, counts from a minute ago, but not from
    before the creation of the object that contains it."""
    when = f"{bound.rule.cron} {bound.rule.time_zone}"
    if rule_memory is not None and rule_memory.cron == when and rule_memory.last_occurrence <= now + _WRONG:
        return rule_memory
    return RuleMemory(last_occurrence=max(now - _BEFORE, min(bound.created, now)), cron=when)


def _due(
    context: RuleContext, bound: SourceBound, rule_memory: RuleMemory, due: float
) -> tuple[RuleMemory, RuleVerdict | None]:
    """Handle an open occurrence. One that waits for a scaling pool waits without limit, even if a later one has
    replaced it; all others wait for a limited time."""
    waits = rule_memory.pending_occurrence > rule_memory.last_occurrence and rule_memory.why == _SCALING
    held = _held(context, bound)
    if context.state.now - due > LATE and not (waits and (held is None or held.code is ReasonCode.RULE_SCALING)):
        reason = Reason.of(ReasonCode.RULE_EXPIRED, due=due, rule=bound.rule.key, pool=bound.pool.id)
        context.notes.append(reason)
        return msgspec.structs.replace(rule_memory, last_occurrence=due, pending_occurrence=0.0, why=""), verdict(
            bound, reason, due=due
        )
    if held is not None:
        return _keep(context, bound, rule_memory, due, held)
    size = bound.pool.size
    given = context.give(bound, FixedCount(bound.rule.add))
    if not given.total and given.later and given.stop is not None:
        return _keep(context, bound, rule_memory, due, given.stop)
    wanted = given.total + min(max(0, bound.rule.add - given.total), given.later)
    if given.total:
        context.taken.setdefault(bound.pool.id, bound.rule.key)
    after = msgspec.structs.replace(
        rule_memory,
        last_occurrence=due,
        pending_occurrence=0.0,
        why="",
        target_size=size + wanted if given.total else 0,
        last_scaled_at=context.state.now if given.total else rule_memory.last_scaled_at,
    )
    return after, verdict(bound, given.stop, nodes=given.total, due=due)


def _held(context: RuleContext, bound: SourceBound) -> Reason | None:
    """Return what prevents a rule from acting on its pool at all, None if nothing does."""
    return context.unreadable(bound.pool) or context.scaling(bound.pool) or context.unhealthy


def _keep(
    context: RuleContext, bound: SourceBound, rule_memory: RuleMemory, due: float, reason: Reason
) -> tuple[RuleMemory, RuleVerdict | None]:
    context.taken.setdefault(bound.pool.id, bound.rule.key)
    word = _SCALING if reason.code is ReasonCode.RULE_SCALING else reason.code.value
    return msgspec.structs.replace(rule_memory, pending_occurrence=due, why=word), verdict(bound, reason, due=due)


def _unfinished(
    context: RuleContext, bound: SourceBound, rule_memory: RuleMemory
) -> tuple[RuleMemory, RuleVerdict | None]:
    """Handle an occurrence whose nodes have not all arrived: missing nodes are added if nothing else changes in the
    pool."""
    lacks = rule_memory.target_size - bound.pool.size
    held = _held(context, bound)
    settled = held is None or held.code not in {ReasonCode.RULE_SCALING, ReasonCode.GROUP_UNREADABLE}
    if abs(context.state.now - rule_memory.last_scaled_at) > LATE or (
        settled and (lacks <= 0 or _taken_away(context, bound, rule_memory))
    ):
        return msgspec.structs.replace(rule_memory, target_size=0), None
    context.taken.setdefault(bound.pool.id, bound.rule.key)
    if held is not None:
        return rule_memory, verdict(bound, held, due=rule_memory.last_occurrence)
    # Never more than the rule adds: groups that could not be read make a pool look smaller than it is.
    given = context.give(bound, FixedCount(min(lacks, bound.rule.add)))
    return rule_memory, verdict(bound, given.stop, nodes=given.total, due=rule_memory.last_occurrence)


def _taken_away(context: RuleContext, bound: SourceBound, rule_memory: RuleMemory) -> bool:
    """Return whether the pool is smaller because nodes were removed since, and not because some failed to arrive."""
    groups = [context.state.groups[name].memory for name in bound.pool.groups]
    failed = any(each.backoff is not None and each.backoff.last_failed >= rule_memory.last_scaled_at for each in groups)
    return not failed and any(each.last_delete > rule_memory.last_scaled_at for each in groups)
