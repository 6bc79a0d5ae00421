"""Compares one pass with the last one: what the other autoscaler did, what our plans wanted, and what is still open.

The result is the next row. A growth is judged in two steps, because the planner must be asked: `advance` returns the
episode that is over, and `answered` records our plan for the state before it.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.plan import Plan
from chalicelib.plan.prices import node_price
from chalicelib.shadow import acts, episodes, verdicts
from chalicelib.shadow.causes import Situation, cause
from chalicelib.shadow.observed import Pass, observe
from chalicelib.shadow.rebuild import Rebuilt
from chalicelib.shadow.records import (
    AGREEING,
    GROWTH,
    MOST_TRACKED,
    REMOVAL,
    Episode,
    Growth,
    Ledger,
    Match,
    ShadowVerdict,
    Wanted,
    match_id,
)
from chalicelib.shadow.tally import add, on_day, sample, trimmed

EXTRA_AFTER = 120.0
"""Seconds within which the other autoscaler may follow a growth of our plans."""
EXTRA_PASSES = 2
HELD_BACK = ("Backoff", "Unhealthy")
"""Status of a group that the other autoscaler does not grow for now."""
WAITS = 600.0
"""Seconds after which a row that differs in its counters only is written again."""


class Step(msgspec.Struct, frozen=True):
    """The next row, and the episode about which the planner must be asked, if one is over."""

    ledger: Ledger
    question: Episode | None = None


def advance(ledger: Ledger | None, this_pass: Pass) -> Step:
    """Return the row after this pass."""
    seen = observe(this_pass)
    if ledger is None:
        return Step(_wanted(_only_ours(Ledger(this_pass.at, seen), this_pass), this_pass))
    last = ledger.seen
    if this_pass.at <= last.at:
        return Step(ledger)
    if seen.dead or last.dead:
        return Step(_without_comparison(ledger, this_pass))
    grown = acts.growths(last, this_pass)
    if acts.restarted(last, seen.soft):
        ledger = msgspec.structs.replace(
            ledger, restarted=this_pass.status.at if this_pass.status and this_pass.status.at else this_pass.at
        )
    ledger = _removals(ledger, this_pass)
    ledger = _only_ours(ledger, this_pass)
    ledger, question = _episode(ledger, grown, this_pass)
    ledger = _wanted(ledger, this_pass)
    if seen.soft or not seen.candidates:
        ledger = sample(ledger, set(this_pass.plan.unneeded), set(seen.soft), this_pass.at)
    return Step(_seen(ledger, this_pass), question)


def _seen(ledger: Ledger, this_pass: Pass, *, dead: float = 0.0) -> Ledger:
    seen = observe(this_pass)
    passes = max(1, min(seen.token - ledger.seen.token, 1000)) if seen.token else 1
    return msgspec.structs.replace(
        trimmed(on_day(ledger, this_pass.at, dead=dead, passes=passes), this_pass.at), seen=seen
    )


def _without_comparison(ledger: Ledger, this_pass: Pass) -> Ledger:
    """Return the row after a pass during which the other autoscaler was not running: its time counts nowhere."""
    ledger = msgspec.structs.replace(ledger, episode=None, wanted=None, planned={})
    return _seen(ledger, this_pass, dead=this_pass.at - ledger.seen.at)


def worth_writing(old_ledger: Ledger | None, new_ledger: Ledger) -> bool:
    """Return whether the row must be written: something other than its counters changed, or they are old."""
    if old_ledger is None or new_ledger.seen.at - old_ledger.seen.at >= WAITS:
        return True
    return _essence(old_ledger) != _essence(new_ledger)


def _essence(ledger: Ledger) -> Ledger:
    seen = msgspec.structs.replace(ledger.seen, at=0.0, token=0)
    wanted = ledger.wanted and msgspec.structs.replace(ledger.wanted, passes=min(ledger.wanted.passes, EXTRA_PASSES))
    return msgspec.structs.replace(ledger, seen=seen, wanted=wanted, days={}, sampled=0.0)


# -- removals


def _removals(ledger: Ledger, this_pass: Pass) -> Ledger:
    here = {node.name for node in this_pass.snapshot.nodes}
    deleting = {node: at for node, at in ledger.deleting.items() if node in here}
    found = []
    for act in acts.removals(ledger.seen, ledger.deleting, this_pass):
        if act.node in here:
            deleting[act.node] = act.at
        found.append(_judged_removal(ledger, act, this_pass))
    gone = {match.node for match in found}
    planned = {node: at for node, at in ledger.planned.items() if node in here and node not in gone}
    reported = {node: at for node, at in ledger.reported.items() if node in here and node not in gone}
    deleting = dict(sorted(deleting.items(), key=lambda item: item[1])[-MOST_TRACKED:])
    return add(msgspec.structs.replace(ledger, deleting=deleting, planned=planned, reported=reported), *found)


def _judged_removal(ledger: Ledger, act: acts.RemovedNode, this_pass: Pass) -> Match:
    name = match_id(REMOVAL, act.at, act.node)
    if not act.confirmed:
        return Match(name, REMOVAL, act.at, ShadowVerdict.SOMEBODY, act.node)
    known: NodeMemory | None = this_pass.before.nodes.get(act.node)
    planned = ledger.planned.get(act.node, ledger.reported.get(act.node))
    judged = verdicts.removal(act, planned, known, ledger.seen, _patience(act.group, this_pass))
    began = (known.unneeded_since if known else 0.0) or planned or 0.0
    restarted = ledger.restarted if began and began <= ledger.restarted <= act.at else 0.0
    why = "" if judged.verdict in AGREEING else cause(_situation(this_pass, judged.apart, restarted=restarted))
    return Match(name, REMOVAL, act.at, judged.verdict, act.node, detail=judged.detail, cause=why, lead=judged.apart)


def _patience(group_id: str, this_pass: Pass) -> float:
    own = next(
        (group.options.scale_down_unneeded_time for group in this_pass.snapshot.groups if group.id == group_id), None
    )
    return this_pass.policy.options.scale_down_unneeded_time if own is None else own


def _only_ours(ledger: Ledger, this_pass: Pass) -> Ledger:
    """Return the ledger with the nodes that our plan removes; those that the other autoscaler keeps for half an hour
    longer are the dangerous class."""
    planned = dict(ledger.planned)
    evicted = {removal.node: removal.evict for removal in this_pass.plan.removals}
    for node in evicted:
        if node not in ledger.reported and node not in ledger.deleting and len(planned) < MOST_TRACKED:
            planned.setdefault(node, this_pass.at)
    reported = dict(ledger.reported)
    found = []
    for node, at in sorted(planned.items()):
        if this_pass.at - at >= verdicts.WINDOW:
            found.append(_kept_by_them(ledger, node, at, evicted.get(node, ()), this_pass))
            reported[node] = at
            del planned[node]
    reported = dict(sorted(reported.items(), key=lambda item: item[1])[-MOST_TRACKED:])
    return add(msgspec.structs.replace(ledger, planned=planned, reported=reported), *found)


def _kept_by_them(ledger: Ledger, node: str, at: float, pods: tuple[str, ...], this_pass: Pass) -> Match:
    soft = observe(this_pass).soft.get(node)
    told = [f"pods: {', '.join(pods[:3])}{' …' if len(pods) > 3 else ''}" if pods else "no pods to move"]
    told.append("it has Cluster Autoscaler's soft taint" if soft is not None else "no soft taint")
    known = this_pass.before.nodes.get(node)
    began = (known.unneeded_since if known else 0.0) or at
    restarted = ledger.restarted if ledger.restarted >= began else 0.0
    why = cause(_situation(this_pass, restarted=restarted))
    return Match(
        match_id(REMOVAL, at, node), REMOVAL, at, ShadowVerdict.ONLY_OURS, node, detail="; ".join(told), cause=why
    )


# -- growths


def _episode(ledger: Ledger, grown: tuple[Growth, ...], this_pass: Pass) -> tuple[Ledger, Episode | None]:
    """Return the ledger with the open episode, and the episode that is over."""
    episode, question, last = ledger.episode, None, ledger.seen
    if episode is not None:
        checked = tuple(acts.confirmed(each, this_pass, episode.since) for each in episode.growths)
        episode = msgspec.structs.replace(episode, growths=checked)
        if not episodes.follows(episode, grown) or (not grown and episodes.is_over(episode, this_pass.at)):
            question, episode = episode, None
    new = episode is None
    episode = episodes.joined(episode, grown, last.at, this_pass.at)
    if episode is not None and new and ledger.wanted is not None:
        episode = msgspec.structs.replace(episode, wanted_at=ledger.wanted.since, pods=ledger.wanted.pods)
    acted = max((growth.at for growth in grown), default=ledger.acted)
    ledger = msgspec.structs.replace(ledger, episode=episode, acted=acted)
    if question is not None and episodes.is_somebody_elses(question):
        return add(ledger, _growth_match(question, ShadowVerdict.SOMEBODY)), None
    return ledger, question


def postponed(ledger: Ledger, episode: Episode) -> Ledger:
    """Return the ledger with the episode open again, because this pass has no time to ask the planner. An episode that
    began in the meantime continues it."""
    growths = ledger.episode.growths if ledger.episode else ()
    return msgspec.structs.replace(ledger, episode=episodes.joined(episode, growths, episode.since, episode.noticed))


def answered(ledger: Ledger, episode: Episode, plan: Plan, rebuilt: Rebuilt, this_pass: Pass) -> Ledger:
    """Return the ledger with the verdict of an episode. plan: ours for the rebuilt state."""
    random = _random(this_pass)
    theirs = episodes.sizes(episode)
    judged = verdicts.growth(theirs, plan, rebuilt.pods, random=random)
    lead = episode.began - (episode.wanted_at or episode.noticed)
    match = msgspec.structs.replace(
        _growth_match(episode, judged.verdict),
        ours=judged.ours,
        detail=judged.detail,
        cause=""
        if judged.verdict in AGREEING
        else cause(
            _situation(this_pass, random=random, reserved=_reserves_more(judged.ours.keys() | theirs.keys(), this_pass))
        ),
        approximate=rebuilt.approximate,
        lead=round(lead, 1) if judged.ours else None,
        costs=_costs(judged.ours, theirs, this_pass),
    )
    return trimmed(add(ledger, match), this_pass.at)


def _growth_match(episode: Episode, verdict: ShadowVerdict) -> Match:
    theirs = episodes.sizes(episode)
    name = match_id(GROWTH, episode.began, ",".join(theirs))
    return Match(name, GROWTH, episode.began, verdict, theirs=theirs)


def _wanted(ledger: Ledger, this_pass: Pass) -> Ledger:
    """Return the ledger with the nodes that our plans want; it is a difference if the other autoscaler does nothing
    for them."""
    groups = {up.group: up.to_size - up.from_size for up in this_pass.plan.scale_ups}
    if not groups or ledger.episode is not None:
        return msgspec.structs.replace(ledger, wanted=None)
    uids = {pod.key: pod.uid for pod in this_pass.snapshot.pods if not pod.node}
    pods = tuple(uids[key] for up in this_pass.plan.scale_ups for key in up.pods if key in uids)[: episodes.MOST_PODS]
    before = ledger.wanted
    if before is None:
        return msgspec.structs.replace(ledger, wanted=Wanted(this_pass.at, groups, pods=pods))
    wanted = Wanted(before.since, groups, before.passes + 1, before.told, before.pods)
    if not wanted.told and wanted.passes >= EXTRA_PASSES and this_pass.at - wanted.since >= EXTRA_AFTER:
        match = Match(
            match_id(GROWTH, wanted.since, ",".join(sorted(groups))),
            GROWTH,
            wanted.since,
            ShadowVerdict.EXTRA,
            ours=dict(sorted(groups.items())),
            detail=f"for {', '.join(this_pass.plan.scale_ups[0].pods[:3])}"[:200],
            cause=cause(_situation(this_pass, known=_held_back(this_pass, groups))),
            costs=_costs(groups, {}, this_pass),
        )
        ledger, wanted = add(ledger, match), msgspec.structs.replace(wanted, told=True)
    return msgspec.structs.replace(ledger, wanted=wanted)


def _costs(ours: dict[str, int], theirs: dict[str, int], this_pass: Pass) -> tuple[float, float] | None:
    """Return the hourly costs of both, None if a price is unknown."""
    prices: dict[str, float] = {}
    nodes = {node.provider_id: node for node in this_pass.snapshot.nodes if node.provider_id}
    for group in this_pass.snapshot.groups:
        if group.id in ours or group.id in theirs:
            node = group.template or next((nodes[each.id] for each in group.instances if each.id in nodes), None)
            price = node_price(node, this_pass.policy.prices, group.price) if node is not None else None
            if price is not None:
                prices[group.id] = price
    if not ours.keys() | theirs.keys() <= prices.keys():
        return None
    first, second = (sum(prices[name] * count for name, count in each.items()) for each in (ours, theirs))
    return round(first, 6), round(second, 6)


def _random(this_pass: Pass) -> bool:
    return this_pass.policy.options.expander[:1] == ("random",)


def _held_back(this_pass: Pass, groups: dict[str, int]) -> str:
    """Return why the other autoscaler does not grow these groups, by its own status; "" where it does not say."""
    found = {
        name: this_pass.status.groups[name].scale_up
        for name in groups
        if this_pass.status and name in this_pass.status.groups
    }
    told = [f"Cluster Autoscaler reports {word} of {name}" for name, word in found.items() if word in HELD_BACK]
    return "; ".join(told[:3])


def _reserves_more(groups: Set[str], this_pass: Pass) -> bool:
    """Return whether a node of these groups offers less CPU or memory than the group's template promises."""
    nodes = {node.provider_id: node for node in this_pass.snapshot.nodes if node.provider_id}
    return any(
        nodes[each.id].allocatable.get(name, 0) < group.template.allocatable.get(name, 0)
        for group in this_pass.snapshot.groups
        if group.id in groups and group.template is not None
        for each in group.instances
        if each.id in nodes
        for name in ("cpu", "memory")
    )


def _situation(
    this_pass: Pass,
    apart: float | None = None,
    *,
    restarted: float = 0.0,
    random: bool = False,
    known: str = "",
    reserved: bool = False,
) -> Situation:
    return Situation(
        random=random,
        apart=apart,
        gaps=tuple(sorted({gap.kind for gap in this_pass.snapshot.gaps})),
        restarted=restarted,
        known=known,
        reserved=reserved,
    )
