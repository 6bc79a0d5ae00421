"""Remove nodes, as persisted steps that survive any process (architecture §5):

    look ► taint ► (wait) ► recheck ► evict ◄► gone ► delay ► delete ► poll ► confirm
                 any of them ► undo: untaint, uncordon; the other nodes go on, or the operation has failed

Up to `delete` everything can be taken back, and is: for one node when that node cannot go, for all when the deadline is
reached or the provider refuses. Machines are deleted by instance, never by lowering a size, where the vendor would
choose.
"""

from __future__ import annotations

import msgspec

from chalicelib.execute.drain import delay, evict, gone
from chalicelib.execute.progress import Progress, onward, read, stay
from chalicelib.execute.recheck import recheck
from chalicelib.execute.recipe import Recipe
from chalicelib.execute.taint import finished, give_up, look, taint, undo
from chalicelib.execute.vendor import ask
from chalicelib.execute.world import World
from chalicelib.kube.errors import ClusterError
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome, Pending
from chalicelib.plan.patience import CONFIRM_TIME

CONFIRM_POLL = 10.0


def delete(operation: Operation, world: World, now: float) -> Outcome:
    """Delete the instances of the nodes still to go; the provider counts one that is gone or leaving as removed."""
    del now
    outcome = ask(world.provider.remove, _narrowed(operation))
    world.checkpoint("delete:called")
    return _after_vendor(operation, outcome)


def poll(operation: Operation, world: World, now: float) -> Outcome:
    """Where the deletion stands at the vendor."""
    del now
    outcome = ask(world.provider.poll, _narrowed(operation))
    world.checkpoint("delete:polled")
    return _after_vendor(operation, outcome)


def _narrowed(operation: Operation) -> Operation:
    """For the provider: without the nodes that were given up. They were fixed in the row before this step."""
    live = frozenset(read(operation).live)
    targets = tuple(target for target in operation.targets if target.node in live)
    spared = len(operation.targets) - len(targets)
    to_size = operation.to_size + spared if operation.from_size else operation.to_size
    return msgspec.structs.replace(operation, targets=targets, to_size=to_size)


def _after_vendor(operation: Operation, outcome: Outcome) -> Outcome:
    match outcome:
        case Pending():
            return outcome
        case Failed():
            return give_up(operation, outcome)
    return onward(operation, read(operation), "confirm")


def confirm(operation: Operation, world: World, now: float) -> Outcome:
    """See the nodes go. A Node object that outlives its machine is another controller's affair: after CONFIRM_TIME the
    removal is done all the same, and says so."""
    progress = read(operation)
    since = progress.since or now
    there = _still_there(operation, progress, world)
    if there and now - since < CONFIRM_TIME:
        return stay(operation, msgspec.structs.replace(progress, since=since), "confirm", CONFIRM_POLL)
    return finished(progress, {"unconfirmed": ",".join(there)} if there else {})


def _still_there(operation: Operation, progress: Progress, world: World) -> list[str]:
    """Nodes whose object is still that of the removed machine. An API that does not answer confirms nothing."""
    instances = {target.node: target.instance for target in operation.targets}
    there = []
    for name in progress.live:
        try:
            node = world.cluster.node(name)
        except ClusterError:
            there.append(name)
            continue
        if node is not None and node.provider_id in ("", instances[name]):
            there.append(name)
    return there


REMOVE = Recipe(
    steps=(
        ("look", look),
        ("taint", taint),
        ("recheck", recheck),
        ("evict", evict),
        ("gone", gone),
        ("delay", delay),
        ("delete", delete),
        ("poll", poll),
        ("confirm", confirm),
        ("undo", undo),
    ),
    give_up=give_up,
    bounded=frozenset({"confirm", "undo"}),
    beyond=frozenset({"poll", "confirm", "undo"}),
)
