"""The next memory (state.md §9): what this pass saw, set beside what was known.

Sizes, instances seen without a node, templates learnt from real nodes; requests and back-off as plan/requests.py has
judged them. An unhealthy pass keeps every timer it could not judge (demands.md 9).
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import GroupMemory, LearntTemplate, Memory, NodeMemory
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
    groups.update({facts.id: _group(facts) for facts in world.groups.values()})
    unregistered = {i: memory.unregistered.get(i, now) for facts in world.groups.values() for i in facts.unregistered}
    return msgspec.structs.replace(
        memory, groups=groups, nodes=dict(sorted(nodes.items())), unregistered=unregistered,
        templates={**{k: v for k, v in memory.templates.items() if k not in world.groups}, **templates},
        operations=tuple(op for op in memory.operations if op.is_open), first_seen=memory.first_seen or now,
    )


def _group(facts: GroupFacts) -> GroupMemory:
    if facts.group.error:
        return facts.memory
    return msgspec.structs.replace(facts.memory, target=facts.group.target)
