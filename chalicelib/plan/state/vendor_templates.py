"""What has changed in a vendor's template since the template of a group was learnt from a node.

A learnt template is better than the vendor's, because it is what really joined. It is also older:
an empty group may have been changed since. Beside it, memory keeps what the vendor's template said
while the node was there. What the vendor says differently now has changed: labels and taints are
applied to the learnt template, and another machine type, architecture, operating system or capacity
drops it. What the vendor never stated stays as it was learnt. See docs/reference/scale-up.md
"Changed groups".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from chalicelib.model.memory import LearntTemplate, StatedTemplate
from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.resources import EPHEMERAL, MEMORY, PODS
from chalicelib.plan.state.csi_topology import REGION_LABELS, ZONE_LABELS

_MACHINE_LABELS = frozenset({
    "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "kubernetes.io/arch",
    "beta.kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/os",
})  # fmt: skip
# the share by which a vendor's figures may move without a meaning
_ESTIMATED = {MEMORY: 0.05, EPHEMERAL: 0.05}
# the share by which they may differ from those of a real node
_REAL = {MEMORY: 0.15, EPHEMERAL: 0.5, PODS: 1.0}
_MOST_NAMED = 5  # differences in a message


class Change(msgspec.Struct, frozen=True):
    """How a vendor's template has changed. machine: what makes it another machine, "" if it is the
    same. labels: new values; no_labels: keys that are gone; taints: new ones; no_taints: those that
    are gone, by key and effect."""

    machine: str = ""
    labels: dict[str, str] = {}
    no_labels: frozenset[str] = frozenset()
    taints: tuple[Taint, ...] = ()
    no_taints: frozenset[tuple[str, str]] = frozenset()

    @property
    def differences(self) -> tuple[str, ...]:
        """Return what differs, in words."""
        words = [self.machine] if self.machine else []
        words += [f"label {key}" for key in sorted(self.labels.keys() | self.no_labels)]
        taint_keys = {taint.key for taint in self.taints} | {key for key, _ in self.no_taints}
        words += [f"taint {key}" for key in sorted(taint_keys)]
        return tuple(words[:_MOST_NAMED])


UNCHANGED = Change()


def statement(template_node: Node) -> StatedTemplate:
    """Return what a vendor's template says."""
    labels = {key: value for key, value in template_node.labels.items() if key != HOSTNAME_LABEL}
    capacity = template_node.capacity or template_node.allocatable
    return StatedTemplate(labels, template_node.taints, capacity)


def compare(old_template: StatedTemplate, new_template: StatedTemplate) -> Change:
    """Return how a vendor's template has changed."""
    machine = _other_machine(old_template, new_template, _ESTIMATED)
    old_labels, new_labels = old_template.labels, new_template.labels
    labels = {key: value for key, value in new_labels.items() if old_labels.get(key) != value}
    no_labels = frozenset(old_labels.keys() - new_labels.keys())
    old_taints = {(taint.key, taint.effect): taint for taint in old_template.taints}
    new_taints = {(taint.key, taint.effect): taint for taint in new_template.taints}
    taints = tuple(taint for key, taint in new_taints.items() if old_taints.get(key) != taint)
    no_taints = frozenset(old_taints.keys() - new_taints.keys())
    return Change(machine, labels, no_labels, taints, no_taints)


def change_since(learnt: LearntTemplate, stated: StatedTemplate, *, all_taints: bool) -> Change:
    """Return how a vendor's template has changed since a template was learnt. In a row of an
    earlier release nothing is known of what it said then, so it wins in what it says now.
    all_taints: it names all taints of a new node, so one that it does not name is gone."""
    if learnt.stated is not None:
        return compare(learnt.stated, stated)
    difference = msgspec.structs.replace(
        compare(statement(learnt.node), stated),
        machine=_machine_other_than(learnt.node, stated),
        no_labels=frozenset[str](),
    )
    if stated.taints or all_taints:
        return difference
    return msgspec.structs.replace(difference, no_taints=frozenset[tuple[str, str]]())


def applied(node: Node, change: Change, zone_keys: Collection[str]) -> Node:
    """Return a learnt node with the labels and taints as the vendor has changed them. zone_keys:
    keys of CSI drivers that say the zone; they follow from the new one."""
    places = (*ZONE_LABELS, *REGION_LABELS)
    outdated = set(change.no_labels)
    is_moved = not change.labels.keys().isdisjoint(places)
    if is_moved:
        outdated.update(places, zone_keys)
    labels = {key: value for key, value in node.labels.items() if key not in outdated}
    if is_moved:
        for place in places:
            if place in node.labels and place not in change.labels:
                labels[place] = _twin(place, change.labels) or node.labels[place]
    labels |= change.labels
    changed = {(taint.key, taint.effect) for taint in change.taints} | change.no_taints
    taints = [taint for taint in node.taints if (taint.key, taint.effect) not in changed]
    return msgspec.structs.replace(node, labels=labels, taints=(*taints, *change.taints))


def agrees(node: Node, change: Change, stated: StatedTemplate) -> bool:
    """Return whether a node already is as a vendor's changed template says. stated: that
    template."""
    if change.machine and _machine_other_than(node, stated):
        return False
    if any(node.labels.get(key) != value for key, value in change.labels.items()):
        return False
    if not change.no_labels.isdisjoint(node.labels):
        return False
    taints = {(taint.key, taint.effect): taint for taint in node.taints}
    if any(taints.get((taint.key, taint.effect)) != taint for taint in change.taints):
        return False
    return change.no_taints.isdisjoint(taints)


def newer_differences(
    model_node: Node, known: LearntTemplate | None, stated: StatedTemplate | None
) -> tuple[str, ...]:
    """Return in what a vendor's template has changed since a settled node was made, in words."""
    if known is None or known.stated is None or stated is None:
        return ()
    difference = compare(known.stated, stated)
    is_newer = 0.0 < known.differs_since < model_node.created
    if is_newer or agrees(model_node, difference, stated):
        return ()
    return difference.differences


def next_statement(
    model_node: Node, known: LearntTemplate | None, stated: StatedTemplate | None, instant: float
) -> tuple[StatedTemplate | None, float]:
    """Return what to store beside a template that is learnt from a node: what the vendor said when
    the node was made, and since when it says something else, 0.0 if it does not. stated: what it
    says, None if it has no template."""
    if known is None:
        return stated, 0.0
    if stated is None:
        return known.stated, known.differs_since
    before = known.stated
    if before is None:
        # Of a row of an earlier release: where a value differs, the node is older than the change.
        labels = {key: model_node.labels.get(key, value) for key, value in stated.labels.items()}
        return msgspec.structs.replace(stated, labels=labels), 0.0
    difference = compare(before, stated)
    if difference == UNCHANGED:
        return before, 0.0
    is_newer = 0.0 < known.differs_since < model_node.created
    if is_newer or agrees(model_node, difference, stated):
        return stated, 0.0
    return before, known.differs_since or instant


def _machine_other_than(node: Node, stated: StatedTemplate) -> str:
    """Return what makes a real node one of another machine than a vendor's template
    says, "" if nothing does."""
    real = statement(node)
    capacity = {name: amount for name, amount in real.capacity.items() if name in stated.capacity}
    comparable = msgspec.structs.replace(real, capacity=capacity)
    return _other_machine(comparable, stated, _REAL)


def _other_machine(
    old_template: StatedTemplate, new_template: StatedTemplate, tolerance: Mapping[str, float]
) -> str:
    """Return what makes a template one of another machine, "" if nothing does: only
    what both state is compared."""
    for key in sorted(_MACHINE_LABELS & old_template.labels.keys() & new_template.labels.keys()):
        if old_template.labels[key] != new_template.labels[key]:
            return f"{key}={new_template.labels[key]}"
    if not (old_template.capacity and new_template.capacity):
        return ""
    for name in sorted(old_template.capacity.keys() | new_template.capacity.keys()):
        old = old_template.capacity.get(name, 0)
        new = new_template.capacity.get(name, 0)
        most = tolerance.get(name, 0.0) * max(old, new)
        if abs(old - new) > most:
            return name
    return ""


def _twin(place: str, labels: Mapping[str, str]) -> str:
    """Return the changed value of the other name of a zone or region label."""
    names = ZONE_LABELS if place in ZONE_LABELS else REGION_LABELS
    return next((labels[name] for name in names if name in labels), "")
