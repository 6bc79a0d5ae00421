"""Nodes that a person protects from scale-in stay (huaweicloud-cce.md A8.3, 2), though CCE does not say which they are.

Documented is only how many of a scale group are protected. Which, their annotations may say: CCE's own, or the one of
Kubernetes, which the core honours anyway. Where fewer are known than there are, each node of the group may be one of
them, and none is removed before a person says which. A prepaid node is not ours to delete either (A1.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.model.node import SCALE_DOWN_DISABLED
from chalicelib.providers.huaweicloud.models import PREPAID, CceNode

_WORDS = frozenset({"scaledowndisabled", "nodescaledowndisabled", "scaledownlocked"})


def is_marked(annotations: Mapping[str, str]) -> bool:
    """Whether an annotation says that the node is protected: that of Kubernetes, or one of CCE's by the same words."""
    return any(
        value.strip().lower() == "true" and (key == SCALE_DOWN_DISABLED or _word(key) in _WORDS)
        for key, value in annotations.items()
    )


def _word(key: str) -> str:
    return key.rpartition("/")[2].replace("-", "").replace("_", "").lower()


def why_held(node: CceNode) -> str:
    """Why this node is not ours to delete, as CCE has it; empty where it is."""
    name = node.name or node.id
    rows = (
        (node.billing == PREPAID, f"{name} is prepaid; delete it by hand"),
        (is_marked(node.annotations), f"{name} is protected from scale-in at CCE; unlock it to let it go"),
    )
    return next((text for applies, text in rows if applies), "")


def why_all_held(title: str, held: int, known: Iterable[bool]) -> str:
    """Why no node of the group may be removed: it has more protected ones than are known. Empty where they are."""
    marked = sum(known)
    if held <= marked:
        return ""
    return (
        f"{held} nodes of {title} are protected from scale-in at CCE, which does not say which; annotate them with "
        f"{SCALE_DOWN_DISABLED}=true, so that the others may go, or unlock them"
    )
