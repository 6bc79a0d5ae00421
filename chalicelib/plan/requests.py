"""What became of the machines asked for (state.md §5-§7): arrived, failed, or not come in time.

It is judged before anything is decided, as upstream does (state.md §1). Judged afterwards, a group whose machines do
not come would be grown once more by the very pass that finds it out.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.plan import backoff
from chalicelib.plan.readiness import Bucket
from chalicelib.plan.world import GroupFacts, World, observe


def settled(world: World) -> World:
    """The facts with requests that have come true or run out, and back-off that has begun or is over for good."""
    judged = _judge(world)
    return world if judged is world.memory else observe(world.snapshot, world.policy, judged, world.now)


def _judge(world: World) -> Memory:
    changed = {facts.id: judged for facts in world.groups.values()
               if not facts.group.error and (judged := _group(facts, world)) != facts.memory}
    if not changed:
        return world.memory
    return msgspec.structs.replace(world.memory, groups={**world.memory.groups, **changed})


def _group(facts: GroupFacts, world: World) -> GroupMemory:
    known, now, options = facts.memory, world.now, world.options
    request, failed = known.request, known.backoff
    if failed is not None and backoff.stale(failed, now, options):
        failed = None
    erring = tuple(i for i in facts.group.instances if i.state is InstanceState.CREATING and i.error is not None)
    fresh = [i for i in erring if i.id not in known.erred]
    if fresh and request is not None and facts.upcoming > 0:
        error = fresh[0].error
        assert error is not None
        failed = backoff.fail(failed, now, options, error.cls, error.code, error.message)
        left = request.increase - len(fresh)
        request = msgspec.structs.replace(request, increase=left) if left > 0 else None
    outstanding = _outstanding(facts, request, world) if request is not None else 0
    if request is not None and outstanding <= 0:
        request = None  # everything asked for is here
    elif request is not None and request.expected_at < now:
        failed = _timed_out(failed, outstanding, world)
        request = None
    return msgspec.structs.replace(known, request=request, backoff=failed, erred=tuple(i.id for i in erring))


def _outstanding(facts: GroupFacts, request: ScaleUpRequest, world: World) -> int:
    """Machines that are no nodes yet. Neither back-off nor being late makes one arrive: they are no longer upcoming,
    but the request for them is not fulfilled. One that was late before this request was made belongs to another."""
    here = sum(facts.counts[kind] for kind in (Bucket.READY, Bucket.UNREADY, Bucket.SUSPENDED, Bucket.DELETED))
    own = facts.group.options.max_node_provision_time
    provision = world.options.max_node_provision_time if own is None else own
    seen = world.memory.unregistered
    before = sum(seen.get(machine, world.now) + provision < request.since for machine in facts.long_unregistered)
    return facts.target - here - before


def _timed_out(failed: Backoff | None, outstanding: int, world: World) -> Backoff:
    message = f"{outstanding} nodes did not join in time"
    return backoff.fail(failed, world.now, world.options, "Unknown", "timeout", message)
