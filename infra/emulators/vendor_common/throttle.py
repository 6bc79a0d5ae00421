"""The rate limits of an emulated vendor: a number of calls per sliding window."""

from __future__ import annotations

import math
from collections.abc import Callable

from infra.emulators.vendor_common.errors import VendorRefusal


class VendorThrottle:
    """Limits calls per window and name: of an action or of a source. limits: name -> (calls, seconds), "" for all
    others. tells: whether the response says when to retry. wait: seconds -> the value that the response says."""

    def __init__(
        self,
        clock: Callable[[], float],
        refusal: VendorRefusal,
        *,
        tells: bool = True,
        wait: Callable[[float], int] = math.ceil,
    ) -> None:
        self._clock, self._refusal, self._wait = clock, refusal, wait
        self.limits, self.tells = dict[str, tuple[int, float]](), tells
        self._calls: dict[str, list[float]] = {}

    def count(self, name: str) -> None:
        """Count one call. Raises VendorRefusedError if the limit is exceeded; a refused call is not counted."""
        limit = self.limits.get(name, self.limits.get(""))
        if limit is None:
            return
        most, window = limit
        now = self._clock()
        recent = [at for at in self._calls.get(name, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, self._wait(recent[-most] + window - now))
            raise self._refusal.error(retry_after=wait if self.tells else None)
        self._calls[name] = [*recent, now]
