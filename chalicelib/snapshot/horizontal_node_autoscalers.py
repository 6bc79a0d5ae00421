"""HorizontalNodeAutoscaler objects among the documents that a snapshot is made of.

Kept apart from the other kinds: they are a vendor's, most clusters have none, and one that nobody can make sense of is
no gap but an object that is refused, which its owner is told (policy/horizontal.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, NAMESPACE, PLURAL, VERSION, read_object

PATH = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}"
WEAKENS = ("rules of HorizontalNodeAutoscalers: the last good ones are in force",)


def is_one(kind: str) -> bool:
    """Whether a kind is theirs, in whatever spelling, a single object's or a list's."""
    return kind.casefold().removesuffix("list") == KIND.casefold()


class RuleObjects:
    """Collects them by namespace and name."""

    def __init__(self) -> None:
        self._found: dict[str, RuleObject] | None = None

    def listed(self) -> None:
        """They were asked for, though there may be none."""
        self._found = self._found or {}

    def forget(self) -> None:
        """As if they had never been asked for."""
        self._found = None

    def fold(self, raw: msgspec.Raw) -> None:
        """One object. Raises BadInput for what has no name to be known by, and msgspec.DecodeError."""
        body: Any = msgspec.json.decode(raw)
        found = read_object(body)
        if not found.name:
            raise BadInput("metadata.name", "; ".join(found.problems) or "is missing", "give the object a name")
        self.listed()
        self._found = {**(self._found or {}), found.key: found}

    def all(self) -> tuple[RuleObject, ...] | None:
        """In the order of their names; None if they were not read."""
        return None if self._found is None else tuple(self._found[key] for key in sorted(self._found))
