"""Computes how long a step has been waiting and when to poll again, across invocations that share no state.

This is more than a subtraction for two reasons. The functions run on different machines, whose clocks may differ, while
a queue's delay is never shorter than requested. The requested pauses are therefore added up, and the clock counts only
where it says much more than that, which means that messages were late. Also, every poll costs an invocation, so the
first polls come soon and later ones less and less often.
"""

from __future__ import annotations

import msgspec

CLOCKS = 60.0
"""Maximum assumed clock difference of two functions, in seconds."""
LEAST = 1.0


class PollBackoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """One wait. since: when it began, epoch seconds, 0.0 before it has; asked: the sum of the requested pauses, in
    seconds."""

    since: float = 0.0
    asked: float = 0.0

    def elapsed(self, now: float) -> float:
        """Return the seconds that have certainly passed."""
        return max(self.asked, now - self.since - CLOCKS) if self.since else 0.0

    def begun(self, now: float) -> PollBackoff:
        """Return the same wait, started now if it had not started."""
        return self if self.since else PollBackoff(now)

    def next(self, now: float, pause: float) -> PollBackoff:
        """Return the wait with one more requested pause."""
        begun = self.begun(now)
        return PollBackoff(begun.since, begun.asked + pause)

    def delay(self, now: float, *, first: float, most: float, limit: float) -> float:
        """Return the seconds until the next poll: as long as the wait has lasted, from `first` to `most`, not beyond
        `limit` in all."""
        lasted = self.elapsed(now)
        return max(LEAST, min(max(first, min(lasted, most)), limit - lasted))
