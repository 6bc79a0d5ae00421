"""A disruption of nodes, as one of the methods in plan/removal proposes it: the nodes that go,
what is bought for their pods before they do, and why."""

from __future__ import annotations

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.plan import Removal, ScaleUp


class DisruptionCommand(msgspec.Struct, frozen=True):
    """Nodes that go together. candidates: in the order of removal. replacements: what is bought
    first; the operation of a candidate names their operations in OperationSpec.after. Empty: the
    pods fit on nodes that exist."""

    reason: DisruptionReason
    candidates: tuple[Removal, ...]
    replacements: tuple[ScaleUp, ...] = ()
