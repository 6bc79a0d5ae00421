"""The next memory (state.md §4-§7, §9): what this pass saw, set beside what was known.

Requests that have come true or run out, back-off that is over for good, instances seen without a node, templates
learnt from real nodes. An unhealthy pass keeps every timer it could not judge (demands.md 9).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.memory import Backoff, GroupMemory, LearntTemplate, Memory, NodeMemory
from chalicelib.plan import backoff
from chalicelib.plan.template import learn
from chalicelib.plan.world import GroupFacts, World


def recall(world: World, nodes: dict[str, NodeMemory]) -> Memory:
    """Memory for the next pass. nodes: what the shrinking half says of each node it judged."""
    memory, now = world.memory, world.now
    templates: dict[str, LearntTemplate] = {}
    for facts in world.groups.values():
        learnt = learn(facts.nodes, memory.templates.get(facts.id), now, world.options)
        if learnt is not None:
            templates[facts.id] = learnt
    # A group that could not be read keeps what is known of it.
    groups = {name: kept for name, kept in memory.groups.items() if name not in world.groups}
    groups.update({facts.id: _group(facts, world) for facts in world.groups.values()})
    unregistered = {i: memory.unregistered.get(i, now) for facts in world.groups.values() for i in facts.unregistered}
    return msgspec.structs.replace(
        memory, groups=groups, nodes=dict(sorted(nodes.items())), unregistered=unregistered,
        templates={**{k: v for k, v in memory.templates.items() if k not in world.groups}, **templates},
        operations=tuple(op for op in memory.operations if op.is_open), first_seen=memory.first_seen or now,
    )


def _group(facts: GroupFacts, world: World) -> GroupMemory:
    known, now, options = facts.memory, world.now, world.options
    if facts.group.error:
        return known
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
    if request is not None and facts.upcoming <= 0 and not facts.backed_off:
        request = None  # everything asked for is here
    elif request is not None and request.expected_at < now:
        failed = _timed_out(failed, facts, world)
        request = None
    return msgspec.structs.replace(known, target=facts.group.target, request=request, backoff=failed,
                                   erred=tuple(i.id for i in erring))


def _timed_out(failed: Backoff | None, facts: GroupFacts, world: World) -> Backoff:
    message = f"{facts.upcoming} nodes did not join in time"
    return backoff.fail(failed, world.now, world.options, "Unknown", "timeout", message)
