"""Compares one pass with the last one: what the other autoscaler did, what our plans
wanted, and what is still open.

The result is the next row. A growth is judged in two steps, because the planner must be asked:
`advance` returns the episode that is over, and `answered` records our plan for the state before it.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.prices import price_book
from chalicelib.shadow import verdicts
from chalicelib.shadow.cooldowns import cooldown_end, given_up
from chalicelib.shadow.episodes import (
    Ask,
    begun,
    dated,
    first_wanted,
    held_back,
    hindrance,
    is_drawn,
    known_difference,
    pods_gone,
    uids_wanted,
    wanted_by_passes,
    watched,
    with_answer,
    without_failed,
)
from chalicelib.shadow.observed import (
    LATE,
    Pass,
    RemovedNode,
    confirmed,
    growths,
    observe,
    removals,
)
from chalicelib.shadow.outages import (
    after_restart,
    hold,
    outside,
    passes_between,
    release,
    restarted_at,
    stopped_at,
    without_outage,
)
from chalicelib.shadow.rebuild import Rebuilt
from chalicelib.shadow.records import (
    AGREEING,
    GROWTH,
    MOST_PODS,
    MOST_TRACKED,
    REMOVAL,
    Episode,
    Growth,
    Ledger,
    Match,
    Observation,
    ShadowVerdict,
    WantedNodes,
    add,
    joined,
    latest,
    match_id,
    on_day,
    sample,
    trimmed,
)
from chalicelib.shadow.verdicts import Judged, Situation, cause

EXTRA_AFTER = 120.0
"""Seconds within which the other autoscaler may follow a growth of our plans."""
EXTRA_PASSES = 2
_REST_MATTERS = 3600.0
"""Seconds for which the end of a node's rest can explain a later removal."""
WAITS = 600.0
"""Seconds after which a row that differs in its counters only is written again."""


class Step(msgspec.Struct, frozen=True):
    """The next row, and the episode about which the planner must be asked, if one is over."""

    ledger: Ledger
    question: Episode | None = None


def advance(ledger: Ledger | None, this_pass: Pass) -> Step:
    """Return the row after this pass."""
    if ledger is None:
        observation = observe(this_pass)
        first = Ledger(this_pass.at, observation)
        return Step(_wanted_nodes(_planned_removals(first, observation, this_pass), this_pass))
    last = ledger.seen
    if this_pass.at <= last.at:
        return Step(ledger)
    observation = observe(this_pass, last)
    if this_pass.before.watching_since > last.at:
        return Step(_observed_anew(ledger, observation, this_pass))
    began, stopped = restarted_at(last, observation.soft, this_pass), stopped_at(last, this_pass)
    # the other autoscaler was not running: the time counts nowhere
    if observation.dead or last.dead:
        ledger, question = without_outage(ledger, this_pass, stopped)
        silent_since = last.at if last.dead else max(stopped, ledger.first)
        ledger = msgspec.structs.replace(ledger, restarted=began or ledger.restarted)
        return Step(
            _with_observation(ledger, observation, this_pass, dead=this_pass.at - silent_since),
            question,
        )
    new_growths, silent = growths(last, this_pass), 0.0
    if began:
        ledger, new_growths = (
            after_restart(ledger, stopped, began),
            outside(new_growths, stopped, began),
        )
        silent = max(0.0, began - max(stopped, ledger.first))
    ledger = _judge_removals(ledger, this_pass)
    ledger = _planned_removals(ledger, observation, this_pass)
    ledger, question = _continue_episode(ledger, new_growths, this_pass)
    ledger = _wanted_nodes(ledger, this_pass)
    is_silent = this_pass.at - this_pass.known_until(last) > LATE
    if (observation.soft or not observation.candidates) and not is_silent:
        own_nodes, their_nodes = _unneeded_nodes(observation, this_pass)
        ledger = sample(ledger, own_nodes, their_nodes, this_pass.at)
    return Step(_with_observation(ledger, observation, this_pass, dead=silent), question)


def _observed_anew(ledger: Ledger, observation: Observation, this_pass: Pass) -> Ledger:
    """Return the ledger after a time in which passes acted, or there were none: it is
    no part of the comparison."""
    last = msgspec.structs.replace(ledger.seen, token=max(0, observation.token - 1))
    anew = msgspec.structs.replace(
        ledger,
        seen=last,
        episode=None,
        wanted=None,
        planned={},
        reported={},
        deleting={},
        removing={},
        held=(),
        acted=0.0,
        restarted=0.0,
        resumed=this_pass.at,
    )
    anew = _with_observation(anew, observation, this_pass, dead=this_pass.at - last.at)
    return _wanted_nodes(_planned_removals(anew, observation, this_pass), this_pass)


def _unneeded_nodes(observation: Observation, this_pass: Pass) -> tuple[set[str], set[str]]:
    """Return the nodes that are unneeded for our plan, and those that are for the other
    autoscaler. Those that are so since less than one interval, for either, are left out: both do
    not look at the same instant."""
    known, latest_begin = this_pass.before.nodes, this_pass.at - verdicts.INTERVAL
    own_nodes, their_nodes = set(this_pass.plan.unneeded), set(observation.soft)
    young = {node for node in their_nodes if observation.soft[node] > latest_begin}
    young |= {
        node for node in own_nodes if not 0.0 < _unneeded_since(known.get(node)) <= latest_begin
    }
    return own_nodes - young, their_nodes - young


def _unneeded_since(memory: NodeMemory | None) -> float:
    return memory.unneeded_since if memory is not None else 0.0


def _with_observation(
    ledger: Ledger, observation: Observation, this_pass: Pass, *, dead: float = 0.0
) -> Ledger:
    passes = passes_between(ledger.seen, this_pass)
    ledger = trimmed(on_day(ledger, observation.at, dead=dead, passes=passes), observation.at)
    return msgspec.structs.replace(ledger, seen=observation)


def worth_writing(old_ledger: Ledger | None, new_ledger: Ledger) -> bool:
    """Return whether the row must be written: something other than its counters changed, or they
    are old. A sample of the overlap is written at once: taken again at the next change, it would
    show autoscalers that are out of step."""
    if old_ledger is None or new_ledger.seen.at - old_ledger.seen.at >= WAITS:
        return True
    return _without_counters(old_ledger) != _without_counters(new_ledger)


def _without_counters(ledger: Ledger) -> Ledger:
    seen = msgspec.structs.replace(ledger.seen, at=0.0, token=0, alive=0.0)
    wanted = ledger.wanted and msgspec.structs.replace(
        ledger.wanted, passes=min(ledger.wanted.passes, EXTRA_PASSES)
    )
    return msgspec.structs.replace(ledger, seen=seen, wanted=wanted, days={})


# -- removals --------------------------------------------------------------------------------------


def _judge_removals(ledger: Ledger, this_pass: Pass) -> Ledger:
    """Return the ledger with the removals that are over. A removal is judged when it begins, and
    counts when its node does not exist any more, because the other autoscaler gives some up."""
    existing, failed = this_pass.node_names, set(given_up(ledger, this_pass))
    deleting = {
        node: at for node, at in ledger.deleting.items() if node in existing and node not in failed
    }
    removing = {node: match for node, match in ledger.removing.items() if node not in failed}
    for removed_node in removals(ledger.seen, ledger.deleting, this_pass):
        removing[removed_node.node] = _removal_match(ledger, removed_node, this_pass)
        if removed_node.node in existing:
            deleting[removed_node.node] = removed_node.at
    matches = [match for node, match in removing.items() if node not in existing]
    # Our removal would have failed like the other's: its time begins anew.
    remaining = existing - failed
    ledger = msgspec.structs.replace(
        ledger,
        deleting=latest(deleting),
        removing={node: match for node, match in removing.items() if node in deleting},
        planned={node: at for node, at in ledger.planned.items() if node in remaining},
        rechecks=_rechecks(ledger, this_pass),
        reported={node: at for node, at in ledger.reported.items() if node in existing},
    )
    return release(hold(ledger, tuple(matches)), this_pass.known_until(ledger.seen), this_pass.at)


def _removal_match(ledger: Ledger, removed_node: RemovedNode, this_pass: Pass) -> Match:
    node, at = removed_node.node, removed_node.at
    name = match_id(REMOVAL, at, node)
    if not removed_node.confirmed:
        return Match(name, REMOVAL, at, ShadowVerdict.SOMEBODY, node)
    memory = this_pass.before.nodes.get(node)
    planned = ledger.planned.get(node, ledger.reported.get(node))
    options = this_pass.policy.options
    groups = (group for group in this_pass.snapshot.groups if group.id == removed_node.group)
    own_time = next((group.options.scale_down_unneeded_time for group in groups), None)
    patience = options.scale_down_unneeded_time if own_time is None else own_time
    rested = cooldown_end(this_pass.before, removed_node.group, options)
    judged = verdicts.removal(removed_node, planned, memory, ledger.seen, patience, rested)
    unneeded_since = (memory.unneeded_since if memory else 0.0) or planned or 0.0
    restart = (
        ledger.restarted if unneeded_since and unneeded_since <= ledger.restarted <= at else 0.0
    )
    lacks_place = judged.verdict is ShadowVerdict.REFUSED and _rest_without_place(memory) > 0.0
    instead = _other_node(ledger, removed_node, this_pass) if lacks_place else ""
    situation = msgspec.structs.replace(
        _situation(this_pass, judged.apart, restarted=restart, own=judged.own),
        instead=instead,
        looked_again=_looked_again(ledger, memory, node, judged.verdict),
    )
    why = "" if judged.verdict in AGREEING else cause(situation)
    lead = None if judged.apart is None else round(judged.apart, 1)
    return Match(
        name,
        REMOVAL,
        at,
        judged.verdict,
        node,
        detail=judged.detail,
        cause=why,
        lead=lead,
        instead=instead,
    )


def _other_node(ledger: Ledger, removed_node: RemovedNode, this_pass: Pass) -> str:
    """Return the node of the same group that our plan removes, and the other autoscaler does not;
    "" without one. It is the counterpart of one removal only."""
    own_nodes = set(this_pass.plan.unneeded) | ledger.planned.keys()
    their_nodes = ledger.seen.soft.keys() | ledger.deleting.keys()
    counterparts = {
        match.instead for match in (*ledger.matches, *ledger.removing.values(), *ledger.held)
    }
    group_nodes = ledger.seen.nodes.get(removed_node.group, ())
    return min(
        (own_nodes & this_pass.node_names & set(group_nodes)) - their_nodes - counterparts,
        default="",
    )


def _looked_again(
    ledger: Ledger, memory: NodeMemory | None, node: str, verdict: ShadowVerdict
) -> float:
    """Return when our plan looks at a node again whose pods had no place at its last look, 0.0 if
    that explains nothing. Each autoscaler rests from its own last look on."""
    if memory is None:
        return 0.0
    if verdict is ShadowVerdict.REFUSED:
        return _rest_without_place(memory)
    rested = ledger.rechecks.get(node, 0.0)
    is_cause = (
        verdict is ShadowVerdict.LATER and 0.0 <= memory.unneeded_since - rested <= verdicts.CLOSE
    )
    return rested if is_cause else 0.0


def _rest_without_place(memory: NodeMemory | None) -> float:
    """Return until when our plan does not look at a node again whose pods had no
    place, 0.0 for any other node."""
    has_no_place = (
        memory is not None
        and memory.why is not None
        and memory.why.code is ReasonCode.NO_PLACE_TO_MOVE_PODS
    )
    return memory.unremovable_until if memory is not None and has_no_place else 0.0


def _rechecks(ledger: Ledger, this_pass: Pass) -> dict[str, float]:
    """Return until when our plan does not look at nodes again that the other autoscaler may remove,
    with those whose rest ended an hour ago at most."""
    candidates = {node: this_pass.before.nodes.get(node) for node in ledger.seen.soft}
    rests = {
        node: rest
        for node, memory in candidates.items()
        if (rest := _rest_without_place(memory)) > 0.0
    }
    recent = {
        node: until
        for node, until in ledger.rechecks.items()
        if until > this_pass.at - _REST_MATTERS
    }
    return latest(
        {node: until for node, until in (recent | rests).items() if node in this_pass.node_names}
    )


def _planned_removals(ledger: Ledger, observation: Observation, this_pass: Pass) -> Ledger:
    """Return the ledger with the nodes that our plan removes; those that the other autoscaler keeps
    for half an hour longer are the dangerous class."""
    planned, reported = dict(ledger.planned), dict(ledger.reported)
    pods_of = {removal.node: removal.evict for removal in this_pass.plan.removals}
    for node in pods_of:
        if (
            node not in ledger.reported
            and node not in ledger.deleting
            and len(planned) < MOST_TRACKED
        ):
            planned.setdefault(node, this_pass.at)
    matches = []
    known_until = this_pass.known_until(ledger.seen)
    for node, at in sorted(planned.items()):
        if (
            node not in ledger.deleting
            and known_until - max(at, ledger.restarted) >= verdicts.WINDOW
        ):
            pods = pods_of.get(node, ())
            moved = (
                f"pods: {', '.join(pods[:3])}{' …' if len(pods) > 3 else ''}"
                if pods
                else "no pods to move"
            )
            taint = (
                "it has Cluster Autoscaler's soft taint"
                if node in observation.soft
                else "no soft taint"
            )
            memory = this_pass.before.nodes.get(node)
            unneeded_since = (memory.unneeded_since if memory else 0.0) or at
            restart = ledger.restarted if ledger.restarted >= unneeded_since else 0.0
            situation = msgspec.structs.replace(
                _situation(this_pass, restarted=restart), instead=_counterpart(ledger, node)
            )
            match = Match(
                match_id(REMOVAL, at, node),
                REMOVAL,
                at,
                ShadowVerdict.ONLY_OURS,
                node,
                detail=f"{moved}; {taint}",
                cause=cause(situation),
            )
            matches.append(match)
            reported[node] = planned.pop(node)
    return add(
        msgspec.structs.replace(ledger, planned=planned, reported=latest(reported)), *matches
    )


def _counterpart(ledger: Ledger, node: str) -> str:
    """Return the node that the other autoscaler removed in the place of
    this one, "" without one."""
    matches = (*ledger.matches, *ledger.removing.values(), *ledger.held)
    return next((match.node for match in matches if match.instead == node), "")


# -- growths ---------------------------------------------------------------------------------------


def _continue_episode(
    ledger: Ledger, new_growths: tuple[Growth, ...], this_pass: Pass
) -> tuple[Ledger, Episode | None]:
    """Return the ledger with the open episode, and the episode that is over."""
    episode, question, last = ledger.episode, None, ledger.seen
    if episode is not None:
        checked = tuple(confirmed(growth, this_pass) for growth in episode.growths)
        episode = msgspec.structs.replace(episode, growths=checked)
        if episode.is_settled and not episode.is_continued_by(new_growths, this_pass.at):
            question, episode = episode, None
    begins = episode is None
    new_growths = tuple(dated(growth, last.at, this_pass) for growth in new_growths)
    episode = joined(episode, new_growths, last.at, this_pass.at)
    if episode is not None:
        episode = watched(begun(episode, ledger.wanted) if begins else episode, this_pass)
    acted = max((growth.at for growth in new_growths), default=ledger.acted)
    ledger = msgspec.structs.replace(ledger, episode=episode, acted=acted)
    if question is None:
        return ledger, None
    ledger, question = _without_somebody(ledger, question)
    if question is not None:
        question = without_failed(watched(question, this_pass), this_pass)
    return ledger, question


def _without_somebody(ledger: Ledger, episode: Episode) -> tuple[Ledger, Episode | None]:
    """Return the ledger with the growths of the episode that somebody else made, and the rest of
    the episode, which is compared, if there is one."""
    others = tuple(growth for growth in episode.growths if growth.is_others)
    somebodys = tuple(growth for growth in episode.growths if not growth.is_others)
    if somebodys:
        match = _growth_match(
            msgspec.structs.replace(episode, growths=somebodys), ShadowVerdict.SOMEBODY
        )
        ledger = add(ledger, match)
    if not others:
        return ledger, None
    rest = msgspec.structs.replace(episode, growths=others)
    later = tuple(growth for growth in somebodys if growth.at >= rest.began)
    return ledger, msgspec.structs.replace(rest, besides=later)


def open_question(ledger: Ledger) -> Episode | None:
    """Return the open episode if the planner has not been asked about all its growths yet. Its pods
    may have ended when it is over."""
    episode = ledger.episode
    return episode if episode is not None and episode.asked < len(episode.growths) else None


def answered_early(
    ledger: Ledger, plan: Plan, rebuilt: Rebuilt, this_pass: Pass, ask: Ask | None = None
) -> Ledger:
    """Return the ledger with our plan for the state before the open episode."""
    if ledger.episode is None:
        return ledger
    episode = with_answer(ledger.episode, plan, rebuilt, this_pass, ask)
    return msgspec.structs.replace(ledger, episode=episode)


def postponed(ledger: Ledger, episode: Episode) -> Ledger:
    """Return the ledger with the episode open again, because this pass has no time to ask the
    planner. An episode that began in the meantime continues it."""
    later_growths = ledger.episode.growths if ledger.episode else ()
    return msgspec.structs.replace(
        ledger, episode=joined(episode, later_growths, episode.since, episode.noticed)
    )


def answered(
    ledger: Ledger,
    episode: Episode,
    plan: Plan,
    rebuilt: Rebuilt,
    this_pass: Pass,
    ask: Ask | None = None,
) -> Ledger:
    """Return the ledger with the verdict of an episode. plan: ours for the rebuilt state. ask: asks
    the planner again, to know a tie."""
    judged, gone = _judged(episode, plan, rebuilt, this_pass)
    judged, why = _explained(judged, gone, episode, rebuilt, this_pass, ask)
    lead = episode.began - (first_wanted(episode, this_pass) or episode.noticed)
    match = msgspec.structs.replace(
        _growth_match(episode, judged.verdict),
        ours=judged.ours,
        detail=judged.detail,
        cause=why,
        approximate=rebuilt.approximate,
        lead=round(lead, 1) if judged.ours else None,
        costs=_costs(judged.ours, episode.sizes, this_pass),
    )
    return trimmed(add(ledger, match), this_pass.at)


def _draws(this_pass: Pass) -> bool:
    return this_pass.policy.options.expander[:1] == ("random",)


def _judged(episode: Episode, plan: Plan, rebuilt: Rebuilt, this_pass: Pass) -> tuple[Judged, str]:
    """Return the verdict, and which pods are gone. Where the rebuilt state has lost pods, the plans
    decide that were made while they waited."""
    theirs, random = episode.sizes, _draws(this_pass)
    judged, gone = (
        verdicts.growth(theirs, plan, rebuilt.pods, random=random),
        pods_gone(episode, rebuilt),
    )
    if judged.verdict in AGREEING or not gone:
        return judged, gone
    ours = wanted_by_passes(episode, this_pass)
    if not ours or sum(ours.values()) < sum(judged.ours.values()):
        return judged, gone
    verdict = verdicts.size_verdict(theirs, ours, random=random)
    return Judged(verdict, "by the plans that were made while its pods waited", ours), gone


def _explained(
    judged: Judged, gone: str, episode: Episode, rebuilt: Rebuilt, this_pass: Pass, ask: Ask | None
) -> tuple[Judged, str]:
    """Return the verdict with its cause. A tie that the other autoscaler draws
    is no difference of sizes."""
    if judged.verdict in AGREEING:
        return judged, ""
    theirs, ours, random = episode.sizes, judged.ours, _draws(this_pass)
    known = known_difference(episode, ours, rebuilt, this_pass)
    drawn = False
    if ours and not (random or known):
        drawn_before = bool(gone) and episode.drawn
        drawn = drawn_before or is_drawn(theirs, ours, rebuilt, this_pass.policy, ask)
    if drawn and judged.verdict is ShadowVerdict.CHOICE:
        return msgspec.structs.replace(judged, verdict=ShadowVerdict.SAME_SIZE), ""
    situation = msgspec.structs.replace(
        _situation(this_pass, random=random, known=known, own=judged.own),
        drawn=drawn,
        gone=gone if sum(ours.values()) < sum(theirs.values()) else "",
        reserved=_reserves_more(ours.keys() | theirs.keys(), this_pass),
    )
    return judged, cause(situation)


def _growth_match(episode: Episode, verdict: ShadowVerdict) -> Match:
    theirs = episode.sizes
    name = match_id(GROWTH, episode.began, ",".join(theirs))
    return Match(name, GROWTH, episode.began, verdict, theirs=theirs)


def _wanted_nodes(ledger: Ledger, this_pass: Pass) -> Ledger:
    """Return the ledger with the nodes that our plans want; it is a difference if the other
    autoscaler does nothing for them."""
    increases = this_pass.plan.scale_ups
    groups = {increase.group: increase.to_size - increase.from_size for increase in increases}
    if not groups or ledger.episode is not None:
        return msgspec.structs.replace(ledger, wanted=None)
    pods_of = uids_wanted(this_pass.plan, this_pass.snapshot.pods)
    before = ledger.wanted
    if before is None:
        pods = tuple(uid for uids in pods_of.values() for uid in uids)[:MOST_PODS]
        starts = dict.fromkeys(groups, this_pass.at)
        new = WantedNodes(this_pass.at, groups, pods=pods, starts=starts, pods_of=pods_of)
        return msgspec.structs.replace(ledger, wanted=new)
    starts = {name: before.starts.get(name, this_pass.at) for name in groups}
    wanted = WantedNodes(
        before.since, groups, before.passes + 1, before.told, before.pods, starts, pods_of
    )
    waited = this_pass.known_until(ledger.seen) - wanted.since
    if not wanted.told and wanted.passes >= EXTRA_PASSES and waited >= EXTRA_AFTER:
        match = Match(
            match_id(GROWTH, wanted.since, ",".join(sorted(groups))),
            GROWTH,
            wanted.since,
            ShadowVerdict.EXTRA,
            ours=dict(sorted(groups.items())),
            detail=f"for {', '.join(increases[0].pods[:3])}"[:200],
            cause=cause(_situation(this_pass, known=_reported_hindrance(this_pass, groups))),
            costs=_costs(groups, {}, this_pass),
        )
        ledger, wanted = add(ledger, match), msgspec.structs.replace(wanted, told=True)
    return msgspec.structs.replace(ledger, wanted=wanted)


def _costs(
    ours: dict[str, int], theirs: dict[str, int], this_pass: Pass
) -> tuple[float, float] | None:
    """Return the hourly costs of both, None if a price is unknown."""
    prices: dict[str, float] = {}
    book = price_book(
        this_pass.policy.prices, this_pass.snapshot.groups, spot=this_pass.policy.spot is not None
    )
    nodes = {node.provider_id: node for node in this_pass.snapshot.nodes if node.provider_id}
    for group in this_pass.snapshot.groups:
        if group.id in ours or group.id in theirs:
            real_nodes = (
                nodes[instance.id] for instance in group.instances if instance.id in nodes
            )
            node = group.template or next(real_nodes, None)
            price = book.hourly(node, group) if node is not None else None
            if price is not None:
                prices[group.id] = price
    if not ours.keys() | theirs.keys() <= prices.keys():
        return None
    own_cost, their_cost = (
        sum(prices[name] * count for name, count in sizes.items()) for sizes in (ours, theirs)
    )
    return round(own_cost, 6), round(their_cost, 6)


def _reported_hindrance(this_pass: Pass, groups: dict[str, int]) -> str:
    """Return why the other autoscaler does not grow these groups, by its own status;
    "" where it does not say."""
    return hindrance(held_back(this_pass), groups)


def _reserves_more(groups: Set[str], this_pass: Pass) -> bool:
    """Return whether a node of these groups offers less CPU or memory than the
    group's template promises."""
    nodes = {node.provider_id: node for node in this_pass.snapshot.nodes if node.provider_id}
    return any(
        nodes[instance.id].allocatable.get(name, 0) < group.template.allocatable.get(name, 0)
        for group in this_pass.snapshot.groups
        if group.id in groups and group.template is not None
        for instance in group.instances
        if instance.id in nodes
        for name in ("cpu", "memory")
    )


def _situation(
    this_pass: Pass,
    apart: float | None = None,
    *,
    restarted: float = 0.0,
    random: bool = False,
    known: str = "",
    own: str = "",
) -> Situation:
    gaps = tuple(sorted({gap.kind for gap in this_pass.snapshot.gaps}))
    return Situation(
        random=random, apart=apart, gaps=gaps, restarted=restarted, known=known, own=own
    )
