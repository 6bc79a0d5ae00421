"""spec.maxDisruption: the circuit breaker."""

from __future__ import annotations

import msgspec


class MaxDisruption(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The circuit breaker: upper limits for removals. 0 and 0.0: no limit. share: the largest part
    of the autoscaled nodes that one plan may remove; a plan that exceeds it removes nothing until
    an operator releases it."""

    nodes_per_hour: int = 0
    pods_per_hour: int = 0
    share: float = 0.0
