"""What the passes of an open episode see, and what it says when the state before
cannot be rebuilt any more.

An episode is judged two minutes after its last growth. Pods of Jobs have ended by then, groups
have left their back-off, and new nodes have lost their startup taints. Each pass therefore
keeps what it sees of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Pod
from chalicelib.plan.scale_up.expanders import EXPANDERS, RANDOM, Option, random_option
from chalicelib.plan.state.readiness import is_startup_taint
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.shadow.observed import Pass
from chalicelib.shadow.other_status import BACKOFF, IN_PROGRESS, UNHEALTHY
from chalicelib.shadow.rebuild import Rebuilt, new_instances
from chalicelib.shadow.records import MOST_PODS, Episode, Growth, WantedNodes
from chalicelib.shadow.verdicts import sizes_of

HELD_BACK = (BACKOFF, UNHEALTHY)
"""Status of a group that the other autoscaler does not grow for now."""
_MOST_HELD, _MOST_TAINTS, _MOST_USED = 50, 5, 200
_YOUNG = 1800.0
"""Seconds for which a node may have its startup taints."""
_MOST_TIED, _MOST_RIVALS, _MOST_SEEDS = 3, 200, 2000

Ask = Callable[[Rebuilt, Policy, int], Plan]
"""(state, policy, seed) -> our plan."""


# -- what each pass sees ---------------------------------------------------------------------------


def begun(episode: Episode, wanted: WantedNodes | None) -> Episode:
    """Return a new episode with the nodes that our plans wanted before it."""
    if wanted is None:
        return episode
    starts = wanted.starts or dict.fromkeys(wanted.groups, wanted.since)
    return msgspec.structs.replace(
        episode, wanted=wanted.groups, wanted_pods=wanted.pods_of, starts=starts, pods=wanted.pods
    )


def watched(episode: Episode, this_pass: Pass) -> Episode:
    """Return the open episode with what this pass sees of it."""
    new_nodes = _new_nodes(episode, this_pass)
    pods = dict.fromkeys(episode.pods)
    used = dict.fromkeys(episode.used)
    for pod in this_pass.snapshot.pods:
        if (
            this_pass.snapshot.classes[pod.cls].is_daemonset
            or this_pass.snapshot.classes[pod.cls].mirror
        ):
            continue
        if pod.node in new_nodes:
            used[pod.node] = None
        if not pod.deleted and (not pod.node or pod.node in new_nodes):
            pods[pod.uid] = None
    held = held_back(this_pass)
    taints = dict.fromkeys((*episode.taints, *_startup_taints(episode, this_pass)))
    episode = msgspec.structs.replace(
        episode,
        pods=tuple(pods)[:MOST_PODS],
        used=tuple(used)[:_MOST_USED],
        held=dict(sorted({**held, **episode.held}.items())[:_MOST_HELD]),
        taints=tuple(taints)[:_MOST_TAINTS],
    )
    return _with_plan(episode, this_pass)


def held_back(this_pass: Pass) -> dict[str, str]:
    """Return the groups that the other autoscaler does not grow for now -> its word."""
    reported = this_pass.status.groups if this_pass.status else {}
    return {name: part.scale_up for name, part in reported.items() if part.scale_up in HELD_BACK}


def _new_nodes(episode: Episode, this_pass: Pass) -> set[str]:
    instances = new_instances(this_pass.snapshot, this_pass.before, episode)
    return {instance.node for instance in instances if instance.node}


def _startup_taints(episode: Episode, this_pass: Pass) -> Iterable[str]:
    """Yield the startup taints of young nodes of the groups that grew: while a node has one, an
    autoscaler that does not know it buys again."""
    ids = {
        name
        for group in this_pass.snapshot.groups
        if group.id in episode.sizes
        for instance in group.instances
        for name in (instance.node, instance.id)
        if name
    }
    for node in this_pass.snapshot.nodes:
        if node.created > this_pass.at - _YOUNG and (node.name in ids or node.provider_id in ids):
            yield from (
                taint.key
                for taint in node.taints
                if is_startup_taint(taint.key, this_pass.policy.options)
            )


def uids_wanted(plan: Plan, pods: Iterable[Pod]) -> dict[str, tuple[str, ...]]:
    """Return group -> uids of the waiting pods for which the plan grows it."""
    uids = {pod.key: pod.uid for pod in pods if not pod.node}
    return {
        increase.group: tuple(uids[key] for key in increase.pods if key in uids)[:MOST_PODS]
        for increase in plan.scale_ups
    }


def _with_plan(episode: Episode, this_pass: Pass) -> Episode:
    """Return the episode with the nodes that this pass's plan wants: those for further pods are
    added. For pods of an earlier plan the larger number counts, and no second group."""
    wanted, pods_of, starts = dict(episode.wanted), dict(episode.wanted_pods), dict(episode.starts)
    for name, uids in uids_wanted(this_pass.plan, this_pass.snapshot.pods).items():
        known = {uid for several in pods_of.values() for uid in several}
        count = sizes_of(this_pass.plan).get(name, 0)
        if not uids:
            continue
        if known.isdisjoint(uids):
            wanted[name] = wanted.get(name, 0) + count
            pods_of[name] = (*pods_of.get(name, ()), *uids)[:MOST_PODS]
            starts.setdefault(name, this_pass.at)
        elif name in wanted:
            wanted[name] = max(wanted[name], count)
    return msgspec.structs.replace(episode, wanted=wanted, wanted_pods=pods_of, starts=starts)


def dated(growth: Growth, since: float, this_pass: Pass) -> Growth:
    """Return a growth with the instant since which the other autoscaler's status has it in
    progress, where nothing else dates it."""
    status = this_pass.status
    part = status.of(growth.group, this_pass.group_names) if status is not None else None
    if growth.at != this_pass.at or part is None or part.scale_up != IN_PROGRESS:
        return growth
    if not since < part.changed < this_pass.at:
        return growth
    return msgspec.structs.replace(growth, at=part.changed)


def with_answer(
    episode: Episode, plan: Plan, rebuilt: Rebuilt, this_pass: Pass, ask: Ask | None
) -> Episode:
    """Return the open episode with our plan for the state before it, and whether both differ by a
    draw. Of several plans the largest counts: it was made while most of the pods existed."""
    sizes, theirs = sizes_of(plan), episode.sizes
    if sum(sizes.values()) <= sum(episode.answers.values()):
        return msgspec.structs.replace(episode, asked=len(episode.growths))
    drawn = sizes != theirs and is_drawn(theirs, sizes, rebuilt, this_pass.policy, ask)
    return msgspec.structs.replace(episode, answers=sizes, drawn=drawn, asked=len(episode.growths))


# -- what it says at its end -----------------------------------------------------------------------


def without_failed(episode: Episode, this_pass: Pass) -> Episode:
    """Return the episode that is over without growths that the vendor refused: the group
    is in back-off, and the other autoscaler has taken its size back. What it bought
    elsewhere in their place remains."""
    targets = {group.id: group.target for group in this_pass.snapshot.groups}
    failed = {
        growth.group
        for growth in episode.growths
        if episode.held.get(growth.group) == BACKOFF
        and targets.get(growth.group, 0) <= growth.before
    }
    remaining = tuple(growth for growth in episode.growths if growth.group not in failed)
    return msgspec.structs.replace(episode, growths=remaining) if remaining else episode


def wanted_by_passes(episode: Episode, this_pass: Pass) -> dict[str, int]:
    """Return the nodes that our plans wanted while the episode's pods existed: by the passes before
    it, or as asked during it, whichever are more."""
    wanted = {name: episode.wanted[name] for name in _served(episode, this_pass)}
    by_plans, by_answer = sum(wanted.values()), sum(episode.answers.values())
    if by_answer > by_plans or (by_answer == by_plans and episode.answers == episode.sizes):
        return episode.answers
    return dict(sorted(wanted.items()))


def first_wanted(episode: Episode, this_pass: Pass) -> float:
    """Return when our plan wanted nodes for this need first, 0.0: never
    before the growth was seen."""
    starts = [
        episode.starts[name] for name in _served(episode, this_pass) if name in episode.starts
    ]
    return min(starts, default=0.0)


def _served(episode: Episode, this_pass: Pass) -> list[str]:
    """Return the groups that our plans wanted for this need: the episode grew them, or their pods
    do not wait any more. What waits as before is another need."""
    waiting = {pod.uid for pod in this_pass.snapshot.pods if not pod.node}
    pods_of, grown = episode.wanted_pods, episode.sizes
    return [
        name
        for name in episode.wanted
        if name in grown or (pods_of.get(name) and not waiting.issuperset(pods_of[name]))
    ]


def pods_gone(episode: Episode, rebuilt: Rebuilt) -> str:
    """Return how many pods are gone, in words; "" if none is known to be. A growth for
    which no pass has seen a pod stays without this cause: it may as well be one that
    Outscaler does not understand."""
    if not rebuilt.gone:
        return ""
    return (
        f"{rebuilt.gone} of {len(episode.pods)} that waited ended or were deleted before the "
        "comparison"
    )


def hindrance(held: Mapping[str, str], groups: Iterable[str]) -> str:
    """Return why the other autoscaler does not grow these groups, by its own status;
    "" where it does not say."""
    sentences = [
        f"Cluster Autoscaler reports {held[name]} of {name}" for name in groups if name in held
    ]
    return "; ".join(sentences[:3])


def known_difference(
    episode: Episode, ours: Mapping[str, int], rebuilt: Rebuilt, this_pass: Pass
) -> str:
    """Return the documented difference that explains an episode; "" where there is none."""
    backed_off = {
        name: word
        for name, word in episode.held.items()
        if name not in episode.sizes or word == BACKOFF
    }
    elsewhere = hindrance(backed_off, ours)
    return elsewhere or _bought_twice(episode, ours, rebuilt, this_pass)


def _bought_twice(
    episode: Episode, ours: Mapping[str, int], rebuilt: Rebuilt, this_pass: Pass
) -> str:
    """Return the words for nodes that no pod needed: the other autoscaler bought again while nodes
    that it had bought had a taint that it does not know as passing."""
    if sum(ours.values()) >= sum(episode.sizes.values()) or rebuilt.gone:
        return ""
    bound = {pod.uid for pod in this_pass.snapshot.pods if pod.node}
    existing = this_pass.node_names
    unused = [name for name in rebuilt.new_nodes if name in existing and name not in episode.used]
    needless = bool(unused) and not bound.isdisjoint(episode.pods)
    again = len({growth.group for growth in episode.growths}) < len(episode.growths)
    words = (
        f"Cluster Autoscaler bought {_nodes(len(unused))} that never took a pod" if needless else ""
    )
    if not episode.taints or not (needless or again):
        return words
    taint = episode.taints[0]
    words = words or "Cluster Autoscaler bought again while nodes were starting"
    return f"{words}: {taint} is no startup taint to it without --startup-taint={taint}"


def _nodes(count: int) -> str:
    return "a node" if count == 1 else f"{count} nodes"


# -- ties ------------------------------------------------------------------------------------------


def is_drawn(
    theirs: Mapping[str, int],
    ours: Mapping[str, int],
    rebuilt: Rebuilt,
    policy: Policy,
    ask: Ask | None,
) -> bool:
    """Return whether the other autoscaler's choice is an exact tie with ours, which
    it always draws: our own expander, when it draws and the draw favours the other
    group, chooses that one."""
    larger = [name for name, count in theirs.items() if count > ours.get(name, 0)]
    if ask is None or not larger or len(larger) > _MOST_TIED:
        return False
    drawing, rivals = _drawing(policy), [group.id for group in rebuilt.snapshot.groups]
    for name in larger:
        seed = _seed_for(name, rivals)
        if seed is None:
            return False
        sizes = sizes_of(ask(rebuilt, drawing, seed))
        if sizes.get(name, 0) <= ours.get(name, 0) or sum(sizes.values()) != sum(theirs.values()):
            return False
    return True


def _drawing(policy: Policy) -> Policy:
    """Return the policy with the same expanders and a draw among what they leave."""
    chain = policy.options.expander
    if not any(name in EXPANDERS for name in chain):
        chain = (*chain, "least-waste")
    chain = (*(name for name in chain if name != RANDOM), RANDOM)
    return msgspec.structs.replace(
        policy, options=msgspec.structs.replace(policy.options, expander=chain)
    )


def _seed_for(name: str, rivals: Iterable[str]) -> int | None:
    """Return a seed with which the draw takes this group before all others, None if none is
    known."""
    several = [name, *(rival for rival in rivals if rival != name)][:_MOST_RIVALS]
    options = [Option(group, 1, {}, Node("", {}, {}), {}) for group in several]
    return next(
        (seed for seed in range(_MOST_SEEDS) if random_option(options, seed).group == name), None
    )
