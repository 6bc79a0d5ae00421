"""The chapters: the action of a person, the condition that ends the chapter, and its time limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from chalicelib.journal import savings
from chalicelib.model.cluster_bill import MILLION, ClusterBill
from chalicelib.model.timestamps import format_time
from infra.demo import fixture
from infra.demo.cloud_accounts import Clouds
from infra.demo.cluster_observer import Watcher
from infra.demo.console import Account, Ledger, names, span
from infra.demo.consolidation import SHADOW, bill_lines, is_of, savings_line, savings_now
from infra.demo.decision_narrator import Narrator, clock_time
from infra.demo.departures import early_words
from infra.demo.fixture import Passes, Subscriber
from infra.demo.managed_pools import of_pool
from infra.emulators.controllers import objects
from infra.emulators.kube import crds
from infra.emulators.live.emulation import Emulation

ACT, ACT_BURST, ACT_SKS, ACT_METAL = (
    "act_clusterapi",
    "act_alicloud",
    "act_exoscale",
    "act_cherryservers",
)
ACT_CCE = "act_huaweicloud"
LOOK_EVERY = 0.15  # wall seconds
NARRATE_EVERY = 1.0  # wall seconds; higher because reading the table is expensive
BEFORE_NIGHT = 150.0  # virtual seconds from the end of the jump to the opening of the window
# virtual seconds without a pass before the cron rule is due, and the maximum after it
BEFORE, WAIT = 30.0, 120.0
# The first call to Alibaba Cloud is for the group without stock; the second one buys. At Cherry
# Servers the first call only announces the order; the second one places it.
DEATHS = ((ACT, "grow:called"), (ACT_BURST, "2*grow:called"), (ACT_METAL, "2*grow:called"))
# At Huawei Cloud the first call also only announces, both for the sold-out
# flavour and for its substitute.
LAST_DEATH = "4*grow:called"
CREATION_DEATH = "grow:called"
"""The first call to Exoscale after its quota was raised creates a Nodepool."""
_CREATION_KILL = len(DEATHS) + 1
"""Kills before that one: those of the sale, and that of Huawei Cloud."""


@dataclass(frozen=True)
class DemoStage:
    """What chapters use. elapsed: (virtual, wall) seconds. kills: how often an act
    function crashes. clouds:
    those in addition to Cluster API. passes: can be delayed. subscriber: gets notifications."""

    emulation: Emulation
    account: Account
    ledger: Ledger
    watcher: Watcher
    narrator: Narrator
    elapsed: Callable[[], tuple[float, float]]
    kills: int
    clouds: Clouds
    passes: Passes
    subscriber: Subscriber


@dataclass(frozen=True)
class Chapter:
    """begin: the action of a person. over: whether the chapter has ended. limit:
    virtual seconds it may take."""

    title: str
    words: str
    begin: Callable[[DemoStage], None]
    over: Callable[[DemoStage], bool]
    limit: float


def play(stage: DemoStage, chapters: Sequence[Chapter]) -> bool:
    """Play all chapters in order. Returns False, and records the reason, if one does not end."""
    for number, chapter in enumerate(chapters, 1):
        stage.account.chapter(number, chapter.title, chapter.words)
        stage.narrator.new_chapter()
        chapter.begin(stage)
        began, _ = stage.elapsed()
        if not _play_on(stage, chapter, began):
            passed = span(stage.elapsed()[0] - began)
            stage.ledger.unfinished = (
                f"chapter {number} had not ended after {passed} of virtual time"
            )
            return False
    return True


def _play_on(stage: DemoStage, chapter: Chapter, began: float) -> bool:
    """Report events until the chapter is over. Returns False after the time limit."""
    told = float("-inf")
    while True:
        virtual, wall = stage.elapsed()
        with stage.emulation.clock.working():
            stage.watcher.look()
            if wall - told >= NARRATE_EVERY:
                told = wall
                stage.narrator.look()
                stage.account.status(_status(stage))
                if chapter.over(stage):
                    return True
        if virtual - began > chapter.limit or virtual > fixture.LONGEST:
            return False
        kube = stage.emulation.kube
        kube.wait(kube.version, LOOK_EVERY)


def _status(stage: DemoStage) -> list[tuple[str, str]]:
    running, other, pending = stage.watcher.pods()
    sizes = "   ".join(
        f"{name} {ready}/{size}" for name, (size, ready) in stage.watcher.sizes().items()
    )
    operations = ", ".join(
        (
            f"{op.spec.kind.value} {stage.narrator.short(op.spec.group)} {op.status.state.value} "
            f"{op.status.step}"
        ).strip()
        for op in stage.narrator.memory.operations
    )
    timers = ", ".join(f"{name} {span(seconds)}" for name, seconds in stage.narrator.timers()[:4])
    return [
        ("nodes ready/asked", sizes),
        ("pods", f"{running} run, {other} start or end, {pending} without a node"),
        ("operations", operations or "none"),
        ("unneeded for", timers or "—"),
        ("cooldown", span(stage.narrator.cooldown()) if stage.narrator.cooldown() else "—"),
    ]


def chapters(kills: int, broken: int) -> tuple[Chapter, ...]:
    """Return the chapters. kills: how often functions crash. broken: servers that never join."""
    deaths = (
        (
            " Functions that call the providers are killed right after a purchase, before they can "
            "record it."
        )
        if kills
        else ""
    )
    creation = (
        " A function is killed after Exoscale has made a Nodepool, before it can record that."
        if kills > _CREATION_KILL
        else ""
    )
    never = " One server of render-metal never joins the cluster." if broken else ""
    return (
        Chapter(
            "A small cluster",
            "Two node groups of Cluster API, system (1 to 2 nodes) and workers (1 to 8). Four "
            "empty groups of 0 to 3 "
            "nodes: burst-g7 and burst-c7 of Alibaba Cloud for bursts, render-sks of Exoscale and "
            "render-metal of "
            "Cherry Servers for rendering. Two pools of Huawei Cloud: night (1 to 4 nodes of two "
            "flavours) and day "
            "(2 to 6). Some pods run.",
            _start,
            _started,
            400.0,
        ),
        Chapter(
            "Outscaler gets a policy",
            "A policy is applied. From now on a pass runs every 20 seconds, and after each call of "
            "the webhook. The "
            "cluster also has the HorizontalNodeAutoscaler of the vendor's documentation: it adds "
            "one node to night "
            "every day at the same minute, and two nodes when the pods of night request more than "
            "40 % of its cpu.",
            _apply,
            _looked,
            900.0,
        ),
        Chapter(
            "Scaling rules",
            "A second batch pod starts on the only node of night just before the cron rule is due, "
            "so both rules "
            "request nodes. The cron rule has priority, and the cpu rule does not run later. The "
            "preferred flavour "
            "is sold out, which Huawei Cloud reports only after it has accepted the order. The "
            "function that orders "
            "the second flavour is killed before it can record the order.",
            _at_night,
            _bought_at_night,
            900.0,
        ),
        Chapter(
            "High utilization",
            "Ten office pods fit on the two nodes of day, and no pod is pending. The pods request "
            "more than 60 % of "
            "the capacity, so the rule of the policy adds nodes until the share is below 60 %.",
            _in_office,
            _judged_office,
            600.0,
        ),
        Chapter(
            "The sale begins",
            "shop-front, cart, reports and render are scaled up; forecast requests 64 CPUs, more "
            "than any node has. "
            "burst-g7, the first choice for reports, is out of stock. render-sks, the first choice "
            "for render, has "
            f"no quota left.{never}{deaths}",
            _sale,
            _all_run,
            1500.0,
        ),
        Chapter(
            "The sale is over",
            "Most pods are deleted, and most nodes are unneeded. A node is removed after 2 minutes "
            "as unneeded, and "
            "not within 7 minutes of the last scale-up. The pools of Huawei Cloud also keep a node "
            "for its first 10 "
            "minutes.",
            _over,
            _removing,
            1200.0,
        ),
        Chapter(
            "Nodes are removed",
            "Empty nodes together, the others one at a time: taint, evict as the disruption budget "
            "of cart allows, "
            "wait, delete exactly that machine.",
            _nothing,
            _small_again,
            2400.0,
        ),
        Chapter(
            "A dear, half-empty cluster",
            "Three more groups, at 0.05 EUR per core and hour. legacy: a node of 16 CPUs for pods "
            "that need 2.7; lean: "
            "nodes of 4 CPUs, none yet; search: four nodes of 4 CPUs, more than half used, so none "
            "is unneeded. The "
            "policy gets prices and consolidation in shadow mode: it shows what it would do.",
            _be_dear,
            _shadowed,
            1500.0,
        ),
        Chapter(
            "Consolidation",
            "The same in mode full. A node of lean is bought, and the node of legacy is drained "
            "when it is ready. The "
            "pods of one node of search move into the room of the others.",
            _consolidate,
            _consolidated,
            1800.0,
        ),
        Chapter(
            "A spot node is taken back, another node is sick",
            "A spot node of Alibaba Cloud, in stream-spot, runs two pods, of which the disruption "
            "budget lets one move "
            "at a time; stream has the same machines on demand. Alibaba Cloud announces that it "
            "takes the node back in "
            "5 minutes, and a node of search gets a condition that the policy repairs. "
            "Consolidation is off from now "
            "on.",
            _run_on_spot,
            _departed,
            1800.0,
        ),
        Chapter(
            "The night",
            f"The policy replaces nodes of lean that are older than {fixture.OLDEST:g} hours, and "
            "removes nodes from "
            "02:00 to 06:00 only. Time jumps to some minutes before: the node is old, and stays "
            "until then.",
            _at_two,
            _renewed,
            1800.0,
        ),
        Chapter(
            "Groups that Outscaler makes itself",
            "The policy gets two managed pools, studio at Exoscale and cellar at Cherry Servers. "
            "trailer and vault need 3 "
            "CPUs for a pod, matte 26 GiB of memory, and there is no group of such machines. "
            f"{fixture.RARE_TYPE}, the "
            f"cheapest for matte, is sold out.{creation}",
            _open_groups,
            _opened,
            1800.0,
        ),
        Chapter(
            "Groups without nodes",
            "The pods are deleted, and then their nodes. Nothing stays of a group at Cherry "
            "Servers. At Exoscale empty "
            "Nodepools stay until a person prunes them.",
            _empty_groups,
            _pruned,
            1800.0,
        ),
    )


def _scale(stage: DemoStage, wanted: Mapping[str, int]) -> None:
    words = ", ".join(f"{name} {number}" for name, number in wanted.items())
    stage.account.say("you", f"kubectl scale: {words}")
    for name, number in wanted.items():
        stage.emulation.scale(name, number)


def _start(stage: DemoStage) -> None:
    stage.account.say("you", "kubectl apply: node groups and workloads")
    objects.apply(stage.emulation.kube, *fixture.node_groups(), *fixture.workloads())


def _started(stage: DemoStage) -> bool:
    _, other, pending = stage.watcher.pods()
    return (
        not other
        and not pending
        and all(size == ready for size, ready in stage.watcher.sizes().values())
    )


def _apply(stage: DemoStage) -> None:
    emulation = stage.emulation
    at = fixture.strike(emulation.clock())
    stage.ledger.strike = at
    made = fixture.rules(at)
    crds.load(emulation.kube, crds.OWN)
    emulation.kube.create("horizontalnodeautoscalers", made, "autoscaling.cce.io")
    stage.account.say(
        "you",
        f"kubectl apply: HorizontalNodeAutoscaler {fixture.RULE_OBJECT}, cron rule at "
        f"{clock_time(at)}; it is {clock_time(emulation.clock())} UTC",
    )
    version = emulation.apply_policy(stage.clouds.policy(stage.subscriber.topic))
    stage.account.say(
        "you",
        f"outscaler apply: policy of cluster {fixture.CLUSTER}, version {version}, mode active",
    )
    emulation.begin()


def _looked(stage: DemoStage) -> bool:
    """Return whether a pass has evaluated the rules while none was due. The next pass is
    delayed until both are due."""
    if stage.passes.begun and stage.emulation.clock() >= stage.ledger.strike - BEFORE:
        stage.passes.hold()
    return stage.narrator.plans > 0 and stage.passes.still


def _at_night(stage: DemoStage) -> None:
    stage.watcher.counting = True
    stage.emulation.functions.deaths.update(
        {ACT_CCE: [LAST_DEATH]} if stage.kills > len(DEATHS) else {}
    )
    _scale(stage, {fixture.BATCH: 2})


def _bought_at_night(stage: DemoStage) -> bool:
    late = stage.emulation.clock() - stage.ledger.strike
    _, other, pending = stage.watcher.pods()
    if stage.passes.held and (late >= WAIT or (late > 0.0 and not other and not pending)):
        stage.passes.release()
    return stage.ledger.bought[fixture.NIGHT_SECOND] > 0


def _in_office(stage: DemoStage) -> None:
    _scale(stage, {fixture.OFFICE: 10})


def _judged_office(stage: DemoStage) -> bool:
    return any(each.rule == fixture.BUSY_RULE for each in stage.ledger.acted)


def _sale(stage: DemoStage) -> None:
    stage.ledger.pending_at = stage.ledger.answered_at = None
    stage.emulation.functions.deaths.update(
        {function: [place] for function, place in DEATHS[: stage.kills]}
    )
    _scale(stage, fixture.BUSY)


def _all_run(stage: DemoStage) -> bool:
    """Return whether all pods that fit are running (forecast never fits) and interrupted
    operations have finished."""
    _, other, pending = stage.watcher.pods()
    quiet = not stage.narrator.memory.operations and not other
    return (
        quiet
        and pending == fixture.BUSY[fixture.FORECAST]
        and len(stage.ledger.killed) >= min(stage.kills, _CREATION_KILL)
    )


def _over(stage: DemoStage) -> None:
    running, _, _ = stage.watcher.pods()
    stage.account.say(
        "cluster", f"{running} pods run on {len(stage.emulation.kube.list('nodes'))} nodes"
    )
    _scale(stage, fixture.LATE)


def _removing(stage: DemoStage) -> bool:
    return any(
        operation.spec.kind.value == "remove" for operation in stage.narrator.memory.operations
    )


def _nothing(stage: DemoStage) -> None:
    stage.watcher.guarding = True


def _small_again(stage: DemoStage) -> bool:
    sizes = stage.ledger.sizes = {name: size for name, (size, _) in stage.watcher.sizes().items()}
    _, other, pending = stage.watcher.pods()
    return sizes == SMALLEST and not (stage.narrator.memory.operations or other or pending)


def _apply_consolidation(stage: DemoStage, mode: str) -> None:
    document = fixture.with_consolidation(stage.clouds.policy(stage.subscriber.topic), mode)
    version = stage.emulation.apply_policy(document)
    stage.account.say(
        "you", f"outscaler apply: version {version}, prices and consolidation, mode {mode}"
    )


def _be_dear(stage: DemoStage) -> None:
    # a person's nodes; starting pods are not healthy yet
    stage.watcher.counting = stage.watcher.guarding = False
    stage.passes.hold()  # until the pods run: a pass would find the new nodes empty
    sizes = ", ".join(f"{name} {size}" for name, size in fixture.DEAR.items())
    stage.account.say("you", f"kubectl apply: node groups {sizes}")
    objects.apply(stage.emulation.kube, *fixture.dear_groups())


def _shadowed(stage: DemoStage) -> bool:
    """Return whether both moves were seen in shadow mode, and the bill."""
    own = stage.ledger.consolidated
    sizes, (_, other, pending) = stage.watcher.sizes(), stage.watcher.pods()
    if not own.applied:
        if all(sizes[name] == (size, size) for name, size in fixture.DEAR.items()):
            own.applied = True
            stage.account.say("you", "kubectl apply: workloads api and search")
            objects.apply(stage.emulation.kube, *fixture.dear_workloads())
        return False
    if not stage.watcher.counting:
        if not (other or pending):
            stage.ledger.steps = own.changes
            stage.watcher.counting = stage.watcher.guarding = True
            _apply_consolidation(stage, SHADOW)
            stage.passes.release()
        return False
    bill = stage.emulation.store.gauge_rings.overview(fixture.CLUSTER).bill
    if len(own.shadowed) < 2 or bill is None:
        return False
    own.before, own.bound = _tell_bill(stage, bill)
    return True


def _tell_bill(stage: DemoStage, bill: ClusterBill) -> tuple[float, float]:
    """Print the bill; return what is paid, and the lower bound."""
    for line in bill_lines(bill, stage.narrator.short):
        stage.account.say("you", line)
    return sum(own.parts.paid for own in bill.bills) / MILLION, sum(
        own.bound for own in bill.bills
    ) / MILLION


def _consolidate(stage: DemoStage) -> None:
    own = stage.ledger.consolidated
    own.changes_in_shadow = len(own.changes)
    own.changes.clear()
    _apply_consolidation(stage, "full")


def _consolidated(stage: DemoStage) -> bool:
    """Return whether nodes were replaced and drained, and the bill knows it."""
    own, memory = stage.ledger.consolidated, stage.narrator.memory
    sizes, (_, other, pending) = stage.watcher.sizes(), stage.watcher.pods()
    done = all(sizes[name] == (size, size) for name, size in fixture.CHEAP.items())
    if not done or memory.operations or memory.replacements or other or pending:
        return False
    store, now = stage.emulation.store, stage.emulation.clock()
    bill = store.gauge_rings.overview(fixture.CLUSTER).bill
    if bill is None or not is_of(bill, fixture.CHEAP, stage.narrator.short):
        return False
    own.after, _ = _tell_bill(stage, bill)
    entries = savings.entries(store.operations.ended(fixture.CLUSTER), now)
    by_kind = savings_now(entries, now, stage.narrator.short)
    own.saves = sum(by_kind.values()) / MILLION
    stage.account.say("you", savings_line(by_kind))
    for node, why in own.reasons.items():
        if node.startswith(tuple(fixture.DEAR)):
            stage.account.say("you", f"outscaler explain node {node}: not consolidated: {why}")
    return True


def _run_on_spot(stage: DemoStage) -> None:
    stage.passes.hold()  # until the pods run: a pass would find the new node empty
    stage.watcher.counting = stage.watcher.guarding = False
    stage.account.say(
        "you",
        "a scaling group of one spot node, one of none on demand; kubectl apply: workload stream",
    )
    stage.clouds.add_streams()
    objects.apply(stage.emulation.kube, *fixture.stream_workloads())


def _departed(stage: DemoStage) -> bool:
    """Return whether the spot node is gone, and the sick one is replaced."""
    own, (_, other, pending) = stage.ledger.departed, stage.watcher.pods()
    if not own.leaves_at:
        if stage.watcher.sizes()[fixture.STREAM_SPOT] == (1, 1) and not (other or pending):
            _take_back(stage)
        return False
    now = stage.emulation.clock()
    nodes = stage.watcher.hosts(fixture.STREAM)
    if (
        not own.moved_at
        and nodes
        and not any(name in nodes for name in stage.watcher.nodes(fixture.STREAM_SPOT))
    ):
        own.moved_at = now
        early = early_words(own.leaves_at, now)
        stage.account.say(
            "cluster", f"the pods of the spot node run elsewhere, {early} the vendor takes it back"
        )
    if not own.gone_at and not stage.watcher.nodes(fixture.STREAM_SPOT):
        own.gone_at = now
    return own.moved_at > 0 and own.gone_at > 0 and _is_settled(stage, fixture.DEPARTED)


def _is_settled(stage: DemoStage, wanted: Mapping[str, int]) -> bool:
    """Return whether these groups have that many ready nodes, and nothing is under way."""
    memory, sizes, (_, other, pending) = (
        stage.narrator.memory,
        stage.watcher.sizes(),
        stage.watcher.pods(),
    )
    done = all(
        sizes[name] == (size, size) and len(stage.watcher.nodes(name)) == size
        for name, size in wanted.items()
    )
    return done and not (memory.operations or memory.replacements or other or pending)


def _take_back(stage: DemoStage) -> None:
    own = stage.ledger.departed
    stage.ledger.steps = own.steps
    stage.watcher.counting = stage.watcher.guarding = True
    document = fixture.with_departures(stage.clouds.policy(stage.subscriber.topic))
    version = stage.emulation.apply_policy(document)
    stage.account.say("you", f"outscaler apply: version {version}, spot nodes and repairs")
    own.leaves_at = stage.clouds.interrupt()
    at, left = format_time(own.leaves_at), own.leaves_at - stage.emulation.clock()
    stage.account.say(
        "provider",
        (
            f"Alibaba Cloud announces that it takes the node of {fixture.STREAM_SPOT} back in "
            f"{left:.0f} s, at {at}"
        ),
    )
    sick = min(stage.watcher.nodes(fixture.SEARCH))
    stage.watcher.sicken(sick, fixture.SICK)
    stage.account.say("cluster", f"node-problem-detector: {sick} has the condition {fixture.SICK}")
    stage.passes.release()


def _at_two(stage: DemoStage) -> None:
    own, clock = stage.ledger.departed, stage.emulation.clock
    stage.passes.hold()
    (own.node,) = stage.watcher.nodes(fixture.LEAN)
    own.opens_at = fixture.night(clock())
    version = stage.emulation.apply_policy(
        fixture.with_departures(stage.clouds.policy(stage.subscriber.topic), at_night=True)
    )
    stage.account.say(
        "you", f"outscaler apply: version {version}, an age limit for lean and a maintenance window"
    )
    while not stage.passes.still:
        clock.sleep(1.0)
    clock.jump(own.opens_at - BEFORE_NIGHT)
    stage.account.say("time", f"it is {clock_time(clock())} UTC")
    stage.passes.release()


def _renewed(stage: DemoStage) -> bool:
    """Return whether another node has taken the place of the old one."""
    own = stage.ledger.departed
    if not own.asked_at and f"asked {fixture.LEAN}" in own.steps:
        own.asked_at = stage.emulation.clock()
    return own.node not in stage.watcher.nodes(fixture.LEAN) and _is_settled(
        stage, {fixture.LEAN: 1}
    )


def _open_groups(stage: DemoStage) -> None:
    own = stage.ledger.opened
    own.kills = int(stage.kills > _CREATION_KILL)
    stage.narrator.unneeded_time = stage.narrator.delay_after_add = fixture.QUICK
    stage.clouds.offer_machines()
    stage.emulation.functions.deaths.update({ACT_SKS: [CREATION_DEATH]} if own.kills else {})
    document = fixture.with_managed_pools(stage.clouds.policy(stage.subscriber.topic))
    version = stage.emulation.apply_policy(document)
    stage.account.say(
        "you",
        f"outscaler apply: version {version}, managed pools {fixture.STUDIO} and {fixture.CELLAR}",
    )


def _opened(stage: DemoStage) -> bool:
    """Return whether the pods run, and every Nodepool is as its plan wants it."""
    own, (_, other, pending) = stage.ledger.opened, stage.watcher.pods()
    if not own.is_applied:
        if stage.clouds.have_told_prices():
            own.is_applied = True
            stage.account.say("you", f"kubectl apply: workloads {', '.join(fixture.ODD)}")
            objects.apply(stage.emulation.kube, *fixture.odd_workloads())
        return False
    if other or pending or stage.narrator.memory.operations:
        return False
    sizes = stage.watcher.sizes()
    groups = [*of_pool(sizes, fixture.STUDIO), *of_pool(sizes, fixture.CELLAR)]
    if any(sizes[group][0] != sizes[group][1] for group in groups):
        return False
    own.ran = Counter({group: sizes[group][1] for group in groups if sizes[group][1]})
    own.made, own.existing = stage.clouds.nodepools.made(), stage.clouds.nodepools.existing()
    return bool(own.ran)


def _empty_groups(stage: DemoStage) -> None:
    _scale(stage, dict.fromkeys(fixture.ODD, 0))


def _pruned(stage: DemoStage) -> bool:
    """Return whether the empty groups were deleted, which a person asks for here."""
    own, memory = stage.ledger.opened, stage.narrator.memory
    sizes = stage.watcher.sizes()
    nodepools = of_pool(sizes, fixture.STUDIO)
    servers = of_pool(sizes, fixture.CELLAR)
    is_quiet = not (memory.operations or any(sum(sizes[group]) for group in nodepools + servers))
    if not own.is_pruned:
        empty = [name for name, group in memory.groups.items() if group.empty_since]
        if is_quiet and len(empty) == len(nodepools):
            own.kept = {group: sizes[group][0] for group in nodepools}
            own.servers, own.is_pruned = len(servers), True
            stage.emulation.prune_pools(fixture.CLUSTER)
            stage.account.say("you", f"outscaler pools prune {fixture.CLUSTER}: {names(nodepools)}")
        return False
    own.left = len(nodepools)
    return is_quiet and not own.left


SMALLEST = {
    fixture.BURST: 0,
    fixture.SPARE: 0,
    fixture.SKS: 0,
    fixture.METAL: 0,
    fixture.SYSTEM: 1,
    fixture.WORKERS: 1,
    fixture.NIGHT_FIRST: 0,
    fixture.NIGHT_SECOND: 1,
    fixture.DAY: 2,
}
