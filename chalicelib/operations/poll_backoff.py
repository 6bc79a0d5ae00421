"""How long a step has been waiting, and when to look again, across invocations that know nothing of each other.

Two things make this more than a subtraction. The functions run on different machines, whose clocks may disagree; a
queue's delay, however, is never shorter than asked for. So what was asked for is added up, and the clock only decides
where it says much more than that: where messages came late. And waiting costs an invocation per look: the first looks
come soon, later ones the less often the longer it lasts.
"""

from __future__ import annotations

import msgspec

CLOCKS = 60.0
"""Seconds that two functions' clocks are trusted to agree within."""
LEAST = 1.0


class PollBackoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """One wait. since: when it began, epoch seconds, 0.0 before it has; asked: the pauses so far, in seconds."""

    since: float = 0.0
    asked: float = 0.0

    def elapsed(self, now: float) -> float:
        """Seconds it has lasted for sure."""
        return max(self.asked, now - self.since - CLOCKS) if self.since else 0.0

    def begun(self, now: float) -> PollBackoff:
        """The same wait, begun now if it had not."""
        return self if self.since else PollBackoff(now)

    def next(self, now: float, pause: float) -> PollBackoff:
        """With one more pause asked for."""
        begun = self.begun(now)
        return PollBackoff(begun.since, begun.asked + pause)

    def delay(self, now: float, *, first: float, most: float, limit: float) -> float:
        """Seconds until the next look: as long as it has lasted, from `first` to `most`, not beyond `limit` in all."""
        lasted = self.elapsed(now)
        return max(LEAST, min(max(first, min(lasted, most)), limit - lasted))
