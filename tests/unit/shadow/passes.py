"""A shadow cluster whose passes follow each other: what changed in between
is told as a new cluster.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Taint
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.foreign_growths import after_pass, with_others
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.shadow.comparison import (
    advance,
    answered,
    answered_early,
    open_question,
    worth_writing,
)
from chalicelib.shadow.cooldowns import NO_PLAN, with_cooldowns
from chalicelib.shadow.observed import Pass
from chalicelib.shadow.other_status import GroupStatus, OtherStatus
from chalicelib.shadow.rebuild import Rebuilt, rebuild
from chalicelib.shadow.records import Ledger, Match, ShadowVerdict
from chalicelib.store.codec import decode, encode
from tests.builders import NOW, ClusterBuilder

MINUTE = 60.0


class ShadowPasses:
    """ledger: the row after the last pass. writes: how often it had to be written."""

    def __init__(self, **options: Any) -> None:
        self.policy = Policy(
            name="test", mode=Mode.SHADOW, options=msgspec.structs.replace(Options(), **options)
        )
        self.ledger: Ledger | None = None
        self.memory = Memory()
        self.token = 0
        self.writes = 0

    def look(
        self,
        built: ClusterBuilder | Snapshot,
        minutes: float,
        status: OtherStatus | None = None,
        *,
        missing: bool = False,
    ) -> None:
        """Make the pass of that minute. missing: there is no status ConfigMap."""
        at = NOW + minutes * MINUTE
        snapshot = built if isinstance(built, Snapshot) else built.snapshot()
        snapshot = msgspec.structs.replace(snapshot, taken_at=at)
        self.token += 1
        loaded = with_others(self.memory, 0.0, MINUTE, at, act=False)
        before = with_cooldowns(
            self.ledger, Pass(snapshot, self.policy, loaded, NO_PLAN, status, missing=missing)
        )
        plan, after = plan_cluster(snapshot, self.policy, before, at, self.token)
        now = Pass(snapshot, self.policy, before, plan, status, self.token, missing)
        step = advance(self.ledger, now)
        ledger = step.ledger
        question = step.question or open_question(ledger)
        if question is not None:
            past = rebuild(snapshot, before, question, self.policy.options)
            answer = ask(past, self.policy, self.token)
            if question is step.question:
                ledger = answered(ledger, question, answer, past, now, ask)
            else:
                ledger = answered_early(ledger, answer, past, now, ask)
        # what is not written is lost: the next pass is another process
        if worth_writing(self.ledger, ledger):
            self.writes += 1
            self.ledger = decode(encode(ledger), Ledger)
        self.memory = after_pass(after, snapshot.groups, act=False)

    def act(self, built: ClusterBuilder, minutes: float) -> None:
        """Make the pass of that minute in mode active, which is not compared."""
        at = NOW + minutes * MINUTE
        snapshot = msgspec.structs.replace(built.snapshot(), taken_at=at)
        self.token += 1
        before = with_others(self.memory, 0.0, MINUTE, at, act=True)
        _, after = plan_cluster(snapshot, self.policy, before, at, self.token)
        self.memory = after_pass(after, snapshot.groups, act=True)

    @property
    def left_out(self) -> float:
        """Seconds that count nowhere."""
        return sum(day.dead for day in self.ledger.days.values()) if self.ledger else 0.0

    @property
    def matches(self) -> tuple[Match, ...]:
        return self.ledger.matches if self.ledger else ()

    @property
    def verdicts(self) -> list[ShadowVerdict]:
        return [match.verdict for match in self.matches]


def ask(rebuilt: Rebuilt, policy: Policy, seed: int) -> Plan:
    return plan_cluster(
        rebuilt.snapshot, policy, rebuilt.memory, rebuilt.snapshot.taken_at, seed, wait=False
    )[0]


def status(
    minutes: float, *growing: str, changed: float | None = None, candidates: int | None = None
) -> OtherStatus:
    """The status of that minute; these groups grow, or did so at `changed` (minutes)."""
    at = NOW + minutes * MINUTE
    word, since = ("InProgress", at) if changed is None else ("NoActivity", NOW + changed * MINUTE)
    return OtherStatus(
        at,
        GroupStatus("NoActivity"),
        {name: GroupStatus(word, since) for name in growing},
        candidates,
    )


def hard(minutes: float) -> Taint:
    return Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW + minutes * MINUTE)))


def soft(minutes: float) -> Taint:
    return Taint(DELETION_CANDIDATE, "PreferNoSchedule", str(int(NOW + minutes * MINUTE)))
