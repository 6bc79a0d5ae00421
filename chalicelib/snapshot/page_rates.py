"""Decides whether the pages of a cluster's lists are compressed, by how fast both forms arrive.

Compressed pages are an eighth as large and cost the server time. Over a wide area they are faster, and cheaper, because
clouds charge for outgoing traffic. In one network the server's compression may be what takes longest. One small page of
each long list has the other form, so that both are known.
"""

from __future__ import annotations

FASTER = 1.5
"""Times as fast as compressed pages at which plain ones are read."""
PROBE = 150
"""Objects of the page that has the other form."""
_LEAST = 100_000  # bytes of a page that is measured
_KEPT = 0.5  # share of the earlier rate in a new one


class PageRates:
    """The rates of one cluster, in uncompressed bytes per second. local: whether its address is private; plain pages of
    others would cost traffic."""

    def __init__(self, *, local: bool) -> None:
        self._local = local
        self._rates: dict[bool, float] = {}

    @property
    def compressed(self) -> bool:
        """Return whether pages are to be compressed."""
        plain, packed = self._rates.get(False), self._rates.get(True)
        return not self._local or plain is None or packed is None or plain < FASTER * packed

    @property
    def measures(self) -> bool:
        """Return whether a page of the other form is of use."""
        return self._local

    def note(self, *, compressed: bool, size: int, seconds: float) -> None:
        """Record a page. size: bytes, uncompressed. seconds: from the first byte of its body to the last one."""
        if size < _LEAST or seconds <= 0.0:
            return
        rate = size / seconds
        known = self._rates.get(compressed, rate)
        self._rates[compressed] = _KEPT * known + (1.0 - _KEPT) * rate
