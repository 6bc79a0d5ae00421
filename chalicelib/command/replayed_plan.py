"""Makes the plan of a recorded decision again, as it was recorded or with another policy.

The plan is compared with the recorded one byte for byte.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

import chalicelib
from chalicelib.command.output import warn
from chalicelib.command.plan_inputs import PlanInputs, with_bounds
from chalicelib.command.policy_files import load_document, read_document
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
    plan, _ = plan_cluster(decision.snapshot, decision.policy, decision.memory, decision.now, decision.seed)
    # A pass records operations with its token, or none where they are not carried out.
    operations = tuple(op.with_spec(token=decision.seed) for op in plan.operations) if decision.acted else ()
    plan = msgspec.structs.replace(plan, operations=operations)
    if encode(plan) == encode(decision.plan):
        return ReplayedPlan(plan, same=True)
    recorded, replayed = msgspec.structs.asdict(decision.plan), msgspec.structs.asdict(plan)
    parts = tuple(name for name in recorded if encode(recorded[name]) != encode(replayed[name]))
    why = "a time limit may have ended a search of the recorded pass; no time passes in a replay"
    if header.release != chalicelib.__version__:
        why = f"the plan was made by release {header.release}; this is release {chalicelib.__version__}"
    elif any(note.code is ReasonCode.TIME_BUDGET for note in decision.plan.notes):
        why = "a time limit ended a search of the recorded pass; no time passes in a replay"
    return ReplayedPlan(plan, same=False, parts=parts, why=why)


def inputs_of(decision: RecordedDecision) -> PlanInputs:
    """Return the inputs of a recorded plan as those of a plan that is made now."""
    return PlanInputs(
        decision.snapshot, decision.policy, decision.memory, decision.now, decision.seed, None, (), read=0.0
    )


class OtherPolicy:
    """A policy from a file. Each warning is printed once, however many decisions there are."""

    def __init__(self, policy: Policy, place: str) -> None:
        self._policy, self._place = policy, place
        self._warned: set[str] = set()

    def plan(self, decision: RecordedDecision) -> tuple[Policy, Plan]:
        """Return the policy under the cluster's name and with the pauses of that time, and the plan that it makes from
        the recorded inputs with its bounds of groups. Raises BadInput for bounds that contradict those of a group."""
        recorded = decision.policy
        policy = msgspec.structs.replace(
            self._policy, name=recorded.name, version=recorded.version, pauses=recorded.pauses
        )
        snapshot: Snapshot = with_bounds(decision.snapshot, policy.node_groups, place=self._place, warn=self._warn)
        return policy, plan_cluster(snapshot, policy, decision.memory, decision.now, decision.seed)[0]

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def read_policy(file: Path) -> OtherPolicy:
    """Return the policy of a file. Raises InputErrors, OSError."""
    policy, warnings = load_document(read_document(str(file)), str(file))
    for text in warnings:
        warn(text)
    return OtherPolicy(policy, str(file))


def same_prices(recorded_policy: Policy, other_policy: Policy) -> tuple[Policy, Policy]:
    """Return both policies with the same prices, so that their costs can be compared: the other policy's, if it has
    any."""
    prices = other_policy.prices if other_policy.prices is not None else recorded_policy.prices
    return msgspec.structs.replace(recorded_policy, prices=prices), msgspec.structs.replace(other_policy, prices=prices)
