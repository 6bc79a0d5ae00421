"""A virtual-time world in which functions crash at random checkpoints and messages are delivered twice, determined by a
seed.

Random numbers are drawn in the order of events, which depends only on them and on the program. A seed therefore always
gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from infra.demo.drains.drain_fixture import CLUSTER, PACE
from infra.emulators.invocation import Invocation
from infra.emulators.kube.objects import clone
from infra.emulators.lambda_events import Json
from infra.emulators.local_world import LocalWorld
from infra.emulators.virtual_sqs import Message

DEADLY = 0.05
"""The probability of a crash at a checkpoint: after an action and before its record, or after a write and before its
message."""
TWICE = 0.15
"""The probability that a message is delivered twice, the second time up to LATE seconds after the first."""
LATE = 40.0
GRAIN = 10.0


class RoughWorld(LocalWorld):
    """rough: whether faults are active. seen: called whenever something may have happened. twice: messages delivered
    twice. longest: virtual seconds of the longest invocation."""

    def __init__(self, dice: Random) -> None:
        self._dice, self.rough = dice, False
        self.seen: Callable[[], None] = lambda: None
        self.told: Callable[[Invocation], None] = lambda _: None
        self.twice = 0
        self.longest = 0.0
        super().__init__(quick=True, name=CLUSTER, pace=PACE, grain=GRAIN)
        self.queues.tamper = self._tamper

    def settle(self) -> None:
        """See LocalWorld."""
        super().settle()
        self.seen()

    def invoke(self, function: str, event: Json) -> Invocation:
        """See LocalWorld."""
        began = self.clock()
        made = super().invoke(function, event)
        self.longest = max(self.longest, self.clock() - began)
        self.told(made)
        return made

    def scale(self, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment."""
        found = self.kube.get("deployments", name, "default", "apps")
        if found is None:
            raise KeyError(name)
        self.kube.update("deployments", {**clone(found), "spec": {**found["spec"], "replicas": replicas}}, "apps")
        self.settle()

    def _dies_at(self, place: str) -> bool:
        del place
        return self.rough and self._dice.random() < DEADLY

    def _tamper(self, message: Message) -> Sequence[Message]:
        if not self.rough or self._dice.random() >= TWICE:
            return (message,)
        self.twice += 1
        again = message.visible_at + round(self._dice.random() * LATE)
        return message, msgspec.structs.replace(message, visible_at=again)
