"""Makes the plan of a recorded decision again, and compares it with the recorded one byte for byte."""

from __future__ import annotations

import msgspec

import chalicelib
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.replay.recorded_decision import DecisionHeader, RecordedDecision
from chalicelib.store.codec import encode


class ReplayedPlan(msgspec.Struct, frozen=True):
    """A plan that was made again. same: it has the bytes of the recorded one. parts: the parts of the plan that differ.
    why: what may explain the difference; empty where nothing does."""

    plan: Plan
    same: bool
    parts: tuple[str, ...] = ()
    why: str = ""


def replay(header: DecisionHeader, decision: RecordedDecision) -> ReplayedPlan:
    """Return the plan that this release makes from the recorded inputs. No time passes for it, so no time limit cuts
    its searches."""
    made, _ = plan_cluster(decision.snapshot, decision.policy, decision.memory, decision.now, decision.seed)
    plan = as_recorded(made, decision)
    if encode(plan) == encode(decision.plan):
        return ReplayedPlan(plan, same=True)
    before, after = msgspec.structs.asdict(decision.plan), msgspec.structs.asdict(plan)
    parts = tuple(name for name in before if encode(before[name]) != encode(after[name]))
    return ReplayedPlan(plan, same=False, parts=parts, why=_why(header, decision))


def with_policy(decision: RecordedDecision, snapshot: Snapshot, policy: Policy) -> Plan:
    """Return the plan that another policy makes from the recorded inputs. snapshot: the recorded one with that policy's
    bounds of groups."""
    return plan_cluster(snapshot, policy, decision.memory, decision.now, decision.seed)[0]


def as_recorded(plan: Plan, decision: RecordedDecision) -> Plan:
    """Return a plan as a pass records it: its operations have the token of the pass, or are not carried out."""
    operations = tuple(one.with_spec(token=decision.seed) for one in plan.operations) if decision.acted else ()
    return msgspec.structs.replace(plan, operations=operations)


def _why(header: DecisionHeader, decision: RecordedDecision) -> str:
    if header.release != chalicelib.__version__:
        return f"the plan was made by release {header.release}; this is release {chalicelib.__version__}"
    if any(note.code is ReasonCode.TIME_BUDGET for note in decision.plan.notes):
        return "a time limit ended a search of the recorded pass; no time passes in a replay"
    return "a time limit may have ended a search of the recorded pass; no time passes in a replay"
