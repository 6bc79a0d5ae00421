"""Collects HorizontalNodeAutoscaler objects from the documents of a snapshot.

They are separate from the other kinds because they are a vendor's and most clusters have none. An invalid one is not a
gap but a rejected object, which is reported to its owner (policy/horizontal_node_autoscaler.py).
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
    """Return whether a kind is HorizontalNodeAutoscaler, in any spelling, of a single object or a list."""
    return kind.casefold().removesuffix("list") == KIND.casefold()


class RuleObjects:
    """Collects the objects by namespace and name."""

    def __init__(self) -> None:
        self._found: dict[str, RuleObject] | None = None

    def listed(self) -> None:
        """Record that they were listed, even if there are none."""
        self._found = self._found or {}

    def forget(self) -> None:
        """Restore the state before they were listed."""
        self._found = None

    def fold(self, raw: msgspec.Raw) -> None:
        """Add one object. Raises BadInput for an object without a name, and msgspec.DecodeError."""
        body: Any = msgspec.json.decode(raw)
        found = read_object(body)
        if not found.name:
            raise BadInput("metadata.name", "; ".join(found.problems) or "is missing", "give the object a name")
        self.listed()
        self._found = {**(self._found or {}), found.key: found}

    def all(self) -> tuple[RuleObject, ...] | None:
        """Return the objects sorted by name; None if they were not read."""
        return None if self._found is None else tuple(self._found[key] for key in sorted(self._found))
