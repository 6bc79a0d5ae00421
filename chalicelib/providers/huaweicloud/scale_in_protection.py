"""Keeps nodes that a user protects from scale-in, although CCE does not report which nodes these are.

Only their number per scale group is documented. Annotations may identify them: CCE's own, or that of Kubernetes, which
the planner honours anyway. If fewer are identified than exist, each node of the group may be protected, and none is
removed until a user identifies them. A prepaid node must not be deleted either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.model.node import SCALE_DOWN_DISABLED
from chalicelib.providers.huaweicloud.models import PREPAID, CceNode

_WORDS = frozenset({"scaledowndisabled", "nodescaledowndisabled", "scaledownlocked"})


def is_marked(annotations: Mapping[str, str]) -> bool:
    """Whether an annotation protects the node: that of Kubernetes, or one of CCE's with the same words."""
    return any(
        value.strip().lower() == "true" and (key == SCALE_DOWN_DISABLED or _word(key) in _WORDS)
        for key, value in annotations.items()
    )


def _word(key: str) -> str:
    return key.rpartition("/")[2].replace("-", "").replace("_", "").lower()


def why_held(node: CceNode) -> str:
    """Return why this node must not be deleted according to CCE; empty if it may be."""
    name = node.name or node.id
    rows = (
        (node.billing == PREPAID, f"{name} is prepaid; delete it manually"),
        (is_marked(node.annotations), f"{name} is protected from scale-in at CCE; unlock it so that it can be removed"),
    )
    return next((text for applies, text in rows if applies), "")


def why_all_held(title: str, held: int, known: Iterable[bool]) -> str:
    """Return why no node of the group may be removed: not all protected ones are identified. Empty if they are."""
    marked = sum(known)
    if held <= marked:
        return ""
    return (
        f"{held} nodes of {title} are protected from scale-in at CCE, which does not say which; annotate them with "
        f"{SCALE_DOWN_DISABLED}=true, so that the others may go, or unlock them"
    )
