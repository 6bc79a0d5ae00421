"""Computes scan slots within the tick's minute, and which messages request nothing new.

EventBridge ticks once a minute; a scanInterval of 20 s is three messages, two of them delayed:

    tick                          tick                          tick
    ├─────────┬─────────┬─────────┼─────────┬─────────┬─────────┼──
    0         20        40        60        80        100       120     slots; last + interval, so that ticks that come
                                                                        a little early or late do not shift them
Pure arithmetic: instants in epoch seconds in, instants out.
"""

from __future__ import annotations

import math

#: Seconds from one tick to the next.
MINUTE = 60.0

#: A slot this close to a tick belongs to that tick, not to the one before: it would be unclear whether its pass had
#: begun.
MARGIN = 5.0


def scan_slots(last_pass: float, interval: float, now: float) -> tuple[float, ...]:
    """Return the instants at which passes are due from now until shortly before the next tick, none in the past.

    last_pass: 0.0 for a cluster without a pass. A cluster that fell behind is due at once, and only once: missed passes
    are not made up for.
    """
    first = max(now, last_pass + interval)
    if first < now + MARGIN:
        first = now
    end = now + MINUTE - MARGIN
    count = max(0, math.ceil((end - first) / interval))
    return tuple(first + index * interval for index in range(count))


def is_superseded(at: float, last_pass: float, interval: float) -> bool:
    """Return whether a scheduled message meant for `at` requests nothing new: a pass began then or later, or just
    before.

    This makes repeated, late and accumulated messages cheap: the first one is a pass, each other one is a single read.
    For scheduled messages only; a wake-up reports a change that an earlier pass may not have seen.
    """
    return last_pass > at - min(interval / 2, MARGIN)
