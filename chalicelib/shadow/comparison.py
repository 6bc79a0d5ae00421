"""Compares one pass with the last one: what the other autoscaler did, what our plans
wanted, and what is still open.

The result is the next row. A growth is judged in two steps, because the planner must be asked:
`advance` returns the episode that is over, and `answered` records our plan for the state before it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import Node
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
        first = _planned_removals(first, observation, this_pass)
        return Step(_wanted_nodes(first, this_pass))
    last = ledger.seen
    if this_pass.at <= last.at:
        return Step(ledger)
    observation = observe(this_pass, last)
    if this_pass.before.watching_since > last.at:
        return Step(_observed_anew(ledger, observation, this_pass))
    began = restarted_at(last, observation.soft, this_pass)
    stopped = stopped_at(last, this_pass)
    # the other autoscaler was not running: the time counts nowhere
    if observation.dead or last.dead:
        ledger, question = without_outage(ledger, this_pass, stopped)
        silent_since = last.at if last.dead else max(stopped, ledger.first)
        silence = this_pass.at - silent_since
        ledger = msgspec.structs.replace(ledger, restarted=began or ledger.restarted)
        return Step(_with_observation(ledger, observation, this_pass, dead=silence), question)
    new_growths = growths(last, this_pass)
    silence = 0.0
    if began:
        ledger = after_restart(ledger, stopped, began)
        new_growths = outside(new_growths, stopped, began)
        silent_since = max(stopped, ledger.first)
        silence = max(0.0, began - silent_since)
    ledger = _judge_removals(ledger, this_pass)
    ledger = _planned_removals(ledger, observation, this_pass)
    ledger, question = _continue_episode(ledger, new_growths, this_pass)
    ledger = _wanted_nodes(ledger, this_pass)
    is_silent = this_pass.at - this_pass.known_until(last) > LATE
    shows_unneeded = bool(observation.soft) or not observation.candidates
    if shows_unneeded and not is_silent:
        own_nodes, their_nodes = _unneeded_nodes(observation, this_pass)
        ledger = sample(ledger, own_nodes, their_nodes, this_pass.at)
    return Step(_with_observation(ledger, observation, this_pass, dead=silence), question)


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
    anew = _planned_removals(anew, observation, this_pass)
    return _wanted_nodes(anew, this_pass)


def _unneeded_nodes(observation: Observation, this_pass: Pass) -> tuple[set[str], set[str]]:
    """Return the nodes that are unneeded for our plan, and those that are for the other
    autoscaler. Those that are so since less than one interval, for either, are left out: both do
    not look at the same instant."""
    latest_begin = this_pass.at - verdicts.INTERVAL
    own_nodes = set(this_pass.plan.unneeded)
    their_nodes = set(observation.soft)
    young = {node for node in their_nodes if observation.soft[node] > latest_begin}
    for node in own_nodes:
        unneeded_since = _unneeded_since(this_pass.before.nodes.get(node))
        if not 0.0 < unneeded_since <= latest_begin:
            young.add(node)
    return own_nodes - young, their_nodes - young


def _unneeded_since(memory: NodeMemory | None) -> float:
    return memory.unneeded_since if memory is not None else 0.0


def _with_observation(
    ledger: Ledger, observation: Observation, this_pass: Pass, *, dead: float = 0.0
) -> Ledger:
    passes = passes_between(ledger.seen, this_pass)
    ledger = on_day(ledger, observation.at, dead=dead, passes=passes)
    ledger = trimmed(ledger, observation.at)
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
    wanted_nodes = ledger.wanted
    if wanted_nodes is not None:
        passes = min(wanted_nodes.passes, EXTRA_PASSES)
        wanted_nodes = msgspec.structs.replace(wanted_nodes, passes=passes)
    return msgspec.structs.replace(ledger, seen=seen, wanted=wanted_nodes, days={})


# -- removals --------------------------------------------------------------------------------------


def _judge_removals(ledger: Ledger, this_pass: Pass) -> Ledger:
    """Return the ledger with the removals that are over. A removal is judged when it begins, and
    counts when its node does not exist any more, because the other autoscaler gives some up."""
    existing = this_pass.node_names
    failed = set(given_up(ledger, this_pass))
    # Our removal would have failed like the other's: its time begins anew.
    remaining = existing - failed
    deleting = {node: at for node, at in ledger.deleting.items() if node in remaining}
    removing = {node: match for node, match in ledger.removing.items() if node not in failed}
    for removed_node in removals(ledger.seen, ledger.deleting, this_pass):
        node = removed_node.node
        removing[node] = _removal_match(ledger, removed_node, this_pass)
        if node in existing:
            deleting[node] = removed_node.at
    matches = tuple(match for node, match in removing.items() if node not in existing)
    ledger = msgspec.structs.replace(
        ledger,
        deleting=latest(deleting),
        removing={node: match for node, match in removing.items() if node in deleting},
        planned={node: at for node, at in ledger.planned.items() if node in remaining},
        rechecks=_rechecks(ledger, this_pass),
        reported={node: at for node, at in ledger.reported.items() if node in existing},
    )
    known_until = this_pass.known_until(ledger.seen)
    return release(hold(ledger, matches), known_until, this_pass.at)


def _removal_match(ledger: Ledger, removed_node: RemovedNode, this_pass: Pass) -> Match:
    node = removed_node.node
    at = removed_node.at
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
    unneeded_since = _unneeded_since(memory) or planned or 0.0
    is_restart_between = bool(unneeded_since) and unneeded_since <= ledger.restarted <= at
    restart = ledger.restarted if is_restart_between else 0.0
    is_refused = judged.verdict is ShadowVerdict.REFUSED
    lacks_place = is_refused and _rest_without_place(memory) > 0.0
    situation = msgspec.structs.replace(
        _situation(this_pass, judged.apart, restarted=restart, own=judged.own),
        instead=_other_node(ledger, removed_node, this_pass) if lacks_place else "",
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
        instead=situation.instead,
    )


def _other_node(ledger: Ledger, removed_node: RemovedNode, this_pass: Pass) -> str:
    """Return the node of the same group that our plan removes, and the other autoscaler does not;
    "" without one. It is the counterpart of one removal only."""
    own_nodes = set(this_pass.plan.unneeded) | ledger.planned.keys()
    their_nodes = ledger.seen.soft.keys() | ledger.deleting.keys()
    counterparts = {match.instead for match in _all_matches(ledger)}
    group_nodes = ledger.seen.nodes.get(removed_node.group, ())
    existing = this_pass.node_names.intersection(group_nodes)
    only_ours = (own_nodes & existing) - their_nodes
    return min(only_ours - counterparts, default="")


def _all_matches(ledger: Ledger) -> tuple[Match, ...]:
    return (*ledger.matches, *ledger.removing.values(), *ledger.held)


def _looked_again(
    ledger: Ledger, memory: NodeMemory | None, node: str, verdict: ShadowVerdict
) -> float:
    """Return when our plan looks at a node again whose pods had no place at its last look, 0.0 if
    that explains nothing. Each autoscaler rests from its own last look on."""
    if memory is None:
        return 0.0
    if verdict is ShadowVerdict.REFUSED:
        return _rest_without_place(memory)
    rested_until = ledger.rechecks.get(node, 0.0)
    is_close = 0.0 <= memory.unneeded_since - rested_until <= verdicts.CLOSE
    return rested_until if is_close and verdict is ShadowVerdict.LATER else 0.0


def _rest_without_place(memory: NodeMemory | None) -> float:
    """Return until when our plan does not look at a node again whose pods had no
    place, 0.0 for any other node."""
    if memory is None or memory.why is None:
        return 0.0
    has_no_place = memory.why.code is ReasonCode.NO_PLACE_TO_MOVE_PODS
    return memory.unremovable_until if has_no_place else 0.0


def _rechecks(ledger: Ledger, this_pass: Pass) -> dict[str, float]:
    """Return until when our plan does not look at nodes again that the other autoscaler may remove,
    with those whose rest ended an hour ago at most."""
    earliest_end = this_pass.at - _REST_MATTERS
    rests = {node: until for node, until in ledger.rechecks.items() if until > earliest_end}
    for node in ledger.seen.soft:
        rest = _rest_without_place(this_pass.before.nodes.get(node))
        if rest > 0.0:
            rests[node] = rest
    existing = this_pass.node_names
    return latest({node: until for node, until in rests.items() if node in existing})


def _planned_removals(ledger: Ledger, observation: Observation, this_pass: Pass) -> Ledger:
    """Return the ledger with the nodes that our plan removes; those that the other autoscaler keeps
    for half an hour longer are the dangerous class."""
    planned = dict(ledger.planned)
    reported = dict(ledger.reported)
    pods_of = {removal.node: removal.evict for removal in this_pass.plan.removals}
    for node in pods_of:
        is_tracked = node in ledger.reported or node in ledger.deleting
        if not is_tracked and len(planned) < MOST_TRACKED:
            planned.setdefault(node, this_pass.at)
    matches = []
    known_until = this_pass.known_until(ledger.seen)
    for node, at in sorted(planned.items()):
        seconds_alone = known_until - max(at, ledger.restarted)
        if node in ledger.deleting or seconds_alone < verdicts.WINDOW:
            continue
        has_soft_taint = node in observation.soft
        taint = "it has Cluster Autoscaler's soft taint" if has_soft_taint else "no soft taint"
        unneeded_since = _unneeded_since(this_pass.before.nodes.get(node)) or at
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
            detail=f"{_moving_pods(pods_of.get(node, ()))}; {taint}",
            cause=cause(situation),
        )
        matches.append(match)
        reported[node] = planned.pop(node)
    ledger = msgspec.structs.replace(ledger, planned=planned, reported=latest(reported))
    return add(ledger, *matches)


def _moving_pods(pods: Sequence[str]) -> str:
    if not pods:
        return "no pods to move"
    more = " …" if len(pods) > 3 else ""
    return f"pods: {', '.join(pods[:3])}{more}"


def _counterpart(ledger: Ledger, node: str) -> str:
    """Return the node that the other autoscaler removed in the place of
    this one, "" without one."""
    names = (match.node for match in _all_matches(ledger) if match.instead == node)
    return next(names, "")


# -- growths ---------------------------------------------------------------------------------------


def _continue_episode(
    ledger: Ledger, new_growths: tuple[Growth, ...], this_pass: Pass
) -> tuple[Ledger, Episode | None]:
    """Return the ledger with the open episode, and the episode that is over."""
    episode = ledger.episode
    question = None
    if episode is not None:
        checked = tuple(confirmed(growth, this_pass) for growth in episode.growths)
        episode = msgspec.structs.replace(episode, growths=checked)
        if episode.is_settled and not episode.is_continued_by(new_growths, this_pass.at):
            question = episode
            episode = None
    begins = episode is None
    last_at = ledger.seen.at
    new_growths = tuple(dated(growth, last_at, this_pass) for growth in new_growths)
    episode = joined(episode, new_growths, last_at, this_pass.at)
    if episode is not None:
        if begins:
            episode = begun(episode, ledger.wanted)
        episode = watched(episode, this_pass)
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
        somebodys_episode = msgspec.structs.replace(episode, growths=somebodys)
        ledger = add(ledger, _growth_match(somebodys_episode, ShadowVerdict.SOMEBODY))
    if not others:
        return ledger, None
    rest = msgspec.structs.replace(episode, growths=others)
    later = tuple(growth for growth in somebodys if growth.at >= rest.began)
    return ledger, msgspec.structs.replace(rest, besides=later)


def open_question(ledger: Ledger) -> Episode | None:
    """Return the open episode if the planner has not been asked about all its growths yet. Its pods
    may have ended when it is over."""
    episode = ledger.episode
    if episode is None or episode.asked >= len(episode.growths):
        return None
    return episode


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
    continued = joined(episode, later_growths, episode.since, episode.noticed)
    return msgspec.structs.replace(ledger, episode=continued)


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
    own_start = first_wanted(episode, this_pass) or episode.noticed
    lead = episode.began - own_start
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
    theirs = episode.sizes
    random = _draws(this_pass)
    judged = verdicts.growth(theirs, plan, rebuilt.pods, random=random)
    gone = pods_gone(episode, rebuilt)
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
    theirs = episode.sizes
    ours = judged.ours
    random = _draws(this_pass)
    known = known_difference(episode, ours, rebuilt, this_pass)
    drawn = False
    if ours and not (random or known):
        drawn_before = bool(gone) and episode.drawn
        drawn = drawn_before or is_drawn(theirs, ours, rebuilt, this_pass.policy, ask)
    if drawn and judged.verdict is ShadowVerdict.CHOICE:
        return msgspec.structs.replace(judged, verdict=ShadowVerdict.SAME_SIZE), ""
    ours_is_smaller = sum(ours.values()) < sum(theirs.values())
    situation = msgspec.structs.replace(
        _situation(this_pass, random=random, known=known, own=judged.own),
        drawn=drawn,
        gone=gone if ours_is_smaller else "",
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
        pods = tuple(uid for uids in pods_of.values() for uid in uids)
        starts = dict.fromkeys(groups, this_pass.at)
        first_wanted_nodes = WantedNodes(
            this_pass.at, groups, pods=pods[:MOST_PODS], starts=starts, pods_of=pods_of
        )
        return msgspec.structs.replace(ledger, wanted=first_wanted_nodes)
    starts = {name: before.starts.get(name, this_pass.at) for name in groups}
    passes = before.passes + 1
    waited = this_pass.known_until(ledger.seen) - before.since
    is_extra = passes >= EXTRA_PASSES and waited >= EXTRA_AFTER
    if is_extra and not before.told:
        first_pods = ", ".join(increases[0].pods[:3])
        situation = _situation(this_pass, known=_reported_hindrance(this_pass, groups))
        match = Match(
            match_id(GROWTH, before.since, ",".join(sorted(groups))),
            GROWTH,
            before.since,
            ShadowVerdict.EXTRA,
            ours=dict(sorted(groups.items())),
            detail=f"for {first_pods}"[:200],
            cause=cause(situation),
            costs=_costs(groups, {}, this_pass),
        )
        ledger = add(ledger, match)
    is_reported = before.told or is_extra
    wanted_nodes = WantedNodes(
        before.since, groups, passes, is_reported, before.pods, starts, pods_of
    )
    return msgspec.structs.replace(ledger, wanted=wanted_nodes)


def _costs(
    ours: dict[str, int], theirs: dict[str, int], this_pass: Pass
) -> tuple[float, float] | None:
    """Return the hourly costs of both, None if a price is unknown."""
    names = ours.keys() | theirs.keys()
    prices: dict[str, float] = {}
    policy = this_pass.policy
    groups = this_pass.snapshot.groups
    book = price_book(policy.prices, groups, spot=policy.spot is not None)
    nodes = _nodes_by_provider_id(this_pass)
    for group in groups:
        if group.id not in names:
            continue
        real_nodes = (nodes[instance.id] for instance in group.instances if instance.id in nodes)
        node = group.template or next(real_nodes, None)
        price = book.hourly(node, group) if node is not None else None
        if price is not None:
            prices[group.id] = price
    if not names <= prices.keys():
        return None

    def cost(sizes: dict[str, int]) -> float:
        return round(sum(prices[name] * count for name, count in sizes.items()), 6)

    return cost(ours), cost(theirs)


def _nodes_by_provider_id(this_pass: Pass) -> dict[str, Node]:
    return {node.provider_id: node for node in this_pass.snapshot.nodes if node.provider_id}


def _reported_hindrance(this_pass: Pass, groups: dict[str, int]) -> str:
    """Return why the other autoscaler does not grow these groups, by its own status;
    "" where it does not say."""
    return hindrance(held_back(this_pass), groups)


def _reserves_more(groups: Set[str], this_pass: Pass) -> bool:
    """Return whether a node of these groups offers less CPU or memory than the
    group's template promises."""
    nodes = _nodes_by_provider_id(this_pass)
    for group in this_pass.snapshot.groups:
        if group.id not in groups or group.template is None:
            continue
        promised = group.template.allocatable
        real_nodes = [nodes[instance.id] for instance in group.instances if instance.id in nodes]
        for node in real_nodes:
            offered = node.allocatable
            if any(offered.get(name, 0) < promised.get(name, 0) for name in ("cpu", "memory")):
                return True
    return False


def _situation(
    this_pass: Pass,
    apart: float | None = None,
    *,
    restarted: float = 0.0,
    random: bool = False,
    known: str = "",
    own: str = "",
) -> Situation:
    gap_kinds = {gap.kind for gap in this_pass.snapshot.gaps}
    gaps = tuple(sorted(gap_kinds))
    return Situation(
        random=random, apart=apart, gaps=gaps, restarted=restarted, known=known, own=own
    )
