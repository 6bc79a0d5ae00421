"""The faults configured for a bench, and the calls that meet them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.providers.suite.provider_fixture import Trouble


@dataclass
class _Ordered:
    kind: Trouble
    on: str
    left: int


class Troubles:
    """Faults in the order of their configuration; the first that matches applies."""

    def __init__(self) -> None:
        self._ordered: list[_Ordered] = []

    def order(self, kind: Trouble, on: str, times: int) -> None:
        """See Bench.trouble."""
        self._ordered.append(_Ordered(kind, on, times))

    def clear(self) -> None:
        """See Bench.calm."""
        self._ordered.clear()

    def met(self, of: str) -> Trouble | None:
        """Returns the fault of this call and counts it. of: `read` or `write`."""
        for each in self._ordered:
            if each.on in ("any", of) and each.left != 0:
                each.left -= 1
                return each.kind
        return None
