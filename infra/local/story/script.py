"""The chapters: what a person does, what is then waited for, and how long that may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from infra.local.controllers import seed
from infra.local.live.emulation import Emulation
from infra.local.story import scene
from infra.local.story.clouds import Clouds
from infra.local.story.deciding import Narrator
from infra.local.story.ledger import Ledger
from infra.local.story.telling import Account, span
from infra.local.story.watching import Watcher

ACT, ACT_BURST, ACT_SKS, ACT_METAL = "act_clusterapi", "act_alicloud", "act_exoscale", "act_cherryservers"
LOOK_EVERY = 0.15       # seconds of the wall
NARRATE_EVERY = 0.4     # …: asking the table costs more


@dataclass(frozen=True)
class Stage:
    """Everything that a chapter plays with. elapsed: (virtual, wall) seconds; kills: how often an act function dies;
    wall_limit: seconds after which the story is given up. clouds: those beside Cluster API."""

    emulation: Emulation
    account: Account
    ledger: Ledger
    watcher: Watcher
    narrator: Narrator
    elapsed: Callable[[], tuple[float, float]]
    kills: int
    wall_limit: float
    clouds: Clouds


@dataclass(frozen=True)
class Chapter:
    """begin: what a person does; over: whether it has come to its end; limit: virtual seconds it may take."""

    title: str
    words: str
    begin: Callable[[Stage], None]
    over: Callable[[Stage], bool]
    limit: float


def play(stage: Stage, chapters: Sequence[Chapter]) -> bool:
    """All chapters in order; False, with the reason in the ledger, where one does not come to its end."""
    for number, chapter in enumerate(chapters, 1):
        stage.account.chapter(number, chapter.title, chapter.words)
        stage.narrator.new_chapter()
        began, _ = stage.elapsed()
        chapter.begin(stage)
        if not _play_on(stage, chapter, began):
            passed = span(stage.elapsed()[0] - began)
            stage.ledger.unfinished = f"chapter {number} had not ended after {passed} of virtual time"
            return False
    return True


def _play_on(stage: Stage, chapter: Chapter, began: float) -> bool:
    """Tell what happens until the chapter is over; False when that takes too long."""
    told = float("-inf")
    while True:
        virtual, wall = stage.elapsed()
        stage.watcher.look()
        if wall - told >= NARRATE_EVERY or stage.narrator.has_heard:
            told = wall
            stage.narrator.look()
            stage.account.status(_status(stage))
            if chapter.over(stage):
                return True
        if virtual - began > chapter.limit or wall > stage.wall_limit:
            return False
        kube = stage.emulation.kube
        kube.wait(kube.version, LOOK_EVERY)


def _status(stage: Stage) -> list[tuple[str, str]]:
    running, other, pending = stage.watcher.pods()
    sizes = "   ".join(f"{name} {ready}/{size}" for name, (size, ready) in stage.watcher.sizes().items())
    operations = ", ".join(f"{op.kind.value} {stage.narrator.short(op.group)} {op.state.value} {op.step}".strip()
                           for op in stage.narrator.memory.operations)
    timers = ", ".join(f"{name} {span(seconds)}" for name, seconds in stage.narrator.timers()[:4])
    return [("nodes ready/asked", sizes), ("pods", f"{running} run, {other} start or end, {pending} without a node"),
            ("operations", operations or "none"), ("unneeded for", timers or "—"),
            ("cooldown", span(stage.narrator.cooldown()) if stage.narrator.cooldown() else "—")]


def chapters() -> tuple[Chapter, ...]:
    """The story."""
    return (
        Chapter("A small cluster",
                "Two node groups of Cluster API, system (1 to 2 nodes) and workers (1 to 8). Empty so far: for bursts "
                "two scaling groups of Alibaba Cloud, burst-g7 and burst-c7 (0 to 3 each); for rendering a Nodepool of "
                "Exoscale and a pool of Cherry Servers, render-sks and render-metal (0 to 3 each). Some pods.",
                _start, _started, 400.0),
        Chapter("Outscaler is told about it",
                "A policy is put in force. From now on the functions look every 20 seconds, and when the webhook "
                "rings.",
                _apply, _looked, 300.0),
        Chapter("The sale begins",
                "shop-front, cart, reports and render are scaled up; forecast asks for 64 CPUs, which nobody has. "
                "burst-g7 is the first choice for reports, and out of stock; render-sks is that for render, and the "
                "quota is used up. One server of render-metal never joins the cluster. The functions that call the "
                "providers are killed right after they bought, before they can write down that they did.",
                _sale, _all_run, 1500.0),
        Chapter("The sale is over",
                "Most pods go, and most nodes are unneeded. None is removed before it has been so for 2 minutes, nor "
                "before 7 minutes have passed since the last growth.",
                _over, _removing, 1200.0),
        Chapter("Nodes go",
                "Empty ones together, the others one at a time: taint, evict as cart's disruption budget allows, wait, "
                "delete that very machine.",
                _nothing, _small_again, 2400.0),
    )


def _scale(stage: Stage, wanted: Mapping[str, int]) -> None:
    words = ", ".join(f"{name} {number}" for name, number in wanted.items())
    stage.account.say("you", f"kubectl scale: {words}")
    for name, number in wanted.items():
        stage.emulation.scale(name, number)


def _start(stage: Stage) -> None:
    stage.account.say("you", "kubectl apply: node groups and workloads")
    seed.apply(stage.emulation.kube, *scene.node_groups(), *scene.workloads())


def _started(stage: Stage) -> bool:
    _, other, pending = stage.watcher.pods()
    return not other and not pending and all(size == ready for size, ready in stage.watcher.sizes().values())


def _apply(stage: Stage) -> None:
    version = stage.emulation.apply_policy(stage.clouds.policy())
    stage.account.say("you", f"outscaler apply: policy of cluster {scene.CLUSTER}, version {version}, mode active")
    stage.emulation.begin()


def _looked(stage: Stage) -> bool:
    return stage.narrator.plans > 0


def _sale(stage: Stage) -> None:
    stage.watcher.counting = True
    stage.ledger.pending_at = stage.ledger.answered_at = None
    # The first call to Alibaba Cloud is for what is out of stock; it is the second that buys. At Cherry Servers the
    # first call only announces; the second one orders.
    deaths = ((ACT, "grow:called"), (ACT_BURST, "2*grow:called"), (ACT_METAL, "2*grow:called"))
    stage.emulation.functions.deaths.update({function: [place] for function, place in deaths[:stage.kills]})
    _scale(stage, scene.BUSY)


def _all_run(stage: Stage) -> bool:
    """All that can: forecast never fits. And what was interrupted has been finished."""
    _, other, pending = stage.watcher.pods()
    quiet = not stage.narrator.memory.operations and not other
    return quiet and pending == scene.BUSY[scene.FORECAST] and len(stage.ledger.killed) >= stage.kills


def _over(stage: Stage) -> None:
    running, _, _ = stage.watcher.pods()
    stage.account.say("cluster", f"{running} pods run on {len(stage.emulation.kube.list('nodes'))} nodes")
    _scale(stage, scene.LATE)


def _removing(stage: Stage) -> bool:
    return any(operation.kind.value == "remove" for operation in stage.narrator.memory.operations)


def _nothing(stage: Stage) -> None:
    stage.watcher.guarding = True


def _small_again(stage: Stage) -> bool:
    sizes = {name: size for name, (size, _) in stage.watcher.sizes().items()}
    _, other, pending = stage.watcher.pods()
    return sizes == SMALLEST and not (stage.narrator.memory.operations or other or pending)


SMALLEST = {scene.BURST: 0, scene.SPARE: 0, scene.SKS: 0, scene.METAL: 0, scene.SYSTEM: 1, scene.WORKERS: 1}
