"""The facts of one pass that the events of the pass are made from."""

from __future__ import annotations

import msgspec

from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.policy import Options
from chalicelib.model.snapshot import Snapshot


class PassFacts(msgspec.Struct, frozen=True):
    """One pass. marks: taints outside of operations that were written (handlers/marking.py)."""

    plan: Plan
    snapshot: Snapshot
    options: Options = Options()
    marks: tuple[TaintUpdate, ...] = ()
