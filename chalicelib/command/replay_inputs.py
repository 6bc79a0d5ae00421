"""The inputs of replayed plans: the recorded ones, and those that another policy would have had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib.command.output import warn
from chalicelib.command.plan_inputs import PlanInputs, with_bounds
from chalicelib.command.policy_files import load_document, read_document
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot

if TYPE_CHECKING:
    from chalicelib.replay.recorded_decision import RecordedDecision


class OtherPolicy:
    """A policy from a file. Each warning is printed once, however many decisions there are."""

    def __init__(self, policy: Policy, place: str) -> None:
        self._policy, self._place = policy, place
        self._warned: set[str] = set()

    def of(self, decision: RecordedDecision) -> tuple[Snapshot, Policy]:
        """Return the recorded state with this policy's bounds, and the policy under the cluster's name and with the
        pauses of that time. Raises BadInput for bounds that contradict those of a group."""
        recorded = decision.policy
        policy = msgspec.structs.replace(
            self._policy, name=recorded.name, version=recorded.version, pauses=recorded.pauses
        )
        return with_bounds(decision.snapshot, policy.node_groups, place=self._place, warn=self._warn), policy

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def inputs_of(decision: RecordedDecision) -> PlanInputs:
    """Return the inputs of a recorded plan as those of a plan that is made now."""
    return PlanInputs(
        decision.snapshot, decision.policy, decision.memory, decision.now, decision.seed, None, (), read=0.0
    )


def same_prices(recorded_policy: Policy, other_policy: Policy) -> tuple[Policy, Policy]:
    """Return both policies with the same prices, so that their costs can be compared: the other policy's, if it has
    any."""
    prices = other_policy.prices if other_policy.prices is not None else recorded_policy.prices
    return msgspec.structs.replace(recorded_policy, prices=prices), msgspec.structs.replace(other_policy, prices=prices)


def read_policy(file: Path) -> OtherPolicy:
    """Return the policy of a file. Raises InputErrors, OSError."""
    policy, warnings = load_document(read_document(str(file)), str(file))
    for text in warnings:
        warn(text)
    return OtherPolicy(policy, str(file))
