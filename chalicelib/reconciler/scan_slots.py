"""When a cluster is looked at: slots inside the tick's minute, and which messages have nothing left to ask for.

EventBridge ticks once a minute; a scanInterval of 20 s is three messages, two of them delayed:

    tick                          tick                          tick
    ├─────────┬─────────┬─────────┼─────────┬─────────┬─────────┼──
    0         20        40        60        80        100       120     slots; last + interval, so that ticks that come
                                                                        a little early or late do not shift them
Pure arithmetic: instants in epoch seconds in, instants out.
"""

from __future__ import annotations

import math

#: From one tick to the next.
MINUTE = 60.0

#: A slot this close to a tick is that tick's, not the one's before: whether its pass had begun could not be told.
MARGIN = 5.0


def scan_slots(last_pass: float, interval: float, now: float) -> tuple[float, ...]:
    """The instants at which passes are due from now until shortly before the next tick, none in the past.

    last_pass: 0.0 for a cluster that was never looked at. A cluster that fell behind is due at once, and only once:
    what was missed is not made up for.
    """
    first = max(now, last_pass + interval)
    if first < now + MARGIN:
        first = now
    end = now + MINUTE - MARGIN
    count = max(0, math.ceil((end - first) / interval))
    return tuple(first + index * interval for index in range(count))


def is_superseded(at: float, last_pass: float, interval: float) -> bool:
    """Whether a scheduled message meant for `at` asks for nothing new: a pass began then or later, or just before.

    This is what makes repeated, late and piled-up messages cheap: the first one is a pass, the others are one read.
    For scheduled messages only; a wake-up knows of something that an earlier pass may not have seen.
    """
    return last_pass > at - min(interval / 2, MARGIN)
