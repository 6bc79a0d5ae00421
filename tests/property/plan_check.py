"""Checks one plan with the scheduler of infra/emulators: every placement, pod by
pod, and every rejection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chalicelib.model.plan import Plan, UnschedulablePods
from chalicelib.model.reason import ReasonCode
from chalicelib.reasons.text import text
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from tests.property.bounds import Bounds
from tests.property.clusters import RandomCluster
from tests.property.replay import Replay, first_fit, first_of, look, pod_key, why_not
from tests.property.scheduler_draws import Tally, drawn, promises
from tests.property.scheduler_view import Newcomer, SchedulerView

#: : Kinds of errors, as text.
BOOKS = "books: pods or promises do not add up"
BARE = "bare: the plan says no places"
UNSURE = "unsure: not simulated"
LIMIT = "limit: passed"
QUEUE = "queue: not scheduled in the queue's order"
PLACE = "place: not accepted where it was promised"
EMPTY = "empty: a new node takes no pod"
SPARE = "spare: a node could be dropped"
NO = "no: a new node would take a pod that was refused"
LEFT = "left: a node that is there would take a pod that was refused"
WORDS = "words: another reason than the scheduler's"
QUEUE_AT_ONCE, PLACE_AT_ONCE = (
    "(queue, were all nodes there at once)",
    "(place, were all nodes there at once)",
)

Found = Iterator[tuple[str, str]]  # kind, detail


class Trial:
    """A cluster and the plan for it."""

    def __init__(self, cluster: RandomCluster, plan: Plan) -> None:
        self._plan, self._stage = plan, SchedulerView(cluster)
        ups = {up.group: up for up in plan.scale_ups}
        self._bounds = Bounds(self._stage, ups)
        self._new = {
            f"{name}#{number}": self._stage.newcomer(self._stage.groups[name], f"{name}#{number}")
            for name, up in sorted(ups.items())
            for number in range(1, up.to_size - up.from_size + 1)
        }
        self._last = {name: f"{name}#{up.to_size - up.from_size}" for name, up in ups.items()}
        self._promised = [*plan.fits_existing, *(pod for up in plan.scale_ups for pod in up.pods)]
        self._places = {
            pod: promise.node or f"{promise.group}#{promise.number}"
            for promise in plan.promises
            for pod in promise.pods
        }
        self._refused = {pod: verdict for verdict in plan.unschedulable for pod in verdict.pods}

    def found(self) -> Found:
        """Returns all errors; if the bookkeeping is wrong, nothing further is checked."""
        books = list(self._books())
        yield from books
        if any(kind == BOOKS for kind, _ in books):
            return
        yield from ((LIMIT, detail) for detail in self._bounds.passed())
        yield from self._queue()
        yield from self._spare()
        if not any(kind == BARE for kind, _ in books):
            yield from self._replay()

    def drawn(self, draws: int) -> Tally:
        """Results of the plan in that many scheduler histories, with queue and ties drawn by
        seed."""
        if not self._promised:
            return Tally()
        return drawn(self._stage, self._plan, self._new, range(draws))

    # -- the plan alone

    def _books(self) -> Found:
        """Checks that every pending pod is in one place of the plan, and that every placement
        concerns such a pod and place."""
        reported = Counter([*self._promised, *self._refused])
        for pod in sorted(reported.keys() | self._stage.wanted.keys()):
            if reported[pod] != (pod in self._stage.wanted):
                yield BOOKS, f"{pod} is in the plan {reported[pod]} times"
        promises = Counter(pod for promise in self._plan.promises for pod in promise.pods)
        if self._promised and not promises:
            yield BARE, f"{len(self._promised)} pods"
        elif promises != Counter(self._promised):
            odd = sorted(
                (promises - Counter(self._promised)) + (Counter(self._promised) - promises)
            )
            yield BOOKS, f"promises and promised pods differ: {', '.join(odd[:4])}"
        for place in sorted(set(self._places.values()) - {*self._stage.order(self._new.values())}):
            yield BOOKS, f"{place} is no place"
        for verdict in self._plan.groups:
            if verdict.upcoming != self._stage.groups[verdict.group].upcoming:
                yield BOOKS, f"{verdict.group} has {verdict.upcoming} upcoming nodes"
        unsure = sorted(pod for pod, verdict in self._refused.items() if _unsure(verdict))
        if unsure:
            yield UNSURE, f"{len(unsure)} pods, such as {unsure[0]}"

    # -- simulated scheduling

    def _queue(self) -> Found:
        """Schedules all pods of the plan in queue order, first fit: a pod with a definite placement
        gets a place (or an equal pod does)."""
        placed, left = first_fit(self._stage, [*self._new.values()], self._promised)
        sure = promises(self._plan)[0] if self._plan.promises else self._promised
        kinds = {pod: look(self._stage.wanted[pod]) for pod in self._promised}
        short = sum(
            (Counter(kinds[pod] for pod in sure) - Counter(kinds[pod] for pod in placed)).values()
        )
        if short:
            yield QUEUE, f"{short} of {len(sure)} pods, such as {left[0]}"
        empty = sorted(self._new.keys() - set(placed.values()))
        if empty and not left:
            yield EMPTY, f"{', '.join(empty)} in the queue's order"

    def _spare(self) -> Found:
        """Tries one node fewer of each group in turn; equal nodes need not be tried separately."""
        for name, last in sorted(self._last.items()):
            fewer = [each for key, each in self._new.items() if key != last]
            if not first_fit(self._stage, fewer, self._promised)[1]:
                yield SPARE, f"one of {len(self._new)}, of {name}"

    def at_once(self) -> Found:
        """What would be impossible if all new nodes were there from the start; not an
        error, since they are not."""
        new = list(self._new.values())
        if first_fit(self._stage, new, self._promised, at_once=True)[1]:
            yield QUEUE_AT_ONCE, ""
        if self._plan.promises and Replay(self._stage, new, self._places, at_once=True).run()[1]:
            yield PLACE_AT_ONCE, ""

    # -- planned places

    def _replay(self) -> Found:
        """Puts every pod on exactly its place, in any order that works, and then
        retries the rejected pods."""
        new = list(self._new.values())
        world, waiting = Replay(self._stage, new, self._places).run()
        for pod in waiting[:1]:
            on = self._places[pod_key(pod)]
            yield (
                PLACE,
                (
                    f"{len(waiting)} pods, such as {pod_key(pod)} on {on}: "
                    f"{', '.join(why_not(pod, world, on))}"
                ),
            )
        empty = sorted(self._new.keys() - set(self._places.values()))
        if empty:
            yield EMPTY, f"{', '.join(empty)} by promise"
        if not waiting:
            yield from self._refusals(world, new)

    def _refusals(self, world: ClusterView, new: list[Newcomer]) -> Found:
        """Checks that a rejected pod fits no node and no further node of a group that may grow,
        for the reported reasons."""
        asked = self._stage.queue(
            pod for pod, verdict in self._refused.items() if not _unsure(verdict)
        )
        pods = list({look(pod): pod for pod in asked}.values())
        for pod in pods:
            on = first_of(pod, world, self._stage.order(new))
            if on is not None:
                yield LEFT, f"{pod_key(pod)} on {on}"
        for group in self._stage.groups.values() if pods else ():
            probe = self._stage.newcomer(group, f"{group.name}#more")
            if probe.node.unschedulable or not self._bounds.may_grow(group):
                continue
            self._stage.join(world, [probe])
            for pod in pods:
                said = sorted(
                    text(reason) for reason in self._refused[pod_key(pod)].reasons[group.name]
                )
                true = why_not(pod, world, probe.node.name)
                if not true and _would_lose_it(self._refused[pod_key(pod)], group.name):
                    continue
                if not true:
                    yield NO, f"{pod_key(pod)} by {group.name}, told {', '.join(said)}"
                elif not set(true) <= set(said):  # of the nearest groups everything is said
                    yield (
                        WORDS,
                        (
                            f"{pod_key(pod)} by {group.name}: told {', '.join(said)}; "
                            f"{', '.join(true)}"
                        ),
                    )
            world.leave(probe.node.name)


def _would_lose_it(verdict: UnschedulablePods, group: str) -> bool:
    """The plan reported that the scheduler's order would close the pod's place; this is true of the
    order, not of the pod alone."""
    return any(reason.code is ReasonCode.NOT_PROMISED for reason in verdict.reasons[group])


def _unsure(verdict: UnschedulablePods) -> bool:
    return any(
        reason.code is ReasonCode.NOT_SIMULATED
        for reasons in verdict.reasons.values()
        for reason in reasons
    )
